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


class _Plans(NamedTuple):
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
    random = generator(rng_key)
    _check_types(code)
    masks, chain = _masks(code, max_masks, random), _chain(code, random)
    progress = np.concatenate([masks, _partial(code, max_masks, random), chain])
    with jax.enable_x64(True):
        every = jax.jit(jax.vmap(lambda p: (code.plan(p), code.sent(p))))
        tried = _plans(code, every, progress)
        _check_residual(code, tried)
        _check_messages(code, tried, len(chain))
        if tolerated is not None:
            _check_tolerated(code, _first_plans(tried, len(masks)), tolerated)
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
    """Chunks are numbers below N, each once for a worker, and -1 only behind them."""
    chunks = np.asarray(assignment.chunks)
    rule = "the chunks of an assignment must be int[W, K]"
    require(chunks.ndim == 2 and chunks.dtype.kind == "i", f"{rule}; got {chunks.dtype}{list(chunks.shape)}")
    inside = (chunks >= -1) & (chunks < assignment.num_chunks)
    rule = f"chunks must be 0, ..., {assignment.num_chunks - 1}, and -1 behind the last one of a worker"
    require(inside.all(), rule, f"worker {np.argwhere(~inside)[0][0] if not inside.all() else 0}")
    for w, row in enumerate(chunks):
        own = row[row >= 0]
        require((row[: own.size] >= 0).all(), rule, f"worker {w} has {shown(row)}")
        require(len(set(own)) == own.size, "a worker must hold a chunk once only", f"worker {w}: {shown(row)}")


def _check_types(code: GradientCode) -> None:
    """Shapes and types, without computing anything."""
    w, k = code.assignment.chunks.shape
    m, blocks = code.num_messages, code.num_blocks
    shapes = {"encode": (w, m, k, blocks), "decode": (w, m, blocks), "residual": ()}
    for wide, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(wide):
            progress = jax.ShapeDtypeStruct((w,), jnp.int32)
            coding = called("plan", jax.eval_shape, code.plan, progress)
            sent = called("sent", jax.eval_shape, code.sent, progress)
        require(isinstance(coding, Coding), f"plan must give a gcjax.codes.Coding; it gave {type(coding).__name__}")
        for name, shape in shapes.items():
            value = getattr(coding, name)
            require(value.shape == shape, f"{name} must have the shape {list(shape)}; it has {list(value.shape)}")
            when = "with" if wide else "without"
            require(value.dtype == dtype, f"{name} must be {jnp.dtype(dtype)} {when} 64-bit types; it is {value.dtype}")
        right = sent.dtype == bool and sent.shape == (w, m)
        require(right, f"sent must be bool{[w, m]}; it is {sent.dtype}{list(sent.shape)}")


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


def _chain(code: GradientCode, random: np.random.Generator, max_length: int = 33) -> np.ndarray:
    """int32[P, W]: from nothing to everything, the chunks in a random order."""
    loads = code.assignment.loads
    order = random.permutation(np.repeat(np.arange(loads.size), loads))
    steps = np.zeros((order.size + 1, loads.size), np.int32)
    steps[np.arange(1, order.size + 1), order] = 1
    rows = np.unique(np.linspace(0, order.size, min(max_length, order.size + 1)).astype(int))
    return np.cumsum(steps, axis=0, dtype=np.int32)[rows]


def _plans(code: GradientCode, every: Every, progress: np.ndarray) -> _Plans:
    """What the code does at the progress int[P, W]."""
    coding, sent = jax.tree.map(np.asarray, called("plan", every, jnp.asarray(progress, jnp.int32)))
    return _Plans(progress, coding, sent, true_distance(code, coding))


def _first_plans(tried: _Plans, number: int) -> _Plans:
    return jax.tree.map(lambda x: x[:number], tried)


def _require_nowhere(bad: Any, tried: _Plans, sentence: str) -> None:
    """Raises a `ContractError` if some progress is bad, with the one that has the least left undone."""
    if bad.any():
        require(False, sentence, f"progress {shown(tried.progress[_first(bad, tried)])}")


def _first(bad: Any, tried: _Plans) -> int:
    """The index of the bad progress with the least left undone."""
    return int(np.argmax(np.where(bad, tried.progress.sum(axis=1), -1)))


def _check_residual(code: GradientCode, tried: _Plans) -> None:
    """What a plan says is finite, and its residual is the true distance."""
    for name, part in tried.coding._asdict().items():
        _require_nowhere(~np.isfinite(part).reshape(len(part), -1).all(axis=1), tried, f"{name} must be finite")
    bad = np.abs(tried.coding.residual - tried.distance) > _zero(code) + 1e-6 * tried.distance
    i = _first(bad, tried)
    rule = "residual must be the distance of the decoded coefficients from the exact sum"
    values = f"it says {tried.coding.residual[i]:.6g} where that is {tried.distance[i]:.6g}"
    _require_nowhere(bad, tried, f"{rule}; {values}")


