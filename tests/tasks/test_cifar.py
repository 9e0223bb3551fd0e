"""CIFAR-10 in its binary version."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import tasks
from tests.tasks.files import write_cifar10

KEY = jax.random.key(3)


def cifar10(folder, num_chunks=4, **arguments):
    small = {"model": "mlp", "hidden": (4,), "batch_size": 16}
    return tasks.cifar10(num_chunks, folder=folder, **({"checksums": {}} | small | arguments))


def test_images_and_labels_are_those_of_the_files(tmp_path):
    written = write_cifar10(tmp_path)
    data = cifar10(tmp_path).data
    pixels, labels = written.pop("test_batch.bin")
    np.testing.assert_array_equal(data.reference[0], pixels)
    np.testing.assert_array_equal(data.reference[1], labels)
    expected = {(x.tobytes(), int(y)) for one in written.values() for x, y in zip(*one, strict=True)}
    images, targets = np.asarray(data.train.inputs), np.asarray(data.train.targets)
    assert {(x.tobytes(), int(y)) for x, y in zip(images, targets, strict=True)} == expected
    assert len(images) == len(expected) == 40
    assert images.dtype == np.uint8 and data.reference[0].dtype == jnp.uint8 and targets.dtype == np.int32


def test_the_files_may_lie_in_the_folder_of_the_archive(tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    assert cifar10(tmp_path).data.train.sizes.sum() == 40


def test_all_holders_of_a_chunk_see_the_same_changed_images(tmp_path):
    write_cifar10(tmp_path)
    changed, plain = cifar10(tmp_path, augment=True), cifar10(tmp_path, augment=False)
    chunks, rounds = jnp.array([2, 0, 2, 2, 1]), jnp.array([5, 5, 5, 4, 5])
    images = np.asarray(
        jax.jit(jax.vmap(changed.chunk_batch, (None, None, 0, 0)))(changed.data, KEY, chunks, rounds)[0]
    )
    alone = jax.jit(changed.chunk_batch)(changed.data, KEY, 2, 5)
    np.testing.assert_array_equal(images[0], images[2])
    np.testing.assert_array_equal(images[0], alone.inputs)
    assert images.dtype == np.uint8 and all((images[0] != images[i]).any() for i in (1, 3, 4))
    before = jax.jit(plain.chunk_batch)(plain.data, KEY, 2, 5)
    np.testing.assert_array_equal(before.targets, alone.targets)
    assert np.mean((np.asarray(before.inputs) != images[0]).any(axis=(1, 2, 3))) > 0.8


def test_a_unit_is_changed_by_worker_and_unit_only(tmp_path):
    write_cifar10(tmp_path)
    task, local = cifar10(tmp_path), cifar10(tmp_path, local_data=True, batch_size=None)
    unit, local_unit, chunk = (jax.jit(draw) for draw in (task.unit_batch, local.unit_batch, local.chunk_batch))
    first = np.asarray(unit(task.data, KEY, 1, 7).inputs)
    np.testing.assert_array_equal(
        first, jax.vmap(unit, (None, None, 0, 0))(task.data, KEY, *np.array([[0, 1], [7, 7]]))[0][1]
    )
    assert (unit(task.data, KEY, 2, 7).inputs != first).any()
    own = np.asarray(local_unit(local.data, KEY, 6, 3).inputs)
    np.testing.assert_array_equal(own, chunk(local.data, KEY, 2, 3).inputs)
    assert (local_unit(local.data, KEY, 6, 4).inputs != own).any()


def test_the_metrics_are_over_as_many_images_as_asked(tmp_path):
    write_cifar10(tmp_path)
    task, everything = cifar10(tmp_path, num_evaluated=5), cifar10(tmp_path, num_evaluated=None)
    params, loss = jax.jit(task.init)(KEY), jax.jit(task.loss)
    few, all_of_them = (jax.jit(each.metrics)(params, task.data) for each in (task, everything))
    train = task.data.train.inputs, task.data.train.targets
    for name, (inputs, targets) in (("train_loss", train), ("test_loss", task.data.reference)):
        batch = tasks.Batch(inputs[:5], targets[:5], jnp.full(5, 0.2))
        assert few[name] == pytest.approx(float(loss(params, batch, KEY)), rel=1e-6)
    assert all_of_them["train_loss"] != few["train_loss"] and all_of_them["test_loss"] != few["test_loss"]


def test_the_network_sees_standardised_bytes(tmp_path):
    written = write_cifar10(tmp_path)
    task = cifar10(tmp_path, augment=False)
    params = jax.tree.map(np.asarray, task.init(KEY))
    pixels, labels = written["test_batch.bin"]
    standard = (pixels - np.array([125.3, 123.0, 113.9])) / np.array([63.0, 62.1, 66.7])
    hidden = np.maximum(0, standard.reshape(8, -1) @ params["Dense_0"]["kernel"])
    logits = hidden @ params["Dense_1"]["kernel"]
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), labels])
    assert jax.jit(task.metrics)(params, task.data)["test_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("harm", "arguments", "message"),
    [
        (lambda raw: raw[:-1], {}, "data_batch_3.bin must be one or more records of 3073 bytes each; got 24,583"),
        (lambda raw: b"", {}, "data_batch_3.bin must be one or more records of 3073 bytes each; got 0"),
        (lambda raw: b"\x0a" + raw[1:], {}, "A label of data_batch_3.bin must be at most 9; got 10 in record 0"),
        (lambda raw: raw, {"checksums": None}, "data_batch_1.bin is damaged.*must be 5dd7e06a14cb22eb9f671a540d1b7c25"),
        (lambda raw: raw, {"num_evaluated": 0}, "num_evaluated must be a whole number at least 1; got 0"),
    ],
)
def test_bad_input_is_refused(tmp_path, harm, arguments, message):
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        cifar10(tmp_path, **arguments)


@pytest.mark.parametrize(
    ("found", "hint"),
    [("data_batch_1", "The Python version is there, but is never read"), ("cifar-10-binary.tar.gz", "unpack it")],
)
def test_a_user_who_has_something_else_is_told(tmp_path, found, hint):
    (tmp_path / found).touch()
    with pytest.raises(ValueError, match=f"needs the files data_batch_1.bin, .* test_batch.bin in .*{hint}"):
        cifar10(tmp_path)
