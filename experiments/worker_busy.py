"""Worker-busy synchronous parallel against BSP, ASP, SSP and ADSP, with half of the workers delayed.

gcjax run configs/worker_busy/digits.gin

Claims and set-ups: Yang, Hu, Liu, Jin, Yeung, You, Parallel Computing 121 (2024) 103092.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gcjax import _validate, analysis, files, processes, register
from gcjax.analysis import table_cells
from gcjax.analysis.store import Columns
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.study import Condition, Study, final_rows, plan, run, seed_values
from gcjax.tables import RichTable

NOTES = """\
- Virtual time to {metric} {target:g}; {seeds} seeds, ± is their standard deviation. Saved: 1 minus the time over that
  of the fastest other method, seed by seed. A claim holds if the mean is at least what is claimed.
- Computing: share of the workers' time, delays included; redundant or lost work counts, too.
- Committed: the server commits on the slowest upload. Eager: the server applies each push, as the released code does.
"""


class Claim(NamedTuple):
    """A row of the table of claims."""

    setting: str
    what: str
    claim: str
    ours: str
    spread: str
    holds: str


class Line(NamedTuple):
    """A row of the table of all methods."""

    setting: str
    method: str
    time: str
    final: str
    computing: str
    communicating: str
    waiting: str
    staleness: str


CLAIM_HEADS = ("Setting", "What", "Claim", "Ours", "Spread over seeds", "Holds here")
LINE_HEADS = ("Setting", "Method", "Time (s)", "Final", "Computing", "Communicating", "Waiting", "Staleness")


@register("experiment")
def worker_busy_claims(
    settings: dict[str, StragglerModel],
    *,
    study: Study,
    methods: dict[str, Protocol],
    others: dict[str, Protocol],
    network: Network | Links,
    out: Path,
    progress: Progress,
) -> list[Claim]:
    """Runs the variants of WBSP and the other methods in all settings, and compares with what the paper claims.

    The folder: `results.parquet` (a row for each method, setting and seed), `summary.md`, `time.png`, `run.json`,
    `operative.gin`.

    Args:
      settings: name -> who is slow, for example H1, H2 and H3 of the paper.
      study: what all methods share, with a target and 2 seeds or more.
      methods: name -> variant of WBSP.
      others: name -> method to compare with.
      network: the time of messages.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if a method of the paper is also among the others, or there is no target or only one seed.
    """
    _validate.integer("num_seeds", study.num_seeds, minimum=2)
    common = set(methods) & set(others)
    if common or not methods or not others:
        raise ValueError(f"methods and others must be different schemes, and not empty; got both {sorted(common)}.")
    goal = study.goal
    conditions = {name: Condition(model, network) for name, model in settings.items()}
    schemes = {**methods, **others}
    rows = final_rows(run(plan(study, schemes, conditions), out=out, progress=progress))
    claims = [claim for name in settings for claim in _claims(rows, name, list(methods), list(others))]
    if processes.is_first():
        lines = [_method_line(rows, name, method, goal.metric) for name in settings for method in schemes]
        notes = NOTES.format(metric=goal.metric, target=goal.value, seeds=study.num_seeds)
        analysis.write_page(out, _summary_page(claims, lines, notes), study.facts())
        files.write_table(out / "results.parquet", rows)
        _draw_times(rows, list(settings), out / "time.png")
        analysis.drop_checkpoints(out)
        progress.show(claims_table(claims))
        progress.show(methods_table(lines))
    return claims


def _claims(rows: Columns, setting: str, methods: Sequence[str], others: Sequence[str]) -> list[Claim]:
    """The paper's claims about time saved and computing shares in one setting, with our figures.

    What a method saves is 1 less its seconds to the target (inf: not reached) over those of the fastest other method of
    the same seed.
    """
    fastest_other_times = np.min([seed_values(rows, other, setting, "reach") for other in others], axis=0)  # [seeds]
    claims = []
    for method in methods:
        times = seed_values(rows, method, setting, "reach")
        with np.errstate(invalid="ignore"):  # inf / inf, where neither reached the target
            saved_shares = 1 - times / fastest_other_times
        claims.append(_claim_of_least_share(setting, f"time that {method} saves", saved_shares, 0.60, "up to 60 %"))
    claims.append(_claim_on_shares_of_others(rows, setting, others))
    for method in methods:
        shares, quantity = seed_values(rows, method, setting, "computing"), f"computing share of {method}"
        claims.append(_claim_of_least_share(setting, quantity, shares, 0.91, "91 % (with overlap)"))
    return claims


def _claim_on_shares_of_others(rows: Columns, setting: str, others: Sequence[str]) -> Claim:
    """The claim that the other methods compute for 55 to 72 % of the time, each in its mean over seeds."""
    mean_shares = [seed_values(rows, other, setting, "computing").mean() for other in others]
    least, largest = min(mean_shares), max(mean_shares)
    return Claim(
        setting=setting,
        what="computing share of the others",
        claim="55 to 72 %",
        ours=f"{100 * least:.0f} to {100 * largest:.0f} %",
        spread="",
        holds="yes" if least >= 0.55 and largest <= 0.72 else "no",
    )


def _claim_of_least_share(
    setting: str, quantity: str, shares: np.ndarray, claimed_share: float, claim_text: str
) -> Claim:
    """The claim that the mean over S seeds of a share, float[S] up to 1, is at least `claimed_share`.

    It does not hold if a share is not finite: then the target was not reached.
    """
    if not np.isfinite(shares).all():
        return Claim(setting=setting, what=quantity, claim=claim_text, ours="target not reached", spread="", holds="no")
    mean_percent = 100 * shares.mean()
    return Claim(
        setting=setting,
        what=quantity,
        claim=claim_text,
        ours=f"{mean_percent:.0f} %",
        spread=f"± {100 * shares.std(ddof=1):.1f}",
        holds="yes" if mean_percent >= 100 * claimed_share else "no",
    )


def _method_line(rows: Columns, setting: str, method: str, metric: str) -> Line:
    """What one method reached in one setting, over all seeds, as cells of the table; `metric` at the end of the run."""

    def values_of_seeds(column: str) -> np.ndarray:
        return seed_values(rows, method, setting, column)

    return Line(
        setting,
        method,
        table_cells.time_to_target_cell(
            values_of_seeds("reach"), values_of_seeds("end"), values_of_seeds("stalled").tolist()
        ),
        table_cells.mean_spread_cell(values_of_seeds(metric), 3),
        computing=table_cells.percent_cell(values_of_seeds("computing")),
        communicating=table_cells.percent_cell(values_of_seeds("communicating")),
        waiting=table_cells.percent_cell(values_of_seeds("waiting")),
        staleness=table_cells.staleness_cell(values_of_seeds("mean_staleness"), values_of_seeds("max_staleness")),
    )


def _summary_page(claims: Sequence[Claim], lines: Sequence[Line], notes: str) -> str:
    """The summary in Markdown: both tables and the notes."""
    claims_text = analysis.markdown_table(CLAIM_HEADS, claims, num_key_columns=2, left_heads=["Claim"])
    page_lines = ["# Worker-busy synchronous parallel", "", "## Claims", "", claims_text, ""]
    page_lines += ["## All methods", "", analysis.markdown_table(LINE_HEADS, lines, num_key_columns=2), "", notes]
    return "\n".join(page_lines)


def claims_table(claims: Sequence[Claim]) -> RichTable:
    """The claims for the terminal."""
    return analysis.RichTable("Claims", CLAIM_HEADS, claims, num_key_columns=2, left_heads=["Claim"])


def methods_table(lines: Sequence[Line]) -> RichTable:
    """All methods for the terminal."""
    return analysis.RichTable("All methods", LINE_HEADS, lines, num_key_columns=2)


def _draw_times(rows: Columns, settings: Sequence[str], path: Path) -> None:
    """Draws the mean seconds of each method to the target in each setting, with their spread over seeds.

    There is no bar where a seed did not get there.
    """
    schemes = list(dict.fromkeys(rows["scheme"].tolist()))
    figure = files.figure(1.4 + 2.6 * len(settings), 4.0)
    axes = figure.subplots()
    bar_width = 0.8 / len(schemes)  # of 1, the distance of two settings
    first_bar_positions = np.arange(len(settings))
    for i, scheme in enumerate(schemes):
        times_by_setting = [seed_values(rows, scheme, setting, "reach") for setting in settings]
        means = [times.mean() if np.isfinite(times).all() else np.nan for times in times_by_setting]
        spreads = [times.std(ddof=1) if np.isfinite(times).all() else np.nan for times in times_by_setting]
        axes.bar(first_bar_positions + i * bar_width, means, bar_width, yerr=spreads, label=files.figure_text(scheme))
    group_centres = first_bar_positions + 0.4 - bar_width / 2
    axes.set_xticks(group_centres, settings)
    axes.set_ylabel("virtual time to the target (s)")
    axes.spines[["top", "right"]].set_visible(False)
    handles, _ = axes.get_legend_handles_labels()
    files.add_legend(figure, handles, loc="outside upper center", max_columns=4, fontsize=8)
    files.write_figure(path, figure)
