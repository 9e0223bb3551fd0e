"""The benchmarks for accelerators run at small sizes on a CPU, and are skipped there by themselves."""

import jax
import pytest

from benchmarks import accelerator
from benchmarks.accelerator import Sizes
from gcjax import memory

TINY = Sizes(width=32, depth=1, context=8, windows=1, repeats=1, wavefront_units=2, largest_widths=(32, 64, 96))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is an accelerator")
def test_without_an_accelerator_there_is_one_line():
    (row,) = accelerator.accelerator()
    assert row.value == "none" and "skipped" in row.note


@pytest.mark.slow
def test_every_row_is_there_at_small_sizes():
    rows = accelerator.accelerator(TINY)
    assert [row.what.split(",")[-1] for row in rows[:2]] == [" L = 1", " L = 2"]
    assert all(float(row.value) > 0 for row in rows[:8]) and len(rows) == 11


@pytest.mark.slow
def test_the_largest_model_is_the_last_that_fits(monkeypatch):
    needed = {
        width: accelerator.step_bytes(accelerator.training_step(TINY._replace(width=width), None))
        for width in TINY.largest_widths
    }
    assert needed[32] < needed[64] < needed[96]
    monkeypatch.setattr(memory, "available_bytes", lambda: needed[64])
    sizes = TINY._replace(largest_widths=TINY.largest_widths)
    uncoded, *_ = accelerator.largest_models(sizes)
    num_params = accelerator.training_step(TINY._replace(width=64), None).num_params
    assert uncoded.value == f"{num_params / 1e6:,.0f} million parameters"
    assert needed[64] > 3 * 4 * num_params  # parameters and two moments, in float32


def test_flops_are_those_of_the_formula():
    sizes = Sizes(width=4, depth=3, context=5)
    assert accelerator.training_flops(num_params=7, num_tokens=10, sizes=sizes) == 10 * (6 * 7 + 12 * 3 * 4 * 5)
