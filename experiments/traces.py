"""Whether advice holds: chosen on the first half of a trace, judged on the second; and what an i.i.d. model would say.

gcjax run configs/traces/advise.gin --set "traces.paths = {'job': 'FILE'}"
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate, advice, analysis, files, processes, register
from gcjax.advice import Advice, Scheme
from gcjax.advice.blocks import MIN_STEPS, default_block_steps, step_seconds
from gcjax.advice.verdicts import percent_text
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel, exponential, read_trace, sample_durations

NOTES = """\
- Regret: how much longer a step of the chosen scheme takes on the second half than one of the scheme that is best
  there; the scheme is chosen on the first half, or on times drawn from an exponential distribution with its mean.
- Same gradient: among the schemes whose steps are those of BSP.
- Error of the model: mean over schemes of the distance of the share won back that it predicts from that on the second
  half, in points.
- Coverage: in how many of the schemes the share won back on the second half lies in the 90 % interval of the first
  half, which is for another stretch of as many steps if the job goes on as in the first half. All schemes have the same
  two halves, so that they are covered together or not at all more often than independent ones would be.
- Cost: the share of the time of BSP that stragglers cost, in both halves.
"""

CHOICE_HEADS = (
    "Trace", "Chosen", "Regret", "Same gradient", "Regret of it", "Chosen by the model", "Its regret",
    "Same gradient, by the model", "Regret of that", "Error of the model",
)  # fmt: skip
COVERAGE_HEADS = ("Trace", "Schemes whose second half is in the interval", "Cost in the first half", "In the second")
SYNTHETIC_HEADS = ("Model", "Second halves in the interval", "Traces")


class Half(NamedTuple):
    """The advice on the first half, on the second one, and on what a model fitted to the first one draws."""

    first: Advice
    second: Advice
    model: Advice


class Choice(NamedTuple):
    """A scheme that was chosen, and its regret where it is judged."""

    scheme: str
    regret: float


@register("experiment")
def traces(
    *,
    paths: Mapping[str, str],
    names: Sequence[str] | None = None,
    synthetic: Mapping[str, StragglerModel] | None = None,
    synthetic_names: Sequence[str] = ("bsp", "k_sync", "asp", "fractional_repetition"),
    num_traces: int = 20,
    num_steps: int = 512,
    num_workers: int = 8,
    num_bootstraps: int = 100,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Advises on each trace, and judges the advice by its second half.

    The folder: a page for each trace, `summary.md`, `results.parquet` (a row for each trace and scheme), `run.json`,
    `operative.gin`.

    Args:
      paths: name -> file, as for `gcjax trace advise`.
      names: of the schemes; all protocols and codes that need no task if None.
      synthetic: name -> a stationary straggler model, on whose traces intervals must cover what they say.
      synthetic_names: of the schemes that are tried on these.
      num_traces: drawn from each model.
      num_steps: of each of them.
      num_workers: of each of them.
      num_bootstraps: of all advice, 20 at least.
      seed: of bootstraps and models.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if there is neither a path nor a model, or a trace cannot be advised on, or is too short for halves.
    """
    if not paths and not synthetic:
        raise ValueError("traces must be given files, as in traces.paths = {'job': 'FILE'}, or synthetic models.")
    num_traces = _validate.integer("num_traces", num_traces, minimum=1)
    rows, choices, coverages = [], [], []
    seconds_of_trace = {name: _seconds_with_halves(name, path) for name, path in paths.items()}
    for name, seconds in seconds_of_trace.items():
        schemes = _schemes_of_names(seconds[: len(seconds) // 2], names)
        whole_advice = advice.advise(
            seconds, schemes=schemes, num_bootstraps=num_bootstraps, seed=seed, progress=progress
        )
        advice_of_halves = halves(seconds, schemes, num_bootstraps=num_bootstraps, seed=seed)
        files.write_text(out / f"{analysis.file_name(name)}.md", f"# {name}\n\n{whole_advice}\n")
        rows += [{"trace": name, **row} for row in scheme_rows(whole_advice, advice_of_halves)]
        choices.append((name, *_choice_cells(advice_of_halves)))
        coverages.append((name, *_coverage_cells(advice_of_halves)))
    synthetic_rows, shape = [], (num_traces, num_steps, num_workers)
    for name, model in (synthetic or {}).items():
        is_covered = synthetic_coverage(model, shape, synthetic_names, num_bootstraps=num_bootstraps, seed=seed)
        synthetic_rows.append((name, f"{100 * np.mean(is_covered):.0f} %", str(num_traces)))
    if processes.is_first():
        _write(out, rows, choices, coverages, synthetic_rows, {"seed": seed, "num_bootstraps": num_bootstraps})
    return rows


def _seconds_with_halves(name: str, path: str) -> np.ndarray:
    """float64[T, W] of the trace in a file, gaps filled; a `ValueError` if its halves are too short for advice."""
    seconds, _ = step_seconds(read_trace(path))
    if len(seconds) // 2 < MIN_STEPS:
        raise ValueError(
            f"a trace must have {2 * MIN_STEPS} steps at least, half of them to choose by and half to judge by; "
            f"'{name}' has {len(seconds)}. gcjax trace advise takes it as a whole."
        )
    return seconds


def halves(seconds: np.ndarray, schemes: Sequence[Scheme], *, num_bootstraps: int, seed: int) -> Half:
    """The advice on both halves of a trace `float64[T, W]`, and on an i.i.d. exponential model of the first one.

    The maximum-likelihood mean of an exponential distribution is that of the times. All have blocks as long as those of
    the first half.
    """
    first_half, second_half = _trace_halves(seconds)
    model = exponential(mean=float(first_half.mean()))
    drawn_seconds = np.asarray(sample_durations(model, jax.random.key(seed), *first_half.shape), np.float64)
    return Half(*_advice_on_each((first_half, second_half, drawn_seconds), schemes, num_bootstraps, seed))


def _trace_halves(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first half of a trace `float64[T, W]`, and as many steps after it."""
    num_steps = len(seconds) // 2
    return seconds[:num_steps], seconds[num_steps : 2 * num_steps]


def _advice_on_each(
    traces_to_advise_on: Sequence[np.ndarray], schemes: Sequence[Scheme], num_bootstraps: int, seed: int
) -> list[Advice]:
    """The advice on each part, of times `float64[T, W]`; all have blocks as long as those of the first one."""
    advice_options: dict[str, Any] = {
        "num_bootstraps": num_bootstraps,
        "block_steps": default_block_steps(traces_to_advise_on[0]),
    }
    return [advice.advise(seconds, schemes=schemes, seed=seed, **advice_options) for seconds in traces_to_advise_on]


def choice(chosen_on: Advice, judged_on: Advice, *, same_gradient: bool) -> Choice:
    """The scheme that is best on one trace, and its regret on another: the share of time that it takes longer there.

    Longer than the best on that trace of those it was chosen from: all, or with `same_gradient` those that have the
    exact gradient.
    """
    candidates = [row for row in chosen_on.schemes if not same_gradient or row.exactness in ("exact", "exact coded")]
    seconds_of_scheme = {row.scheme.label: row.seconds.value for row in judged_on.schemes}
    least_seconds = min(seconds_of_scheme[row.scheme.label] for row in candidates)
    chosen_label = candidates[0].scheme.label  # the fastest comes first
    return Choice(chosen_label, seconds_of_scheme[chosen_label] / least_seconds - 1)


def won_back(advised: Advice) -> dict[str, float]:
    """Scheme -> the share of what stragglers cost BSP that it wins back on the trace."""
    return {row.scheme.label: row.won_back.value for row in advised.schemes}


def coverage(advised: Advice, shares: Mapping[str, float]) -> list[bool]:
    """For each scheme but BSP whether the interval of its share won back contains that of another stretch, `shares`."""
    tolerance = 1e-3  # of shares; schemes that are exactly as fast as BSP have intervals without a length
    intervals = {row.scheme.label: row.won_back for row in advised.schemes if row.scheme.name != "bsp"}
    return [
        interval.low - tolerance <= shares[name] <= interval.high + tolerance for name, interval in intervals.items()
    ]


def model_error(half: Half) -> float:
    """How far the shares won back that the model foretells are from those of the second half: mean over schemes."""
    model_shares, second_half_shares = won_back(half.model), won_back(half.second)
    return float(np.mean([abs(model_shares[name] - second_half_shares[name]) for name in second_half_shares]))


def scheme_rows(whole_advice: Advice, advice_of_halves: Half) -> list[dict[str, Any]]:
    """A row for each scheme: seconds an effective step, share won back on the whole trace, with its 90 % interval.

    `won_back_first`, `won_back_second`, `won_back_model`: the share on either half, and by the model.
    """
    shares = [won_back(advised) for advised in advice_of_halves]
    rows = []
    for row in whole_advice.schemes:
        name = row.scheme.label
        whole_shares = {"won_back": row.won_back.value, "low": row.won_back.low, "high": row.won_back.high}
        part_shares = {
            f"won_back_{key}": share_of_scheme[name] for key, share_of_scheme in zip(Half._fields, shares, strict=True)
        }
        rows.append(
            {
                "scheme": name,
                "exactness": row.exactness,
                "seconds": row.seconds.value,
                **whole_shares,
                **part_shares,
            }
        )
    return rows


def _schemes_of_names(seconds: np.ndarray, names: Sequence[str] | None) -> list[Scheme]:
    """The default schemes for a trace, or those of these names."""
    schemes, _ = advice.default_schemes(seconds, names=names)
    return schemes


def _choice_cells(advice_of_halves: Half) -> list[str]:
    """The cells by `CHOICE_HEADS` but for the trace: schemes chosen on the first half and by the model, and regrets.

    Of each chosen of all and of those with the same gradient; all judged on the second half. The last one is in points.
    """
    cells = []
    for choosing_advice in (advice_of_halves.first, advice_of_halves.model):
        for same_gradient in (False, True):
            chosen = choice(choosing_advice, advice_of_halves.second, same_gradient=same_gradient)
            cells += [chosen.scheme, f"{percent_text(chosen.regret)} %"]
    return [*cells, f"{100 * model_error(advice_of_halves):.0f}"]


def _coverage_cells(advice_of_halves: Half) -> list[str]:
    """How many of the intervals of the first half cover the second half's value; and what stragglers cost in both."""
    is_covered = coverage(advice_of_halves.first, won_back(advice_of_halves.second))
    costs = (f"{percent_text(advised.cost.value)} %" for advised in (advice_of_halves.first, advice_of_halves.second))
    return [f"{sum(is_covered)} of {len(is_covered)}", *costs]


def synthetic_coverage(
    model: StragglerModel, shape: tuple[int, int, int], names: Sequence[str], *, num_bootstraps: int, seed: int
) -> list[bool]:
    """For each trace that is drawn from a model, and each scheme, whether the interval of one half covers the other.

    Args:
      model: a stationary one.
      shape: traces, steps of each, workers.
      names: of schemes.
      num_bootstraps: of all advice.
      seed: of traces and bootstraps.
    """
    num_traces, num_steps, num_workers = shape
    is_covered = []
    for index, key in enumerate(jax.random.split(jax.random.key(seed), num_traces)):
        seconds = np.asarray(sample_durations(model, key, num_steps, num_workers), np.float64)
        trace_halves = _trace_halves(seconds)
        first_advice, second_advice = _advice_on_each(
            trace_halves, _schemes_of_names(trace_halves[0], names), num_bootstraps, seed + index
        )
        is_covered += coverage(first_advice, won_back(second_advice))
    return is_covered


def _write(
    out: Path, rows: list[dict[str, Any]], choices: Sequence[Any], coverages: Sequence[Any], synthetic: Sequence[Any],
    run_facts: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the page with a table of each sort of which there are cells, and the `rows`, to the folder `out`."""
    page_lines = ["# Advice, judged by the second half", "", NOTES]
    tables = {
        "Choices": (CHOICE_HEADS, choices),
        "Intervals": (COVERAGE_HEADS, coverages),
        "Intervals on stationary traces": (SYNTHETIC_HEADS, synthetic),
    }
    for title, (heads, cells) in tables.items():
        if cells:
            page_lines += [f"## {title}", "", analysis.markdown_table(heads, cells), ""]
    analysis.write_page(out, "\n".join(page_lines), run_facts)
    if rows:
        files.write_table(out / "results.parquet", {name: np.array([row[name] for row in rows]) for name in rows[0]})
