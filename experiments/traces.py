"""Whether advice holds: chosen on the first half of a trace, judged on the second; and what an i.i.d. model would say.

gcjax run configs/traces/advise.gin --set "traces.paths = {'job': 'FILE'}"
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate, advice, analysis, config, files, processes
from gcjax.advice import Advice, Scheme, evaluation
from gcjax.advice.blocks import step_seconds
from gcjax.advice.labels import label
from gcjax.advice.verdicts import percent
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel, exponential, read_trace, sample_durations

NOTES = """\
- Regret: how much longer a step of the chosen scheme takes on the second half than one of the scheme that is best
  there; the scheme is chosen on the first half, or on times drawn from an exponential distribution with its mean.
- Same gradient: among the schemes whose steps are those of BSP.
- Error of the model: mean over schemes of the distance of the share won back that it predicts from that on the second
  half, in points.
- Coverage: in how many of the schemes the share won back on the second half lies in the interval of the first half.
  That is an interval for the mean of a trace; a second half is another sample, so its value lies in it less often. The
  interval for another trace of the same length is wider, by the differences of pairs of bootstraps.
"""

CHOICE_HEADS = (
    "Trace", "Chosen", "Regret", "Same gradient", "Regret of it", "Chosen by the model", "Its regret",
    "Same gradient, by the model", "Regret of that", "Error of the model",
)  # fmt: skip
COVERAGE_HEADS = ("Trace", "Interval", "Interval for another trace", "Schemes")
SYNTHETIC_HEADS = (
    "Model",
    "Long run in the interval",
    "Second half in it",
    "Second half in that for another trace",
    "Traces",
)


class Half(NamedTuple):
    """The advice on the first half, on the second one, and on what a model fitted to the first one draws."""

    first: Advice
    second: Advice
    model: Advice


class Choice(NamedTuple):
    """A scheme that was chosen, and its regret where it is judged."""

    scheme: str
    regret: float


@config.experiment
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
    _validate.integer("num_traces", num_traces, minimum=1)
    rows, choices, coverages = [], [], []
    for name, path in paths.items():
        seconds, _ = step_seconds(read_trace(path))
        schemes = _schemes_by_name(seconds[: len(seconds) // 2], names)
        whole = advice.advise(seconds, schemes=schemes, num_bootstraps=num_bootstraps, seed=seed, progress=progress)
        half = halves(seconds, schemes, num_bootstraps=num_bootstraps, seed=seed)
        files.write_text(out / f"{analysis.file_name(name)}.md", f"# {name}\n\n{whole}\n")
        rows += [{"trace": name, **row} for row in scheme_rows(whole, half)]
        choices.append((name, *_choice_cells(half)))
        coverages.append((name, *_coverage_cells(half)))
    synthetic_rows = [
        (name, *_synthetic_cells(model, (num_traces, num_steps, num_workers), synthetic_names, num_bootstraps, seed))
        for name, model in (synthetic or {}).items()
    ]
    if processes.is_first():
        _write(out, rows, choices, coverages, synthetic_rows, {"seed": seed, "num_bootstraps": num_bootstraps})
    return rows


def halves(seconds: np.ndarray, schemes: Sequence[Scheme], *, num_bootstraps: int, seed: int) -> Half:
    """The advice on both halves of a trace `float64[T, W]`, and on an i.i.d. exponential model of the first one.

    The maximum-likelihood mean of an exponential distribution is that of the times.
    """
    first, second = _cut_in_halves(seconds)
    model = exponential(mean=float(first.mean()))
    num_steps, num_workers = first.shape
    drawn = np.asarray(sample_durations(model, jax.random.key(seed), num_steps, num_workers), np.float64)
    advise = functools.partial(advice.advise, schemes=schemes, num_bootstraps=num_bootstraps, seed=seed)
    return Half(first=advise(first), second=advise(second), model=advise(drawn))


def _cut_in_halves(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two halves with equally many steps; of an odd number, the last step is left out."""
    middle = len(seconds) // 2
    return seconds[:middle], seconds[middle : 2 * middle]


def choice(chosen_on: Advice, judged_on: Advice, *, same_gradient: bool) -> Choice:
    """The scheme that is best on one trace, and its regret on another one."""
    candidate_rows = [
        row for row in chosen_on.schemes if not same_gradient or row.exactness in ("exact", "exact coded")
    ]
    judged_seconds = {label(row.scheme): row.seconds.value for row in judged_on.schemes}
    least_seconds = min(judged_seconds[label(row.scheme)] for row in candidate_rows)
    chosen = label(candidate_rows[0].scheme)  # rows are sorted, the fastest first
    return Choice(chosen, regret=judged_seconds[chosen] / least_seconds - 1)


def won_back(advised: Advice) -> dict[str, np.ndarray]:
    """Scheme -> float64[1 + B], the share won back on the trace and on each bootstrap."""
    bsp_seconds = np.append(advised.bsp_seconds.value, advised.bootstraps["slowest of each step"])
    median_seconds = np.append(advised.median_seconds.value, advised.bootstraps["median of each step"])
    baseline = evaluation.Baseline(bsp_seconds, median_seconds)
    seconds_of_scheme = {
        label(row.scheme): np.append(row.seconds.value, advised.bootstraps[label(row.scheme)])
        for row in advised.schemes
    }
    return {scheme: evaluation.won_back(seconds, baseline) for scheme, seconds in seconds_of_scheme.items()}


