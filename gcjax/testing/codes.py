"""The contract of gradient codes.

Letters: W workers, N chunks, K chunks a worker holds, L blocks of the gradient, M messages a worker sends, P states of
progress that are tried.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes import Assignment, Coding, GradientCode
from gcjax.testing.contract import Traced, called, close, generator, refused, require, shown

ROUNDING = 1e-7  # of a residual in float64, relative to the norm of the target


Every = Callable[[jax.Array], tuple[Coding, jax.Array]]
"""`progress int32[P, W] -> (codings, what is sent)`."""


class _Tried(NamedTuple):
    """What a code does at P states of progress; numpy arrays with a leading axis P."""

    progress: np.ndarray
    coding: Coding
    sent: np.ndarray
    distance: np.ndarray


def check_code(
    code: GradientCode,
    *,
    tolerated: int | None = None,
    never_grows: bool = False,
    num_masks: int = 128,
    quick: bool = False,
    rng_key: jax.Array | None = None,
) -> None:
    """Checks the contract of a gradient code (`gcjax.codes.GradientCode`).

    On every set of stragglers if there are at most `num_masks` of them, on random ones otherwise, and on random partial
    progress: shapes and types, the residual is the distance of the coefficients from the exact sum, nothing that is not
    finished is in a message, nothing that is not sent is decoded, what has been sent stays so. On random times, with
    workers that fail: at the time of completion the sum is exact, just before it is not. Besides: `plan` can be
    compiled, gives the same under `vmap` and without `jit`, keeps to the default float type, compiles once, and
    refuses progress of other workers or beyond the loads.

    Args:
      code: what is checked.
      tolerated: the largest number of stragglers of which every set is decoded exactly; not checked if None.
      never_grows: whether the code promises that its residual never grows with progress.
      num_masks: how many sets of stragglers are tried at most.
      quick: leaves out what needs operations to be compiled one by one: that `plan` gives the same without `jit`.
      rng_key: decides the random cases.

    Raises:
      ContractError: an `AssertionError` with the sentence that is broken, and the smallest case.
    """
    require(isinstance(code, GradientCode), f"a code must be a gcjax.codes.GradientCode; got {type(code).__name__}")
    _check_assignment(code.assignment)
    random = generator(rng_key)
    _check_types(code)
    masks, chain = _masks(code, num_masks, random), _chain(code, random)
    progress = np.concatenate([masks, _partial(code, num_masks, random), chain])
    with jax.enable_x64(True):
        every = jax.jit(jax.vmap(lambda p: (code.plan(p), code.sent(p))))
        tried = _tried(code, every, progress)
        _check_residual(code, tried)
        _check_messages(code, tried, len(chain))
        if tolerated is not None:
            _check_tolerated(code, _tried_first(tried, len(masks)), tolerated)
        if never_grows:
            _check_never_grows(tried, len(chain))
        _check_completion(code, every, len(progress), random)
        _check_program(code, tried, quick)
    _check_refusals(code)


def true_distance(code: GradientCode, coding: Coding) -> np.ndarray:
    """float[P]: the distances of the decoded coefficients of all chunks from the identity, by the definition."""
    chunks, blocks = code.assignment.chunks, code.num_blocks
    encode, decode = np.asarray(coding.encode), np.asarray(coding.decode)
    total = np.broadcast_to(-np.eye(blocks), (len(encode), code.assignment.num_chunks, blocks, blocks)).copy()
    for w, k in zip(*np.nonzero(chunks >= 0), strict=True):
        total[:, chunks[w, k]] += np.einsum("pma,pmb->pab", decode[:, w], encode[:, w, :, k])
    return np.sqrt((total**2).sum(axis=(1, 2, 3)))


def _zero(code: GradientCode) -> float:
    """Up to what a residual counts as zero."""
    return float(ROUNDING * np.sqrt(code.assignment.num_chunks * code.num_blocks))


def _check_assignment(assignment: Assignment) -> None:
    chunks = np.asarray(assignment.chunks)
    rule = "the chunks of an assignment must be int[W, K]"
    require(chunks.ndim == 2 and chunks.dtype.kind == "i", f"{rule}; got {chunks.dtype}{list(chunks.shape)}")
    inside = (chunks >= -1) & (chunks < assignment.num_chunks)
    rule = f"chunks must be 0, ..., {assignment.num_chunks - 1}, and -1 behind the last one of a worker"
    require(inside.all(), rule, f"worker {np.argwhere(~inside)[0][0] if not inside.all() else 0}")
    held = chunks >= 0
    for w, (row, there) in enumerate(zip(chunks, held, strict=True)):
        require(there[: there.sum()].all(), rule, f"worker {w} has {shown(row)}")
        require(
            len(set(row[there])) == there.sum(), "a worker must hold a chunk once only", f"worker {w}: {shown(row)}"
        )


def _check_types(code: GradientCode) -> None:
    """Shapes and types, without computing anything."""
    w, k = code.assignment.chunks.shape
    wanted = {
        "encode": (w, code.num_messages, k, code.num_blocks),
        "decode": (w, code.num_messages, code.num_blocks),
        "residual": (),
    }
    for wide, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(wide):
            given = jax.ShapeDtypeStruct((w,), jnp.int32)
            coding = called("plan", jax.eval_shape, code.plan, given)
            sent = called("sent", jax.eval_shape, code.sent, given)
        require(isinstance(coding, Coding), f"plan must give a gcjax.codes.Coding; it gave {type(coding).__name__}")
        for name, shape in wanted.items():
            got = getattr(coding, name)
            require(got.shape == shape, f"{name} must have the shape {list(shape)}; it has {list(got.shape)}")
            when = "with" if wide else "without"
            require(got.dtype == dtype, f"{name} must be {jnp.dtype(dtype)} {when} 64-bit types; it is {got.dtype}")
        rule = f"sent must be bool{[w, code.num_messages]}"
        require(
            sent.dtype == bool and sent.shape == (w, code.num_messages), f"{rule}; it is {sent.dtype}{list(sent.shape)}"
        )


def _masks(code: GradientCode, number: int, random: np.random.Generator) -> np.ndarray:
    """int32[P, W]: progress where some workers have done all, and the others nothing; the fewest of these first."""
    loads = code.assignment.loads
    if 2 ** min(loads.size, 30) <= number:
        masks = np.array(list(itertools.product((1, 0), repeat=loads.size)))
    else:
        few = 1 + np.minimum(random.geometric(0.25, size=number), loads.size) - 1
        masks = np.ones((number, loads.size), np.int64)
        for row, count in zip(masks[1:], few[1:], strict=True):
            row[random.permutation(loads.size)[:count]] = 0
    order = np.argsort((masks == 0).sum(axis=1), kind="stable")
    return (masks[order] * loads).astype(np.int32)


def _partial(code: GradientCode, number: int, random: np.random.Generator) -> np.ndarray:
    """int32[P, W]: random progress."""
    loads = code.assignment.loads
    return random.integers(0, loads + 1, size=(max(number // 4, 1), loads.size)).astype(np.int32)


def _chain(code: GradientCode, random: np.random.Generator, most: int = 33) -> np.ndarray:
    """int32[P, W]: from nothing to everything, the chunks in a random order."""
    loads = code.assignment.loads
    order = random.permutation(np.repeat(np.arange(loads.size), loads))
    steps = np.zeros((order.size + 1, loads.size), np.int32)
    steps[np.arange(1, order.size + 1), order] = 1
    rows = np.unique(np.linspace(0, order.size, min(most, order.size + 1)).astype(int))
    return np.cumsum(steps, axis=0, dtype=np.int32)[rows]


def _tried(code: GradientCode, every: Every, progress: np.ndarray) -> _Tried:
    coding, sent = jax.tree.map(np.asarray, called("plan", every, jnp.asarray(progress, jnp.int32)))
    return _Tried(progress, coding, sent, true_distance(code, coding))


def _tried_first(tried: _Tried, number: int) -> _Tried:
    return jax.tree.map(lambda x: x[:number], tried)


def _smallest(tried: _Tried, bad: Any) -> str:
    """The progress, among the bad ones, with the least left undone."""
    done = np.where(bad, tried.progress.sum(axis=1), -1)
    return f"progress {shown(tried.progress[int(np.argmax(done))])}"


def _check_residual(code: GradientCode, tried: _Tried) -> None:
    for name, part in tried.coding._asdict().items():
        bad = ~np.isfinite(part).reshape(len(part), -1).all(axis=1)
        require(not bad.any(), f"{name} must be finite", _smallest(tried, bad))
    bad = np.abs(tried.coding.residual - tried.distance) > _zero(code) + 1e-6 * tried.distance
    if bad.any():
        i = int(np.argmax(np.where(bad, tried.progress.sum(axis=1), -1)))
        require(
            False,
            f"residual must be the distance of the decoded coefficients from the exact sum; it says "
            f"{tried.coding.residual[i]:.6g} where that is {tried.distance[i]:.6g}",
            _smallest(tried, bad),
        )


def _check_messages(code: GradientCode, tried: _Tried, chain: int) -> None:
    slots = np.arange(code.assignment.load)
    done = slots < tried.progress[:, :, None]  # [P, W, K]
    sends: Any = tried.sent.any(axis=2)
    early: Any = (np.asarray(tried.coding.encode) != 0).any(axis=(2, 4)) & ~done & sends[:, :, None]
    bad: Any = early.any(axis=(1, 2))
    require(not bad.any(), "a message must not contain a chunk that is not finished", _smallest(tried, bad))
    bad = ((tried.coding.decode != 0).any(axis=3) & ~tried.sent).any(axis=(1, 2))
    require(not bad.any(), "a message that is not sent must have the weight 0", _smallest(tried, bad))
    bad = (tried.sent.any(axis=2) & (tried.progress == 0)).any(axis=1)
    require(not bad.any(), "a worker that has finished nothing must send nothing", _smallest(tried, bad))
    if code.whole_workers:
        bad = (tried.sent.any(axis=2) & (tried.progress < code.assignment.loads)).any(axis=1)
        require(
            not bad.any(), "with whole_workers, nothing is sent before the whole load is done", _smallest(tried, bad)
        )
    gone: np.ndarray = (tried.sent[-chain:-1] & ~tried.sent[-chain + 1 :]).any(axis=(1, 2))
    bad = np.concatenate([np.zeros(len(tried.progress) - len(gone), bool), gone])
    require(not gone.any(), "a message that is sent must stay so with further progress", _smallest(tried, bad))


def _check_tolerated(code: GradientCode, tried: _Tried, tolerated: int) -> None:
    stragglers = ((tried.progress == 0) & (code.assignment.loads > 0)).sum(axis=1)
    bad = (stragglers <= tolerated) & (tried.distance > _zero(code))
    rule = f"every set of {tolerated} stragglers must be decoded exactly"
    require(not bad.any(), rule, _smallest(tried, bad))
    beyond = (stragglers == tolerated + 1) & (tried.progress == 0).any(axis=1)
    every = 2 ** min(code.assignment.num_workers, 30) <= len(tried.progress)
    rule = f"tolerated={tolerated} must be the largest number of stragglers of which every set is decoded"
    more = f"; all sets of {tolerated + 1} are"
    require(not every or not beyond.any() or tried.distance[beyond].max() > _zero(code), rule + more)


def _check_never_grows(tried: _Tried, chain: int) -> None:
    grown = np.diff(tried.distance[-chain:]) > 1e-9
    if grown.any():
        at = len(tried.progress) - chain + int(np.flatnonzero(grown)[-1])
        before, after = tried.progress[at : at + 2]
        rule = f"the residual must never grow with progress; it grows from {tried.distance[at]:.6g} to "
        require(False, f"{rule}{tried.distance[at + 1]:.6g}", f"progress {shown(before)} and then {shown(after)}")


def _check_completion(code: GradientCode, every: Every, number: int, random: np.random.Generator) -> None:
    """At the time of completion the sum is exact; just before it is not."""
    held = code.assignment.chunks >= 0
    finish = _finish(held, random)
    times = np.asarray(called("completion", jax.jit(jax.vmap(code.completion)), jnp.asarray(finish)))
    require(times.shape == finish.shape[:1], f"completion must be one time; it is {list(times.shape[1:])}")
    require(times.dtype == finish.dtype, f"completion must keep the type {finish.dtype}; it is {times.dtype}")
    ended = np.isfinite(finish) & held
    at = (ended & (finish <= times[:, None, None])).sum(axis=2)
    before = (ended & (finish < times[:, None, None])).sum(axis=2)
    progress = np.concatenate([at, before])
    left = np.concatenate(
        [
            _tried(code, every, _padded(progress[i : i + number], number)).distance[: len(progress[i : i + number])]
            for i in range(0, len(progress), number)
        ]
    )
    exact = left <= 10 * _zero(code)
    for i, time in enumerate(times):
        case = f"chunks of {shown(finish[i])} are finished at these seconds"
        if np.isinf(time):
            require(not exact[i], "completion must be a time if what is ever finished decodes exactly; it is inf", case)
            continue
        rule = f"at the time of completion the sum must be exact; at {time:g} s the residual is {left[i]:.6g}"
        require(exact[i], rule, case)
        rule = f"completion must be the earliest time; it is {time:g} s, and the sum is exact before"
        require(not exact[len(times) + i] or time == 0, rule, case)


def _finish(held: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """float64[Q, W, K]: when workers finish their chunks; together, in order, at random, with ties, some never."""
    workers = held.shape[0]
    equal, ordered = np.ones(workers), 1.0 + np.arange(workers)
    drawn = list(random.exponential(size=(4, workers)))
    for failed, seconds in enumerate(drawn):
        seconds[random.permutation(workers)[: min(failed, workers)]] = np.inf
    ties = random.choice([0.5, 1.0, 2.0], size=workers)
    slot = np.cumsum(np.where(held, 1.0, 0.0), axis=1)
    with np.errstate(invalid="ignore"):
        return np.stack([np.where(slot > 0, slot * x[:, None], 0) for x in (equal, ordered, ties, *drawn)])


def _padded(progress: np.ndarray, number: int) -> np.ndarray:
    return np.concatenate([progress, np.zeros((number - len(progress), progress.shape[1]), progress.dtype)])


def _check_program(code: GradientCode, tried: _Tried, quick: bool) -> None:
    """One program for all progress, which gives what `vmap` gives, and what the function gives without `jit`."""
    plan = Traced(code.plan)
    rows = (0, len(tried.progress) - 1) if len(tried.progress) > 1 else (0,)
    for i in rows:
        one = called("plan", plan, jnp.asarray(tried.progress[i], jnp.int32))
        distance = true_distance(code, jax.tree.map(lambda x: np.asarray(x)[None], one))[0]
        equal = close(distance, tried.distance[i], 1e-6) and close(one.encode.shape, tried.coding.encode[i].shape, 0)
        require(equal, "plan must give the same alone and under vmap", f"progress {shown(tried.progress[i])}")
    require(plan.times == 1, "plan must not be compiled again for other progress")
    if not quick:
        eager = called("plan", code.plan, jnp.asarray(tried.progress[0], jnp.int32))
        equal = close(eager.residual, tried.coding.residual[0], 1e-6)
        require(equal, "plan must give the same with and without jit", f"progress {shown(tried.progress[0])}")


def _check_refusals(code: GradientCode) -> None:
    loads = code.assignment.loads
    refused("plan", code.plan, jnp.zeros(loads.size, jnp.float32), case="progress in floating point numbers")
    refused("plan", code.plan, jnp.zeros(loads.size + 1, jnp.int32), case="progress of another number of workers")
    refused("plan", code.plan, jnp.asarray(loads + 1, jnp.int32), case="progress beyond the loads")
