from pathlib import Path

import jax
import numpy as np
import pytest

from gcjax import cli
from gcjax.algebra import laws
from gcjax.algebra.commands import Command, Model, accepts
from gcjax.algebra.laws import terms
from gcjax.algebra.steps import events, shared_memory
from tests.algebra.mutants import MUTANTS
from tests.algebra.trace_sets import TraceSets
from tests.parameters import one_in

MODELS = {"states": Model(shared_memory(2), 4), "events": Model(events(1), 4)}
NUMBER = 24  # of instances, always the same, so that little is compiled
OUTCOMES = {"axiom": "holds", "law": "holds", "refuted": "refuted", "out of reach": "out of reach"}


@pytest.fixture(scope="module")
def instances():
    """Those of the first test below, in which nothing is wrong without a mistake."""
    return {name: laws.Instances(model, jax.random.key(0), num=NUMBER) for name, model in MODELS.items()}


def surprises(results):
    return "\n\n".join(f"{x.law.title}: {x.outcome}\n{x.counterexample}" for x in results if not x.is_expected)


@pytest.mark.parametrize(("num_states", "max_steps", "num_instances"), one_in(2, [(2, 4, NUMBER), (3, 3, NUMBER)]))
def test_all_laws_come_out_as_the_table_says(num_states, max_steps, num_instances):
    results = laws.check_all(num_states=num_states, max_steps=max_steps, num_instances=num_instances)
    assert not surprises(results)
    assert [x.outcome for x in results] == [OUTCOMES[law.kind] for law in laws.LAWS]


@pytest.mark.slow
def test_all_laws_hold_for_traces_of_six_steps():
    true = [law for law in laws.LAWS if law.kind in ("axiom", "law")]
    assert not surprises(laws.check_all(num_states=2, max_steps=6, num_instances=1, laws=true))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_states", "max_steps", "num_instances"), [(2, 4, 500), (3, 3, 500), (2, 6, 24), (4, 2, 500)]
)
def test_all_laws_on_many_instances(num_states, max_steps, num_instances):
    results = laws.check_all(
        num_states=num_states, max_steps=max_steps, num_instances=num_instances, rng_key=jax.random.key(7)
    )
    assert not surprises(results)


REFUTED = [law for law in laws.LAWS if law.kind == "refuted"]


@pytest.mark.parametrize("law", REFUTED, ids=lambda law: law.name)
def test_what_must_not_hold_is_refuted_by_sets_of_traces_too(law, instances):
    """The counterexample is one by both: the arrays, and the sets of traces computed afresh by definition."""
    found = laws.check(law, instances[law.space]).counterexample
    assert found is not None
    sides = {"left": found.left, "right": found.right}
    other = "left" if found.by == "right" else "right"
    assert accepts(sides[found.by], found.trace) and not accepts(sides[other], found.trace)

    length = len(found.trace.steps)
    sets = TraceSets(Model(MODELS[law.space].space, max(1, length)))
    trace = found.trace.status, found.trace.start, found.trace.steps
    by_definition = {
        side: as_sets(getattr(found.claim, side), sets, instances[law.space], found.instance) for side in sides
    }
    assert trace in by_definition[found.by] and trace not in by_definition[other]
    assert all(by_definition[side] == sets.of(sides[side]) for side in sides)


def as_sets(term, sets, instances, i):
    """The value of a term by the operators of `TraceSets`, in instance i."""
    if term.arguments is None or term.sort in (terms.SET, terms.RELATION):
        value = jax.tree.map(lambda x: x[i], instances.values(term))
        return sets.of(value) if isinstance(value, Command) else np.asarray(value)
    return getattr(sets, term.name)(*(as_sets(x, sets, instances, i) for x in term.arguments))


@pytest.mark.slow(
    "csp_parallel: parallel",
    "parallel: both must abort",
    "parallel: nothing follows an abort",
    "parallel: two programs step at once",
    "sequence: from the first state",
)
@pytest.mark.parametrize(("name", "mistake", "function"), MUTANTS, ids=[f"{name}: {what}" for name, what, _ in MUTANTS])
def test_every_mistake_makes_a_law_fail(name, mistake, function, instances):
    operators = {**laws.OPERATORS, name: function}
    wrong = {space: drawn.by(operators) for space, drawn in instances.items()}
    about = [law for law in laws.LAWS if law.claims and any(name in names(claim) for claim in law.claims)]
    assert any(not laws.check(law, wrong[law.space]).is_expected for law in about)


