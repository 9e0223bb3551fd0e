"""Automata against the bounded model at all lengths it has, and by themselves beyond."""

import functools
import itertools

import jax
import numpy as np
import pytest

from gcjax.algebra import automata, commands, steps
from gcjax.algebra.automata import acceptors, inclusion
from gcjax.algebra.commands import Model, accepts

SHARED, EVENTS = steps.shared_memory(2), steps.events(1)
LENGTH = 3
KEYS = [jax.random.key(seed) for seed in range(4)]
BINARY = ["choice", "meet", "sequence", "parallel", "weak_conjunction", "csp_parallel"]
UNARY = ["star", "omega", "infinite"]


def generator(key):
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())


def random_automaton(random, space, controls, moves=2):
    key = jax.random.key(int(random.integers(2**31)))
    return automata.random_automaton(space, num_controls=controls, num_moves=moves, rng_key=key)


def relation(random, states=2):
    return random.random((states, states)) < 0.5


def same(command, automaton):
    unfolded = automata.traces(automaton, command.model.max_steps)
    return unfolded.model == command.model and np.array_equal(unfolded.traces, command.traces)


def unfold(automaton):
    return automata.traces(automaton, LENGTH)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", BINARY)
def test_operators_of_two_agree_with_the_bounded_model(name, key):
    random = generator(key)
    left, right = random_automaton(random, SHARED, 3), random_automaton(random, SHARED, 2)
    together = getattr(automata, name)(left, right)
    assert same(getattr(commands, name)(unfold(left), unfold(right)), together)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", UNARY)
def test_iterations_agree_with_the_bounded_model(name, key):
    body = random_automaton(generator(key), SHARED, 3)
    assert same(getattr(commands, name)(unfold(body)), getattr(automata, name)(body))


@pytest.mark.parametrize("key", KEYS)
def test_event_based_products_agree_with_the_bounded_model(key):
    random = generator(key)
    left, right = random_automaton(random, EVENTS, 3, 4), random_automaton(random, EVENTS, 2, 3)
    for name in ("ccs_parallel", "csp_parallel"):
        assert same(getattr(commands, name)(unfold(left), unfold(right)), getattr(automata, name)(left, right))


def test_constructors_agree_with_the_bounded_model():
    random, model = generator(KEYS[0]), Model(SHARED, LENGTH)
    for name in ("nil", "magic", "abort", "skip", "chaos", "program_step", "environment_step"):
        assert same(getattr(commands, name)(model), getattr(automata, name)(SHARED)), name
    for name, _ in itertools.product(("test", "assertion"), range(3)):
        p = random.random(2) < 0.5
        assert same(getattr(commands, name)(model, p), getattr(automata, name)(SHARED, p)), name
    allowed = random.random((2, 4)) < 0.5
    assert same(commands.atomic(model, allowed), automata.atomic(SHARED, allowed))
    assert same(commands.star(commands.atomic(model, allowed)), automata.always(SHARED, allowed))


def test_one_event_agrees_with_the_bounded_model():
    model = Model(EVENTS, LENGTH)
    assert same(commands.program_step(model, steps=[0, 2]), automata.program_step(EVENTS, steps=[0, 2]))
    with pytest.raises(ValueError, match="steps must be one of '0', '1', '2'; got '3'"):
        automata.program_step(EVENTS, steps=[3])


@pytest.mark.parametrize("name", ["program_step", "environment_step", "guarantee", "rely", "specification"])
def test_relations_agree_with_the_bounded_model(name):
    random, model = generator(KEYS[1]), Model(SHARED, LENGTH)
    for r in (relation(random), relation(random), np.zeros((2, 2), bool), np.eye(2, dtype=bool)):
        assert same(getattr(commands, name)(model, r), getattr(automata, name)(SHARED, r))


