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
from gcjax.testing.contract import Traced, call_or_fail, check_refusal, close, on_one_line, random_generator, require

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
    _check_assignment(code.assignment)
    random = random_generator(rng_key)
    _check_types(code)
    mask_progress, growing_progress = _mask_progress(code, max_masks, random), _growing_progress(code, random)
    progress = np.concatenate([mask_progress, _random_progress(code, max_masks, random), growing_progress])
    with jax.enable_x64(True):
        plan_all = jax.jit(jax.vmap(lambda p: (code.plan(p), code.sent(p))))
        plans = _planned_states(code, plan_all, progress)
        _check_residual(code, plans)
        _check_messages(code, plans, len(growing_progress))
        if tolerated is not None:
            _check_tolerated(code, _first_states(plans, len(mask_progress)), tolerated)
        if never_grows:
            _check_never_grows(plans, len(growing_progress))
        _check_completion(code, plan_all, len(progress), random)
        _check_program(code, plans, quick)
    _check_refusals(code)


def true_distance(code: GradientCode, coding: Coding) -> np.ndarray:
    """float[states]: the distances of the decoded coefficients of all chunks from the identity, by the definition."""
    chunks, num_blocks = code.assignment.chunks, code.num_blocks
    encode, decode = np.asarray(coding.encode), np.asarray(coding.decode)
    shape = len(encode), code.assignment.num_chunks, num_blocks, num_blocks
    error = np.broadcast_to(-np.eye(num_blocks), shape).copy()
    for w, k in zip(*np.nonzero(chunks >= 0), strict=True):
        error[:, chunks[w, k]] += np.einsum("pma,pmb->pab", decode[:, w], encode[:, w, :, k])
    return np.sqrt((error**2).sum(axis=(1, 2, 3)))


def _zero_tolerance(code: GradientCode) -> float:
    """Residuals up to this count as zero."""
    return float(ROUNDING * np.sqrt(code.assignment.num_chunks * code.num_blocks))


def _check_assignment(assignment: Assignment) -> None:
    """Chunks are numbers below N, each once for a worker, and -1 only behind them."""
    chunks = np.asarray(assignment.chunks)
    rule = "the chunks of an assignment must be int[W, K]"
    require(chunks.ndim == 2 and chunks.dtype.kind == "i", f"{rule}; got {chunks.dtype}{list(chunks.shape)}")
    is_valid = (chunks >= -1) & (chunks < assignment.num_chunks)
    rule = f"chunks must be 0, ..., {assignment.num_chunks - 1}, and -1 behind the last one of a worker"
    require(is_valid.all(), rule, f"worker {np.argwhere(~is_valid)[0][0] if not is_valid.all() else 0}")
    for w, row in enumerate(chunks):
        held_chunks = row[row >= 0]
        require((row[: held_chunks.size] >= 0).all(), rule, f"worker {w} has {on_one_line(row)}")
        is_unique = len(set(held_chunks)) == held_chunks.size
        require(is_unique, "a worker must hold a chunk once only", f"worker {w}: {on_one_line(row)}")


def _check_types(code: GradientCode) -> None:
    """What a plan gives has the right shapes and types, with and without 64-bit types; nothing is computed."""
    num_workers, load = code.assignment.chunks.shape
    num_messages, num_blocks = code.num_messages, code.num_blocks
    shapes = {
        "encode": (num_workers, num_messages, load, num_blocks),
        "decode": (num_workers, num_messages, num_blocks),
        "residual": (),
    }
    for is_wide, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(is_wide):
            progress = jax.ShapeDtypeStruct((num_workers,), jnp.int32)
            coding = call_or_fail("plan", jax.eval_shape, code.plan, progress)
            sent = call_or_fail("sent", jax.eval_shape, code.sent, progress)
        require(isinstance(coding, Coding), f"plan must give a gcjax.codes.Coding; it gave {type(coding).__name__}")
        for name, shape in shapes.items():
            value = getattr(coding, name)
            require(value.shape == shape, f"{name} must have the shape {list(shape)}; it has {list(value.shape)}")
            with_or_without = "with" if is_wide else "without"
            require(
                value.dtype == dtype,
                f"{name} must be {jnp.dtype(dtype)} {with_or_without} 64-bit types; it is {value.dtype}",
            )
        is_valid = sent.dtype == bool and sent.shape == (num_workers, num_messages)
        require(is_valid, f"sent must be bool{[num_workers, num_messages]}; it is {sent.dtype}{list(sent.shape)}")


