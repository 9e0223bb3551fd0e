"""The contract of straggler models.

Letters: T units of work sampled per worker, W workers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.stragglers import StragglerModel, sample_durations
from gcjax.testing.contract import Traced, called, close, refused, require, same, shown

ROUNDING = 2e-6  # between programs, in float32


def check_straggler_model(
    model: StragglerModel,
    *,
    num_workers: int = 5,
    num_units: int = 12,
    quick: bool = False,
    rng_key: jax.Array | None = None,
) -> None:
    """Checks the contract of a straggler model (`gcjax.stragglers.StragglerModel`).

    Seconds are float[W] of the default type, at least 0, and inf at most, never NaN; the state keeps its structure,
    shapes and types; the same key gives the same bits; more units begin with the same bits as fewer; `vmap` over keys
    gives what a loop gives, and `sample` the same without `jit`; another key compiles nothing.

    Args:
      model: what is checked.
      num_workers: W.
      num_units: T.
      quick: leaves out what needs operations to be compiled one by one: that it gives the same without `jit`.
      rng_key: decides the random numbers.

    Raises:
      ContractError: an `AssertionError` with the sentence that is broken, and the smallest case.
    """
    is_model = isinstance(model, StragglerModel)
    require(is_model, f"a model must be a gcjax.stragglers.StragglerModel; got {type(model).__name__}")
    key = jax.random.key(0) if rng_key is None else rng_key
    for wide in (False, True):
        with jax.enable_x64(wide):
            _check_state(model, key, num_workers)

    def sample(rng_key: jax.Array, units: int = num_units) -> np.ndarray:
        return np.asarray(called("sample", sample_durations, model, rng_key, units, num_workers))

    seconds = sample(key)
    _check_seconds(seconds)
    require(same(seconds, sample(key)), "the same key must give the same bits", "two calls with one key")
    fewer = (num_units + 1) // 2
    differs = np.flatnonzero((sample(key, fewer) != seconds[:fewer]).any(axis=1))
    rule = "more units must begin with the same bits as fewer"
    require(not differs.size, rule, f"unit {differs[:1]} of {fewer} and of {num_units} units")
    _check_vmap(model, key, num_units, num_workers)
    if not quick:
        _check_eager(model, key, num_workers)
    refused("sample_durations", sample_durations, model, key, 0, num_workers, case="0 units")


def _check_seconds(seconds: np.ndarray) -> None:
    bad = ~(seconds >= 0)
    if bad.any():
        unit, worker = np.argwhere(bad)[0]
        rule = "seconds must be at least 0, and inf for a failed worker"
        require(False, f"{rule}; they are {seconds[unit, worker]:g}", f"unit {unit} of worker {worker}")


def _check_state(model: StragglerModel, key: jax.Array, num_workers: int) -> None:
    """Shapes and types, by tracing alone."""
    state = called("init", lambda: model.init(key, num_workers))
    again = called("init", lambda: model.init(key, num_workers))
    require(same(state, again), "the same key must give the same state", "two calls of init with one key")
    shapes = jax.tree.map(_shape, state)
    result = called("sample", jax.eval_shape, model.sample, state, key)
    pair = isinstance(result, tuple) and len(result) == 2
    require(pair, f"sample must give (seconds, state); it gave {type(result).__name__}")
    seconds, next_state = result
    rule = f"sample must give seconds float[{num_workers}] and the next state"
    require(getattr(seconds, "shape", None) == (num_workers,), f"{rule}; the seconds are {seconds}")
    dtype = jnp.result_type(float)
    require(seconds.dtype == dtype, f"seconds must have the default float type, {dtype}; they are {seconds.dtype}")
    rule = "the state must keep its structure, shapes and types"
    same_tree = str(jax.tree.structure(shapes)) == str(jax.tree.structure(next_state))
    require(same_tree, f"{rule}; its structure changes")
    for old, new in zip(jax.tree.leaves(shapes), jax.tree.leaves(jax.tree.map(_shape, next_state)), strict=True):
        require(old == new, f"{rule}; {old} becomes {new}")


def _shape(x: Any) -> str:
    return f"{jnp.result_type(x) if not hasattr(x, 'dtype') else x.dtype}{list(jnp.shape(x))}"


def _check_vmap(model: StragglerModel, key: jax.Array, num_units: int, num_workers: int) -> None:
    """One program for all keys, which gives what `vmap` over keys gives."""
    keys = jax.random.split(key, 3)

    def sample(rng_key: jax.Array) -> jax.Array:
        return sample_durations(model, rng_key, num_units, num_workers)

    program = Traced(sample)
    alone = np.stack([np.asarray(called("sample", program, k)) for k in keys])
    require(program.times == 1, "another key must compile nothing")
    batch = np.asarray(called("sample", jax.vmap(sample), keys))
    for one, other in zip(alone, batch, strict=True):
        unit = int(np.argmax((~np.isclose(one, other, rtol=ROUNDING)).any(axis=1)))
        case = f"unit {unit}: {shown(one[unit])} alone, {shown(other[unit])} under vmap"
        require(close(one, other, ROUNDING), "vmap over keys must give what a loop gives", case)


def _check_eager(model: StragglerModel, key: jax.Array, num_workers: int) -> None:
    state = model.init(key, num_workers)
    plain, compiled = called("sample", model.sample, state, key)[0], jax.jit(model.sample)(state, key)[0]
    case = f"{shown(plain)} without, {shown(compiled)} with"
    require(close(plain, compiled, ROUNDING), "sample must give the same with and without jit", case)
