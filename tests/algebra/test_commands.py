import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import algebra
from gcjax.algebra import commands as cm
from gcjax.algebra import random_commands
from gcjax.algebra.command import ABORTED, INCOMPLETE, TERMINATED
from gcjax.algebra.steps import events, shared_memory
from tests.algebra.trace_sets import TraceSets

MODELS = {
    "two states": cm.Model(shared_memory(2), 3),
    "events": cm.Model(events(1), 3),
    "three states": cm.Model(shared_memory(3), 2),
}
TWO = MODELS["two states"]
BINARY = ("choice", "meet", "sequence", "parallel", "weak_conjunction", "csp_parallel")
UNARY = ("star", "omega", "infinite")
SETS = ("test", "assertion")
RELATIONS = ("program_step", "environment_step", "guarantee", "rely", "specification")
NUMBER = 12  # always as many random commands at once, so that little is compiled
CONSTANTS = ("nil", "magic", "abort", "skip", "chaos")


@functools.lru_cache
def draw(kind, model, seed, number=NUMBER):
    keys = jax.random.split(jax.random.key(seed), NUMBER)
    many = jax.tree.map(np.asarray, jax.vmap(lambda key: getattr(random_commands, kind)(model, key))(keys))
    return [jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), many) for i in range(number)]


@pytest.mark.slow("events", "two states")
@pytest.mark.parametrize("name", MODELS)
def test_operators_are_those_of_sets_of_traces(name):
    model = MODELS[name]
    sets = TraceSets(model)
    found = draw("command", model, 1, 3) + draw("step", model, 2, 1)
    expected = [sets.of(c) for c in found]
    for unary in UNARY:
        for c, traces in zip(found, expected, strict=True):
            assert sets.of(getattr(cm, unary)(c)) == getattr(sets, unary)(traces), unary
    binary = BINARY + (("ccs_parallel",) if model.space.internal >= 0 else ())
    for operator, i in itertools.product(binary, range(len(found) - 1)):
        made = getattr(cm, operator)(found[i], found[i + 1])
        assert sets.of(made) == getattr(sets, operator)(expected[i], expected[i + 1]), operator


@pytest.mark.parametrize("name", MODELS)
def test_constructors_are_those_of_sets_of_traces(name):
    model = MODELS[name]
    sets = TraceSets(model)
    for constant in CONSTANTS:
        assert sets.of(getattr(cm, constant)(model)) == getattr(sets, constant)(), constant
    for constructor, kind in [(s, "states") for s in SETS] + [(r, "relation") for r in RELATIONS]:
        for value in draw(kind, model, 3, 3):
            made = getattr(cm, constructor)(model, value)
            assert sets.of(made) == getattr(sets, constructor)(np.asarray(value)), constructor


def test_random_commands_are_closed_and_of_all_sorts():
    sets = TraceSets(TWO)
    found = draw("command", TWO, 4) + draw("command", TWO, 9)
    for c in found:
        assert sets.close(sets.of(c)) == sets.of(c)
    aborting = [bool(c.traces[ABORTED].any()) for c in found]
    ending = [bool(c.traces[TERMINATED].any()) for c in found]
    endless = [bool(c.incomplete[3].any()) for c in found]
    assert all(0 < sum(x) < len(found) for x in (aborting, ending, endless))
    assert any(not e and not a for e, a in zip(endless, aborting, strict=True))


def test_closed_adds_prefixes_and_what_follows_an_abort():
    traces = np.zeros(TWO.shape, bool)
    traces[ABORTED, 1, TWO.word([0])] = True
    traces[TERMINATED, 0, TWO.word([2, 1, 3])] = True
    sets = TraceSets(TWO)
    expected = sets.close({("aborted", 1, (0,)), ("terminated", 0, (2, 1, 3))})
    assert sets.of(cm.closed(TWO, jnp.asarray(traces))) == expected
    assert cm.closed(TWO, jnp.zeros(TWO.shape, bool)) == cm.magic(TWO)


def test_fields_have_an_axis_for_each_step():
    c = cm.specification(TWO, np.array([[False, True], [False, False]]))
    assert [x.shape for x in c.incomplete] == [(2,), (2, 4), (2, 4, 4), (2, 4, 4, 4)]
    assert all(x.dtype == bool for x in (*c.terminated, *c.incomplete, *c.aborted))
    # kind * S + state: a program's step to 0, then an environment's to 1
    assert c.terminated[2][0, 0, 3] and not c.terminated[2][1, 0, 3] and not c.terminated[2][0, 3, 0]