def some_specification(random):
    """Deterministic or not, small or large."""
    relations = [relation(random) for _ in range(3)]
    observed = automata.guarantee(SHARED, relations[0]) & automata.rely(SHARED, relations[1])
    kinds = [
        lambda: observed & automata.specification(SHARED, relations[2]),
        lambda: random_automaton(random, SHARED, 3, 5),
        lambda: random_automaton(random, SHARED, 6, 7),
        lambda: random_automaton(random, SHARED, 4, 5) | observed,
    ]
    return kinds[random.integers(4)]()


def test_refinement_agrees_with_the_bounded_model():
    verdicts = []
    for key in jax.random.split(KEYS[2], 80):
        random = generator(key)
        spec = some_specification(random)
        loose = random_automaton(random, SHARED, 3)
        automaton = loose if random.random() < 0.4 else automata.meet(loose, spec)
        if random.random() < 0.3:
            automaton = automaton >> automata.program_step(SHARED, relation(random))
        found, expected = automata.refines(spec, automaton), commands.refines(unfold(spec), unfold(automaton))
        verdicts.append(bool(found))
        if expected:
            assert found or len(found.trace.steps) > LENGTH
            continue
        assert len(found.trace.steps) == len(expected.trace.steps)
        assert found.trace.status == expected.trace.status
        assert accepts(unfold(automaton), found.trace) and not accepts(unfold(spec), found.trace)
    assert 20 < sum(verdicts) < 60


@pytest.mark.parametrize("key", KEYS)
def test_laws_hold_at_all_lengths(key):
    random = generator(key)
    c, d, e = (random_automaton(random, SHARED, 2) for _ in range(3))
    parallel = automata.parallel
    assert (c | d) >> e == (c >> e) | (d >> e)
    assert c >> (d >> e) == (c >> d) >> e
    assert c & c == c and c & d == d & c
    assert c & automata.chaos(SHARED) == c
    assert parallel(c, automata.skip(SHARED)) == c
    assert parallel(c, d) == parallel(d, c)
    assert parallel(parallel(c, d), e) == parallel(c, parallel(d, e))
    assert automata.star(c) == automata.nil(SHARED) | (c >> automata.star(c))
    assert automata.omega(c) == automata.star(c) | automata.infinite(c)
    assert automata.infinite(c) == automata.omega(c) >> automata.magic(SHARED)
    assert c >= automata.meet(c, d) and c | d >= c
    assert automata.meet(automata.abort(SHARED), c) == c
    assert c & automata.abort(SHARED) == automata.abort(SHARED)


def test_laws_that_do_not_hold_are_refuted():
    nil, step, magic = automata.nil(SHARED), automata.program_step(SHARED), automata.magic(SHARED)
    assert automata.star(nil) != automata.omega(nil)
    assert automata.omega(nil) == automata.abort(SHARED)
    assert step >> magic != magic
    assert not step >= automata.chaos(SHARED)


def introduction(random, states, *, guarantees=True):
    """Both sides of the law: what is to be refined, and the two components side by side."""
    space = steps.shared_memory(states)
    r, r1, r2, q1, q2 = (relation(random, states) | np.eye(states, dtype=bool) for _ in range(5))

    def component(own, other, q):
        kept = automata.rely(space, r | own) & automata.specification(space, q)
        return automata.guarantee(space, r | other) & kept if guarantees else kept

    whole = automata.rely(space, r) & automata.specification(space, q1 & q2)
    return whole, automata.parallel(component(r1, r2, q1), component(r2, r1, q2))


@pytest.mark.parametrize("states", [2, 4])
def test_parallel_introduction(states):
    for key in KEYS:
        whole, components = introduction(generator(key), states)
        assert whole.deterministic
        assert automata.refines(whole, components)
    assert not all(automata.refines(*introduction(generator(key), states, guarantees=False)) for key in KEYS)


