"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao, Rasul, Vollgraf 2017) from a local folder.

Both have four idx files: two zero bytes, the type (8: bytes), the number of axes, the length of each axis as a
big-endian int32, then the entries. Letters: N data chunks, B examples of a batch.
"""

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gcjax.tasks.base import Task
from gcjax.tasks.classification import NUM_CLASSES, Images, Scale, image_task, shuffled_images
from gcjax.tasks.files import Source, contents
from gcjax.tasks.models import network

_idx_source = functools.partial(
    Source, formats="They are idx files, as published (with .gz at the end of the name) or decompressed."
)

_MNIST = _idx_source(
    title="MNIST",
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)

_FASHION_MNIST = _idx_source(
    title="Fashion-MNIST",
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)


def mnist(
    num_chunks: int,
    *,
    folder: str | Path,
    model: str = "cnn",
    hidden: tuple[int, ...] | None = None,
    dropout: float = 0.0,
    width: int | None = None,
    batch_size: int | None = 128,
    local_data: bool = False,
    num_evaluated: int | None = 10_000,
    checksums: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Task:
    """MNIST, 70,000 handwritten digits of 28×28 pixels, from a local folder (LeCun et al. 1998).

    The images stay bytes on the device; the program standardises them by their mean and deviation. Metrics:
    `train_loss` over the training images, `test_loss` and `accuracy` over the test images.

    Args:
      num_chunks: N.
      folder: with the four files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
        t10k-labels-idx1-ubyte, each also with .gz. May be relative to the working directory, or start with `~`.
      model: "cnn" (two convolutions, then the hidden layers), "mlp", "lrn_cnn" or "resnet20"; see
        `gcjax.tasks.models`.
      hidden: the widths of the hidden layers of "mlp" and "cnn"; by default one of 128.
      dropout: of "mlp" and "cnn", the probability of dropping a hidden activation in training.
      width: channels of the (first) convolution of "lrn_cnn" (64) and "resnet20" (16).
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      num_evaluated: the metrics use so many training and so many test images; None uses all.
      checksums: file name (without .gz) -> MD5 digest of the decompressed file, in place of the published ones;
        a file without one is not verified.
      seed: of the order of the training images, and so of the chunks.

    Raises:
      ValueError: if a file is missing or damaged, the model is unknown or has no such option, there are more
        chunks than training images, or another value is out of its range.
    """
    return image_task(
        num_chunks,
        network(model, hidden=hidden, dropout=dropout, width=width),
        shuffled_images(_images(contents(_MNIST, folder, checksums)), seed),
        scale=Scale(mean=(33.3,), deviation=(78.6,)),
        batch_size=batch_size,
        local_data=local_data,
        num_evaluated=num_evaluated,
    )


def fashion_mnist(
    num_chunks: int,
    *,
    folder: str | Path,
    model: str = "cnn",
    hidden: tuple[int, ...] | None = None,
    dropout: float = 0.0,
    width: int | None = None,
    batch_size: int | None = 128,
    local_data: bool = False,
    num_evaluated: int | None = 10_000,
    checksums: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Task:
    """Fashion-MNIST, 70,000 images of clothes of 28×28 pixels, from a local folder (Xiao et al. 2017).

    The files have the names and the format of MNIST; arguments, metrics and errors are those of `mnist`.
    """
    return image_task(
        num_chunks,
        network(model, hidden=hidden, dropout=dropout, width=width),
        shuffled_images(_images(contents(_FASHION_MNIST, folder, checksums)), seed),
        scale=Scale(mean=(72.9,), deviation=(90.0,)),
        batch_size=batch_size,
        local_data=local_data,
        num_evaluated=num_evaluated,
    )


def _images(files: Mapping[str, bytes]) -> Images:
    """The training and test images of the data set's files, name -> bytes."""
    train, test = (_images_and_labels(files, prefix) for prefix in ("train", "t10k"))
    if train[0].shape[1:] != test[0].shape[1:]:
        shapes = f"{train[0].shape[1:3]} and {test[0].shape[1:3]}"
        raise ValueError(f"Training and test images must have the same height and width; got {shapes}.")
    return Images(train, test)


def _images_and_labels(files: Mapping[str, bytes], prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8[n, height, width, 1] and labels int32[n] of the files whose names begin with `prefix`."""
    image_file, label_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    images, labels = _idx_array(image_file, files[image_file], 3), _idx_array(label_file, files[label_file], 1)
    if len(images) != len(labels):
        raise ValueError(
            f"{image_file} and {label_file} must have one label an image; got {len(images)} images and "
            f"{len(labels)} labels."
        )
    if (largest_label := labels.max()) >= NUM_CLASSES:
        row = int(labels.argmax())
        raise ValueError(
            f"A label of {label_file} must be at most {NUM_CLASSES - 1}; got {largest_label} for image {row}."
        )
    return images[..., None], labels.astype(np.int32)  # one channel


def _idx_array(name: str, file_bytes: bytes, num_axes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The array uint8[...] in an idx file: a header with the lengths of the axes, then the entries."""
    first_bytes = bytes([0, 0, 8, num_axes])  # 8: the entries are bytes
    if file_bytes[:4] != first_bytes:
        raise ValueError(
            f"{name} must start with the bytes {first_bytes.hex(' ')}; got {file_bytes[:4].hex(' ') or 'nothing'}."
        )
    header_bytes = 4 + 4 * num_axes
    shape = tuple(int.from_bytes(file_bytes[i : i + 4], "big") for i in range(4, header_bytes, 4))
    if len(file_bytes) - header_bytes != math.prod(shape) or 0 in shape:
        size = " * ".join(map(str, shape))
        raise ValueError(
            f"{name} must hold {size} bytes (at least 1) after its header; got {len(file_bytes) - header_bytes:,}."
        )
    return np.frombuffer(file_bytes, np.uint8, offset=header_bytes).reshape(shape)
