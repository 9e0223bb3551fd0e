"""The summary table of a comparison: one row a scheme."""

from typing import NamedTuple

import numpy as np

from gcjax.analysis import paired, table_cells
from gcjax.analysis.metrics import time_to_target
from gcjax.analysis.store import Columns, Results
from gcjax.tables import RichTable, markdown_table

NOTES = """\
- Time is virtual: seconds of the simulated workers, not of the machine that ran the simulation.
- ± is the standard deviation over seeds. *Never* means that the scheme came to a halt, because it waits for a
  worker that has failed; *not reached* means that it ran to the end without getting there.
- The final value is that at the end of a run, which may come at another time under each scheme. To compare schemes,
  take the seconds to a target.
- Computing, communicating and waiting are shares of the workers' time up to the end of the run. Chunks that
  were cut off or not used count as computing; a failed worker counts as waiting.
- Staleness is the number of commits between the parameters that a gradient was computed on and those that it
  was applied to: the mean, and the largest in brackets.
- The time to the target, and the chunks and numbers sent by then (per worker), are means over the seeds that
  reached it: where these are "3 of 5 seeds", the slow ones may be missing. Where none did, chunks and numbers
  are those up to the end of the run, marked with >. A redundant chunk costs as much as any other. A
  compressed message counts as the numbers that take as many bytes.
"""


class SummaryRow(NamedTuple):
    """The cells of one scheme, as text."""

    scheme: str
    time_to_target: str
    final_value: str
    computing: str
    communicating: str
    waiting: str
    staleness: str
    chunks_per_worker: str
    numbers_sent: str


def table(results: Results) -> RichTable:
    """The summary for the terminal."""
    title = "Mean ± standard deviation over seeds; time is virtual"
    return RichTable(title, heads(results), rows(results), caption=same_durations(results))


def paired_table(results: Results, against: str) -> RichTable:
    """The differences from the scheme `against`, seed by seed, for the terminal; errors as of `markdown`."""
    return RichTable(paired_title(against), paired.HEADS, paired.rows(times_best_first(results), against=against))


def paired_title(against: str) -> str:
    """What is above a table of differences from the scheme `against` on the terminal."""
    return f"Later than {against}, seed by seed: to the target, in virtual seconds and as a ratio"


def markdown(results: Results, *, against: str | None = None) -> str:
    """The summary as a Markdown page, with what its columns mean, and with the differences seed by seed.

    Args:
      results: of a comparison.
      against: the scheme that the differences are from; the best one if None.

    Raises:
      ValueError: if there is no scheme `against`.
    """
    warning = same_durations(results)
    notes = column_notes(results) if warning is None else f"{column_notes(results)}- {warning}\n"
    page = "\n".join(["# Summary", "", markdown_table(heads(results), rows(results)), "", notes])
    paired_section = paired.section(times_best_first(results), against=against)
    return "\n".join(part for part in (page, paired_section) if part)


def column_notes(results: Results) -> str:
    """What the columns mean, when runs ended, and how far evaluations are apart, as a Markdown list."""
    sentences = filter(None, (end_times(results), evaluations_apart(results), unused_workers(results)))
    return NOTES + "".join(f"- {sentence}\n" for sentence in sentences)


def end_times(results: Results) -> str | None:
    """A sentence on when the runs of each scheme ended, and after how many commits; None if all ended alike."""
    ends = {}
    for scheme in results.schemes:
        last_times, num_commits = (
            table_cells.range_text(np.array([seed[name][-1] for seed in results.seeds(scheme)]), text_format)
            for name, text_format in (("time", ".3g"), ("commit", ",.0f"))
        )
        ends[scheme] = (
            "without any"
            if num_commits == "0"
            else f"at {last_times} s ({num_commits} {'commit' if num_commits == '1' else 'commits'})"
        )
    if len(set(ends.values())) == 1:
        return None
    texts = [f"{scheme} {end}" for scheme, end in ends.items()]
    return (
        f"Runs ended at their last commit: {', '.join(texts)}. Where `study.seconds` is given, all runs last as long; "
        "otherwise until a worker has used up its `study.num_units` units, which are chunks under a code. A "
        "learning-rate schedule counts commits, or each worker's units under local steps."
    )


