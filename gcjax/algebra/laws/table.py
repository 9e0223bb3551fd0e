"""The laws of the algebra as one table; tests, documentation and the command line read it.

In the order of the theory: sequence, iteration, tests, steps, synchronisation for every instance of it, what is special
to each instance, rely and guarantee, what must not hold, and what the bounded model cannot see.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from gcjax.algebra.laws.terms import COMMAND, RELATION, SET, STEP, Claim, Term, apply, variables

Kind = Literal["axiom", "law", "refuted", "out of reach"]
Space = Literal["states", "events"]
STATES: Space = "states"
EVENTS: Space = "events"


class Law(NamedTuple):
    """One row.

    Attributes:
      section: where it belongs.
      name: what it is called, without the section.
      claims: what it says; for a refuted one, at least one of them is false.
      condition: what it assumes, in words; empty if nothing.
      source: where it comes from.
      kind: an axiom of the theory, a law that follows, one that must fail, or one that the model cannot judge.
      space: whether its traces are of shared memory or of events.
    """

    section: str
    name: str
    claims: tuple[Claim, ...] = ()
    condition: str = ""
    source: str = ""
    kind: Kind = "law"
    space: Space = STATES

    @property
    def title(self) -> str:
        """Section and name, which no other row has."""
        return f"{self.section}: {self.name}"


SYNCHRONOUS = "Hayes et al. 2019"
RELY = "Hayes 2016"
KLEENE = "Hayes et al. 2019, from Kleene algebra"

c, d, e, c0, c1, d0, d1 = variables(COMMAND, "c d e c0 c1 d0 d1")
a, b = variables(STEP, "a b")
p, u = variables(SET, "p u")
r, r1, r2, g, g1, g2, q, q1, q2, q3 = variables(RELATION, "r r1 r2 g g1 g2 q q1 q2 q3")
nil, magic, abort, skip, chaos = map(apply, ("nil", "magic", "abort", "skip", "chaos"))
any_step, any_pi, any_eps = map(apply, ("any_step", "any_program_step", "any_environment_step"))
internal, event, coevent = map(apply, ("internal", "event", "coevent"))
everything, nothing = (apply(name, sort=RELATION) for name in ("everything", "nothing"))
all_states, no_states = (apply(name, sort=SET) for name in ("all_states", "no_states"))


def _command(name: str) -> Callable[..., Term]:
    """The function that applies the operator of this name, which makes a command, to terms."""
    return lambda *arguments: apply(name, *arguments)


meet, par, csp, ccs = map(_command, ("meet", "parallel", "csp_parallel", "ccs_parallel"))
star, omega, inf = map(_command, ("star", "omega", "infinite"))
pi, eps, tau, holds = map(_command, ("program_step", "environment_step", "test", "assertion"))
guar, rely, spec, by_start, happens = map(_command, ("guarantee", "rely", "specification", "by_start", "happens"))


def _relation(name: str) -> Callable[..., Term]:
    """The function that applies the operator of this name, which makes a relation, to terms."""
    return lambda *arguments: apply(name, *arguments, sort=RELATION)


closure, then, within = map(_relation, ("reflexive_transitive", "composition", "restriction"))


def _laws(section: str, source: str, kind: Kind, rows: Iterable[tuple[Any, ...]], space: Space = STATES) -> list[Law]:
    """The laws of one section, from rows `(name, *claims)`; the last entry of a row can be its condition, a text."""
    laws = []
    for name, *claims in rows:
        ends_with_condition = isinstance(claims[-1], str)
        condition = claims.pop() if ends_with_condition else ""
        laws.append(
            Law(
                section=section, name=name, claims=tuple(claims), condition=condition,
                source=source, kind=kind, space=space,
            )
        )  # fmt: skip
    return laws


_ATOMIC = "a, b atomic"

SEQUENCE = _laws("sequence", SYNCHRONOUS, "axiom", [
    ("associative", c >> (d >> e) == c >> d >> e),
    ("unit", nil >> c == c, c >> nil == c),
    ("abort first", abort >> c == abort),
    ("magic first", magic >> c == magic),
    ("distributes from the right", (c | d) >> e == (c >> e | d >> e)),
    ("distributes from the left", c >> (d | e) == (c >> d | c >> e)),
]) + _laws("choice", SYNCHRONOUS, "axiom", [
    ("a lattice, choice", (c | d) == (d | c), (c | (d | e)) == ((c | d) | e), (c | c) == c),
    ("a lattice, meet", meet(c, d) == meet(d, c), meet(c, meet(d, e)) == meet(meet(c, d), e), meet(c, c) == c),
    ("absorption", (c | meet(c, d)) == c, meet(c, c | d) == c),
    ("distributive", meet(c, d | e) == (meet(c, d) | meet(c, e))),
    ("bottom and top", (c | magic) == c, (c | abort) == abort, meet(c, abort) == c, meet(c, magic) == magic),
]) + _laws("sequence", SYNCHRONOUS, "law", [
    ("monotone", (c | d) >> e >= c >> e, e >> (c | d) >= e >> c),
    ("below the meet", meet(c, d) >> e >= meet(c, d) >> meet(e, c), meet(c >> d, c >> e) >= c >> meet(d, e)),
])  # fmt: skip

ITERATION = _laws("iteration", SYNCHRONOUS, "axiom", [
    ("star unfolds", star(c) == (nil | c >> star(c))),
    ("omega unfolds", omega(c) == (nil | c >> omega(c))),
    ("infinite unfolds", inf(c) == c >> inf(c)),
    ("isolation", omega(c) == (star(c) | inf(c))),
]) + _laws("iteration", KLEENE, "law", [
    ("infinite never ends", inf(c) == omega(c) >> magic, inf(c) >> d == inf(c)),
    ("star is finite", star(nil) == nil, star(magic) == nil, star(tau(p)) == nil),
    ("omega of nothing", omega(nil) == abort, omega(magic) == nil, inf(magic) == magic, inf(nil) == abort),
    ("star repeats", star(c) >> star(c) == star(c), star(star(c)) == star(c), star(c) >= c),
    ("omega repeats", omega(c) >> omega(c) == omega(c), omega(c) >= star(c)),
    ("star from the right", star(c) == (nil | star(c) >> c)),
    ("leapfrog", c >> star(d >> c) == star(c >> d) >> c, c >> omega(d >> c) == omega(c >> d) >> c),
    ("of a choice", star(c | d) == star(c) >> star(d >> star(c)), omega(c | d) == omega(c) >> omega(d >> omega(c))),
    ("fixed points", star(c) >> d == (d | c >> (star(c) >> d)), omega(c) >> d == (d | c >> (omega(c) >> d))),
    ("monotone", star(c | d) >= star(c), omega(c | d) >= omega(c), inf(c | d) >= inf(c)),
])  # fmt: skip

TESTS = _laws("tests", SYNCHRONOUS, "axiom", [
    ("all and none", nil == tau(all_states), magic == tau(no_states)),
    ("in sequence", tau(p) >> tau(u) == tau(p & u)),
    ("as sets", (tau(p) | tau(u)) == tau(p | u), meet(tau(p), tau(u)) == tau(p & u)),
    ("restrict", tau(p) >> c == meet(c, tau(p) >> abort)),
    ("assertion", holds(p) == (tau(p) | tau(~p) >> abort)),
]) + _laws("tests", SYNCHRONOUS, "law", [
    ("by cases", (tau(p) >> c | tau(~p) >> c) == c),
    ("over meet", tau(p) >> meet(c, d) == meet(tau(p) >> c, tau(p) >> d)),
    ("assertions in sequence", holds(p) >> holds(u) == holds(p & u), holds(p) >> tau(p) == holds(p)),
    ("test and assertion", tau(p) >> holds(p) == tau(p), holds(p) >= nil, nil >= tau(p)),
    ("Galois", holds(p) >> (tau(p) >> c) >= c, c >= tau(p) >> (holds(p) >> c)),
])  # fmt: skip

STEPS = _laws("steps", SYNCHRONOUS, "axiom", [
    ("program or environment", meet(pi(r), eps(g)) == magic),
    ("after a test", tau(p) >> pi(r) == pi(within(p, r)), tau(p) >> eps(r) == eps(within(p, r))),
    ("as relations", pi(r | g) == (pi(r) | pi(g)), eps(r | g) == (eps(r) | eps(g)), pi(nothing) == magic),
    ("meet as relations", pi(r & g) == meet(pi(r), pi(g)), eps(r & g) == meet(eps(r), eps(g))),
    ("all steps", any_step == (pi(everything) | eps(everything)), any_step >= a),
    ("meet of steps first", meet(a >> c, b >> d) == meet(a, b) >> meet(c, d), _ATOMIC),
    ("a step is not nothing", meet(nil, a >> c) == magic, "a atomic"),
])  # fmt: skip


def _synchronisation_axioms() -> list[tuple[Any, ...]]:
    """Rows (name, claims, condition) of what holds of every synchronisation, written `@`; `identity` is its unit step.

    c, d, e are commands, a, b atomic steps, p is a set, tau a test, inf endless repetition.
    """
    identity = apply("identity_step")
    return [
        ("associative", c @ (d @ e) == (c @ d) @ e),
        ("commutative", c @ d == d @ c),
        ("distributes over choice", c @ (d | e) == (c @ d | c @ e)),
        ("both do nothing", nil @ nil == nil),
        ("one stops", nil @ (a >> c) == magic, "a atomic"),
        ("step by step", (a >> c) @ (b >> d) == (a @ b) >> (c @ d), _ATOMIC),
        ("forever", inf(a) @ inf(b) == inf(a @ b), _ATOMIC),
        ("identity step", a @ identity == a, "a atomic"),
        ("tests", tau(p) >> (c @ d) == (tau(p) >> c) @ (tau(p) >> d)),
        ("interchange", (c0 >> c1) @ (d0 >> d1) >= (c0 @ d0) >> (c1 @ d1)),
    ]


def _synchronisation_laws() -> list[tuple[Any, ...]]:
    """Rows of the laws that every synchronisation operator `@` obeys."""
    identity = apply("identity_step")
    return [
        ("abort", abort @ c == abort),
        ("identity", omega(identity) @ c == c),
        ("monotone", (c | e) @ d >= c @ d),
        ("two tests", tau(p) @ tau(u) == tau(p & u)),
        ("an assertion of one", holds(p) >> (c @ d) == (holds(p) >> c) @ d),
        ("steps make a step", meet(a @ b, any_step) == a @ b, _ATOMIC),
        ("iterated steps", star(a) @ star(b) == star(a @ b), omega(a) @ omega(b) == omega(a @ b), _ATOMIC),
        (
            "iterated steps first",
            (omega(a) >> c) @ (omega(b) >> d)
            == omega(a @ b) >> (c @ (omega(b) >> d) | (omega(a) >> c) @ d),
            _ATOMIC,
        ),
    ]  # fmt: skip


def _operator_laws() -> list[Law]:
    """The axioms and laws of synchronisation for every parallel operator, in the place of `@`."""
    all_laws = []
    for section, operator, space in (
        ("parallel", "parallel", STATES),
        ("weak conjunction", "weak_conjunction", STATES),
        ("CSP", "csp_parallel", EVENTS),
        ("CCS", "ccs_parallel", EVENTS),
    ):
        laws = _laws(section, SYNCHRONOUS, "axiom", _synchronisation_axioms(), space)
        laws += _laws(section, SYNCHRONOUS, "law", _synchronisation_laws(), space)
        all_laws += [law._replace(claims=tuple(claim.instance(operator) for claim in law.claims)) for law in laws]
    return all_laws


def _eventually(operator: str) -> Claim:
    """The claim that a and b, each with the environment around it, happen as one step or one after the other."""
    claim = happens(a) @ happens(b) == (happens(a @ b) | happens(a) >> happens(b) | happens(b) >> happens(a))
    return claim.instance(operator)


SPECIAL = _laws("parallel", SYNCHRONOUS, "axiom", [
    ("two programs", par(pi(r), pi(g)) == magic),
    ("two environments", par(eps(r), eps(g)) == eps(r & g)),
    ("program and environment", par(eps(r), pi(g)) == pi(r & g)),
    ("skip", skip == omega(any_eps), par(skip, c) == c),
]) + _laws("weak conjunction", SYNCHRONOUS, "axiom", [
    ("idempotent", (c & c) == c),
    ("chaos", chaos == omega(any_step), (chaos & c) == c),
    ("two programs", (pi(r) & pi(g)) == pi(r & g)),
    ("two environments", (eps(r) & eps(g)) == eps(r & g)),
    ("program and environment", (pi(r) & eps(g)) == magic),
]) + _laws("weak conjunction", SYNCHRONOUS, "law", [
    ("exchange with parallel", par(c0, c1) & par(d0, d1) >= par(c0 & d0, c1 & d1)),
    ("above the meet", (c & d) >= meet(c, d)),
    ("meet of what never aborts",
     (meet(c, chaos) & meet(d, chaos)) == meet(meet(c, chaos), meet(d, chaos))),
]) + _laws("CSP", SYNCHRONOUS, "axiom", [
    ("the same event", csp(event, event) == event),
    ("other events", csp(event, coevent) == magic),
    ("event and environment", csp(event, any_eps) == event, csp(any_eps, any_eps) == any_eps),
], EVENTS) + _laws("CCS", SYNCHRONOUS, "axiom", [
    ("complements", ccs(event, coevent) == internal, ccs(coevent, event) == internal),
    ("other events", ccs(event, event) == magic, ccs(internal, internal) == magic),
    ("event and environment", ccs(event, any_eps) == event, ccs(any_eps, any_eps) == any_eps),
], EVENTS) + _laws("events", SYNCHRONOUS, "law", [
    ("interleaved or together, parallel", _eventually("parallel"), _ATOMIC + "; <a> = skip;a;skip"),
    ("interleaved or together, CSP", _eventually("csp_parallel"), _ATOMIC),
    ("interleaved or together, CCS", _eventually("ccs_parallel"), _ATOMIC),
], EVENTS)  # fmt: skip


def _three_commands() -> list[Term]:
    """Three commands, each with the guarantee and the rely r, and a specification of its own."""
    return [guar(r) & rely(r) & spec(x) for x in (q1, q2, q3)]


RELY_GUARANTEE = _laws("rely-guarantee", RELY, "axiom", [
    ("guarantee", guar(g) == omega(pi(g) | any_eps)),
    ("rely", rely(r) == omega(any_pi | eps(r) | eps(~r) >> abort)),
    ("specification", spec(q) == by_start(q)),
]) + _laws("rely-guarantee", RELY, "law", [
    ("all is allowed", guar(everything) == chaos, rely(everything) == chaos, spec(everything) == chaos),
    ("guarantees are monotone", guar(g1 | g2) >= guar(g1)),
    ("a weaker rely refines", rely(r1) >= rely(r1 | r2)),
    ("specifications are monotone", spec(q1 | q2) >= spec(q1)),
    ("conjoined guarantees", (guar(g1) & guar(g2)) == guar(g1 & g2)),
    ("conjoined relies", (rely(r1) & rely(r2)) == rely(r1 & r2)),
    ("conjoined specifications", (spec(q1) & spec(q2)) == spec(q1 & q2)),
    ("parallel guarantees", par(guar(g1), guar(g2)) == guar(g1 | g2)),
    ("guarantees in sequence", guar(g) >> guar(g) == guar(g)),
    ("specifications in sequence", spec(then(q1, q2)) >= spec(q1) >> spec(q2)),
    ("a guarantee is added", c >= guar(g) & c),
    ("a rely is dropped", rely(r) & c >= c),
    ("a guarantee over sequence", (guar(g) & (c >> d)) == (guar(g) & c) >> (guar(g) & d)),
    ("a guarantee over parallel", (guar(g) & par(c, d)) == par(guar(g) & c, guar(g) & d)),
    ("a rely over sequence", (rely(r) & (c >> d)) == (rely(r) & c) >> (rely(r) & d)),
    ("a rely over parallel", rely(r) & par(c, d) >= par(rely(r) & guar(r) & c, rely(r) & guar(r) & d)),
    ("assertion and specification", holds(p) >> spec(q) == holds(p) >> spec(within(p, q))),
    ("test and specification", spec(within(p, q)) >= tau(p) >> spec(within(p, q)), tau(p) >> spec(q) >= magic),
    ("trading",
     (rely(r) & guar(g) & spec(closure(r | g) & q)) == (rely(r) & guar(g) & spec(q))),
    ("parallel introduction",
     rely(r) & spec(q1 & q2)
     >= par(guar(r | r2) & rely(r | r1) & spec(q1), guar(r | r1) & rely(r | r2) & spec(q2))),
    ("parallel introduction, three",
     rely(r) & spec(q1 & q2 & q3) >= par(par(*_three_commands()[:2]), _three_commands()[2])),
])  # fmt: skip

REFUTED = _laws("must not hold", SYNCHRONOUS, "refuted", [
    ("abort last", c >> abort == abort),
    ("magic last", c >> magic == magic),
    ("magic in parallel", par(c, magic) == magic),
    ("weak conjunction is meet", (c & d) == meet(c, d)),
    ("omega is star", omega(nil) == star(nil)),
    ("interchange as an equation", par(c0 >> c1, d0 >> d1) == par(c0, d0) >> par(c1, d1)),
    ("a test of one side", tau(p) >> par(c, d) == par(tau(p) >> c, d)),
    ("two programs at once", par(pi(r), pi(g)) == pi(r & g)),
    ("sequence over meet", c >> meet(d, e) == meet(c >> d, c >> e)),
]) + _laws("must not hold", RELY, "refuted", [
    ("a rely over parallel, no guarantees", rely(r) & par(c, d) >= par(rely(r) & c, rely(r) & d)),
    ("parallel introduction, no guarantees",
     rely(r) & spec(q1 & q2) >= par(rely(r | r1) & spec(q1), rely(r | r2) & spec(q2))),
])  # fmt: skip

OUT_OF_REACH = [
    Law(section="infinite traces", name=name, claims=(), condition=condition, source=source, kind="out of reach")
    for name, condition, source in (
        ("total correctness", "a command that terminates, not only one that is right if it does", RELY),
        ("fairness", "an environment that lets the program go on", "Hayes and Meinicke 2018"),
        ("progress", "no state in which all wait for each other: to be checked on the states themselves", ""),
        (
            "infinite behaviour",
            "what c^inf does at infinity: only that all its finite parts agree is checked",
            SYNCHRONOUS,
        ),
    )
]

LAWS: tuple[Law, ...] = (
    *SEQUENCE, *ITERATION, *TESTS, *STEPS, *_operator_laws(), *SPECIAL, *RELY_GUARANTEE, *REFUTED, *OUT_OF_REACH
)  # fmt: skip
"""All rows."""
