"""MNIST and Fashion-MNIST in the idx format."""

import gzip

import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import tasks
from tests.tasks.files import idx, write_mnist

BOTH = pytest.mark.parametrize("factory", [tasks.mnist, tasks.fashion_mnist])


@BOTH
@pytest.mark.parametrize("compressed", [True, False])
def test_images_and_labels_are_those_of_the_files(tmp_path, factory, compressed):
    train, test = write_mnist(tmp_path, 12, compressed)
    data = factory(5, folder=tmp_path, checksums={}).data
    np.testing.assert_array_equal(data.reference[0], test[0])
    np.testing.assert_array_equal(data.reference[1], test[1])
    images, targets = np.asarray(data.train.inputs)[:12], np.asarray(data.train.targets)[:12]
    expected = {(x.tobytes(), int(y)) for x, y in zip(*train, strict=True)}
    assert {(x.tobytes(), int(y)) for x, y in zip(images, targets, strict=True)} == expected
    assert images.dtype == np.uint8 and data.reference[0].dtype == jnp.uint8


@pytest.mark.parametrize(
    ("factory", "title", "digest"),
    [
        (tasks.mnist, "MNIST", "6bbc9ace898e44ae57da46a324031adb"),
        (tasks.fashion_mnist, "Fashion-MNIST", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    ],
)
def test_other_files_than_the_published_ones_are_refused(tmp_path, factory, title, digest):
    write_mnist(tmp_path)
    message = f"train-images-idx3-ubyte.gz is damaged, or another version of {title}: .* must be {digest}; got"
    with pytest.raises(ValueError, match=message):
        factory(4, folder=tmp_path)
    with pytest.raises(
        ValueError, match=f"^{title} needs the files train-images-idx3-ubyte, .*idx files, as published"
    ):
        factory(4, folder=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("train-images-idx3", lambda raw: b"\0" + raw, "train-images.* must start with .*; got 00 00 00 08"),
        ("train-images-idx3", lambda raw: b"", "must start with the bytes 00 00 08 03; got nothing"),
        ("train-images-idx3", lambda raw: raw[:9], "train-images.* must hold .* after its header; got"),
        ("t10k-images-idx3", lambda raw: raw[:-1], r"must hold 6 \* 28 \* 28 bytes .* after its header; got 4,703"),
        ("t10k-labels-idx1", lambda raw: raw + b"\0", "t10k-labels.* must hold 6 bytes .*; got 7"),
        ("t10k-labels-idx1", lambda raw: raw[:-1] + b"\x0a", "label of t10k-labels.* at most 9; got 10 for image 5"),
        ("t10k-labels-idx1", lambda raw: idx(np.zeros(5, np.uint8)), "one label an image; got 6 images and 5 labels"),
        ("t10k-images-idx3", lambda raw: idx(np.zeros((6, 9, 9), np.uint8)), r"got \(28, 28\) and \(9, 9\)"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(tmp_path, name, harm, message):
    write_mnist(tmp_path, 6)
    path = tmp_path / f"{name}-ubyte.gz"
    path.write_bytes(gzip.compress(harm(gzip.decompress(path.read_bytes()))))
    with pytest.raises(ValueError, match=message):
        tasks.mnist(2, folder=tmp_path, checksums={})
