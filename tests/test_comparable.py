"""Equal arguments make equal objects, and equal objects are compiled once."""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, specifications, stragglers, tasks
from gcjax.codes import assignments, stopping
from gcjax.equality import comparable
from tests.codes.helpers import exact_codes
from tests.protocols.table import CASES

KEY = jax.random.key(3)


@contextlib.contextmanager
def monitored(ending):
    """The events of JAX whose names end so, in a block."""
    names, watched = [], [True]

    def listen(event, duration, **_):
        if watched and event.endswith(ending):
            names.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    watched.clear()


def compilations():
    """The programs that XLA compiles, or takes from the disk, in a block."""
    return monitored("backend_compile_duration")


def traces():
    """The functions that JAX traces in a block."""
    return monitored("jaxpr_trace_duration")


@pytest.mark.slow("adaptive_coded", "grouped coded")
@pytest.mark.parametrize("name", sorted(CASES))
def test_equal_protocols(name):
    case = CASES[name]
    first, second = case.make(3), case.make(3)
    assert first == second and hash(first) == hash(second)


def test_jax_transforms_protocols_themselves():
    protocol = protocols.ssp(staleness=1)
    durations = jnp.ones((3, 2)).at[:, 1].set(2.0)
    expected = protocol(durations)
    np.testing.assert_array_equal(jax.jit(protocol)(durations).time, expected.time)
    with traces() as again:
        jax.jit(protocol)(durations)
    assert not again
    np.testing.assert_array_equal(jax.vmap(protocol)(durations[None]).time[0], expected.time)
    assert jax.eval_shape(protocol, durations).time.shape == expected.time.shape


@dataclasses.dataclass(frozen=True, init=False)
class WithOwnInit:
    scale: float
    function: object
    derived: object

    def __init__(self, scale):
        for name, value in (("scale", scale), ("function", lambda x: x * scale), ("derived", lambda: scale)):
            object.__setattr__(self, name, value)


def test_functions_in_frozen_dataclasses_are_comparable():
    """However they are made."""
    factory = comparable(WithOwnInit)
    assert factory(2.0) == factory(2.0) != factory(3.0)
    assert factory(2.0).function(3.0) == 6.0 and hash(factory(2.0)) == hash(factory(2.0))
    assert comparable(lambda made: made.derived)(factory(2.0)) == factory(2.0).derived


OWN_CLOSURE = {"whole uneven"}  # made in the tests, with a function of its own as argument


@pytest.mark.parametrize("name", specifications.TABLE)
def test_equal_specifications(name):
    """Also where actions are methods of an object, which are equal for the same object only."""
    one, other = (specifications.TABLE[name].factory() for _ in range(2))
    assert one == other and hash(one) == hash(other) and one is not other


def test_equal_codes():
    for (name, first, _), (_, second, _) in zip(exact_codes(), exact_codes(), strict=True):
        if name not in OWN_CLOSURE:
            assert first == second and hash(first) == hash(second), name
        if name in ("frc 6 s=1", "partial L=2"):
            assert_same_protocol(first, second)


@pytest.mark.slow
def test_protocols_of_all_codes_are_equal():
    for (name, first, _), (_, second, _) in zip(exact_codes(), exact_codes(), strict=True):
        if name not in OWN_CLOSURE:
            assert_same_protocol(first, second)


def assert_same_protocol(first, second):
    protocol = protocols.coded(first)
    assert protocol == protocols.coded(second) and protocol.code == first


@pytest.mark.parametrize(
    "one, other",
    [
        (protocols.ssp(staleness=3), protocols.ssp(staleness=4)),
        (protocols.ssp(staleness=3), protocols.ssp(staleness=3, weight=0.5)),
        (protocols.ssp(staleness=3, weight=1), protocols.ssp(staleness=3, weight=1.0)),  # other types, other programs
        (protocols.k_sync(num_contributions=2), protocols.k_async(num_contributions=2)),
        (stopping.deadline(1.0), stopping.deadline(2.0)),
        (codes.partial(assignments.cyclic(4, load=2)), codes.partial(assignments.cyclic(4, load=3))),
        (
            codes.partial(assignments.cyclic(4, load=2), num_blocks=2, rng_key=KEY),
            codes.partial(assignments.cyclic(4, load=2), num_blocks=2, rng_key=jax.random.key(4)),
        ),
        (
            codes.fixed_code(assignments.cyclic(3, load=1), np.ones((3, 1))),
            codes.fixed_code(assignments.cyclic(3, load=1), np.full((3, 1), 2.0)),
        ),
        (protocols.diloco(num_local_steps=2), protocols.diloco(num_local_steps=2, inner=optax.sgd(0.1))),
    ],
)  # fmt: skip
def test_other_arguments_make_other_objects(one, other):
    assert one != other


def test_a_closure_among_the_arguments_equals_itself_only():
    def decode(factor):
        return lambda progress, encode: factor * jnp.ones((3, 1, 1), encode.dtype)

    one, two = decode(1.0), decode(2.0)
    make = functools.partial(codes.fixed_code, assignments.cyclic(3, load=1), np.ones((3, 1)))
    assert make(decode=one) == make(decode=one)
    assert make(decode=one) != make(decode=two)


