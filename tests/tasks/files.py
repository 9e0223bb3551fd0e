"""Tiny data sets in the formats of the published ones."""

import gzip
import struct

import numpy as np


def images(rng, num, height, width, channels):
    """Grey noise with one bright row that tells the label: bytes [num, height, width, channels], labels [num]."""
    labels = np.arange(num) % 10
    pixels = rng.integers(100, 140, (num, height, width, channels), np.uint8)
    pixels[np.arange(num), 2 * labels] = 230
    return pixels, labels.astype(np.uint8)


def write_cifar10(folder, num=8):
    """Five files of `num` training images and one of `num` test images; returns (pixels, labels) by file name."""
    rng, written = np.random.default_rng(0), {}
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        pixels, labels = images(rng, num, 32, 32, 3)
        records = [bytes([y]) + x[..., 0].tobytes() + x[..., 1].tobytes() + x[..., 2].tobytes()
                   for x, y in zip(pixels, labels, strict=True)]  # fmt: skip
        (folder / name).write_bytes(b"".join(records))
        written[name] = (pixels, labels)
    return written


def idx(array):
    """An array of bytes in the idx format."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, num=40, compressed=True):
    """Training and test images, `num` of each; returns (pixels, labels) of both."""
    rng, written = np.random.default_rng(0), []
    for part in ("train", "t10k"):
        pixels, labels = images(rng, num, 28, 28, 1)
        for name, array in ((f"{part}-images-idx3-ubyte", pixels[..., 0]), (f"{part}-labels-idx1-ubyte", labels)):
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
        written.append((pixels, labels))
    return written
