"""CIFAR-10 from a local folder (Krizhevsky 2009).

The binary version has six files of records of 3073 bytes: a label, then 32×32 pixels of red, of green and of
blue, each row by row. Letters: N data chunks, B examples of a batch.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gcjax.tasks.augmentation import crop_and_flip
from gcjax.tasks.base import Task
from gcjax.tasks.classification import NUM_CLASSES, Images, Scale, image_task, shuffled_images
from gcjax.tasks.files import Source, contents
from gcjax.tasks.models import network

_PYTHON_VERSION_HINT = "The Python version is there, but is never read: opening it would run what is written in it."
_RECORD_BYTES = 1 + 3 * 32 * 32

_SOURCE = Source(
    title="CIFAR-10",
    formats="They are those of the binary version of CIFAR-10 (the folder cifar-10-batches-bin).",
    md5={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    subfolders=("cifar-10-batches-bin",),
    hints={
        "data_batch_1": _PYTHON_VERSION_HINT,
        "cifar-10-batches-py": _PYTHON_VERSION_HINT,
        "cifar-10-python.tar.gz": _PYTHON_VERSION_HINT,
        "cifar-10-binary.tar.gz": "The archive cifar-10-binary.tar.gz is there: unpack it.",
    },
)

# Over the 50,000 training images.
_SCALE = Scale(mean=(125.3, 123.0, 113.9), deviation=(63.0, 62.1, 66.7))


def cifar10(
    num_chunks: int,
    *,
    folder: str | Path,
    model: str = "resnet20",
    hidden: tuple[int, ...] | None = None,
    dropout: float = 0.0,
    width: int | None = None,
    augment: bool = True,
    batch_size: int | None = 128,
    local_data: bool = False,
    num_evaluated: int | None = 10_000,
    checksums: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Task:
    """CIFAR-10, 60,000 images of 32×32 pixels in ten classes, from a local folder (Krizhevsky 2009).

    The images stay bytes on the device; the program standardises them by the mean and deviation of each
    channel. Metrics: `train_loss` over the training images, without augmentation, `test_loss` and `accuracy`
    over the test images.

    Args:
      num_chunks: N.
      folder: with the six files of the binary version, or with a folder cifar-10-batches-bin of them. May be
        relative to the working directory, or start with `~`.
      model: "resnet20", "lrn_cnn" (the network of the experiments with WBSP), "cnn" or "mlp"; see
        `gcjax.tasks.models`.
      hidden: the widths of the hidden layers of "mlp" and "cnn"; by default one of 128.
      dropout: of "mlp" and "cnn", the probability of dropping a hidden activation in training.
      width: channels of the (first) convolution of "lrn_cnn" (64) and "resnet20" (16).
      augment: whether images are moved by up to four pixels and mirrored at random in training, decided by the
        key of the batch.
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      num_evaluated: the metrics use so many training and so many test images; None uses all.
      checksums: file name -> MD5 digest, in place of the published ones; a file without one is not verified.
      seed: of the order of the training images, and so of the chunks.

    Raises:
      ValueError: if a file is missing or damaged, the model is unknown or has no such option, there are more
        chunks than training images, or another value is out of its range.
    """
    return image_task(
        num_chunks,
        network(model, hidden=hidden, dropout=dropout, width=width),
        shuffled_images(_images(contents(_SOURCE, folder, checksums)), seed),
        scale=_SCALE,
        augmentation=crop_and_flip if augment else None,
        batch_size=batch_size,
        local_data=local_data,
        num_evaluated=num_evaluated,
    )


def _images(files: Mapping[str, bytes]) -> Images:
    """The training and test images of the data set's files, name -> bytes."""
    records = {name: _records(name, file_bytes) for name, file_bytes in files.items()}
    test_records = records.pop("test_batch.bin")
    return Images(_pixels_and_labels(np.concatenate(list(records.values()))), _pixels_and_labels(test_records))


def _records(name: str, file_bytes: bytes) -> np.ndarray:
    """The records uint8[n, 3073] of a file, a label and the pixels each; a `ValueError` for other bytes."""
    if len(file_bytes) % _RECORD_BYTES or not file_bytes:
        raise ValueError(
            f"{name} must be one or more records of {_RECORD_BYTES} bytes each; got {len(file_bytes):,} bytes."
        )
    records = np.frombuffer(file_bytes, np.uint8).reshape(-1, _RECORD_BYTES)
    if (largest_label := records[:, 0].max()) >= NUM_CLASSES:
        record_number = int(records[:, 0].argmax())
        raise ValueError(
            f"A label of {name} must be at most {NUM_CLASSES - 1}; got {largest_label} in record {record_number}."
        )
    return records


def _pixels_and_labels(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint8[n, 32, 32, 3], int32[n]) from records uint8[n, 3073]: a label, then the pixels of each channel."""
    channels_first = records[:, 1:].reshape(-1, 3, 32, 32)
    pixels = channels_first.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, 0].astype(np.int32)