def test_words_and_their_numbers():
    numbers = [TWO.word(steps) for k in range(4) for steps in itertools.product(range(4), repeat=k)]
    assert numbers == list(range(TWO.num_words))
    assert all(TWO.word(TWO.steps(i)) == i for i in numbers)


def test_operators_of_python():
    c, d, e = draw("command", TWO, 1, 3)
    assert c | d == cm.choice(c, d)
    assert c >> d == cm.sequence(c, d)
    assert c & d == cm.weak_conjunction(c, d)
    assert c >> d | e & d >> c == cm.choice(cm.sequence(c, d), cm.weak_conjunction(e, cm.sequence(d, c)))
    assert c | d >= d and d <= c | d
    assert not cm.magic(TWO) >= cm.nil(TWO)
    assert c != c | cm.abort(TWO) or c == cm.abort(TWO)


def test_vmap_and_jit_are_the_loop():
    left, right = draw("command", TWO, 1, 4), draw("command", TWO, 4, 4)
    stack = lambda cs: jax.tree.map(lambda *x: jnp.stack(x), *cs)  # noqa: E731
    for operator in ("parallel", "sequence"):
        function = getattr(cm, operator)
        many = jax.jit(jax.vmap(function))(stack(left), stack(right))
        for i, (c, d) in enumerate(zip(left, right, strict=True)):
            np.testing.assert_array_equal(many.traces[i], function(c, d).traces)
    relations = jnp.stack(draw("relation", TWO, 3, 4))
    for constructor in (cm.rely, cm.specification):
        many = jax.jit(jax.vmap(lambda r, f=constructor: f(TWO, r)))(relations)
        for i, r in enumerate(relations):
            np.testing.assert_array_equal(many.traces[i], constructor(TWO, r).traces)


def test_refines_gives_the_shortest_trace():
    only_up = np.array([[True, True], [False, True]])
    assert cm.refines(cm.guarantee(TWO, only_up), cm.program_step(TWO, only_up))
    step = cm.program_step(TWO)
    down = cm.test(TWO, np.array([True, False])) >> step >> step
    found = cm.refines(cm.guarantee(TWO, only_up), down)
    assert not found
    assert str(found) == (
        "The specification has no such trace:\n"
        "start in state 0\n1. program     0 -> 1\n2. program     1 -> 0\nincomplete"
    )
    assert found.trace.steps == (1, 0) and found.trace.start == 0
    assert cm.accepts(down, found.trace) and not cm.accepts(cm.guarantee(TWO, only_up), found.trace)


def test_refines_tells_how_the_trace_ends():
    nil, magic, abort = cm.nil(TWO), cm.magic(TWO), cm.abort(TWO)
    assert cm.refines(magic, nil).trace.status == "terminated"
    assert cm.refines(cm.chaos(TWO), abort).trace.status == "aborted"
    assert str(cm.refines(nil, nil)) == "It refines."


@pytest.mark.parametrize("seed", range(3))
def test_the_shortest_trace_is_the_shortest(seed):
    sets = TraceSets(TWO)
    for c, d in itertools.combinations(draw("command", TWO, seed, 4), 2):
        missing = sets.of(d) - sets.of(c)
        found = cm.refines(c, d)
        assert bool(found) == (not missing)
        if missing:
            trace = found.trace
            assert (trace.status, trace.start, trace.steps) in missing
            assert len(trace.steps) == min(len(word) for _, _, word in missing)


def test_events_are_printed_by_name():
    model = MODELS["events"]
    one, other = cm.program_step(model, steps=[1]), cm.program_step(model, steps=[2])
    both = cm.ccs_parallel(one, other)
    assert both == cm.program_step(model, steps=[0])
    found = cm.refines(cm.magic(model), both >> one >> cm.environment_step(model))
    assert "1. program     internal event" in str(found)
    trace = cm.refines(cm.program_step(model), both >> one >> cm.environment_step(model)).trace
    assert str(trace) == "start in state 0\n1. program     internal event\n2. program     event 1\nincomplete"
    assert "3. environment step" in str(cm.Trace(model.space, 0, (0, 1, 3), "terminated"))


