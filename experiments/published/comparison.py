"""One comparison of a paper: tuned schemes on one condition, and what the paper says of pairs of them."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.tuned_schemes import Setting, TunedSchemes, scheme_of, tuned_schemes
from gcjax import _validate, analysis, files, processes, register
from gcjax.analysis import paired, table_cells
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.study import Condition, Study, Tuning, seed_values

HEADS = ("Claim", "Paper", "Ours: time over the other's", paired.INTERVAL_NAME, "Holds here", "Command")
TIME_HEADS = ("Scheme", "Seconds to the target", "Variant", "Rate", "At an edge", "Waiting", "Staleness")

NOTES = """\
- Virtual seconds to {metric} {target:g}; {seeds} seeds that all schemes share, ± is their standard deviation. {trials}
  trials a scheme on {trial_seeds} other seeds.
- A claim is of one scheme against another one: the geometric mean of the ratios of their seconds, seed by seed, and its
  interval, by Student's t for the mean of the logarithms. Where 1 is in the interval, they are indistinguishable here.
  If one of them got there with all seeds, and the other one with fewer although it ran as long, that decides.
"""

_CONDITION = "published"


class Finding(NamedTuple):
    """A row of the table of claims, see `HEADS`."""

    claim: str
    paper: str
    ours: str
    interval: str
    holds: str
    command: str


@register("experiment")
def published(
    schemes: dict[str, Protocol],
    *,
    study: Study,
    tuning: Tuning,
    stragglers: StragglerModel,
    networks: Mapping[str, Network | Links] | None = None,
    claims: Sequence[tuple[str, str, str]],
    command: str,
    out: Path,
    progress: Progress,
) -> list[Finding]:
    """Tunes every scheme, and compares what the paper compares.

    The folder: `results.parquet`, `trials.parquet`, `summary.md`, `run.json`, `operative.gin`.

    Args:
      schemes: name -> protocol, with variants as in `experiments.tuned_schemes`.
      study: what all schemes share, with a target and 2 seeds or more, and optimizers whose learning rate is 1.
      tuning: how hyperparameters are chosen.
      stragglers: who is slow.
      networks: scheme -> the time of its messages; instantaneous for those that have none.
      claims: (the scheme that is faster, the one that is slower, what the paper says of it).
      command: that makes this table.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if a claim or a network is of a scheme that is not there, or there is no claim, or no target, or only
        one seed.
    """
    _validate.integer("num_seeds", study.num_seeds, minimum=2)
    goal = study.goal
    names = {scheme_of(name) for name in schemes}
    _check_names(names, claims, networks or {})
    setting = Setting(study, tuning, {_CONDITION: Condition(stragglers)}, [[_CONDITION]], networks or {})
    tuned = tuned_schemes(schemes, setting, out=out, progress=progress)
    findings = [finding(tuned, *claim, command=command, seconds=study.seconds) for claim in claims]
    if processes.is_first():
        notes = NOTES.format(
            metric=goal.metric, target=goal.value, seeds=study.num_seeds, trials=tuning.num_trials,
            trial_seeds=tuning.num_seeds,
        )  # fmt: skip
        tables = [analysis.markdown_table(HEADS, findings), "", notes, "", "## Times", ""]
        tables.append(analysis.markdown_table(TIME_HEADS, list(_lines(tuned))))
        analysis.write_page(out, "\n".join(["# Published claims", "", *tables, ""]), study.facts())
        files.write_table(out / "results.parquet", tuned.rows)
        files.write_table(out / "trials.parquet", tuned.trials)
        analysis.drop_checkpoints(out)
        progress.show(analysis.RichTable("Published claims", HEADS, findings))
    return findings


def _check_names(names: set[str], claims: Sequence[tuple[str, str, str]], networks: Iterable[str]) -> None:
    """Raises a `ValueError` if there is no claim, or a claim or a network is of no scheme of these names."""
    if not claims:
        raise ValueError("claims must have one at least, as in [('Ringmaster', 'ASGD', 'faster')]; got none.")
    known_names = ", ".join(sorted(names))
    for faster, slower, _ in claims:
        if unknown := {faster, slower} - names:
            raise ValueError(f"a claim must be of two of the schemes, {known_names}; got {unknown.pop()!r}.")
    if unknown := set(networks) - names:
        raise ValueError(f"networks must be those of schemes, {known_names}; got {min(unknown)!r}.")


def finding(
    tuned: TunedSchemes, faster: str, slower: str, paper: str, *, command: str, seconds: float | None
) -> Finding:
    """What is found of a claim that one scheme is faster than another one, by their seconds to the target.

    `paper`: what it says of them; `command`: that makes the table; `seconds`: for which all ran, None if each ran for
    as long as its units lasted. A seed that did not get there (inf) decides, if only one of the schemes has such seeds,
    and ran for as long as the other one took.
    """
    make_finding = functools.partial(Finding, claim=f"{faster} is faster than {slower}", paper=paper, command=command)
    faster_seconds, slower_seconds = (seed_values(tuned.rows, name, _CONDITION, "reach") for name in (faster, slower))
    faster_end, slower_end = (
        np.maximum(seed_values(tuned.rows, name, _CONDITION, "end"), seconds or 0.0) for name in (faster, slower)
    )
    if not np.isfinite(faster_seconds).all() and not np.isfinite(slower_seconds).all():
        return make_finding(ours="target not reached", interval="-", holds="not decided: neither always got there")
    if not np.isfinite(faster_seconds).all():
        holds = _decided("no", faster, faster_seconds, faster_end, slower_seconds)
        return make_finding(ours="target not reached", interval="-", holds=holds)
    if not np.isfinite(slower_seconds).all():
        holds = _decided("yes", slower, slower_seconds, slower_end, faster_seconds)
        return make_finding(ours="the other did not reach the target", interval="-", holds=holds)
    ratio = paired.times_as_long(slower_seconds, faster_seconds)
    if ratio is None:
        return make_finding(ours="-", interval="-", holds="not decided: the target was reached at once")
    if ratio.is_told_apart:
        holds = "yes" if ratio.high < 1 else "**no**"
    else:
        holds = "indistinguishable"
    return make_finding(ours=f"{ratio.mean:.2f}", interval=f"[{ratio.low:.2f}, {ratio.high:.2f}]", holds=holds)


def _decided(verdict: str, scheme: str, seconds: np.ndarray, end: np.ndarray, other_seconds: np.ndarray) -> str:
    """The verdict, as a scheme did not get there with some seeds; or that nothing is decided, as those ended too early.

    All arrays are [S], of each seed: seconds to the target, inf if it did not get there; seconds that it ran; seconds
    to the target of the other scheme, all finite.
    """
    is_reached = np.isfinite(seconds)
    if not (is_reached | (other_seconds <= end)).all():
        return f"not decided: {scheme} ran for less than the other took"
    return f"{verdict}: {scheme} got there with {int(is_reached.sum())} of {len(seconds)} seeds"


def _lines(tuned: TunedSchemes) -> Iterable[tuple[str, ...]]:
    """A row for each scheme, by `TIME_HEADS`; a rate is at an edge if it is the lowest or the highest of several.

    It is chosen only if a trial reached the target; else it is the first one that was tried.
    """
    for scheme in dict.fromkeys(tuned.rows["scheme"].tolist()):
        rows = analysis.select_rows(tuned.rows, tuned.rows["scheme"] == scheme)
        variant, rate = str(rows["variant"][0]), float(rows["rate"][0])
        is_of_variant = tuned.trials["variant"] == variant
        rates = tuned.trials["rate"][is_of_variant]
        is_chosen = np.isfinite(tuned.trials["reach"][is_of_variant]).any()
        is_at_edge = rates.min() < rates.max() and rate in (rates.min(), rates.max())
        yield (
            scheme, table_cells.time_to_target_cell(rows["reach"], rows["end"], rows["stalled"].tolist()),
            variant.removeprefix(scheme).removeprefix(",").strip() or "-",
            f"{rate:.2g}" if is_chosen else f"{rate:.2g} (no trial got there)",
            "yes" if is_at_edge else "no", table_cells.percent_cell(rows["waiting"]),
            table_cells.staleness_cell(rows["mean_staleness"], rows["max_staleness"]),
        )  # fmt: skip
