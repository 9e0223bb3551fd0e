"""Handwritten digits that come with scikit-learn, for which nothing must be downloaded."""

import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_seed
from gcjax.tasks.base import Task
from gcjax.tasks.classification import Images, image_task
from gcjax.tasks.models import network


def digits(
    num_chunks: int,
    *,
    model: str = "mlp",
    hidden: tuple[int, ...] | None = None,
    dropout: float = 0.0,
    width: int | None = None,
    batch_size: int | None = 32,
    local_data: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Task:
    """Handwritten digits, 1797 images of 8×8 pixels that come with scikit-learn (Alpaydin and Kaynak 1998).

    The pixels are standardised by their mean and deviation over the training images. Metrics:
    `train_loss` over all training images, `test_loss` and `accuracy` over the test images.

    Args:
      num_chunks: N.
      model: "mlp", "cnn" (two convolutions, then the hidden layers), "lrn_cnn" or "resnet20"; see
        `gcjax.tasks.models`.
      hidden: the widths of the hidden layers of "mlp" and "cnn"; by default one of 128.
      dropout: of "mlp" and "cnn", the probability of dropping a hidden activation in training.
      width: channels of the (first) convolution of "lrn_cnn" (64) and "resnet20" (16).
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      test_fraction: the share of images that is held out, one image at least.
      seed: of the split into training and test images, and into chunks.

    Raises:
      ValueError: if the model is unknown or has no such option, there are more chunks than training images,
        or another value is out of its range.
    """
    return image_task(
        num_chunks,
        network(model, hidden=hidden, dropout=dropout, width=width),
        _digit_images(_validate.single_number("test_fraction", test_fraction, above=True, maximum=0.9), seed),
        batch_size=batch_size,
        local_data=local_data,
    )


def _digit_images(test_fraction: float, seed: int) -> Images:
    """The images of scikit-learn, [n, 8, 8, 1], shuffled and standardised, the first of them held out."""
    from sklearn.datasets import load_digits  # takes a second

    dataset = load_digits()
    shuffled_order = generator_of_seed(seed).permutation(len(dataset.target))
    # One channel: [n, 8, 8, 1], from [n, 8, 8].
    inputs, targets = dataset.images[shuffled_order][..., None], dataset.target[shuffled_order].astype(np.int32)
    num_test = max(1, round(test_fraction * len(targets)))
    train_inputs = inputs[num_test:]
    inputs = (inputs - train_inputs.mean()) / train_inputs.std()
    return Images((inputs[num_test:], targets[num_test:]), (inputs[:num_test], targets[:num_test]))
