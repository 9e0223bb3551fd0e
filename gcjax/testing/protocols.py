"""The contract of protocols: what must hold of their schedules, whatever the durations.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols import Protocol, Schedule, check
from gcjax.protocols.base import workers_of
from gcjax.protocols.conformance.structure import INDICES, check_shapes, check_structure
from gcjax.protocols.simulation import event_schedule
from gcjax.stragglers.network import Network
from gcjax.testing.contract import (
    ContractError,
    TracedProgram,
    call_or_fail,
    check_refusal,
    on_one_line,
    random_generator,
    require,
    same,
)
from gcjax.testing.same_commits import (
    check_further_units_do_not_matter,
    check_future_units_do_not_matter,
    check_rule_makes_commits,
)
from gcjax.testing.schedules import check_every_rule
from gcjax.testing.smallest import smallest_case

ScheduleFunction = Callable[[Any, Network], Schedule]


class Case(NamedTuple):
    """Durations `[T, W]` and the seconds of messages `[3, W]`: latency, upload, download."""

    durations: np.ndarray
    message_seconds: np.ndarray

    @property
    def network(self) -> Network:
        """The network of the case, always of arrays, so that one program serves all cases of a shape."""
        return Network(*self.message_seconds)

    def __str__(self) -> str:
        """The case in words, for an error."""
        network = ""
        if self.message_seconds.any():
            latency, upload, download = (on_one_line(x) for x in self.message_seconds)
            network = f" with latency={latency}, upload={upload}, download={download}"
        return f"durations {on_one_line(self.durations)}{network}"


def check_protocol(
    protocol: Protocol,
    *,
    num_workers: int | None = None,
    num_units: int | None = None,
    num_cases: int = 2,
    quick: bool = False,
    knows_durations: bool = False,
    rng_key: jax.Array | None = None,
) -> None:
    """Checks the contract of a protocol (`gcjax.protocols.Protocol`) and of the schedules that it makes.

    On random durations and on ones with many ties, with units that never end and units of no length, with and without a
    network: commits are in order of time, and read only versions that are there, within the staleness that the protocol
    allows; each unit is used once at most, when it has arrived; nobody begins a unit before being free, or while
    sending; messages take as long as the network says; weights are positive and add up to a mean; commits that do not
    happen are last. A commit does not depend on units that have not ended by then, nor, up to the horizon, on how many
    are sampled. The schedule is that of the protocol's specification, and of its rule, if it has one. Besides: the
    types of the durations are kept, there is one program for all durations, it gives the same bits again, and under
    `vmap`; durations that are no seconds are refused. Not tried are links that are shared at the server, and how long
    it takes workers with parameters of their own to receive.

    Args:
      protocol: what is checked.
      num_workers: W; those of the code if there is one, otherwise 4.
      num_units: T; 8 rounds if None.
      num_cases: how many durations of each kind are drawn.
      quick: leaves out what needs further programs: `vmap`, more units, the rule, and the specification.
      knows_durations: whether it may know all durations from the beginning, as `worker_busy(eager=True)` does without a
        trigger.
      rng_key: decides the random cases.

    Raises:
      ContractError: an `AssertionError` with the sentence that is broken, and the smallest case.
    """
    require(isinstance(protocol, Protocol), f"a protocol must be a gcjax.protocols.Protocol; got {protocol!r}")
    if num_workers is None:
        num_workers = workers_of(protocol) or 4
    shape = (8 * protocol.round_units if num_units is None else num_units), num_workers  # T, W
    _check_types(protocol, shape)
    with jax.enable_x64(True):
        traced_schedule = TracedProgram(protocol.schedule)
        is_program = hasattr(protocol.schedule, "lower")  # jitted already
        schedule_function: ScheduleFunction = protocol.schedule if is_program else traced_schedule
        cases, schedules, num_commits = list(_cases_to_try(shape, num_cases, random_generator(rng_key))), [], 0
        for case in cases:
            schedules.append(_schedule_of_case(schedule_function, case))
            num_commits += int(np.isfinite(schedules[-1].time).sum())
            broken_rule = _broken_rule(protocol, schedule_function, schedules[-1], case, knows_durations)
            if broken_rule:
                broken_rule_of = functools.partial(_broken_rule_of_case, protocol, knows_durations)
                rule, smallest = smallest_case(broken_rule_of, broken_rule, case, round_units=protocol.round_units)
                require(False, rule, str(smallest))
        require(num_commits, f"some commit must happen within {shape[0]} units of each worker; none did in any case")
        require(traced_schedule.num_traces <= 1, "a schedule must not be compiled again for other durations or links")
        is_same = same(_schedule_of_case(schedule_function, cases[0]), schedules[0])
        require(is_same, "the same durations must give the same schedule, bit by bit", str(cases[0]))
        if not quick:
            _check_vmap(protocol, cases, schedules)
            if not knows_durations:
                _check_more_units(protocol, cases)
            _check_rule(protocol, num_workers, cases, schedules)
        _check_refusals(protocol, shape)
    if not quick:
        _check_specification(protocol, num_workers, cases, schedules)


def _cases_to_try(shape: tuple[int, int], num_cases: int, random: np.random.Generator) -> Iterator[Case]:
    """Cases of the shape (T, W) to try, the simplest first; the last has a worker that fails for good."""
    num_units, num_workers = shape
    no_seconds = np.zeros((3, num_workers))  # messages take no time: latency, upload, download
    yield Case(np.ones(shape), no_seconds)
    for failure_probability in (0.0, 0.1):
        for _ in range(num_cases):
            mean_seconds = random.uniform(0.5, 2.0, size=num_workers)
            # Few numbers, so that many times are equal; seldom 0.
            tied_seconds = random.choice([0.0, 0.5, 1.0, 1.25, 2.0, 3.0], p=[0.05, *5 * [0.19]], size=shape)
            for unit_seconds in (tied_seconds, random.exponential(size=shape) * mean_seconds):
                durations = np.where(random.random(shape) < failure_probability, np.inf, unit_seconds)
                yield Case(durations, no_seconds)
                message_seconds = random.choice([0.0, 0.25, 0.5, 1.0], size=(3, num_workers))
                yield Case(durations, message_seconds)
    durations_with_failure = random.exponential(size=shape)
    failed_worker = random.integers(num_workers)
    durations_with_failure[num_units // 2 :, failed_worker] = np.inf
    yield Case(durations_with_failure, no_seconds)


def _schedule_of_case(schedule_function: ScheduleFunction, case: Case) -> Schedule:
    """The schedule of a case, in numpy arrays."""
    return jax.tree.map(
        np.asarray, call_or_fail("schedule", schedule_function, case.durations, case.network, case=str(case))
    )


def _broken_rule(
    protocol: Protocol, schedule_function: ScheduleFunction, schedule: Schedule, case: Case, knows_durations: bool
) -> str:
    """The first rule that the schedule of a case breaks; empty if it keeps to all."""
    try:
        check_structure(schedule, protocol)
        check_every_rule(schedule, protocol, case.durations, case.message_seconds)
        if not knows_durations:
            check_future_units_do_not_matter(
                lambda durations: _schedule_of_case(schedule_function, case._replace(durations=durations)),
                schedule,
                case.durations,
            )
    except ValueError as error:
        return _rule_without_advice(error)
    except ContractError as error:
        return str(error).rstrip(".")
    return ""


def _rule_without_advice(error: ValueError) -> str:
    """The sentence of an error of `gcjax.protocols.conformance`, without the one that says what to do."""
    return str(error).replace(" Correct the protocol's schedule.", "").rstrip(".")


def _broken_rule_of_case(protocol: Protocol, knows_durations: bool, case: Case) -> str:
    """The first rule that the schedule of a case breaks; empty if none, or if the protocol cannot take the case."""
    schedule_function = _compiled_schedule(protocol.schedule)
    try:
        schedule = jax.tree.map(np.asarray, schedule_function(case.durations, case.network))
    except Exception:
        return ""
    return _broken_rule(protocol, schedule_function, schedule, case, knows_durations)


@functools.lru_cache(maxsize=1)
def _compiled_schedule(schedule: Callable[[jax.Array, Network], Schedule]) -> ScheduleFunction:
    """The program of a schedule, as long as smaller and smaller cases of it are tried."""
    return jax.jit(lambda durations, network: schedule(durations, network))


def _check_types(protocol: Protocol, shape: tuple[int, int]) -> None:
    """The schedule for durations of this shape (T, W) has the right shapes and types; nothing is computed."""
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(True):
            durations = jax.ShapeDtypeStruct(shape, dtype)
            schedule = call_or_fail("schedule", jax.eval_shape, protocol.schedule, durations, Network())
        rule = "a protocol must make a gcjax.protocols.Schedule"
        require(isinstance(schedule, Schedule), f"{rule}; this one made {type(schedule).__name__}")
        try:
            check_shapes(schedule, shape)
        except ValueError as error:
            require(False, _rule_without_advice(error))
        for name, field in schedule._asdict().items():
            is_index = name in (*INDICES, "read")
            expected_dtype = jnp.dtype(jnp.int32 if is_index else dtype)
            rule = f"{name} must be {expected_dtype} for durations of {jnp.dtype(dtype)}, also with 64-bit types"
            require(field.dtype == expected_dtype, f"{rule}; it is {field.dtype}")


def _check_vmap(protocol: Protocol, cases: list[Case], schedules: list[Schedule]) -> None:
    """Checks that under `vmap` the first three cases without a network have the same schedules, bit by bit."""
    indices = [i for i, case in enumerate(cases) if not case.message_seconds.any()][:3]  # messages that take no time
    batched_cases, schedules_alone = [cases[i] for i in indices], [schedules[i] for i in indices]
    durations = jnp.stack([jnp.asarray(case.durations) for case in batched_cases])
    no_network = batched_cases[0].network
    batched_schedule = call_or_fail("schedule", jax.jit(jax.vmap(protocol.schedule, (0, None))), durations, no_network)
    for row, (case, schedule_alone) in enumerate(zip(batched_cases, schedules_alone, strict=True)):
        for name, field_alone, batched_field in zip(Schedule._fields, schedule_alone, batched_schedule, strict=True):
            is_equal = np.array_equal(field_alone, np.asarray(batched_field)[row], equal_nan=True)
            require(is_equal, f"a schedule must be the same under vmap; {name} is not", str(case))


def _check_more_units(protocol: Protocol, cases: list[Case]) -> None:
    """Checks that up to the horizon the schedules of the first units of a few cases are those of all their units."""
    with_long_messages = [
        case._replace(message_seconds=3 * case.message_seconds) for case in cases if case.message_seconds.any()
    ]
    num_first_units = max(1, cases[0].durations.shape[0] // 2 // protocol.round_units) * protocol.round_units
    schedule_function = jax.jit(protocol.schedule)
    for case in [*cases[:2], *with_long_messages, cases[-1]]:
        case_of_first_units = case._replace(durations=case.durations[:num_first_units])
        schedule_of_first_units = _schedule_of_case(schedule_function, case_of_first_units)
        check_further_units_do_not_matter(
            schedule_of_first_units, _schedule_of_case(schedule_function, case), f"{num_first_units} units of {case}"
        )


def _check_rule(protocol: Protocol, num_workers: int, cases: list[Case], schedules: list[Schedule]) -> None:
    """Checks that the event queue makes the commits of the schedules by the protocol's rule, if it can.

    Where no two units take as long as each other, and none fails: at ties the order may be another one.
    """
    if protocol.rule is None:
        return
    try:
        rule = protocol.rule(num_workers)
    except ValueError:  # says why there is none
        return
    if rule.stop is not None:  # the server stops turns, which the event queue does not simulate
        return
    queue_schedule = jax.jit(lambda durations, network: event_schedule(rule, durations, network))
    for case, schedule in zip(cases, schedules, strict=True):
        if np.isfinite(case.durations).all() and np.unique(case.durations).size == case.durations.size:
            check_rule_makes_commits(schedule, _schedule_of_case(queue_schedule, case), str(case))


def _check_specification(protocol: Protocol, num_workers: int, cases: list[Case], schedules: list[Schedule]) -> None:
    """Checks that the schedules keep to the protocol's specification, if there is one."""
    if protocol.specification is None:
        return
    specification = call_or_fail("specification", protocol.specification, num_workers)
    for case, schedule in zip(cases, schedules, strict=True):
        conformance = check(schedule, specification)
        first_deviation = str(conformance).splitlines()[0].rstrip(".")
        rule = "a schedule must keep to the protocol's specification"
        require(conformance, f"{rule}; {first_deviation}", str(case))


def _check_refusals(protocol: Protocol, shape: tuple[int, int]) -> None:
    """Durations that are no seconds, or of another number of workers than the code has, are refused."""
    for words, durations in {
        "negative durations": np.full(shape, -1.0),
        "durations that are no numbers": np.full(shape, np.nan),
        "whole numbers as durations": np.ones(shape, np.int32),
        "durations of one axis": np.ones(shape[0]),
    }.items():
        check_refusal("a protocol", protocol.__call__, durations, case=words)
    if protocol.code is not None:
        num_units, num_workers = shape
        of_another_worker_too = jnp.asarray(np.ones((num_units, num_workers + 1)))
        check_refusal(
            "a protocol with a code", protocol.schedule, of_another_worker_too, Network(), case="durations of others"
        )
