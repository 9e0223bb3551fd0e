"""The language model on a text file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import tasks

KEY = jax.random.key(0)


def text(tmp_path, book, **arguments):
    (tmp_path / "book.txt").write_bytes(book)
    return tasks.text(2, path=tmp_path / "book.txt", **({"context": 4, "width": 8, "depth": 1} | arguments))


def test_windows_cover_the_text_and_the_last_are_held_out(tmp_path):
    book = bytes(range(256))[:43]
    data = text(tmp_path, book, test_fraction=0.3).data
    assert data.train.inputs.dtype == data.reference[0].dtype == jnp.uint8
    rows = np.concatenate([data.train.inputs[:7], data.reference[0]])
    next_rows = np.concatenate([data.train.targets[:7], data.reference[1]])
    np.testing.assert_array_equal(next_rows, rows + 1)
    np.testing.assert_array_equal(data.reference[0][:, 0], [28, 32, 36])
    np.testing.assert_array_equal(np.sort(rows[:, 0]), np.arange(0, 40, 4))
    assert data.train.sizes.sum() == 7


def test_the_metrics_of_a_network_that_knows_nothing(tmp_path):
    task = text(tmp_path, b"all work and no play " * 4)
    assert task.mergeable
    params = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(task.init, KEY))
    metrics = jax.jit(task.metrics)(params, task.data)
    expected = {"train_loss": np.log(256), "test_loss": np.log(256), "perplexity": 256, "bits_per_byte": 8}
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=1e-5)


def test_a_relative_path_and_the_home_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    expected = text(tmp_path, bytes(99)).data.train.sizes.sum()
    for path in ("book.txt", "~/book.txt"):
        assert tasks.text(2, path=path, context=4).data.train.sizes.sum() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": 20}, "at least 41 bytes: two windows for context=20, .*; got 40 bytes in .*book.txt. Take"),
        ({"context": 0}, "context must be a whole number at least 1; got 0"),
        ({"depth": 0}, "depth must be a whole number at least 1; got 0"),
        ({"width": 48}, "width must be at most 32, or a multiple of 32, the size of a head; got 48"),
        ({"context": 19}, "num_chunks must be a whole number between 1 and 1; got 2"),
        ({"test_fraction": 1.0}, "test_fraction must be above 0 and at most 0.9; got 1"),
        ({"num_evaluated": 0}, "num_evaluated must be a whole number at least 1; got 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        text(tmp_path, bytes(40), **arguments)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"path must be a text file; there is none at {tmp_path}/no.txt"):
        tasks.text(2, path=tmp_path / "no.txt")