def _check_messages(code: GradientCode, tried: _Plans, chain: int) -> None:
    """What is in messages is finished, what is decoded is sent, and what is sent stays so along the chain."""
    is_done = np.arange(code.assignment.load) < tried.progress[:, :, None]  # [P, W, K]
    sends: Any = tried.sent.any(axis=2)  # [P, W]
    early = (np.asarray(tried.coding.encode) != 0).any(axis=(2, 4)) & ~is_done & sends[:, :, None]
    rule = "a message must not contain a chunk that is not finished"
    _require_nowhere(early.any(axis=(1, 2)), tried, rule)
    unsent = (tried.coding.decode != 0).any(axis=3) & ~tried.sent
    _require_nowhere(unsent.any(axis=(1, 2)), tried, "a message that is not sent must have the weight 0")
    rule = "a worker that has finished nothing must send nothing"
    _require_nowhere((sends & (tried.progress == 0)).any(axis=1), tried, rule)
    if code.whole_workers:
        rule = "with whole_workers, nothing is sent before the whole load is done"
        _require_nowhere((sends & (tried.progress < code.assignment.loads)).any(axis=1), tried, rule)
    withdrawn = np.zeros(len(tried.progress), bool)
    withdrawn[-chain:-1] = (tried.sent[-chain:-1] & ~tried.sent[-chain + 1 :]).any(axis=(1, 2))
    _require_nowhere(withdrawn, tried, "a message that is sent must stay so with further progress")


def _check_tolerated(code: GradientCode, tried: _Plans, tolerated: int) -> None:
    """Every set of so many stragglers is decoded, and not every one of one more, as far as that is tried."""
    stragglers = ((tried.progress == 0) & (code.assignment.loads > 0)).sum(axis=1)
    bad = (stragglers <= tolerated) & (tried.distance > _zero(code))
    _require_nowhere(bad, tried, f"every set of {tolerated} stragglers must be decoded exactly")
    beyond = (stragglers == tolerated + 1) & (tried.progress == 0).any(axis=1)
    exhaustive = 2 ** min(code.assignment.num_workers, 30) <= len(tried.progress)
    rule = f"tolerated={tolerated} must be the largest number of stragglers of which every set is decoded"
    more = f"; all sets of {tolerated + 1} are"
    require(not exhaustive or not beyond.any() or tried.distance[beyond].max() > _zero(code), rule + more)


def _check_never_grows(tried: _Plans, chain: int) -> None:
    grown = np.diff(tried.distance[-chain:]) > 1e-9
    if grown.any():
        last = len(tried.progress) - chain + int(np.flatnonzero(grown)[-1])
        (old, new), (old_progress, new_progress) = (x[last : last + 2] for x in (tried.distance, tried.progress))
        rule = f"the residual must never grow with progress; it grows from {old:.6g} to {new:.6g}"
        require(False, rule, f"progress {shown(old_progress)} and then {shown(new_progress)}")


def _check_completion(code: GradientCode, every: Every, number: int, random: np.random.Generator) -> None:
    """At the time of completion the sum is exact; just before it is not."""
    held = code.assignment.chunks >= 0
    finish = _finish(held, random)
    times = np.asarray(called("completion", jax.jit(jax.vmap(code.completion)), jnp.asarray(finish)))
    require(times.shape == finish.shape[:1], f"completion must be one time; it is {list(times.shape[1:])}")
    require(times.dtype == finish.dtype, f"completion must keep the type {finish.dtype}; it is {times.dtype}")
    ended = np.isfinite(finish) & held
    at_time = (ended & (finish <= times[:, None, None])).sum(axis=2)
    before_time = (ended & (finish < times[:, None, None])).sum(axis=2)
    progress = np.concatenate([at_time, before_time])
    rows = np.arange(-(-len(progress) // number) * number).clip(
        max=len(progress) - 1
    )  # so many that all parts are full
    parts = [_plans(code, every, progress[part]).distance for part in np.split(rows, rows.size // number)]
    distance = np.concatenate(parts)[: len(progress)]
    exact = distance <= 10 * _zero(code)
    for i, time in enumerate(times):
        case = f"chunks of {shown(finish[i])} are finished at these seconds"
        if np.isinf(time):
            require(not exact[i], "completion must be a time if what is ever finished decodes exactly; it is inf", case)
            continue
        rule = f"at the time of completion the sum must be exact; at {time:g} s the residual is {distance[i]:.6g}"
        require(exact[i], rule, case)
        rule = f"completion must be the earliest time; it is {time:g} s, and the sum is exact before"
        require(not exact[len(times) + i] or time == 0, rule, case)


def _finish(held: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """float64[Q, W, K]: when workers finish their chunks; together, in order, at random, with ties, some never."""
    workers = held.shape[0]
    equal, ordered = np.ones(workers), 1.0 + np.arange(workers)
    random_seconds = list(random.exponential(size=(4, workers)))
    for failed, seconds in enumerate(random_seconds):
        seconds[random.permutation(workers)[: min(failed, workers)]] = np.inf
    ties = random.choice([0.5, 1.0, 2.0], size=workers)
    slot = np.cumsum(np.where(held, 1.0, 0.0), axis=1)
    with np.errstate(invalid="ignore"):
        return np.stack([np.where(slot > 0, slot * x[:, None], 0) for x in (equal, ordered, ties, *random_seconds)])


def _check_program(code: GradientCode, tried: _Plans, quick: bool) -> None:
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