def test_an_operator_of_ones_own():
    left_only = cm.synchronise(lambda space: np.array([(a, b, a) for a in range(4) for b in range(4)], np.int32))
    c = cm.program_step(TWO, np.eye(2, dtype=bool))
    assert left_only(c, cm.environment_step(TWO)) == c
    assert left_only(c, cm.nil(TWO)) == cm.magic(TWO)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cm.guarantee(TWO, np.ones((3, 3), bool)), "g must be bool[S, S] with S = 2, the states of the model"),
        (lambda: cm.rely(TWO, np.ones((2, 2), np.int32)), "r must be bool[S, S]"),
        (lambda: cm.specification(TWO, np.ones(2, bool)), "got bool of shape (2,)."),
        (lambda: cm.program_step(TWO, np.ones((2, 3), bool)), "r must be bool[S, S]"),
        (lambda: cm.test(TWO, np.ones(3, bool)), "p must be bool[S] with S = 2"),
        (lambda: cm.assertion(TWO, np.ones((2, 2), bool)), "p must be bool[S] with S = 2"),
        (lambda: cm.program_step(TWO, steps=[3]), "steps must be one of '0', '1'; got '3'."),
        (
            lambda: cm.refines(cm.chaos(MODELS["three states"]), cm.nil(TWO)),
            "Commands must be of one model; got 3 states, 6 steps, traces of at most 2 and 2 states, 4 steps, traces "
            "of at most 3.",
        ),
        (lambda: cm.parallel(cm.nil(cm.Model(shared_memory(2), 2)), cm.nil(TWO)), "must be of one model"),
        (lambda: cm.nil(TWO) | cm.nil(MODELS["events"]), "must be of one model"),
        (lambda: cm.ccs_parallel(cm.nil(TWO), cm.nil(TWO)), "CCS needs steps with complements"),
        (lambda: cm.Model(shared_memory(2), 0), "max_steps must be a whole number at least 1; got 0."),
        (
            lambda: cm.Model(shared_memory(4), 9),
            "A command must have at most 8388608 bits; 4 states, 8 steps and traces of max_steps=9 make 1840700268. "
            "max_steps=6 would fit.",
        ),
        (lambda: cm.Model(shared_memory(2000), 1), "make 24006000. No trace of one step would fit: take fewer states."),
        (lambda: cm.Model(shared_memory(2), 10**5), "make more than 2**200002. max_steps=10 would fit."),
        (
            lambda: cm.csp_parallel(*[cm.nil(cm.Model(events(1), 8))] * 2),
            "At most 16777216 pairs of traces can be put together; a table of 10 rows makes 111111111 for max_steps=8. "
            "max_steps=7 would fit.",
        ),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_public_names():
    assert algebra.commands is cm and algebra.Model is cm.Model
    assert sorted(cm.__all__) == cm.__all__
    assert all(hasattr(cm, name) for name in cm.__all__)
    assert INCOMPLETE == 1


def test_a_trace_must_be_one_of_the_model():
    space = shared_memory(2)
    model, loop = cm.Model(space, 2), cm.Trace(space, 0, (1, 1, 1), "terminated")
    for trace, words in (
        (loop, "at most 2 steps, those of its model; got 3 steps"),
        (cm.Trace(space, 7, (), "terminated"), "the start of the trace must be .* between 0 and 1; got 7"),
        (cm.Trace(space, 0, (9,), "terminated"), "a step of the trace must be .* between 0 and 3; got 9"),
        (cm.Trace(space, 0, (), "done"), "the status of the trace must be one of"),
        (cm.Trace(shared_memory(3), 0, (), "terminated"), "of the command's space"),
    ):
        with pytest.raises(ValueError, match=words):
            cm.accepts(cm.nil(model), trace)
    with pytest.raises(ValueError, match="Commands must be of one model"):
        cm.nil(model) | cm.nil(cm.Model(space, 3))


@pytest.mark.parametrize("make", [shared_memory, events])
def test_sizes_of_spaces_are_whole(make):
    with pytest.raises(ValueError, match="must be a whole number at least 1; got 2.5"):
        make(2.5)
