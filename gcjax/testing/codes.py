"""The contract of gradient codes.

Letters: W workers, N chunks, K chunks a worker holds, L blocks of the gradient, M messages a worker sends. The
states are those of progress that are tried.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes import Assignment, Coding, GradientCode
from gcjax.codes.base import check_assignment, norm_of_exact_sum
from gcjax.testing.contract import (
    ContractError,
    TracedProgram,
    call_or_fail,
    check_refusal,
    close,
    on_one_line,
    random_generator,
    require,
)

ROUNDING = 1e-7  # of a residual in float64, relative to the norm of the target


PlanAll = Callable[[jax.Array], tuple[Coding, jax.Array]]
"""`progress int32[states, W] -> (codings, what is sent)`."""


class _PlannedStates(NamedTuple):
    """Plans of a code at states of progress; numpy arrays with a leading axis for these.

    Attributes:
      progress: int[states, W].
      coding: with the shapes of `Coding` after that axis.
      sent: bool[states, W, M], the messages that are sent.
      distance: float[states], the true distance of the decoded coefficients from the exact sum.
    """

    progress: np.ndarray
    coding: Coding
    sent: np.ndarray
    distance: np.ndarray


def check_code(
    code: GradientCode,
    *,
    tolerated: int | None = None,
    never_grows: bool = False,
    max_masks: int = 128,
    quick: bool = False,
    rng_key: jax.Array | None = None,
) -> None:
    """Checks the contract of a gradient code (`gcjax.codes.GradientCode`).

    On every set of stragglers if there are at most `max_masks` of them, on random ones otherwise, and on random partial
    progress: shapes and types, the residual is the distance of the coefficients from the exact sum, nothing that is not
    finished is in a message, nothing that is not sent is decoded, what has been sent stays so. On random times, with
    workers that fail: at the time of completion the sum is exact, just before it is not. Besides: `plan` can be
    compiled, gives the same under `vmap` and without `jit`, keeps to the default float type, compiles once, and
    refuses progress of other workers or beyond the loads.

    Args:
      code: what is checked.
      tolerated: the largest number of stragglers of which every set is decoded exactly; not checked if None.
      never_grows: whether the code promises that its residual never grows with progress.
      max_masks: how many sets of stragglers are tried at most.
      quick: leaves out what needs operations to be compiled one by one: that `plan` gives the same without `jit`.
      rng_key: decides the random cases.

    Raises:
      ContractError: an `AssertionError` with the sentence that is broken, and the smallest case.
    """
    require(isinstance(code, GradientCode), f"a code must be a gcjax.codes.GradientCode; got {type(code).__name__}")
    _check_assignment(code.assignment, code.num_blocks)
    random = random_generator(rng_key)
    _check_types(code)
    all_or_nothing_progress = _all_or_nothing_progress(code, max_masks, random)
    growing_progress = _growing_progress(code, random)
    progress = np.concatenate([all_or_nothing_progress, _random_progress(code, max_masks, random), growing_progress])
    with jax.enable_x64(True):
        plan_all = jax.jit(jax.vmap(lambda p: (code.plan(p), code.sent(p))))
        plans = _planned_states(code, plan_all, progress)
        _check_residual(code, plans)
        _check_messages(code, plans, len(growing_progress))
        for name in ("encode", "decode"):
            coefficients = getattr(plans.coding, name)
            require((coefficients != 0).any(), f"something must be decoded; {name} is 0 whatever is done")
        if tolerated is not None:
            all_or_nothing_plans = jax.tree.map(lambda x: x[: len(all_or_nothing_progress)], plans)
            _check_tolerated(code, all_or_nothing_plans, tolerated)
        if never_grows:
            _check_never_grows(plans, len(growing_progress))
        _check_completion(code, plan_all, len(progress), random)
        _check_program(code, plans, quick)
    _check_refusals(code)


def true_distance(code: GradientCode, coding: Coding) -> np.ndarray:
    """float[states]: the distances of the decoded coefficients of all chunks from the identity, by the definition.

    `coding` has a leading axis of states. In the exact sum each of the N chunks has the identity of its L blocks.
    Letters: K chunks a worker, M messages.
    """
    chunks, num_blocks = code.assignment.chunks, code.num_blocks
    encode, decode = np.asarray(coding.encode), np.asarray(coding.decode)  # [states, W, M, K, L], [states, W, M, L]
    shape = len(encode), code.assignment.num_chunks, num_blocks, num_blocks  # [states, N, L, L]
    error = np.broadcast_to(-np.eye(num_blocks), shape).copy()
    for worker, position in zip(*np.nonzero(chunks >= 0), strict=True):
        # p states, m messages, a and b blocks.
        decoded_coefficients = np.einsum("pma,pmb->pab", decode[:, worker], encode[:, worker, :, position])
        error[:, chunks[worker, position]] += decoded_coefficients
    return np.sqrt((error**2).sum(axis=(1, 2, 3)))


def _zero_tolerance(code: GradientCode) -> float:
    """Residuals up to this count as zero."""
    return float(ROUNDING * norm_of_exact_sum(code.assignment.num_chunks, code.num_blocks))


def _check_assignment(assignment: Assignment, num_blocks: int) -> None:
    """Checks that it is a valid assignment, where each chunk stands once at most per worker and block."""
    try:
        check_assignment(assignment)
    except ValueError as error:
        raise ContractError(str(error)) from None
    rule = "a worker must hold a chunk once only" + (f" for each of its {num_blocks} blocks" if num_blocks > 1 else "")
    for worker, chunks_of_worker in enumerate(assignment.chunks):
        most_slots = np.bincount(chunks_of_worker[chunks_of_worker >= 0], minlength=1).max()
        require(most_slots <= num_blocks, rule, f"worker {worker}: {on_one_line(chunks_of_worker)}")


def _check_types(code: GradientCode) -> None:
    """Checks that what a plan gives has the right shapes and types, with and without 64-bit types; by tracing only."""
    num_workers, load = code.assignment.chunks.shape
    num_messages, num_blocks = code.num_messages, code.num_blocks
    shapes = {
        "encode": (num_workers, num_messages, load, num_blocks),
        "decode": (num_workers, num_messages, num_blocks),
        "residual": (),
    }
    for has_64_bit_types, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(has_64_bit_types):
            progress = jax.ShapeDtypeStruct((num_workers,), jnp.int32)
            coding = call_or_fail("plan", jax.eval_shape, code.plan, progress)
            sent = call_or_fail("sent", jax.eval_shape, code.sent, progress)
        require(isinstance(coding, Coding), f"plan must give a gcjax.codes.Coding; it gave {type(coding).__name__}")
        for name, shape in shapes.items():
            array = getattr(coding, name)
            require(array.shape == shape, f"{name} must have the shape {list(shape)}; it has {list(array.shape)}")
            with_or_without = "with" if has_64_bit_types else "without"
            require(
                array.dtype == dtype,
                f"{name} must be {jnp.dtype(dtype)} {with_or_without} 64-bit types; it is {array.dtype}",
            )
        is_valid = sent.dtype == bool and sent.shape == (num_workers, num_messages)
        require(is_valid, f"sent must be bool{[num_workers, num_messages]}; it is {sent.dtype}{list(sent.shape)}")


def _all_or_nothing_progress(code: GradientCode, max_masks: int, random: np.random.Generator) -> np.ndarray:
    """int32[states, W]: progress where some workers have done all, the others nothing; the fewest of these first."""
    loads = code.assignment.loads
    tries_all_masks = 2**loads.size <= max_masks
    if tries_all_masks:
        masks = np.array(list(itertools.product((1, 0), repeat=loads.size)))
    else:
        num_stragglers = np.minimum(random.geometric(0.25, size=max_masks), loads.size)  # mostly few
        masks = np.ones((max_masks, loads.size), np.int64)
        masks_with_stragglers = masks[1:]  # a view: the first stays without
        for mask, count in zip(masks_with_stragglers, num_stragglers[1:], strict=True):
            stragglers = random.permutation(loads.size)[:count]
            mask[stragglers] = 0
    fewest_stragglers_first = np.argsort((masks == 0).sum(axis=1), kind="stable")
    return (masks[fewest_stragglers_first] * loads).astype(np.int32)


def _random_progress(code: GradientCode, max_masks: int, random: np.random.Generator) -> np.ndarray:
    """int32[states, W]: random progress, a quarter as many states as masks."""
    loads = code.assignment.loads
    return random.integers(0, loads + 1, size=(max(max_masks // 4, 1), loads.size)).astype(np.int32)


def _growing_progress(code: GradientCode, random: np.random.Generator) -> np.ndarray:
    """int32[states, W]: at most 33 states from nothing to everything, chunk by chunk of random workers."""
    loads = code.assignment.loads
    worker_of_step = random.permutation(np.repeat(np.arange(loads.size), loads))
    num_steps = worker_of_step.size
    # [steps + 1, W]: the chunk that each step adds; nothing in the first row.
    chunks_added = np.zeros((num_steps + 1, loads.size), np.int32)
    chunks_added[np.arange(1, num_steps + 1), worker_of_step] = 1
    evenly_spaced_states = np.unique(np.linspace(0, num_steps, min(33, num_steps + 1)).astype(int))
    return np.cumsum(chunks_added, axis=0, dtype=np.int32)[evenly_spaced_states]


def _planned_states(code: GradientCode, plan_all: PlanAll, progress: np.ndarray) -> _PlannedStates:
    """Plans and sent messages of a code at the progress int[states, W], with the true distances."""
    coding, is_sent = jax.tree.map(np.asarray, call_or_fail("plan", plan_all, jnp.asarray(progress, jnp.int32)))
    return _PlannedStates(progress, coding, is_sent, true_distance(code, coding))


def _require_none(is_bad: Any, plans: _PlannedStates, sentence: str) -> None:
    """Raises a `ContractError` if a state is bad, `is_bad bool[states]`, and shows the one with the most done."""
    if is_bad.any():
        require(False, sentence, f"progress {on_one_line(plans.progress[_furthest_bad_state(is_bad, plans)])}")


def _furthest_bad_state(is_bad: Any, plans: _PlannedStates) -> int:
    """The index of the bad state in which the most is done, since it is the simplest to read; 0 if none is bad."""
    return int(np.argmax(np.where(is_bad, plans.progress.sum(axis=1), -1)))


def _check_residual(code: GradientCode, plans: _PlannedStates) -> None:
    """Checks that what a plan says is finite in all states, and its residual is the true distance."""
    for name, field_of_states in plans.coding._asdict().items():
        _require_none(
            ~np.isfinite(field_of_states).reshape(len(field_of_states), -1).all(axis=1), plans, f"{name} must be finite"
        )
    is_wrong = np.abs(plans.coding.residual - plans.distance) > _zero_tolerance(code) + 1e-6 * plans.distance
    shown_state = _furthest_bad_state(is_wrong, plans)
    rule = "residual must be the distance of the decoded coefficients from the exact sum"
    comparison = f"it says {plans.coding.residual[shown_state]:.6g} where that is {plans.distance[shown_state]:.6g}"
    _require_none(is_wrong, plans, f"{rule}; {comparison}")


def _check_messages(code: GradientCode, plans: _PlannedStates, num_growing_states: int) -> None:
    """Checks that what is in messages is finished, what is decoded is sent, and what is sent stays so.

    Progress grows along the last `num_growing_states` of the states. Letters: K chunks a worker, M messages; encode is
    [states, W, M, K, L], decode [states, W, M, L], with L blocks.
    """
    is_chunk_done = np.arange(code.assignment.load) < plans.progress[:, :, None]  # [states, W, K]
    sends_any: Any = plans.sent.any(axis=2)  # [states, W]
    is_chunk_encoded = (np.asarray(plans.coding.encode) != 0).any(axis=(2, 4))  # [states, W, K]
    is_sent_unfinished = is_chunk_encoded & ~is_chunk_done & sends_any[:, :, None]
    rule = "a message must not contain a chunk that is not finished"
    _require_none(is_sent_unfinished.any(axis=(1, 2)), plans, rule)
    decodes_unsent = (plans.coding.decode != 0).any(axis=3) & ~plans.sent  # [states, W, M]
    _require_none(decodes_unsent.any(axis=(1, 2)), plans, "a message that is not sent must have the weight 0")
    rule = "a worker that has finished nothing must send nothing"
    _require_none((sends_any & (plans.progress == 0)).any(axis=1), plans, rule)
    if code.only_whole_loads:
        rule = "with whole_workers, nothing is sent before the whole load is done"
        _require_none((sends_any & (plans.progress < code.assignment.loads)).any(axis=1), plans, rule)
    sent_while_growing = plans.sent[-num_growing_states:]
    unsent_in_next_state = sent_while_growing[:-1] & ~sent_while_growing[1:]
    is_withdrawn = np.zeros(len(plans.progress), bool)
    is_withdrawn[-num_growing_states:-1] = unsent_in_next_state.any(axis=(1, 2))  # the last one has none after it
    _require_none(is_withdrawn, plans, "a message that is sent must stay so with further progress")


def _check_tolerated(code: GradientCode, plans: _PlannedStates, tolerated: int) -> None:
    """Checks that every set of up to `tolerated` stragglers is decoded exactly, and not every set of one more.

    In the planned states each worker has done all or, as a straggler, nothing. The second rule is checked only if
    these are all 2^W such states.
    """
    is_straggler = (plans.progress == 0) & (code.assignment.loads > 0)  # [states, W]; not who holds no chunks
    num_stragglers = is_straggler.sum(axis=1)
    is_inexact = plans.distance > _zero_tolerance(code)
    breaks_promise = is_inexact & (num_stragglers <= tolerated)
    _require_none(breaks_promise, plans, f"every set of up to {tolerated} stragglers must be decoded exactly")
    has_one_more = num_stragglers == tolerated + 1
    has_all_states = len(plans.progress) >= 2**code.assignment.num_workers
    if has_all_states and has_one_more.any():
        rule = f"tolerated={tolerated} must be the largest number of stragglers of which every set is decoded"
        require(is_inexact[has_one_more].any(), f"{rule}; all sets of {tolerated + 1} are")


def _check_never_grows(plans: _PlannedStates, num_growing_states: int) -> None:
    """Checks that the distance never grows along the last `num_growing_states` states, in which progress grows."""
    grows_after_state = np.diff(plans.distance[-num_growing_states:]) > 1e-9
    if grows_after_state.any():
        first_growing_state = len(plans.progress) - num_growing_states
        # The last one, in which the most is done.
        state_before_growth = first_growing_state + int(np.flatnonzero(grows_after_state)[-1])
        old_distance, new_distance = plans.distance[state_before_growth : state_before_growth + 2]
        old_progress, new_progress = plans.progress[state_before_growth : state_before_growth + 2]
        rule = f"the residual must never grow with progress; it grows from {old_distance:.6g} to {new_distance:.6g}"
        require(False, rule, f"progress {on_one_line(old_progress)} and then {on_one_line(new_progress)}")


def _check_completion(code: GradientCode, plan_all: PlanAll, num_states: int, random: np.random.Generator) -> None:
    """Checks that at the time of completion the sum is exact, and just before it is not.

    `plan_all`: plans of `num_states` states at once.
    """
    is_held = code.assignment.chunks >= 0
    finish_times = _finish_times(is_held, random)
    times = np.asarray(call_or_fail("completion", jax.jit(jax.vmap(code.completion)), jnp.asarray(finish_times)))
    require(times.shape == finish_times.shape[:1], f"completion must be one time; it is {list(times.shape[1:])}")
    require(
        times.dtype == finish_times.dtype, f"completion must keep the type {finish_times.dtype}; it is {times.dtype}"
    )
    is_finished = np.isfinite(finish_times) & is_held
    progress_at_time = (is_finished & (finish_times <= times[:, None, None])).sum(axis=2)  # [cases, W]
    progress_before_time = (is_finished & (finish_times < times[:, None, None])).sum(axis=2)
    progress = np.concatenate([progress_at_time, progress_before_time])
    distances = _distances_in_batches(code, plan_all, progress, batch_size=num_states)
    distance_at_time, distance_before_time = np.split(distances, 2)
    is_exact = distance_at_time <= 10 * _zero_tolerance(code)
    is_exact_before = distance_before_time <= 10 * _zero_tolerance(code)
    for i, time in enumerate(times):
        case = f"chunks of {on_one_line(finish_times[i])} are finished at these seconds"
        if np.isinf(time):
            rule = "completion must be a time if what is ever finished decodes exactly; it is inf"
            require(not is_exact[i], rule, case)
            continue
        residual = distance_at_time[i]
        rule = f"at the time of completion the sum must be exact; at {time:g} s the residual is {residual:.6g}"
        require(is_exact[i], rule, case)
        rule = f"completion must be the earliest time; it is {time:g} s, and the sum is exact before"
        require(not is_exact_before[i] or time == 0, rule, case)  # no time is earlier than 0


def _distances_in_batches(
    code: GradientCode, plan_all: PlanAll, progress: np.ndarray, *, batch_size: int
) -> np.ndarray:
    """float[states]: true distances at the progress int[states, W].

    Planned in batches of a size that `plan_all` is compiled for; the last state fills up the last batch.
    """
    num_batches = -(-len(progress) // batch_size)
    state_numbers = np.arange(num_batches * batch_size).clip(max=len(progress) - 1)
    distances = [
        _planned_states(code, plan_all, progress[numbers]).distance for numbers in np.split(state_numbers, num_batches)
    ]
    return np.concatenate(distances)[: len(progress)]


def _finish_times(is_held: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """float64[cases, W, K] seconds: when workers finish chunks: all alike, in order, tied, at random, some never."""
    num_workers = is_held.shape[0]
    equal_seconds, ordered_seconds = np.ones(num_workers), 1.0 + np.arange(num_workers)
    random_seconds = list(random.exponential(size=(4, num_workers)))
    for num_failed, seconds in enumerate(random_seconds):
        failed_workers = random.permutation(num_workers)[: min(num_failed, num_workers)]
        seconds[failed_workers] = np.inf
    tied_seconds = random.choice([0.5, 1.0, 2.0], size=num_workers)
    seconds_per_chunk_of_cases = (equal_seconds, ordered_seconds, tied_seconds, *random_seconds)
    num_chunks_so_far = np.cumsum(np.where(is_held, 1.0, 0.0), axis=1)  # [W, K]; 0 of who holds none
    with np.errstate(invalid="ignore"):  # 0 * inf, of a failed worker
        return np.stack(
            [
                np.where(num_chunks_so_far > 0, num_chunks_so_far * seconds_per_chunk[:, None], 0)
                for seconds_per_chunk in seconds_per_chunk_of_cases
            ]
        )


def _check_program(code: GradientCode, plans: _PlannedStates, quick: bool) -> None:
    """Checks that the plan is one program for all progress, which gives the same as under `vmap` and without `jit`."""
    plan = TracedProgram(code.plan)
    state_ids = (0, len(plans.progress) - 1) if len(plans.progress) > 1 else (0,)
    for state in state_ids:
        coding = call_or_fail("plan", plan, jnp.asarray(plans.progress[state], jnp.int32))
        coding_of_one_state = jax.tree.map(lambda x: np.asarray(x)[None], coding)
        (distance,) = true_distance(code, coding_of_one_state)
        has_same_shape = coding.encode.shape == plans.coding.encode[state].shape
        is_equal = has_same_shape and close(distance, plans.distance[state], 1e-6)
        require(
            is_equal, "plan must give the same alone and under vmap", f"progress {on_one_line(plans.progress[state])}"
        )
    require(plan.num_traces == 1, "plan must not be compiled again for other progress")
    if not quick:
        coding_without_jit = call_or_fail("plan", code.plan, jnp.asarray(plans.progress[0], jnp.int32))
        is_equal = close(coding_without_jit.residual, plans.coding.residual[0], 1e-6)
        require(is_equal, "plan must give the same with and without jit", f"progress {on_one_line(plans.progress[0])}")


def _check_refusals(code: GradientCode) -> None:
    """Progress of a wrong type, length or size is refused."""
    loads = code.assignment.loads
    check_refusal("plan", code.plan, jnp.zeros(loads.size, jnp.float32), case="progress in floating point numbers")
    check_refusal("plan", code.plan, jnp.zeros(loads.size + 1, jnp.int32), case="progress of another number of workers")
    check_refusal("plan", code.plan, jnp.asarray(loads + 1, jnp.int32), case="progress beyond the loads")