def _mask_progress(code: GradientCode, max_masks: int, random: np.random.Generator) -> np.ndarray:
    """int32[states, W]: progress where some workers have done all, the others nothing; the fewest of these first."""
    loads = code.assignment.loads
    if 2 ** min(loads.size, 30) <= max_masks:  # then all are tried; 30, so that the power stays small
        masks = np.array(list(itertools.product((1, 0), repeat=loads.size)))
    else:
        num_stragglers = np.minimum(random.geometric(0.25, size=max_masks), loads.size)  # mostly few
        masks = np.ones((max_masks, loads.size), np.int64)  # the first stays without stragglers
        for mask, count in zip(masks[1:], num_stragglers[1:], strict=True):
            mask[random.permutation(loads.size)[:count]] = 0
    order = np.argsort((masks == 0).sum(axis=1), kind="stable")
    return (masks[order] * loads).astype(np.int32)


def _random_progress(code: GradientCode, max_masks: int, random: np.random.Generator) -> np.ndarray:
    """int32[states, W]: random progress, a quarter as many states as masks."""
    loads = code.assignment.loads
    return random.integers(0, loads + 1, size=(max(max_masks // 4, 1), loads.size)).astype(np.int32)


def _growing_progress(code: GradientCode, random: np.random.Generator, max_length: int = 33) -> np.ndarray:
    """int32[states, W]: at most `max_length` states from nothing to everything, chunk by chunk of random workers."""
    loads = code.assignment.loads
    worker_of_step = random.permutation(np.repeat(np.arange(loads.size), loads))
    # [steps + 1, W]: the chunk that each step adds; nothing in the first row.
    done_in_step = np.zeros((worker_of_step.size + 1, loads.size), np.int32)
    done_in_step[np.arange(1, worker_of_step.size + 1), worker_of_step] = 1
    shown_steps = np.unique(np.linspace(0, worker_of_step.size, min(max_length, worker_of_step.size + 1)).astype(int))
    return np.cumsum(done_in_step, axis=0, dtype=np.int32)[shown_steps]


def _planned_states(code: GradientCode, plan_all: PlanAll, progress: np.ndarray) -> _PlannedStates:
    """Plans and sent messages of a code at the progress int[states, W], with the true distances."""
    coding, sent = jax.tree.map(np.asarray, call_or_fail("plan", plan_all, jnp.asarray(progress, jnp.int32)))
    return _PlannedStates(progress, coding, sent, true_distance(code, coding))


def _first_states(plans: _PlannedStates, num_states: int) -> _PlannedStates:
    """The first states alone."""
    return jax.tree.map(lambda x: x[:num_states], plans)


def _require_none(is_bad: Any, plans: _PlannedStates, sentence: str) -> None:
    """Raises a `ContractError` if a state is bad, `is_bad bool[states]`, and shows the one with the most done."""
    if is_bad.any():
        require(False, sentence, f"progress {on_one_line(plans.progress[_furthest_bad_state(is_bad, plans)])}")


def _furthest_bad_state(is_bad: Any, plans: _PlannedStates) -> int:
    """The index of the bad state in which the most is done, since it is the simplest to read; 0 if none is bad."""
    return int(np.argmax(np.where(is_bad, plans.progress.sum(axis=1), -1)))


def _check_residual(code: GradientCode, plans: _PlannedStates) -> None:
    """What a plan says is finite, and its residual is the true distance."""
    for name, values in plans.coding._asdict().items():
        _require_none(~np.isfinite(values).reshape(len(values), -1).all(axis=1), plans, f"{name} must be finite")
    is_wrong = np.abs(plans.coding.residual - plans.distance) > _zero_tolerance(code) + 1e-6 * plans.distance
    worst = _furthest_bad_state(is_wrong, plans)
    rule = "residual must be the distance of the decoded coefficients from the exact sum"
    values = f"it says {plans.coding.residual[worst]:.6g} where that is {plans.distance[worst]:.6g}"
    _require_none(is_wrong, plans, f"{rule}; {values}")


def _check_messages(code: GradientCode, plans: _PlannedStates, num_growing: int) -> None:
    """What is in messages is finished, what is decoded is sent, and what is sent stays so.

    Progress grows along the last `num_growing` of the states.
    """
    is_done = np.arange(code.assignment.load) < plans.progress[:, :, None]  # [states, W, K]
    sends_any: Any = plans.sent.any(axis=2)  # [states, W]
    is_early = (np.asarray(plans.coding.encode) != 0).any(axis=(2, 4)) & ~is_done & sends_any[:, :, None]
    rule = "a message must not contain a chunk that is not finished"
    _require_none(is_early.any(axis=(1, 2)), plans, rule)
    decodes_unsent = (plans.coding.decode != 0).any(axis=3) & ~plans.sent
    _require_none(decodes_unsent.any(axis=(1, 2)), plans, "a message that is not sent must have the weight 0")
    rule = "a worker that has finished nothing must send nothing"
    _require_none((sends_any & (plans.progress == 0)).any(axis=1), plans, rule)
    if code.whole_workers:
        rule = "with whole_workers, nothing is sent before the whole load is done"
        _require_none((sends_any & (plans.progress < code.assignment.loads)).any(axis=1), plans, rule)
    # Of the growing states each but the last is compared with the next.
    is_withdrawn = np.zeros(len(plans.progress), bool)
    is_withdrawn[-num_growing:-1] = (plans.sent[-num_growing:-1] & ~plans.sent[-num_growing + 1 :]).any(axis=(1, 2))
    _require_none(is_withdrawn, plans, "a message that is sent must stay so with further progress")


def _check_tolerated(code: GradientCode, plans: _PlannedStates, tolerated: int) -> None:
    """Every set of up to `tolerated` stragglers is decoded exactly, and not every set of one more.

    In the P planned states each worker has done all or, as a straggler, nothing. The second rule is checked only if
    these are all 2^W such states.
    """
    is_straggler = (plans.progress == 0) & (code.assignment.loads > 0)  # [states, W]; not who holds no chunks
    num_stragglers = is_straggler.sum(axis=1)
    is_inexact = plans.distance > _zero_tolerance(code)
    breaks_promise = is_inexact & (num_stragglers <= tolerated)
    _require_none(breaks_promise, plans, f"every set of {tolerated} stragglers must be decoded exactly")
    has_one_more = num_stragglers == tolerated + 1
    has_all_states = len(plans.progress) >= 2 ** min(code.assignment.num_workers, 30)  # 30: the power stays small
    if has_all_states and has_one_more.any():
        rule = f"tolerated={tolerated} must be the largest number of stragglers of which every set is decoded"
        require(is_inexact[has_one_more].any(), f"{rule}; all sets of {tolerated + 1} are")


def _check_never_grows(plans: _PlannedStates, num_growing: int) -> None:
    """The distance never grows along the last `num_growing` states, in which progress grows."""
    is_grown = np.diff(plans.distance[-num_growing:]) > 1e-9
    if is_grown.any():
        last_grown = len(plans.progress) - num_growing + int(np.flatnonzero(is_grown)[-1])  # the state before it grows
        old_distance, new_distance = plans.distance[last_grown : last_grown + 2]
        old_progress, new_progress = plans.progress[last_grown : last_grown + 2]
        rule = f"the residual must never grow with progress; it grows from {old_distance:.6g} to {new_distance:.6g}"
        require(False, rule, f"progress {on_one_line(old_progress)} and then {on_one_line(new_progress)}")


def _check_completion(code: GradientCode, plan_all: PlanAll, num_states: int, random: np.random.Generator) -> None:
    """At the time of completion the sum is exact; just before it is not."""
    is_held = code.assignment.chunks >= 0
    finish = _finish_times(is_held, random)
    times = np.asarray(call_or_fail("completion", jax.jit(jax.vmap(code.completion)), jnp.asarray(finish)))
    require(times.shape == finish.shape[:1], f"completion must be one time; it is {list(times.shape[1:])}")
    require(times.dtype == finish.dtype, f"completion must keep the type {finish.dtype}; it is {times.dtype}")
    is_finished = np.isfinite(finish) & is_held
    at_time = (is_finished & (finish <= times[:, None, None])).sum(axis=2)
    before_time = (is_finished & (finish < times[:, None, None])).sum(axis=2)
    progress = np.concatenate([at_time, before_time])
    # In batches of `num_states`, as before, so that nothing is compiled again; the last state fills up the last batch.
    num_batches = -(-len(progress) // num_states)
    batches = np.split(np.arange(num_batches * num_states).clip(max=len(progress) - 1), num_batches)
    distances = [_planned_states(code, plan_all, progress[batch]).distance for batch in batches]
    distance = np.concatenate(distances)[: len(progress)]
    is_exact = distance <= 10 * _zero_tolerance(code)
    for i, time in enumerate(times):
        case = f"chunks of {on_one_line(finish[i])} are finished at these seconds"
        if np.isinf(time):
            rule = "completion must be a time if what is ever finished decodes exactly; it is inf"
            require(not is_exact[i], rule, case)
            continue
        rule = f"at the time of completion the sum must be exact; at {time:g} s the residual is {distance[i]:.6g}"
        require(is_exact[i], rule, case)
        rule = f"completion must be the earliest time; it is {time:g} s, and the sum is exact before"
        is_exact_before = is_exact[len(times) + i]  # the states before the times follow those at the times
        require(not is_exact_before or time == 0, rule, case)


def _finish_times(is_held: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """float64[cases, W, K]: when workers finish their chunks; all alike, in order, with ties, at random, some never."""
    num_workers = is_held.shape[0]
    equal_seconds, ordered_seconds = np.ones(num_workers), 1.0 + np.arange(num_workers)
    random_seconds = list(random.exponential(size=(4, num_workers)))
    for num_failed, seconds in enumerate(random_seconds):
        seconds[random.permutation(num_workers)[: min(num_failed, num_workers)]] = np.inf
    tied_seconds = random.choice([0.5, 1.0, 2.0], size=num_workers)
    chunk_number = np.cumsum(np.where(is_held, 1.0, 0.0), axis=1)
    with np.errstate(invalid="ignore"):
        return np.stack(
            [
                np.where(chunk_number > 0, chunk_number * chunk_seconds[:, None], 0)
                for chunk_seconds in (equal_seconds, ordered_seconds, tied_seconds, *random_seconds)
            ]
        )


def _check_program(code: GradientCode, plans: _PlannedStates, quick: bool) -> None:
    """One program for all progress, which gives what `vmap` gives, and what the function gives without `jit`."""
    plan = Traced(code.plan)
    state_ids = (0, len(plans.progress) - 1) if len(plans.progress) > 1 else (0,)
    for i in state_ids:
        coding = call_or_fail("plan", plan, jnp.asarray(plans.progress[i], jnp.int32))
        distance = true_distance(code, jax.tree.map(lambda x: np.asarray(x)[None], coding))[0]
        is_equal = close(distance, plans.distance[i], 1e-6) and close(
            coding.encode.shape, plans.coding.encode[i].shape, 0
        )
        require(is_equal, "plan must give the same alone and under vmap", f"progress {on_one_line(plans.progress[i])}")
    require(plan.num_traces == 1, "plan must not be compiled again for other progress")
    if not quick:
        eager = call_or_fail("plan", code.plan, jnp.asarray(plans.progress[0], jnp.int32))
        is_equal = close(eager.residual, plans.coding.residual[0], 1e-6)
        require(is_equal, "plan must give the same with and without jit", f"progress {on_one_line(plans.progress[0])}")


def _check_refusals(code: GradientCode) -> None:
    """Progress of a wrong type, length or size is refused."""
    loads = code.assignment.loads
    check_refusal("plan", code.plan, jnp.zeros(loads.size, jnp.float32), case="progress in floating point numbers")
    check_refusal("plan", code.plan, jnp.zeros(loads.size + 1, jnp.int32), case="progress of another number of workers")
    check_refusal("plan", code.plan, jnp.asarray(loads + 1, jnp.int32), case="progress beyond the loads")
