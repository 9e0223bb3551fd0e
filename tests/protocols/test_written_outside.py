"""What protocols of one's own are written with: the same schedules as ours, and errors where something has no room."""

import chex
import jax
import jax.numpy as jnp
import optax
import pytest

from gcjax import engine, protocols, stragglers, tasks
from gcjax.protocols import Protocol, simulation
from gcjax.protocols.conformance.structure import check_structure
from tests.parameters import some

DURATIONS = stragglers.sample_durations(stragglers.exponential(), jax.random.key(2), 12, 4)
NETWORK = stragglers.constant_network(upload=0.2, download=0.1)


def of_rule(rule, *, num_commits=None, **fields):
    rule = rule._replace(**fields)
    return Protocol(
        lambda durations, network: simulation.event_schedule(rule, durations, network, num_commits=num_commits)
    )


def batches(count):
    return simulation.Rule(commits=lambda view, worker: view.num_uncommitted.sum() >= count)


def same(left, right):
    chex.assert_trees_all_equal(left, right)


@pytest.mark.parametrize("num_commits", some([None], [16, 20]))
def test_a_rule_gives_the_schedule_of_our_protocol(num_commits):
    own = of_rule(batches(3), weight=1 / 3, num_contributions=3, num_commits=num_commits)(DURATIONS, NETWORK)
    ours = protocols.k_batch_async(num_contributions=3)(DURATIONS, NETWORK)
    number = ours.time.size
    assert own.time.shape == (num_commits or DURATIONS.size,)
    same(jax.tree.map(lambda x: x[:number] if x.shape[:1] == own.time.shape else x, own), ours)
    assert not jnp.isfinite(own.time[number:]).any()


@pytest.mark.slow
def test_rounds_of_so_many_units_are_local_sgd():
    own = Protocol(lambda d, n: simulation.rounds(simulation.fixed_units(3), d, n, d.shape[0] // 3))(DURATIONS, NETWORK)
    ours = protocols.local_sgd(num_local_steps=3)(DURATIONS, NETWORK)
    same(jax.tree.map(lambda x: x[:4] if x.shape[:1] == ours.time.shape else x, ours)[:6], own[:6])


def test_rounds_until_a_time_are_anytime_minibatch():
    def rule(work, first, received, begin):
        return simulation.units_until(work, first, received, received + 2.0)

    own = Protocol(lambda d, n: simulation.rounds(rule, d, n, d.shape[0]))(DURATIONS)
    ours = protocols.anytime_minibatch(seconds=2.0)(DURATIONS)
    same(own._replace(weight=ours.weight), ours)


def test_more_messages_than_contributions_are_an_error():
    with pytest.raises(
        ValueError, match="num_contributions must be the most messages .* got 2, and there are 3 for one"
    ):
        of_rule(batches(3), weight=1.0, num_contributions=2)(DURATIONS)


@pytest.mark.parametrize("room", some([{"num_contributions": 2}], [{"num_contributions": 3, "num_commits": 7}]))
def test_a_compiled_schedule_without_room_is_refused(room):
    """Also where the weights that are left do add up to a mean."""
    protocol = of_rule(batches(3), weight=1 / 3, **room)
    task = tasks.linear_regression(num_chunks=4, num_examples=40)
    with pytest.raises(ValueError, match="room for all its commits"):
        engine.run(task, protocol, optax.sgd(0.1), DURATIONS, rng_key=jax.random.key(0))
    with pytest.raises(ValueError, match="room for all its commits"):
        check_structure(jax.jit(protocol.schedule)(DURATIONS, NETWORK))


def test_more_commits_than_there_is_room_for_are_an_error():
    with pytest.raises(ValueError, match="num_commits must be at least the commits that there are; got 7"):
        of_rule(batches(3), weight=1.0, num_contributions=3, num_commits=7)(DURATIONS)


def test_what_protocols_are_written_with_is_in_one_place():
    """And nothing of it is in the list of the protocols."""
    assert {"Rule", "View", "Work", "Round", "event_schedule", "rounds"} <= set(simulation.__all__)
    assert all(callable(getattr(simulation, name)) for name in simulation.__all__)
    assert "simulation" in protocols.__all__
    assert [name for name in simulation.__all__ if hasattr(protocols, name)] == []