def test_what_a_factory_makes_of_a_closure_of_its_own_is_equal():
    @comparable
    def scaled(factor):
        return codes.fixed_code(
            assignments.cyclic(3, load=1), np.ones((3, 1)), decode=lambda progress, encode: factor * jnp.ones((3, 1, 1))
        )

    assert scaled(2.0) == scaled(2.0)
    assert scaled(2.0) != scaled(3.0)


def test_objects_of_other_types_of_floats_differ(x64):
    wide = codes.cyclic_repetition(5, num_stragglers=1, rng_key=KEY)
    with jax.enable_x64(False):
        narrow = codes.cyclic_repetition(5, num_stragglers=1, rng_key=KEY)
    assert wide != narrow
    assert wide.plan(jnp.array([2, 2, 2, 2, 0])).decode.dtype == np.float64


def test_traced_arguments_leave_a_factory_as_it_is():
    durations = jnp.ones((6, 3))
    times = jax.jit(lambda weight: protocols.ssp(staleness=1, weight=weight)(durations).weight)(0.25)
    assert (times == 0.25).all()


@pytest.mark.slow
def test_what_is_written_inline_compiles_nothing_twice():
    task = tasks.linear_regression(4, num_examples=32, num_features=3)
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), KEY, 10, 4)
    sgd = comparable(optax.sgd)

    def run():
        for protocol in (
            protocols.ssp(staleness=1),
            protocols.local_sgd(num_local_steps=2),
            protocols.coded(codes.partial(assignments.cyclic(4, load=2))),
        ):
            engine.run(task, protocol, sgd(0.1), durations, rng_key=KEY)

    run()
    with compilations() as names:
        run()
    assert not names
    with compilations() as names:
        engine.run(task, protocols.ssp(staleness=2), sgd(0.1), durations, rng_key=KEY)
    assert names  # the count sees what is compiled


@pytest.mark.slow("<lambda>2")
@pytest.mark.parametrize(
    "make",
    [
        lambda: protocols.ssp(staleness=2),
        lambda: protocols.coded(codes.partial(codes.assignments.cyclic(4, load=2))),
        lambda: protocols.adacomm(num_local_steps=2, seconds=5.0, num_windows=2),
    ],
)
def test_a_schedule_is_traced_once_for_equal_protocols_and_shapes(make):
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), KEY, 8, 4)
    others = 2 * durations
    make()(durations)
    protocol = make()
    with traces() as traced, compilations() as compiled:
        protocol(others)
        protocol(durations)
    assert not traced and not compiled
    with traces() as traced:
        protocol(others[:, :2] if protocol.code is None else others[:6])
    assert traced  # the count sees what is traced


class Settings:
    """An object that may change."""

    rate = 0.5


@pytest.mark.parametrize(
    "argument", [Settings(), np.random.default_rng(0), np.ma.masked_array([1.0, 2.0], [True, False]), {1, 2}]
)
def test_what_may_change_makes_nothing_equal(argument):
    @comparable
    def factory(argument):
        return lambda: argument

    assert factory(argument) != factory(argument)


@pytest.mark.parametrize(
    "one, other",
    [
        (0.0, -0.0),
        (True, 1),
        (jnp.asarray(0.1), jnp.float32(0.1)),  # one is weakly typed, and promotes otherwise
        (np.zeros(2, jnp.int4), np.zeros(2, jnp.uint4)),
        (np.zeros(2, jnp.float8_e4m3fn), np.zeros(2, jnp.float8_e5m2fnuz)),
    ],
)
def test_values_of_other_types_or_bits_differ(one, other):
    @comparable
    def factory(argument):
        return lambda: argument

    assert factory(one) == factory(one)
    assert factory(one) != factory(other)


def test_an_array_that_is_changed_later_changes_nothing():
    needs = np.ones((3, 1), np.int32)
    assignment, coefficients = assignments.cyclic(3, load=2), np.ones((3, 2))
    code = codes.fixed_code(assignment, coefficients, num_chunks_needed=needs)
    needs[:] = 2
    assert code.sent(jnp.ones(3, jnp.int32)).all()


@pytest.mark.parametrize("wrap", [list, tuple, lambda parts: {"parts": parts}], ids=["list", "tuple", "dict"])
def test_what_is_changed_inside_of_arguments_changes_nothing(wrap):
    @comparable
    def total(parts):
        return lambda: sum(np.sum(part) for part in (parts["parts"] if isinstance(parts, dict) else parts))

    array = np.ones(3)
    parts = wrap([array, [1.0, 2.0]])
    made, equal = total(parts), total(wrap([np.ones(3), [1.0, 2.0]]))
    array[:] = 7
    (parts["parts"] if isinstance(parts, dict) else parts)[1].append(5.0)
    if not isinstance(parts, tuple):
        (parts["parts"] if isinstance(parts, dict) else parts).append(np.ones(2))
    assert made() == equal() == 6 and made == equal
