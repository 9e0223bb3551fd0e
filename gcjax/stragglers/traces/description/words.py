"""A description in words: who is slow, and what the reader did."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.description.levels import Level, least_steps
from gcjax.stragglers.traces.description.slow_steps import SlowStep
from gcjax.stragglers.traces.description.slowdown import Slowdown
from gcjax.stragglers.traces.description.spells import Spell, are_together
from gcjax.stragglers.traces.description.verdict import Verdict
from gcjax.wording import counted, text_list

_MAX_WORKERS = 4
"""That are named in a sentence."""
_MAX_STEPS = 3
"""That are named in a sentence."""
_SHARED_RATIO = 1.1
"""A stretch of steps is named in which all take so many times as long as usual."""
_PEAK_RATIO = 1.5
"""A level so many times that of the whole spell is named, too."""
_MAIN_SHARE = 0.5
"""A worker is named that causes so much of what passing delays cost."""
_UNNAMED = "array", "NumPy", "column a worker"
"""Layouts in which no row says whose time it has."""
_SEVERITIES = {"ok": "OK", "warning": "Warning", "critical": "Critical"}


def sentence(
    verdict: Verdict,
    spells: Sequence[Spell],
    slow_steps: Sequence[SlowStep],
    failures: Sequence[tuple[int, int]],
    worker_names: Sequence[str],
    slowdown: Slowdown,
    shared_levels: Sequence[Level],
    steps: np.ndarray,
) -> str:
    """The verdict in words, the steps in which all were slow, and who failed.

    Args:
      verdict: on a trace.
      spells: of all workers.
      slow_steps: in which all are slow.
      failures: (worker, step) of each worker that failed.
      worker_names: of the workers.
      slowdown: what the job would take without the delays of a worker.
      shared_levels: of the steps' medians.
      steps: int64[T], the numbers of the steps.
    """
    cost_text = f"{100 * verdict.cost:.3g} % of the iteration"
    is_other_when_rounded = verdict.cost_of_computing > 1.005 * verdict.cost
    if is_other_when_rounded:
        cost_text += f" ({100 * verdict.cost_of_computing:.3g} % of its computing)"
    failed_sentence = (
        f" {_workers_with_steps_sentence('Failed', failures, len(failures), worker_names)}" if failures else ""
    )
    if verdict.kind == "passing" and not verdict.workers:
        cost_text += _main_cause_clause(slowdown, worker_names)
    clause = (
        f"{_shared_clause(shared_levels, steps, len(worker_names))}; this costs {cost_text}."
        if verdict.kind == "shared"
        else _verdict_sentence(verdict, cost_text, spells, worker_names, steps)
    )
    slow_steps_sentence = _slow_steps_sentence(slow_steps, len(worker_names))
    return f"{_SEVERITIES[verdict.severity]}: {clause}{slow_steps_sentence}{failed_sentence}"


def caution(num_steps: int, num_workers: int, layout: str) -> str:
    """That there are too few steps to name a slow worker, if so; else empty, as it is for one worker.

    In some layouts of a file nothing but the shape tells steps from workers.
    """
    steps_needed = least_steps(num_workers)
    if num_workers == 1 or num_steps >= steps_needed:
        return ""
    too_few = "1 step is too few" if num_steps == 1 else f"{num_steps} steps are too few"
    transpose = (
        " Transpose the table if its rows are workers." if num_steps < num_workers and layout in _UNNAMED else ""
    )
    return (
        f"{too_few} to tell from chance which of {num_workers:,} workers is slow; {steps_needed} are needed.{transpose}"
    )


def _shared_clause(shared_levels: Sequence[Level], steps: np.ndarray, num_workers: int) -> str:
    """That all are slow at once, and the longest stretch of steps in which they are, weighed by how slow; if any is.

    Of one worker, that it is slow at times.
    """
    who = "nobody is slower than the others, but at times all are slow at once"
    if num_workers == 1:
        who = "there is one worker, and it is slow at times"
    if len(shared_levels) < 2:
        return who
    slowest = max(shared_levels, key=lambda level: (level.median_ratio - 1) * (level.last_row + 1 - level.first_row))
    if not slowest.median_ratio >= _SHARED_RATIO:
        return who
    first_step, last_step = int(steps[slowest.first_row]), int(steps[slowest.last_row])
    is_to_end = slowest.last_row == len(steps) - 1
    when = f"since step {first_step}" if is_to_end else f"from step {first_step} to step {last_step}"
    return f"{who}, above all {when} ({slowest.median_ratio:.3g} times as long as usual)"


def _slow_steps_sentence(slow_steps: Sequence[SlowStep], num_workers: int) -> str:
    """The steps in which all were slow, the slowest of them, as a sentence of its own; empty if there are none."""
    if not slow_steps:
        return ""
    slowest = sorted(slow_steps, key=lambda slow_step: -slow_step.ratio)[:_MAX_STEPS]
    texts = [f"{slow_step.step} ({slow_step.ratio:.3g} times as long as usual)" for slow_step in sorted(slowest)]
    noun = "step" if len(slow_steps) == 1 else "steps"
    who = "even the fastest worker" if num_workers > 1 else "the worker"
    return f" In {noun} {text_list(texts, len(slow_steps))} {who} was slow."


def _main_cause_clause(slowdown: Slowdown, worker_names: Sequence[str]) -> str:
    """The worker without whose delays at least half of the cost would be gone; empty if there is none.

    Empty for fewer than three workers, too. Ratios are of the seconds of the job, to those with all at the median.
    """
    worker = int(slowdown.ratio_without_worker.argmin())
    lost_ratio = slowdown.total_ratio - 1
    saved_ratio = slowdown.total_ratio - slowdown.ratio_without_worker[worker]
    saved_share_of_lost = saved_ratio / lost_ratio if lost_ratio > 0 else 0.0
    if len(worker_names) < 3 or not saved_share_of_lost >= _MAIN_SHARE:
        return ""
    return f"; {100 * saved_share_of_lost:.3g} % of that would be gone with worker {worker_names[worker]} at the median"


def _verdict_sentence(
    verdict: Verdict, cost_text: str, spells: Sequence[Spell], worker_names: Sequence[str], steps: np.ndarray
) -> str:
    """What the sentence says after the severity: who is slow since when, and the text of what it costs.

    `steps int64[T]` are the numbers of the steps.
    """
    if verdict.kind == "persistent":
        own_spells = [spell for spell in spells if spell.worker in set(verdict.workers)]
        is_slow_throughout = any(spell.is_slow_from_start and spell.is_slow_to_end for spell in own_spells)
        is_slow_at_end = any(spell.is_slow_to_end for spell in own_spells)
        workers_since = _slow_workers_since(verdict.workers, spells, worker_names)
        others_sentence = _others_sentence(verdict, spells, worker_names, steps)
        if not is_slow_at_end:
            verb = _past_verb(verdict.workers)
            return (
                f"{workers_since} {verb} slow for half of the steps or more; this costs {cost_text}.{others_sentence}"
            )
        verb, while_slow = "is" if len(verdict.workers) == 1 else "are", "" if is_slow_throughout else " while it lasts"
        return f"{workers_since} {verb} persistently slow; this costs {cost_text}{while_slow}.{others_sentence}"
    if verdict.workers:
        workers_since = _slow_workers_since(verdict.workers, spells, worker_names)
        together = " together" if are_together(spells, verdict.workers, steps) else ""
        return f"{workers_since} {_past_verb(verdict.workers)} slow{together}, which passed; this costs {cost_text}."
    if verdict.kind == "passing":
        return f"nobody is slow for long, but delays that pass cost {cost_text}."
    was_slow_sentence = _was_slow_sentence(spells, worker_names)
    for_long = " for long" if was_slow_sentence else ""
    return f"nobody is slow{for_long}; waiting for the slowest of each step costs {cost_text}.{was_slow_sentence}"


def _others_sentence(verdict: Verdict, spells: Sequence[Spell], worker_names: Sequence[str], steps: np.ndarray) -> str:
    """Who was slow for a while beside persistent workers, and what it costs, as a sentence; empty if nobody was."""
    if not verdict.other_workers:
        return ""
    subject = _slow_workers_since(verdict.other_workers, spells, worker_names)
    together = " together" if are_together(spells, verdict.other_workers, steps) else ""
    was_slow = f"{_past_verb(verdict.other_workers)} slow{together} for a while"
    cost_text = f"this costs another {100 * verdict.other_cost:.3g} % of all iterations"
    return f" {subject[0].upper()}{subject[1:]} {was_slow}; {cost_text}."


def _was_slow_sentence(spells: Sequence[Spell], worker_names: Sequence[str]) -> str:
    """Who was slow for a while, at little cost, as a sentence of its own; empty if nobody was."""
    if not spells:
        return ""
    workers = sorted({spell.worker for spell in spells})
    subject = _slow_workers_since(workers, spells, worker_names)
    return f" {subject[0].upper()}{subject[1:]} {_past_verb(workers)} slow for a while."


def _past_verb(workers: Sequence[int]) -> str:
    """The verb for some workers."""
    return "was" if len(workers) == 1 else "were"


def _slow_workers_since(workers: Sequence[int], spells: Sequence[Spell], worker_names: Sequence[str]) -> str:
    """Some workers, by name, each with how slow and since when in brackets; the first `_MAX_WORKERS` are named."""
    worker_texts = []
    for worker in workers[:_MAX_WORKERS]:
        own_spells = [spell for spell in spells if spell.worker == worker]
        worker_texts.append(f"{worker_names[worker]} ({_how_slow_and_when(own_spells)})")
    return f"{'worker' if len(workers) == 1 else 'workers'} {text_list(worker_texts, len(workers))}"


def _how_slow_and_when(spells: Sequence[Spell]) -> str:
    """How slow a worker is and since when; of several spells, how many there are and the last, or else the longest.

    The last is that which lasts to the end, if one does.
    """
    spell = max(spells, key=lambda spell: (spell.is_slow_to_end, spell.num_steps))
    if spell.is_slow_to_end:
        steps_text = "from its first step on" if spell.is_slow_from_start else f"since step {spell.first_step}"
    else:
        steps_text = f"from step {spell.first_step} to step {spell.last_step}"
    slowness_text = f"{spell.mean_ratio:.3g} times the median, {steps_text}"
    if spell.peak_ratio >= _PEAK_RATIO * spell.mean_ratio:
        slowness_text += f", {spell.peak_ratio:.3g} times from step {spell.peak_step}"
    which = "the last" if spell.is_slow_to_end else "the longest"
    return slowness_text if len(spells) == 1 else f"{slowness_text}, {which} of {len(spells)} spells"


def reading_sentences(trace: Trace, failures: Sequence[tuple[int, int]]) -> Iterator[str]:
    """What the reader did, and what is not there, a sentence each.

    Args:
      trace: as it was read.
      failures: (worker, step) of each worker that failed.
    """
    reading = trace.reading
    yield f"Layout: {reading.layout}, {reading.num_rows:,} rows."
    if trace.is_relative:
        yield "Times are known up to a factor only; the median of the file counts as one second."
    if reading.num_duplicates:
        yield f"Replaced by a later row for the same step and worker: {counted(reading.num_duplicates, 'time')}."
    if reading.num_gaps:
        yield f"Missing between the first and the last of a worker: {counted(reading.num_gaps, 'time')}."
    without_time = [trace.workers[worker] for worker in np.flatnonzero(np.isnan(trace.compute).all(axis=0))]
    if without_time:
        noun = "worker" if len(without_time) == 1 else "workers"
        yield f"Without any time: {noun} {text_list(without_time[:_MAX_WORKERS], len(without_time))}."
    if reading.num_incomplete:
        incomplete = counted(reading.num_incomplete, "step")
        yield f"Without some of the pipeline stages, so that means are over the others: {incomplete} of a worker."
    if reading.num_missing_steps:
        yield _missing_steps_sentence(trace.steps, reading.num_missing_steps)
    has_time = ~np.isnan(trace.compute)
    if reading.workers_joined_late:
        first_steps = ((worker, trace.steps[has_time[:, worker].argmax()]) for worker in reading.workers_joined_late)
        yield _workers_with_steps_sentence(
            "Joined after the first step", first_steps, len(reading.workers_joined_late), trace.workers
        )
    if reading.workers_left_early:
        has_time_from_end, steps_from_end = has_time[::-1], trace.steps[::-1]
        last_steps = (
            (worker, steps_from_end[has_time_from_end[:, worker].argmax()]) for worker in reading.workers_left_early
        )
        yield _workers_with_steps_sentence(
            "Left, with their last step", last_steps, len(reading.workers_left_early), trace.workers
        )
    if failures:
        yield _workers_with_steps_sentence("Failed", failures, len(failures), trace.workers)


def _missing_steps_sentence(steps: np.ndarray, num_missing: int) -> str:
    """That steps have no row: all but every so many, or how many; `steps int64[T]` are those that have one."""
    distances = np.diff(steps)
    is_every_so_many = (distances == distances[0]).all()
    if is_every_so_many:
        return f"One step in {distances[0]} is recorded; those between have no row."
    return f"Without a row, between the first and the last step: {counted(num_missing, 'number')}."


def _workers_with_steps_sentence(
    introduction: str, worker_steps: Iterable[tuple[int, int]], num_workers: int, worker_names: Sequence[str]
) -> str:
    """`introduction`, and then the first of so many workers, each with a step, as a sentence."""
    texts = [f"worker {worker_names[worker]} (step {step})" for worker, step in list(worker_steps)[:_MAX_WORKERS]]
    return f"{introduction}: {text_list(texts, num_workers)}."
