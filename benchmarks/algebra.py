"""Benchmarks of the algebra: specifications, laws, automata, and schedules held against what was promised."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.timing import KEY, Row, alternate
from gcjax import protocols, specifications, stragglers
from gcjax.algebra import automata, laws, steps
from gcjax.protocols import Protocol
from gcjax.specifications import Specification

LAW_SIZES = ((2, 4, 32), (3, 3, 32), (2, 6, 8))
NUM_UNITS = 1_000_000


def algebra() -> list[Row]:
    """All of them: exhaustive checks, the laws, whole runs, refinement of automata."""
    sizes = ((8, 1), (6, 3))
    checks = [_exhaustive(specifications.ssp(w, staleness=s)) for w, s in sizes]
    runs = [
        _held("SSP(3)", protocols.ssp(staleness=3), specifications.ssp(16, staleness=3)),
        _held("SSP(3)", protocols.ssp(staleness=3), specifications.ssp(100, staleness=3)),
        _held("WBSP", protocols.worker_busy(), specifications.worker_busy(16)),
    ]
    return [*checks, _laws(), *runs, _inclusion()]


def _seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Of one call, with compiling; and what it returns."""
    start = time.perf_counter()
    found = function()
    return time.perf_counter() - start, found


def _exhaustive(specification: Specification) -> Row:
    """A full check: each worker alone, composition, product and progress."""
    seconds, found = _seconds(partial(specifications.check, specification))
    rate = specifications.states_per_second(specification)
    note = f"{found.product.states:,} states; product alone, compiled: {rate:,.0f} states/s"
    return Row(
        what=f"check {specification.name}",
        value=f"{seconds:.1f} s",
        target="10 s",
        met=found.holds and seconds <= 10,
        note=note,
    )


def _laws() -> Row:
    """All laws on random commands of the bounded model, in three sizes."""
    each, broken, missing = [], 0, 0
    for num_states, max_steps, num in LAW_SIZES:
        suite = partial(laws.check_all, num_states=num_states, max_steps=max_steps, num_instances=num, rng_key=KEY)
        seconds, results = _seconds(suite)
        each.append(seconds)
        broken += sum(result.outcome == "refuted" and not result.expected for result in results)
        missing += sum(result.outcome == "holds" and not result.expected for result in results)
    text = ", ".join(f"({s}, {n}) x {b}: {t:.0f} s" for (s, n, b), t in zip(LAW_SIZES, each, strict=True))
    note = f"{text}; {broken} laws broken, {missing} counterexamples that so few instances do not show"
    total = sum(each)
    return Row(
        what="all laws, (states, steps) x instances",
        value=f"{total:.0f} s",
        target="60 s",
        met=not broken and total <= 60,
        note=note,
    )


def _held(name: str, protocol: Protocol, specification: Specification) -> Row:
    """A schedule of 10^6 units against its specification."""
    num_workers = specification.num_workers
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, NUM_UNITS // num_workers, num_workers)
    schedule = jax.block_until_ready(protocol(durations))
    ((first, *rest),) = alternate(lambda: protocols.check(schedule, specification), repeats=3)
    seconds, kept = min(first, *rest), protocols.check(schedule, specification)
    commits = int(np.isfinite(schedule.time).sum())
    note = f"{commits:,} commits, {kept.events:,} steps"
    met = bool(kept) and seconds <= 1
    return Row(
        what=f"{name}, {num_workers} workers: check of 10^6 units",
        value=f"{seconds:.2f} s",
        target="1 s",
        met=met,
        note=note,
    )


def _inclusion() -> Row:
    """A random system against a specification and a guarantee: how fast pairs are searched."""
    space = steps.shared_memory(10)
    system = automata.random_automaton(space, num_controls=1000, num_moves=6, rng_key=KEY, aborts=False)
    system = system._replace(terminating=np.zeros_like(system.initial))  # no early end: all pairs are searched
    promise = automata.specification(space, np.eye(10, dtype=bool))
    promise = promise & automata.guarantee(space, np.ones((10, 10), bool))
    (seconds,) = alternate(lambda: automata.search(promise, system), repeats=5)
    pairs, least = automata.search(promise, system).num_pairs, min(seconds)
    return Row(
        what="automata: pairs searched a second",
        value=f"{pairs / least:,.0f}",
        target="",
        met=True,
        note=f"{pairs:,} in {least:.2f} s",
    )