def interval(values: np.ndarray, *, of_another: bool) -> tuple[float, float]:
    """The 90 % interval of a value, float64[1 + B]: for the mean of the trace, or for another trace as long."""
    value_of_trace, values_of_bootstraps = values[0], values[1:]
    quantiles = [(1 - evaluation.LEVEL) / 2, (1 + evaluation.LEVEL) / 2]
    if not of_another:
        low, high = np.quantile(values_of_bootstraps, quantiles)
        return float(low), float(high)
    differences_of_pairs = np.array([a - b for a, b in itertools.permutations(values_of_bootstraps, 2)])
    low, high = value_of_trace + np.quantile(differences_of_pairs, quantiles)
    return float(low), float(high)


def coverage(chosen_on: Advice, truth: Mapping[str, float], *, of_another: bool) -> list[bool]:
    """For each scheme but BSP whether the interval of its share won back contains the true one."""
    tolerance = 1e-3  # of shares; schemes that are exactly as fast as BSP have intervals without a length
    is_covered = []
    for scheme, shares_won_back in won_back(chosen_on).items():
        if scheme != "bsp":
            low, high = interval(shares_won_back, of_another=of_another)
            is_covered.append(low - tolerance <= truth[scheme] <= high + tolerance)
    return is_covered


def scheme_rows(whole: Advice, half: Half) -> list[dict[str, Any]]:
    """For each scheme what is said of it on the whole trace, on its halves, and by the model."""
    shares_of_part = {part: _shares_on_trace(advised) for part, advised in half._asdict().items()}
    rows = []
    for row in whole.schemes:
        scheme = label(row.scheme)
        shares_on_whole = {"won_back": row.won_back.value, "low": row.won_back.low, "high": row.won_back.high}
        shares_on_parts = {f"won_back_{part}": shares[scheme] for part, shares in shares_of_part.items()}
        facts = {"scheme": scheme, "exactness": row.exactness, "seconds": row.seconds.value}
        rows.append({**facts, **shares_on_whole, **shares_on_parts})
    return rows


def _shares_on_trace(advised: Advice) -> dict[str, float]:
    """Scheme -> the share won back on the trace itself, not on a bootstrap."""
    return {scheme: float(shares[0]) for scheme, shares in won_back(advised).items()}


def _schemes_by_name(seconds: np.ndarray, names: Sequence[str] | None) -> list[Scheme]:
    """The default schemes for a trace, or those of these names."""
    schemes, _ = advice.default_schemes(seconds, names=names)
    return schemes


def _choice_cells(half: Half) -> list[str]:
    """What was chosen on the first half and by the model, and the regrets."""
    cells = []
    for chosen_on in (half.first, half.model):
        for same_gradient in (False, True):
            chosen = choice(chosen_on, half.second, same_gradient=same_gradient)
            cells += [chosen.scheme, f"{percent(chosen.regret)} %"]
    predicted_shares, true_shares = won_back(half.model), won_back(half.second)
    mean_error = np.mean([abs(predicted_shares[scheme][0] - true_shares[scheme][0]) for scheme in true_shares])
    return [*cells, f"{100 * mean_error:.0f}"]


def _coverage_cells(half: Half) -> list[str]:
    """How many of the intervals of the first half cover the second half's value."""
    truth = _shares_on_trace(half.second)
    covered_by_own = coverage(half.first, truth, of_another=False)
    covered_by_another = coverage(half.first, truth, of_another=True)
    num_schemes = len(covered_by_own)
    return [f"{sum(covered_by_own)} of {num_schemes}", f"{sum(covered_by_another)} of {num_schemes}", str(num_schemes)]


def _synthetic_cells(
    model: StragglerModel, shape: tuple[int, int, int], names: Sequence[str], num_bootstraps: int, seed: int
) -> list[str]:
    """Coverage on traces of a model, over traces and schemes; the long run is all traces one after the other."""
    num_traces, num_steps, num_workers = shape
    keys = jax.random.split(jax.random.key(seed), num_traces)
    drawn_traces = [np.asarray(sample_durations(model, key, num_steps, num_workers), np.float64) for key in keys]
    schemes = _schemes_by_name(drawn_traces[0], names)
    advice_on_halves = [
        [advice.advise(half, schemes=schemes, num_bootstraps=num_bootstraps, seed=seed + i)
         for half in _cut_in_halves(seconds)]
        for i, seconds in enumerate(drawn_traces)
    ]  # fmt: skip
    advice_on_all = advice.advise(np.concatenate(drawn_traces), schemes=schemes, num_bootstraps=20)
    long_run_shares = _shares_on_trace(advice_on_all)
    long_run_covered: list[bool] = []
    second_covered: list[bool] = []
    second_covered_as_another: list[bool] = []
    for first, second in advice_on_halves:
        second_shares = _shares_on_trace(second)
        long_run_covered += coverage(first, long_run_shares, of_another=False)
        second_covered += coverage(first, second_shares, of_another=False)
        second_covered_as_another += coverage(first, second_shares, of_another=True)
    all_covered = (long_run_covered, second_covered, second_covered_as_another)
    return [*(f"{100 * np.mean(is_covered):.0f} %" for is_covered in all_covered), str(num_traces)]


def _write(
    out: Path, rows: list[dict[str, Any]], choices: Sequence[Any], coverages: Sequence[Any], synthetic: Sequence[Any],
    facts: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the page and the table of an experiment."""
    page_lines = ["# Advice, judged by the second half", "", NOTES]
    heads_and_lines_of_title = {
        "Choices": (CHOICE_HEADS, choices),
        "Intervals": (COVERAGE_HEADS, coverages),
        "Intervals on stationary traces": (SYNTHETIC_HEADS, synthetic),
    }
    for title, (heads, lines) in heads_and_lines_of_title.items():
        if lines:
            page_lines += [f"## {title}", "", analysis.markdown_table(heads, lines), ""]
    analysis.write_page(out, "\n".join(page_lines), facts)
    if rows:
        files.write_table(out / "results.parquet", {name: np.array([row[name] for row in rows]) for name in rows[0]})