def evaluations_apart(results: Results) -> str | None:
    """A sentence on how far evaluations are apart, up to which times to the target are too long; None if not at all.

    They are not where every commit is evaluated. Schemes are: they differ in how many commits they make.
    """
    gaps = []
    for scheme in results.schemes:
        seeds = results.seeds(scheme)
        commit_gaps, time_gaps = (
            np.concatenate([np.diff(seed[name]) for seed in seeds]) for name in ("commit", "time")
        )
        if not commit_gaps.size:
            continue
        if commit_gaps.max() > 1:
            gaps.append(f"{scheme} {commit_gaps.mean():.3g} commits or {time_gaps.mean():.3g} s")
    if not gaps:
        return None
    others = "" if len(gaps) == len(results.schemes) else "; the others are evaluated after every commit"
    return (
        "A target counts as reached at the first evaluation that shows it, so times to it are too long by up to the "
        f"time between two evaluations, of which `study.num_evals` makes more. On average: {', '.join(gaps)}{others}."
    )


def unused_workers(results: Results) -> str | None:
    """A sentence on the schemes with workers in no commit though they compute and do not fail; None if there are none.

    They are not counted where workers were away, nor in folders of earlier versions.
    """
    counts = {}
    for scheme in results.schemes:
        numbers = np.array(results.facts["schemes"][scheme].get("unused_workers") or [0])
        if numbers.any():
            counts[scheme] = f"{scheme} {table_cells.range_text(numbers, '.0f')}"
    if not counts:
        return None
    return (
        f"Of {results.facts['num_workers']} workers some are in no commit, though they compute and do not fail: "
        f"{', '.join(counts.values())}. What they compute is lost: others are first each time, as they are faster, or "
        "equally fast, for of equal times that of the lower number counts as earlier. If many units take equally long, "
        "take a model in which they differ, such as `shifted_exponential`."
    )


def same_durations(results: Results) -> str | None:
    """A sentence if seeds had the same durations, so that ± is not, or not only, over stragglers; None if none had."""
    num_seeds, num_distinct = results.facts.get("num_seeds"), results.facts.get("distinct_durations")
    if num_distinct is None or num_distinct == num_seeds:
        return None
    if num_distinct == 1:
        return f"All {num_seeds} seeds had the same durations: ± is over parameters and batches, not over stragglers."
    return f"{num_seeds} seeds had only {num_distinct} different durations: ± over stragglers is too small."


def rows(results: Results) -> list[SummaryRow]:
    """One row a scheme, those that reach the target for most seeds, and soonest, first."""
    return [_summary_row(results, scheme) for scheme in _schemes_best_first(results)]


def reach_times(results: Results, scheme: str) -> np.ndarray:
    """float[S]: virtual seconds to the target for each of S seeds; inf where it was not reached."""
    target = results.facts["target"]
    metric, target_value, higher_is_better = target["metric"], target["value"], target["higher_is_better"]
    seeds = results.seeds(scheme)
    return np.array(
        [time_to_target(seed["time"], seed[metric], target_value, higher_is_better=higher_is_better) for seed in seeds]
    )


def best_value(results: Results) -> tuple[float, str]:
    """The best value of the target's metric that any scheme ever had, and which scheme that was."""
    target = results.facts["target"]
    values = results.metrics[target["metric"]]
    worst_value = -np.inf if target["higher_is_better"] else np.inf
    comparable_values = np.where(np.isnan(values), worst_value, values)
    best_row = int(comparable_values.argmax() if target["higher_is_better"] else comparable_values.argmin())
    return float(values[best_row]), str(results.metrics["scheme"][best_row])