def names(part):
    if isinstance(part, terms.Claim):
        return names(part.left) | names(part.right)
    return {part.name}.union(*map(names, part.arguments or ()))


def test_every_operator_is_in_a_law():
    used = set().union(*(names(claim) for law in laws.LAWS for claim in law.claims))
    assert set(laws.OPERATORS) <= used


def test_the_table_is_whole():
    titles = [law.title for law in laws.LAWS]
    assert len(set(titles)) == len(titles)
    for law in laws.LAWS:
        assert bool(law.claims) == (law.kind != "out of reach")
        assert law.source or law.kind == "out of reach"


def test_a_false_law_is_printed_with_its_counterexample(instances):
    c, d = terms.variables(terms.COMMAND, "c d")
    law = laws.Law("mine", "commutes", (c >> d == d >> c,))
    result = laws.check(law, instances["states"])
    assert not result.is_expected and result.outcome == "refuted"
    lines = str(result.counterexample).splitlines()
    assert lines[0] == "c;d = d;c" and lines[1].startswith("only the ") and lines[2].startswith("start in state ")
    assert lines[-1] in ("terminated", "incomplete", "aborted")


def test_terms_are_written_as_people_do():
    c, d, e = terms.variables(terms.COMMAND, "c d e")
    p, u = terms.variables(terms.SET, "p u")
    star, tau = (lambda x, name=name: terms.apply(name, x) for name in ("star", "test"))
    assert str(c >> (d >> e) == (c >> d) >> e) == "c;(d;e) = c;d;e"
    assert str(star(c | d) >> e >= tau(~(p | u)) >> star(c)) == "(c or d)*;e >= tau(not (p or u));c*"
    assert str((c >> d) & (d | e)) == "c;d & (d or e)"
    assert str((c @ d == d @ c).instance("parallel")) == "c ∥ d = d ∥ c"


def test_instances_are_those_of_the_key():
    c = terms.variables(terms.COMMAND, "c")[0]
    draw = lambda seed: laws.Instances(MODELS["states"], jax.random.key(seed), num=NUMBER).values(c).traces  # noqa: E731
    assert (draw(1) == draw(1)).all() and not (draw(1) == draw(2)).all()


def test_the_page_is_that_of_the_table():
    page = Path(__file__).parents[2] / "docs" / "algebra_laws.md"
    assert page.read_text() == laws.markdown(), "write it anew: gcjax algebra laws --page > docs/algebra_laws.md"


def only(monkeypatch, rows):
    monkeypatch.setattr(laws.check_all, "__kwdefaults__", laws.check_all.__kwdefaults__ | {"laws": rows})


def test_the_command_prints_the_table_and_what_is_refuted(capsys, monkeypatch):
    only(monkeypatch, [laws.LAWS[0], *REFUTED[:2], laws.LAWS[-1]])
    assert cli.main(["algebra", "laws", "--instances", str(NUMBER)]) == 0
    printed = capsys.readouterr().out
    assert "4 laws, 0 otherwise than expected." in printed
    assert "sequence: associative" in printed and "c;abort = abort\nonly the right side has the trace" in printed
    assert "out of reach" in printed


def test_the_command_fails_where_a_law_does(capsys, monkeypatch):
    only(monkeypatch, [REFUTED[0]._replace(kind="law")])
    assert cli.main(["algebra", "laws", "--instances", str(NUMBER)]) == 1
    assert "1 laws, 1 otherwise than expected." in capsys.readouterr().out


def test_the_command_prints_the_page(capsys):
    assert cli.main(["algebra", "laws", "--page"]) == 0
    assert capsys.readouterr().out == laws.markdown()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--states", "1"],
            "num_states must be a whole number at least 2; got 1. With one state a relation says nothing.",
        ),
        (["--instances", "0"], "num_instances must be a whole number between 1 and 1024; got 0."),
        (["--states", "4", "--steps", "9"], "max_steps=6 would fit."),
    ],
)
def test_bad_options(options, message, capsys):
    assert cli.main(["algebra", "laws", *options]) == 2
    assert message in capsys.readouterr().err