def test_observers_are_deterministic_and_searched_as_they_are():
    random, space = generator(KEYS[3]), steps.shared_memory(5)
    spec = automata.specification(space, relation(random, 5)) & automata.rely(space, relation(random, 5))
    spec = spec & automata.guarantee(space, np.ones((5, 5), bool))
    assert spec.deterministic
    automaton = automata.meet(random_automaton(random, space, 6), spec)
    found = automata.search(spec, automaton)
    assert found.refinement
    assert found.num_pairs <= automaton.initial.size * spec.num_controls


def counter(states):
    """Counts up from 0, and terminates anywhere."""
    up = np.eye(states, k=1, dtype=bool)
    space = steps.shared_memory(states)
    return space, up, automata.test(space, np.arange(states) == 0) >> automata.star(automata.program_step(space, up))


def test_a_counterexample_longer_than_any_bounded_trace():
    space, up, counting = counter(12)
    forbidden = up.copy()
    forbidden[10, 11] = False
    found = automata.refines(automata.guarantee(space, forbidden), counting)
    assert found.trace.start == 0
    assert [space.targets[step] for step in found.trace.steps] == list(range(1, 12))
    assert str(found).splitlines()[-2:] == ["11. program     10 -> 11", "incomplete"]
    with pytest.raises(ValueError, match="max_steps=11"):
        automata.traces(counting, 11)


def not_a_multiple(step, number):
    """Any number of steps that is not a multiple."""
    powers = list(itertools.accumulate([step] * number, automata.sequence))
    rest = functools.reduce(automata.choice, powers[:-1])
    return automata.star(powers[-1]) >> rest


def test_a_long_counterexample_to_a_nondeterministic_specification():
    space = steps.shared_memory(1)
    step = automata.program_step(space)
    spec = functools.reduce(automata.choice, [not_a_multiple(step, n) for n in (2, 3, 5)], automata.nil(space))
    found = automata.refines(spec, automata.star(step))
    assert not spec.deterministic
    assert len(found.trace.steps) == 30 and found.trace.status == "terminated"
    assert automata.refines(spec | automata.star(step), automata.star(step))


def test_larger_sets_are_not_looked_at():
    """The specification goes through {0}, {0, 1}, {0, 1, 2}, ...: what {0} accepts, all accept."""
    space, controls = steps.shared_memory(1), 8
    ahead = (np.eye(controls, dtype=bool) | np.eye(controls, k=1, dtype=bool))[:, None, None]
    first = np.arange(controls)[:, None] == 0
    growing = automata.automaton(space, np.repeat(ahead, 2, axis=2), first, first, np.zeros_like(first))
    found = automata.search(growing, automata.chaos(space))
    assert not growing.deterministic
    assert found.refinement and found.num_pairs == 1


def test_reachable_stops_at_an_abort():
    _, _, counting = counter(6)
    stopped = counting._replace(aborting=np.arange(6)[None] == np.full((counting.num_controls, 1), 2))
    configurations = automata.reachable(stopped)
    assert np.array_equal(configurations, reached_by_hand(stopped))
    assert configurations.sum() < automata.reachable(counting).sum()


def reached_by_hand(automaton):
    """One configuration after another."""
    seen, waiting = automaton.initial.copy(), list(np.argwhere(automaton.initial))
    while waiting:
        control, state = waiting.pop()
        if automaton.aborting[control, state]:
            continue
        for step, after in np.argwhere(automaton.transitions[control, state]):
            target = automaton.space.targets[step]
            if not seen[after, target]:
                seen[after, target] = True
                waiting.append((after, target))
    return seen


@pytest.mark.parametrize("key", KEYS)
def test_reachable_agrees_with_a_search_by_hand(key):
    automaton = random_automaton(generator(key), steps.shared_memory(4), 30, 1)
    automaton = automaton._replace(initial=np.arange(30)[:, None] == np.zeros(4, int))
    assert np.array_equal(automata.reachable(automaton), reached_by_hand(automaton))
    kept = automata.pruned(automaton)
    assert 1 < kept.num_controls < 30 and kept == automaton


