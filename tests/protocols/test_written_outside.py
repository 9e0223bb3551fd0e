"""What protocols of one's own are written with: the same schedules as ours, and errors where something has no room."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import engine, protocols, stragglers, tasks
from gcjax.protocols import Protocol, simulation
from gcjax.protocols.conformance.structure import check_structure
from gcjax.testing import check_protocol
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


@pytest.mark.slow("1")
@pytest.mark.parametrize(
    ("num_contributions", "fields"),
    [(2, {"ready": lambda view: view.version < view.num_commits}), (1, {})],
    ids=["2", "1"],
)
def test_messages_that_no_commit_takes_are_an_error_of_their_own(num_contributions, fields):
    """Also if others were committed before."""
    commits = simulation.Rule(commits=lambda view, worker: jnp.array(False), **fields)
    with pytest.raises(ValueError, match=rf"than num_contributions, {num_contributions}; .*`commits` .* never becomes"):
        of_rule(commits, num_contributions=num_contributions)(DURATIONS)
    once = commits._replace(commits=lambda view, worker: view.num_commits == 0)
    with pytest.raises(ValueError, match=rf"than num_contributions, {num_contributions}; .*`commits` .* never becomes"):
        of_rule(once, num_contributions=num_contributions, ready=lambda view: view.clock >= 0)(DURATIONS)


@pytest.mark.slow
def test_a_compiled_schedule_without_any_commit_says_so():
    rule = simulation.Rule(commits=lambda view, worker: jnp.array(False))
    with pytest.raises(AssertionError, match="There is no commit, and more messages wait .*`commits` of the rule"):
        check_protocol(of_rule(rule))


WRONG_RULES = {
    "commits-each": ({"commits": lambda view, worker: view.idle}, r"commits .* bool\[\]; it returned bool\[4\]"),
    "commits-number": ({"commits": lambda view, worker: view.num_commits}, r"bool\[\]; it returned int32\[\]"),
    "commits-text": ({"commits": lambda view, worker: "yes"}, r"bool\[\]; it returned str"),
    "commits-none": ({"commits": lambda view, worker: None}, r"bool\[\]; it returned None"),
    "commits-value": ({"commits": True}, r"commits .* function \(view, worker\) -> bool\[\]; got True"),
    "accepts": ({"accepts": lambda view, worker: view.alive}, r"accepts .* bool\[\]; it returned bool\[4\]"),
    "postpones": ({"postpones": lambda view, worker: view.clock}, r"postpones .* int32\[\]; it returned int32\[4\]"),
    "takes": ({"takes": lambda view, worker: worker}, r"takes .* bool\[W\] with W=4; it returned int32\[\]"),
    "cuts_off": ({"cuts_off": lambda view, worker: view.clock}, r"cuts_off .* bool\[W\] .* returned int32\[4\]"),
    "ready": ({"ready": lambda view: view.idle[:3]}, r"ready .* bool\[W\] with W=4; it returned bool\[3\]"),
    "pulls": ({"pulls": lambda view: view.version}, r"pulls .* bool\[W\] with W=4; it returned int32\[4\]"),
    "num_units": ({"num_units": lambda view: 2.5}, r"num_units .* int32\[W\] with W=4; it returned float32\[\]"),
    "num_units-value": ({"num_units": 2.5}, r"num_units of a Rule must be a whole number at least 1; got 2.5"),
    "alarm": ({"alarm": lambda view: view.begin_time}, r"alarm .* float\[\]; it returned float32\[4\]"),
    "turn_seconds": ({"turn_seconds": lambda view: view.idle}, r"turn_seconds .* float\[W\] .* bool\[4\]"),
    "code_row": ({"code_row": lambda view: view.begin_time}, r"code_row .* int32\[W\] .* float32\[4\]"),
    "remember": (
        {"remember": lambda view, worker: view.now},
        r"remember .*view.memory`, \(\); it returned float32\[\]",
    ),
    "remember-shape": (
        {"memory": lambda num_workers, dtype: jnp.zeros((), dtype), "remember": lambda view, worker: view.begin_time},
        r"remember .*view.memory`, float32\[\]; it returned float32\[4\]",
    ),
    "remember-type": (
        {
            "memory": lambda num_workers, dtype: jnp.int32(0),
            "remember": lambda view, worker: view.memory.astype(view.now.dtype),
        },
        r"remember .*view.memory`, int32\[\]; it returned float32\[\]",
    ),
    "weight-text": ({"weight": "half"}, "weight of a Rule must be a number, or a function .*; got 'half'"),
    "weight-truth": ({"weight": True}, "weight of a Rule must be one number; got True"),
    "weight": ({"weight": lambda staleness, work: work.sum(-1)}, r"weight .* here \[48, 1\]; it returned int32\[48\]"),
    "num_contributions": ({"num_contributions": 2.0}, "num_contributions of a Rule must be a whole number .*; got 2.0"),
}


@pytest.mark.parametrize("case", WRONG_RULES)
def test_what_a_rule_returns_must_be_what_it_says(case):
    fields, message = WRONG_RULES[case]
    with pytest.raises(ValueError, match=message):
        of_rule(simulation.Rule(**fields))(DURATIONS)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("commits", lambda view, worker: worker if view.num_uncommitted.sum() > 1 else False),
        ("ready", lambda view: view.idle and view.alive),
        ("num_units", lambda view: int(view.num_commits) + 1),
        ("postpones", lambda view, worker: (0, 1)[view.num_commits]),
        ("alarm", lambda view: np.asarray(view.now)),
        ("weight", lambda staleness, work: 1.0 if staleness[0, 0] < 3 else 0.5),
    ],
)
def test_a_rule_that_asks_for_values_is_told_what_to_write(name, function):
    with pytest.raises(ValueError, match=rf"^{name} of a Rule must not ask .* Python's if.* jnp.where") as caught:
        of_rule(simulation.Rule(), **{name: function})(DURATIONS)
    assert isinstance(caught.value.__cause__, (jax.errors.JAXTypeError, ValueError))


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("weight", lambda staleness, work: (work > 0) / (work > 0).sum(-1), "(int32[48, 3], int32[48, 3])"),
        ("ready", lambda view: view.clock @ view.idle[:3], "(View(now=float32[], "),
        ("ready", lambda view: view.clocks > 1, "(View(now=float32[], "),
        ("commits", lambda view: True, "(View(now=float32[], "),
    ],
)
def test_what_a_function_of_a_rule_raises_says_in_which(name, function, arguments):
    with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
        of_rule(simulation.Rule(num_contributions=3), **{name: function})(DURATIONS)
    assert caught.value.__notes__[0].startswith(f"This was raised in {name} of a Rule, for {arguments}")


def test_one_value_for_all_workers_will_do():
    for_each = simulation.Rule(ready=lambda view: view.clock >= 0, takes=lambda view, worker: view.alive, num_units=2)
    for_all = simulation.Rule(ready=lambda view: True, takes=lambda view, worker: True, num_units=lambda view: 2)
    schedule = of_rule(for_each, weight=0.25, num_contributions=4)(DURATIONS)
    same(schedule, of_rule(for_all, weight=lambda staleness, work: 0.25, num_contributions=4)(DURATIONS))


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