def heads(results: Results) -> SummaryRow:
    """The heads of the columns of `rows`."""
    target = results.facts["target"]
    metric = target["metric"].replace("_", " ")
    relation = "" if target["higher_is_better"] else "≤ "
    return SummaryRow(
        scheme="Scheme",
        time_to_target=f"Time to {relation}{target['value']:g} {metric} (s)",
        final_value=f"Final {metric}",
        computing="Computing",
        communicating="Communicating",
        waiting="Waiting",
        staleness="Staleness",
        chunks_per_worker="Chunks per worker",
        numbers_sent="Numbers sent per worker",
    )


def times_best_first(results: Results) -> dict[str, np.ndarray]:
    """Scheme -> float[S], the virtual seconds to the target for each of S seeds, in the order of `rows`."""
    return {scheme: reach_times(results, scheme) for scheme in _schemes_best_first(results)}


def _schemes_best_first(results: Results) -> list[str]:
    """The schemes in the order of the rows."""
    return sorted(results.schemes, key=lambda scheme: rank(reach_times(results, scheme)))


def rank(times_to_target: np.ndarray) -> tuple[float, float]:
    """Puts a scheme before others: minus the number of seeds that reach the target, then their mean time to it.

    `times_to_target`: float[S], inf for a seed that does not reach it; 0 stands for the mean of none.
    """
    is_reached = np.isfinite(times_to_target)
    return -is_reached.sum(), times_to_target[is_reached].mean() if is_reached.any() else 0.0


def _summary_row(results: Results, scheme: str) -> SummaryRow:
    """The cells of one scheme in the summary table."""
    seeds, times_to_target = results.seeds(scheme), reach_times(results, scheme)
    last_values = {name: [seed[name][-1] for seed in seeds] for name in results.metrics}  # of each seed
    is_stalled_for_seed = results.facts["schemes"][scheme]["stalled"]
    return SummaryRow(
        scheme=scheme,
        time_to_target=table_cells.time_to_target_cell(
            times_to_target,
            np.array(last_values["time"]),
            is_stalled_for_seed,
            has_commits=any(last_values["commit"]),
        ),
        final_value=table_cells.mean_spread_cell(last_values[results.facts["target"]["metric"]], decimals=3),
        computing=table_cells.percent_cell(last_values["computing"]),
        communicating=table_cells.percent_cell(last_values["communicating"]),
        waiting=table_cells.percent_cell(last_values["waiting"]),
        staleness=table_cells.staleness_cell(last_values["mean_staleness"], last_values["max_staleness"]),
        chunks_per_worker=_spent_cell(seeds, times_to_target, "chunks"),
        numbers_sent=_spent_cell(seeds, times_to_target, "numbers"),
    )


def spent_until_target(seeds: list[Columns], times_to_target: np.ndarray, column: str) -> list[float]:
    """What each of S seeds had spent when it reached the target, by a column of `Results.metrics`; NaN if it did not.

    `times_to_target`: float[S] seconds, each the time of an evaluation, a row of the columns; inf where the target was
    not reached.
    """
    return [
        float(seed[column][seed["time"] == time][0]) if np.isfinite(time) else float("nan")
        for seed, time in zip(seeds, times_to_target, strict=True)
    ]


def _spent_cell(seeds: list[Columns], times_to_target: np.ndarray, column: str) -> str:
    """What the seeds of a scheme had spent when they reached the target, as a mean over those that did, as a cell.

    If no seed reached it, what was spent until the end, marked with >; arguments are those of `spent_until_target`.
    """
    if not np.isfinite(times_to_target).any():
        return "> " + table_cells.three_digits_cell(float(np.mean([seed[column][-1] for seed in seeds])))
    return table_cells.three_digits_cell(float(np.nanmean(spent_until_target(seeds, times_to_target, column))))
