"""Worker-busy synchronous parallel against BSP, ASP, SSP and ADSP, with half of the workers delayed.

gcjax run configs/worker_busy/digits.gin

Claims and set-ups: Yang, Hu, Liu, Jin, Yeung, You, Parallel Computing 121 (2024) 103092.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optax
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments import cells
from gcjax import _validate, analysis, config, files
from gcjax.analysis import cells as text
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.tables import RichTable
from gcjax.tasks import Task

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


CLAIM_HEADS = Claim("Setting", "What", "Claim", "Ours", "Spread over seeds", "Holds here")
LINE_HEADS = Line("Setting", "Method", "Time (s)", "Final", "Computing", "Communicating", "Waiting", "Staleness")


@config.experiment
def worker_busy_claims(
    settings: dict[str, StragglerModel],
    *,
    methods: dict[str, Protocol],
    others: dict[str, Protocol],
    task: Task,
    optimizer: optax.GradientTransformation,
    optimizers: dict[str, optax.GradientTransformation] | None = None,
    network: Network | Links,
    num_workers: int,
    num_units: int,
    target: float,
    metric: str = "accuracy",
    num_seeds: int = 5,
    num_evals: int = 100,
    seconds: float | None = None,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[Claim]:
    """Runs the variants of WBSP and the other methods in all settings, and compares with what the paper claims.

    The folder: `results.parquet` (a row for each method, setting and seed), `summary.md`, `time.png`, `run.json`,
    `operative.gin`.

    Args:
      settings: name -> who is slow, for example H1, H2 and H3 of the paper.
      methods: name -> variant of WBSP.
      others: name -> method to compare with.
      task: what is trained.
      optimizer: of the steps on gradients.
      optimizers: method -> its own optimizer, for example where a server's steps come more often than a worker's.
      network: the time of messages.
      num_workers: W.
      num_units: T, sampled for each worker.
      target: value of the metric to reach.
      metric: of the task.
      num_seeds: S, 2 or more.
      num_evals: evaluations of a run.
      seconds: virtual time of a run; to the end of the sampled units if None.
      seed: of all randomness.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if a method of the paper is also among the others, or a number is out of its range.
    """
    _validate.integer("num_seeds", num_seeds, minimum=2)
    both = set(methods) & set(others)
    if both or not methods or not others:
        raise ValueError(f"methods and others must be different schemes, and not empty; got both {sorted(both)}.")
    study = cells.Study(
        task, optimizer, optimizers or {}, num_workers, num_units, num_seeds, seed, target, metric, num_evals, seconds
    )
    places = {name: (model, network) for name, model in settings.items()}
    found = cells.measured({**methods, **others}, places, study, out, progress)
    made = [claim for name in settings for claim in _claims(found, name, list(methods), list(others))]
    lines = [_line(found, name, method, metric) for name in settings for method in (*methods, *others)]
    _write(found, made, lines, list(settings), study, out, progress)
    return made


def _claims(found: cells.Columns, setting: str, methods: Sequence[str], others: Sequence[str]) -> list[Claim]:
    fastest = np.min([cells.pick(found, other, setting, "reach") for other in others], axis=0)
    rows = []
    for method in methods:
        reach = cells.pick(found, method, setting, "reach")
        with np.errstate(invalid="ignore"):
            saved = 1 - reach / fastest
        rows.append(_claim(setting, f"time that {method} saves", saved, 0.60, "up to 60 %"))
    rest = [cells.pick(found, other, setting, "computing").mean() for other in others]
    shares = f"{100 * min(rest):.0f} to {100 * max(rest):.0f} %"
    rows.append(Claim(setting, "computing share of the others", "55 to 72 %", shares, "", _within(rest, 0.55, 0.72)))
    for method in methods:
        share = cells.pick(found, method, setting, "computing")
        rows.append(_claim(setting, f"computing share of {method}", share, 0.91, "91 % (with overlap)"))
    return rows


def _claim(setting: str, what: str, values: np.ndarray, claimed: float, text: str) -> Claim:
    if not np.isfinite(values).all():
        return Claim(setting, what, text, "target not reached", "", "no")
    mean, spread = 100 * values.mean(), 100 * values.std(ddof=1)
    return Claim(setting, what, text, f"{mean:.0f} %", f"± {spread:.1f}", "yes" if mean >= 100 * claimed else "no")


def _within(values: Sequence[float], low: float, high: float) -> str:
    return "yes" if low <= min(values) and max(values) <= high else "no"


def _line(found: cells.Columns, setting: str, method: str, metric: str) -> Line:
    def of(column: str) -> np.ndarray:
        return cells.pick(found, method, setting, column)

    return Line(
        setting,
        method,
        text.time_to_target(of("reach"), of("end"), of("stalled").tolist()),
        text.mean_spread(of(metric), 3),
        computing=text.percent(of("computing")),
        communicating=text.percent(of("communicating")),
        waiting=text.percent(of("waiting")),
        staleness=text.staleness(of("mean_staleness"), of("max_staleness")),
    )


def _write(
    found: cells.Columns,
    made: Sequence[Claim],
    lines: Sequence[Line],
    settings: Sequence[str],
    study: cells.Study,
    out: Path,
    progress: Progress,
) -> None:
    notes = NOTES.format(metric=study.metric, target=study.target, seeds=study.num_seeds)
    parts = [
        "# Worker-busy synchronous parallel",
        "",
        "## Claims",
        "",
        analysis.markdown_table(CLAIM_HEADS, made, keys=2, left=["Claim"]),
        "",
    ]
    parts += ["## All methods", "", analysis.markdown_table(LINE_HEADS, lines, keys=2), "", notes]
    files.write_text(out / "summary.md", "\n".join(parts))
    cells.save(found, study, out)
    _figure(found, settings, out / "time.png")
    analysis.drop_checkpoints(out)
    progress.show(claims_table(made))
    progress.show(methods_table(lines))


def claims_table(made: Sequence[Claim]) -> RichTable:
    """The claims for the terminal."""
    return analysis.rich_table("Claims", CLAIM_HEADS, made, keys=2, left=["Claim"])


def methods_table(lines: Sequence[Line]) -> RichTable:
    """All methods for the terminal."""
    return analysis.rich_table("All methods", LINE_HEADS, lines, keys=2)


def _figure(found: cells.Columns, settings: Sequence[str], path: Path) -> None:
    """The time of each method to the target in each setting, with its spread."""
    schemes = list(dict.fromkeys(found["scheme"].tolist()))
    figure = Figure(figsize=(1.4 + 2.6 * len(settings), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    width = 0.8 / len(schemes)
    for i, scheme in enumerate(schemes):
        reach = [cells.pick(found, scheme, setting, "reach") for setting in settings]
        means = [values.mean() if np.isfinite(values).all() else np.nan for values in reach]
        errors = [values.std(ddof=1) if np.isfinite(values).all() else np.nan for values in reach]
        axes.bar(np.arange(len(settings)) + i * width, means, width, yerr=errors, label=scheme)
    axes.set_xticks(np.arange(len(settings)) + 0.4 - width / 2, settings)
    axes.set_ylabel("virtual time to the target (s)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    files.write_figure(path, figure)
