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
    workers_and_staleness = ((8, 1), (6, 3))
    check_rows = [
        _exhaustive_check_row(specifications.ssp(num_workers, staleness=staleness))
        for num_workers, staleness in workers_and_staleness
    ]
    run_rows = [
        _validation_row("SSP(3)", protocols.ssp(staleness=3), specifications.ssp(16, staleness=3)),
        _validation_row("SSP(3)", protocols.ssp(staleness=3), specifications.ssp(100, staleness=3)),
        _validation_row("WBSP", protocols.worker_busy(), specifications.worker_busy(16)),
        _validation_row("ASP", protocols.asp(), specifications.asp(16)),
        _validation_row(
            "K-async(4)", protocols.k_async(num_contributions=4), specifications.k_async(16, num_contributions=4)
        ),
    ]
    return [*check_rows, _laws_row(), *run_rows, _inclusion_row()]


def _seconds_and_result(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, with compiling; and what it returns."""
    start_time = time.perf_counter()
    result = function()
    return time.perf_counter() - start_time, result


def _exhaustive_check_row(specification: Specification) -> Row:
    """A full check: each worker alone, composition, product and progress."""
    seconds, check = _seconds_and_result(partial(specifications.check, specification))
    states_per_second = specifications.states_per_second(specification)
    note = f"{check.product.states:,} states; product alone, compiled: {states_per_second:,.0f} states/s"
    return Row(
        what=f"check {specification.name}",
        value=f"{seconds:.1f} s",
        target="10 s",
        met=check.holds and seconds <= 10,
        note=note,
    )


def _laws_row() -> Row:
    """All laws on random commands of the bounded model, in three sizes."""
    size_texts, total_seconds, num_broken, num_without_counterexample = [], 0.0, 0, 0
    for num_states, max_steps, num_instances in LAW_SIZES:
        check_laws = partial(
            laws.check_all, num_states=num_states, max_steps=max_steps, num_instances=num_instances, rng_key=KEY
        )
        seconds, results = _seconds_and_result(check_laws)
        total_seconds += seconds
        size_texts.append(f"({num_states}, {max_steps}) x {num_instances}: {seconds:.0f} s")
        num_broken += sum(result.outcome == "refuted" and not result.is_expected for result in results)
        num_without_counterexample += sum(result.outcome == "holds" and not result.is_expected for result in results)
    return Row(
        what="all laws, (states, steps) x instances",
        value=f"{total_seconds:.0f} s",
        target="60 s",
        met=not num_broken and total_seconds <= 60,
        note=f"{', '.join(size_texts)}; {num_broken} laws broken, {num_without_counterexample} counterexamples that so "
        "few instances do not show",
    )


def _validation_row(name: str, protocol: Protocol, specification: Specification) -> Row:
    """A schedule of 10^6 units against its specification."""
    num_workers = specification.num_workers
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, NUM_UNITS // num_workers, num_workers)
    schedule = jax.block_until_ready(protocol(durations))
    (seconds_of_checks,) = alternate(lambda: protocols.check(schedule, specification), repeats=3)
    least_seconds, conformance = min(seconds_of_checks), protocols.check(schedule, specification)
    num_commits = int(np.isfinite(schedule.time).sum())
    return Row(
        what=f"{name}, {num_workers} workers: check of 10^6 units",
        value=f"{least_seconds:.2f} s",
        target="1 s",
        met=bool(conformance) and least_seconds <= 1,
        note=f"{num_commits:,} commits, {conformance.num_events:,} steps",
    )


def _inclusion_row() -> Row:
    """A random system against a specification and a guarantee: how fast pairs are searched."""
    num_states = 10
    space = steps.shared_memory(num_states)
    system = automata.random_automaton(space, num_controls=1000, num_moves=6, rng_key=KEY, aborts=False)
    never_ending_system = system._replace(terminating=np.zeros_like(system.initial))  # so all pairs are searched
    same_state, any_states = np.eye(num_states, dtype=bool), np.ones((num_states, num_states), bool)
    promise = automata.specification(space, same_state) & automata.guarantee(space, any_states)
    (seconds,) = alternate(lambda: automata.search(promise, never_ending_system), repeats=5)
    num_pairs, least_seconds = automata.search(promise, never_ending_system).num_pairs, min(seconds)
    return Row(
        what="automata: pairs searched a second",
        value=f"{num_pairs / least_seconds:,.0f}",
        target="",
        met=True,
        note=f"{num_pairs:,} in {least_seconds:.2f} s",
    )