def test_products_leave_out_pairs_that_cannot_be_reached():
    step = automata.program_step(SHARED)
    three = step >> step >> step
    assert three.num_controls == 6
    assert (three & three).num_controls == 1 + 4 + 4 + 1  # those that are as far as each other; 36 pairs in all
    assert (three & three._replace(aborting=three.initial)).num_controls == 1  # nothing is looked at after an abort


def test_bad_input_is_refused():
    large = steps.shared_memory(3)
    wrong = np.ones((3, 3), bool)
    with pytest.raises(ValueError, match=r"g must be bool\[S, S\] with S = 2 .* got bool of shape \(3, 3\)"):
        automata.guarantee(SHARED, wrong)
    with pytest.raises(ValueError, match=r"p must be bool\[S\] .* got int64 of shape \(2,\)"):
        automata.test(SHARED, np.ones(2, int))
    with pytest.raises(ValueError, match="same space; got 3 states and 6 steps, and 2 states and 4 steps"):
        automata.refines(automata.rely(large, wrong), automata.chaos(SHARED))
    with pytest.raises(ValueError, match="same space"):
        automata.parallel(automata.nil(large), automata.nil(SHARED))
    nil = automata.nil(SHARED)
    with pytest.raises(ValueError, match=r"transitions must be bool\[Q, 2, 4, Q\]"):
        automata.automaton(SHARED, nil.transitions[:, :, :3], nil.initial, nil.terminating, nil.aborting)
    with pytest.raises(ValueError, match=r"terminating must be bool\[1, 2\]"):
        automata.automaton(SHARED, nil.transitions, nil.initial, nil.terminating[0], nil.aborting)
    with pytest.raises(ValueError, match="none for 1 states, state 1 first"):
        automata.automaton(SHARED, nil.transitions, np.eye(1, 2, dtype=bool), nil.terminating, nil.aborting)
    with pytest.raises(ValueError, match="must be boolean; got bool, bool, bool, int64"):
        automata.automaton(SHARED, nil.transitions, nil.initial, nil.terminating, nil.aborting.astype(int))


def test_sizes_that_do_not_fit_are_refused():
    space = steps.shared_memory(200)
    every = np.eye(200, dtype=bool)
    with pytest.raises(ValueError, match=r"got 3200000000 for 200 control states, .*: 57 control states fit"):
        automata.specification(space, every)
    with pytest.raises(ValueError, match="no automaton over 12000 states fits"):
        automata.nil(steps.shared_memory(12000))
    many = automata.Automaton(SHARED, *(np.zeros((20000, *shape), bool) for shape in ((2, 0), (2,), (2,), (2,))))
    with pytest.raises(ValueError, match="got 800000000, .* the right one may have 6710 control states"):
        automata.parallel(many, many)


def test_too_many_sets_are_refused(monkeypatch):
    random = generator(KEYS[0])
    spec, automaton = (
        random_automaton(random, SHARED, 6, 7)._replace(aborting=np.zeros((6, 2), bool)),
        automata.chaos(SHARED),
    )
    spec = spec._replace(terminating=np.ones((6, 2), bool))
    monkeypatch.setattr(inclusion, "MAX_ENTRIES", 2)
    with pytest.raises(ValueError, match=r"at most 2 pairs; got \d+ sets .* for 2 configurations: at most 1 sets fit"):
        automata.refines(spec, automaton)
    monkeypatch.setattr(acceptors, "MAX_ENTRIES", 8)
    with pytest.raises(ValueError, match="at most 1 sets of the specification's 6 control states over 2 states and 4"):
        automata.refines(spec, automaton)


def test_an_array_that_is_changed_later_changes_no_automaton():
    space = steps.shared_memory(2)
    states = np.array([True, False])
    automaton = automata.test(space, states)
    states[:] = True
    assert automata.refines(automata.test(space, np.array([True, False])), automaton)
    assert not automata.refines(automaton, automata.test(space, states))
