"""Loops that are compiled as one kernel on a CPU: which are marked, and that they compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import _one_kernel, engine, protocols, tasks
from gcjax._one_kernel import loop_in_one_kernel
from gcjax.protocols.compiled_schedules import schedule_program
from gcjax.protocols.simulation.one_row_each import with_rows
from gcjax.stragglers import Network

MARK = "xla_cpu_small_call"
STATE = jnp.zeros((), jnp.int32), jnp.linspace(0.0, 1e-3, 1000)
has_marks = pytest.mark.skipif(
    not _one_kernel._NEEDS_MARKS or jax.default_backend() != "cpu", reason="this XLA needs no marks"
)


def add_entry(carry):
    number, values = carry
    return number + 1, values + values[number]


def sort(carry):
    return carry[0] + 1, jnp.sort(-carry[1])


def scatter(carry):
    return carry[0] + 1, carry[1].at[carry[0]].set(7.0)


def loop_again(carry):
    return carry[0] + 1, jax.lax.fori_loop(0, carry[0], lambda i, values: values + 1, carry[1])


def has_turn(carry):
    return carry[0] < 9


@has_marks
@pytest.mark.parametrize(
    ("step", "is_possible"), [(add_entry, True), (sort, False), (scatter, False), (loop_again, False)]
)
def test_loops_of_simple_steps_are_marked(step, is_possible):
    lowered = jax.jit(lambda state: loop_in_one_kernel(has_turn, step, state)).lower(STATE)
    assert (MARK in lowered.as_text()) == is_possible
    expected = jax.jit(lambda state: jax.lax.while_loop(has_turn, step, state))(STATE)
    for ours, theirs in zip(lowered.compile()(STATE), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_runs_under_vmap_are_those_of_a_loop_and_not_marked():
    factors = jnp.arange(3.0)

    def run(factor):
        return loop_in_one_kernel(has_turn, lambda carry: add_entry((carry[0], factor * carry[1])), STATE)[1]

    of_batch = jax.jit(jax.vmap(run)).lower(factors)
    assert MARK not in of_batch.as_text()
    np.testing.assert_array_equal(of_batch.compile()(factors), jnp.stack([jax.jit(run)(factor) for factor in factors]))


@has_marks
@pytest.mark.parametrize(
    "protocol",
    [
        protocols.ringmaster(delay_threshold=3),
        protocols.k_sync(num_contributions=2),
        pytest.param(protocols.ringleader(), marks=pytest.mark.slow),
        pytest.param(protocols.dssp(), marks=pytest.mark.slow),
        pytest.param(protocols.progressive_groups(), marks=pytest.mark.slow),
        pytest.param(protocols.psp(num_sampled=2, rng_key=jax.random.key(0)), marks=pytest.mark.slow),
        pytest.param(protocols.async_local_sgd(num_local_steps=2, dynamic=True), marks=pytest.mark.slow),
    ],
)
def test_event_queues_of_few_workers_are_one_kernel(protocol):
    few, many = jnp.ones((4, 3)), jnp.ones((4, 129))
    assert MARK in schedule_program().lower(protocol.schedule, few, Network()).as_text()
    assert MARK not in schedule_program().lower(protocol.schedule, many, Network()).as_text()


@has_marks
def test_arguments_that_are_constants_or_of_which_only_the_shape_is_used_do_not_end_the_process():
    def program(loop, state, array):
        """The values after `loop`, a step of which looks at the shape of a part of the array."""
        return loop(has_turn, lambda carry: add_entry((carry[0], carry[1] + jnp.zeros_like(array[1]))), state)[1]

    def ends(loop):
        """By the program as it is, and as a part of one with a loop besides, in which the state is a constant."""
        alone = jax.jit(lambda state, array: program(loop, state, array))(STATE, jnp.ones((2, 1000)))
        beside = jax.jit(lambda array: jax.lax.fori_loop(0, 3, lambda i, x: x + array[0], program(loop, STATE, array)))
        return alone, beside(jnp.ones((2, 1000)))

    for ours, theirs in zip(ends(loop_in_one_kernel), ends(jax.lax.while_loop), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.slow
@has_marks
def test_a_schedule_that_is_part_of_a_program_is_marked_too():
    """With the loop of the run in the same program."""
    protocol, durations = protocols.k_sync(num_contributions=2), jnp.ones((6, 3)).at[:, 1].set(2.5)
    task = tasks.linear_regression(num_chunks=3)

    def loss(rate, durations):
        return engine.run(task, protocol, optax.sgd(rate), durations, rng_key=jax.random.key(0)).info.loss

    expected = loss(0.1, durations)
    assert MARK in jax.jit(loss).lower(0.1, durations).as_text()
    np.testing.assert_allclose(jax.jit(loss)(0.1, durations), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda rate: loss(rate, durations))(0.1), expected, rtol=1e-6)
    of_rates = jax.jit(jax.vmap(lambda rate: loss(rate, durations)))(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(of_rates[0], expected, rtol=1e-5)


@has_marks
def test_the_schedule_of_one_worker_does_not_end_the_process():
    """XLA would, at both of these, if arguments that nothing uses were left so."""
    halos = protocols.halos(groups=((0,),), num_local_steps=1, num_contributions=2)
    elastic, unit = protocols.elastic_averaging(num_local_steps=2), jnp.ones((1, 1))
    for protocol in (halos, elastic):
        assert MARK in schedule_program().lower(protocol.schedule, unit, Network()).as_text()
    assert halos(jnp.ones((4, 1))).time.tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="used up before the first one"):
        elastic(unit)


@has_marks
def test_a_schedule_of_its_own_is_marked(monkeypatch):
    marked = []
    monkeypatch.setattr(_one_kernel, "_with_mark", lambda run: marked.append(run) or run)
    protocols.k_sync(num_contributions=2)(jnp.ones((5, 7)))
    assert len(marked) == 1


@pytest.mark.parametrize("num_workers", [3, 200])
def test_a_row_of_each_worker_is_written(num_workers):
    generator = np.random.default_rng(0)
    table, values = generator.normal(size=(2, 5, num_workers, 4)), generator.normal(size=(2, num_workers, 4))
    rows = generator.integers(0, 5, (2, num_workers))
    expected = table.copy()
    for run in range(2):
        expected[run, rows[run], np.arange(num_workers)] = values[run]
    arguments = [jnp.asarray(x, jnp.float32) for x in (table, values)]
    table, values, rows = arguments[0], arguments[1], jnp.asarray(rows, jnp.int32)
    under_vmap = jax.vmap(with_rows)((table,), rows, (values,))[0]
    one_by_one = jnp.stack([with_rows((table[run],), rows[run], (values[run],))[0] for run in range(2)])
    for result in (under_vmap, one_by_one):
        np.testing.assert_array_equal(result, expected.astype(np.float32))
