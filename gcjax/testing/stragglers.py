"""The contract of straggler models.

Letters: T units of work sampled per worker, W workers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.stragglers import StragglerModel, sample_durations
from gcjax.testing.contract import TracedProgram, call_or_fail, check_refusal, close, on_one_line, require, same

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
    for is_wide in (False, True):
        with jax.enable_x64(is_wide):
            _check_state(model, key, num_workers)

    def sample(rng_key: jax.Array, units: int = num_units) -> np.ndarray:
        """float[T, W]: durations of the model."""
        return np.asarray(call_or_fail("sample", sample_durations, model, rng_key, units, num_workers))

    seconds = sample(key)
    _check_seconds(seconds)
    require(same(seconds, sample(key)), "the same key must give the same bits", "two calls with one key")
    num_fewer = (num_units + 1) // 2
    differing_units = np.flatnonzero((sample(key, num_fewer) != seconds[:num_fewer]).any(axis=1))
    rule = "more units must begin with the same bits as fewer"
    require(not differing_units.size, rule, f"unit {differing_units[:1]} of {num_fewer} and of {num_units} units")
    _check_vmap(model, key, num_units, num_workers)
    if not quick:
        _check_eager(model, key, num_workers)
    check_refusal("sample_durations", sample_durations, model, key, 0, num_workers, case="0 units")


def _check_seconds(seconds: np.ndarray) -> None:
    """Checks that all durations float[T, W] are at least 0, and none is NaN."""
    is_bad = ~(seconds >= 0)  # also NaN
    if is_bad.any():
        unit, worker = np.argwhere(is_bad)[0]
        rule = "seconds must be at least 0, and inf for a failed worker"
        require(False, f"{rule}; they are {seconds[unit, worker]:g}", f"unit {unit} of worker {worker}")


def _check_state(model: StragglerModel, key: jax.Array, num_workers: int) -> None:
    """Checks that state and seconds have the right shapes and types, and the state keeps its own; by tracing alone."""
    state = call_or_fail("init", lambda: model.init(key, num_workers))
    second_state = call_or_fail("init", lambda: model.init(key, num_workers))
    require(same(state, second_state), "the same key must give the same state", "two calls of init with one key")
    types_and_shapes = jax.tree.map(_type_and_shape, state)
    result = call_or_fail("sample", jax.eval_shape, model.sample, state, key)
    is_pair = isinstance(result, tuple) and len(result) == 2
    require(is_pair, f"sample must give (seconds, state); it gave {type(result).__name__}")
    seconds, next_state = result
    rule = f"sample must give seconds float[{num_workers}] and the next state"
    require(getattr(seconds, "shape", None) == (num_workers,), f"{rule}; the seconds are {seconds}")
    dtype = jnp.result_type(float)
    require(seconds.dtype == dtype, f"seconds must have the default float type, {dtype}; they are {seconds.dtype}")
    rule = "the state must keep its structure, shapes and types"
    same_tree = str(jax.tree.structure(types_and_shapes)) == str(jax.tree.structure(next_state))
    require(same_tree, f"{rule}; its structure changes")
    next_types_and_shapes = jax.tree.map(_type_and_shape, next_state)
    for type_and_shape, next_type_and_shape in zip(
        jax.tree.leaves(types_and_shapes), jax.tree.leaves(next_types_and_shapes), strict=True
    ):
        require(type_and_shape == next_type_and_shape, f"{rule}; {type_and_shape} becomes {next_type_and_shape}")


def _type_and_shape(x: Any) -> str:
    """As in "float32[3]"."""
    return f"{jnp.result_type(x) if not hasattr(x, 'dtype') else x.dtype}{list(jnp.shape(x))}"


def _check_vmap(model: StragglerModel, key: jax.Array, num_units: int, num_workers: int) -> None:
    """Checks that durations of all keys, float[T, W] each, are one program, which gives what `vmap` over keys gives."""
    keys = jax.random.split(key, 3)

    def sample(rng_key: jax.Array) -> jax.Array:
        """float[T, W]: durations of the model for one key."""
        return sample_durations(model, rng_key, num_units, num_workers)

    program = TracedProgram(sample)
    seconds_one_by_one = np.stack([np.asarray(call_or_fail("sample", program, k)) for k in keys])
    require(program.num_traces == 1, "another key must compile nothing")
    seconds_under_vmap = np.asarray(call_or_fail("sample", jax.vmap(sample), keys))
    for alone_seconds, batch_seconds in zip(seconds_one_by_one, seconds_under_vmap, strict=True):
        # Unit 0 if none differs; then it is not shown.
        first_different_unit = int(np.argmax((~np.isclose(alone_seconds, batch_seconds, rtol=ROUNDING)).any(axis=1)))
        unit_alone, unit_in_batch = alone_seconds[first_different_unit], batch_seconds[first_different_unit]
        case = f"unit {first_different_unit}: {on_one_line(unit_alone)} alone, {on_one_line(unit_in_batch)} under vmap"
        require(close(alone_seconds, batch_seconds, ROUNDING), "vmap over keys must give what a loop gives", case)


def _check_eager(model: StragglerModel, key: jax.Array, num_workers: int) -> None:
    """Checks that the first unit takes the same time with and without `jit`."""
    state = model.init(key, num_workers)
    seconds_without_jit, _ = call_or_fail("sample", model.sample, state, key)
    seconds_with_jit, _ = jax.jit(model.sample)(state, key)
    case = f"{on_one_line(seconds_without_jit)} without, {on_one_line(seconds_with_jit)} with"
    require(
        close(seconds_without_jit, seconds_with_jit, ROUNDING), "sample must give the same with and without jit", case
    )
