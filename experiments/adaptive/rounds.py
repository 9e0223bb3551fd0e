"""Codes that change with the stragglers, against the best code that never changes.

gcjax run configs/adaptive.gin, or python -m experiments.adaptive
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from gcjax import _validate, analysis, config, files, protocols, register
from gcjax.codes import GradientCode
from gcjax.progress import Progress
from gcjax.stragglers import Network, StragglerModel, sample_durations

NOTES = """\
- Ratio: the time of {rounds} rounds that switch among the codes, over that of the code which is best in hindsight, on
  the same seconds of each chunk, seed by seed; the mean over {seeds} seeds, its standard deviation, and the largest.
  Below 1 it is faster than any code that never changes.
- Best fixed: the code that is best in most of the seeds, and the mean seconds of a round under the best of each seed.
  Worst fixed: the same for the code that is slowest on the mean, as a ratio to the best.
- Every round at its best: the same ratio for rounds of which each has the code that is fastest in it, which nobody can
  know before.
- Changes: how often two rounds one after the other have different codes, on the mean over seeds.
"""

HEADS = (
    "Stragglers", "Window", "Best fixed", "Its seconds a round", "Ratio", "±", "largest", "Changes", "Worst fixed",
    "Its ratio", "Every round at its best",
)  # fmt: skip


class Times(NamedTuple):
    """What came out for one kind of stragglers; S seeds, P codes.

    Attributes:
      fixed: float64[P, S] seconds of all rounds with one code.
      best_rounds: float64[S] seconds of all rounds, if each had the code that is fastest in it.
      adaptive: float64[windows, S] seconds of all rounds that switch among the codes.
      changes: float64[windows, S], how often the code changed.
    """

    fixed: np.ndarray
    best_rounds: np.ndarray
    adaptive: np.ndarray
    changes: np.ndarray


@register("experiment")
def adaptive_codes(
    codes: Mapping[str, GradientCode],
    *,
    stragglers: Mapping[str, Sequence[StragglerModel]],
    network: Network,
    windows: Sequence[int] = (10,),
    num_rounds: int = 200,
    num_seeds: int = 20,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Times `adaptive_coded` and each of its codes by itself on the same seconds, and writes a table.

    Args:
      codes: name -> code, all of the same workers and chunks; all rounds of the first seconds have the first one.
      stragglers: name -> models, each for as many of the rounds, one after the other.
      network: the time of messages, in seconds for a whole gradient.
      windows: the rounds that a choice looks back, several.
      num_rounds: R of each run.
      num_seeds: S.
      seed: of everything random here.
      out: the folder to write.
      progress: tells a person how far it is.

    Returns:
      The rows of the table, by its heads.

    Raises:
      ValueError: if there is no code, no stragglers, or fewer rounds than models.
    """
    num_seeds = _validate.integer("num_seeds", num_seeds, minimum=2)
    if not codes or not stragglers or not all(stragglers.values()) or not windows:
        raise ValueError(
            f"adaptive_codes needs codes, stragglers with a model each, and windows; got {list(codes)}, "
            f"{list(stragglers)} and {list(windows)}."
        )
    keys = jax.random.split(config.key(seed=seed), num_seeds)
    records = []
    for number, (name, phases) in enumerate(stragglers.items()):
        progress.update(name, number / len(stragglers))
        num_rounds = _validate.integer("num_rounds", num_rounds, minimum=len(phases))
        units = _units(phases, keys, num_rounds, codes)
        times = _times(dict(codes), units, network, tuple(windows))
        records += [_record(name, list(codes), times, number, w, num_rounds) for number, w in enumerate(windows)]
    rows = [[record[head] for head in HEADS] for record in records]
    notes = NOTES.format(rounds=num_rounds, seeds=num_seeds)
    page_lines = ["# Codes that change", "", analysis.markdown_table(HEADS, rows), "", notes]
    analysis.write_page(out, "\n".join(page_lines), {"num_rounds": num_rounds, "num_seeds": num_seeds, "seed": seed})
    files.write_table(out / "adaptive.parquet", pa.Table.from_pylist(records))
    progress.show(analysis.RichTable("Codes that change", HEADS, rows))
    return records


def _units(
    phases: Sequence[StragglerModel], keys: jax.Array, num_rounds: int, codes: Mapping[str, GradientCode]
) -> jax.Array:
    """float[S, rounds, K, W] seconds of the chunks, K of the largest code, for S keys: of one model after the other."""
    load = max(code.assignment.load for code in codes.values())
    num_workers = next(iter(codes.values())).assignment.num_workers
    bounds = [phase * num_rounds // len(phases) for phase in range(len(phases) + 1)]  # the rounds where models begin

    def of_seed(key: jax.Array) -> jax.Array:
        """float[rounds, K, W] of one seed."""
        parts = [
            sample_durations(model, jax.random.fold_in(key, phase), load * (end - begin), num_workers)
            for phase, (model, begin, end) in enumerate(zip(phases, bounds[:-1], bounds[1:], strict=True))
        ]
        return jnp.concatenate(parts).reshape(num_rounds, load, num_workers)

    return jnp.stack([of_seed(key) for key in keys])


def _times(codes: dict[str, GradientCode], units: jax.Array, network: Network, windows: tuple[int, ...]) -> Times:
    """The seconds of each code by itself, of the fastest code of each round, and of `adaptive_coded`, by window.

    `units`: float[S, rounds, K, W] seconds of chunks; `windows`: rounds by which the next code is chosen.
    """
    round_ends = []  # of each code: float64[S, rounds] seconds, when rounds end
    for code in codes.values():
        units_of_code = units[:, :, : code.assignment.load].reshape(units.shape[0], -1, units.shape[3])  # [S, units, W]
        schedules = _schedules(protocols.coded(code), units_of_code, network)
        round_ends.append(np.asarray(schedules.time, np.float64))
    round_seconds = np.diff(np.stack(round_ends), prepend=0.0, axis=2)  # [codes, S, rounds], what each round took
    adaptive_seconds, change_counts = [], []
    for window in windows:
        protocol = protocols.adaptive_coded(codes, window=window)
        schedules = _schedules(protocol, units.reshape(units.shape[0], -1, units.shape[3]), network)
        adaptive_seconds.append(np.asarray(schedules.time, np.float64)[:, -1])
        code_of_round = np.asarray(protocols.used_candidate(schedules))  # int[S, rounds], which code
        change_counts.append((np.diff(code_of_round, axis=1) != 0).sum(axis=1).astype(np.float64))
    return Times(
        fixed=round_seconds.sum(axis=2),
        best_rounds=round_seconds.min(axis=0).sum(axis=1),
        adaptive=np.stack(adaptive_seconds),
        changes=np.stack(change_counts),
    )


def _schedules(protocol: protocols.Protocol, durations: jax.Array, network: Network) -> protocols.Schedule:
    """The schedules of durations float[S, T, W], by one program."""
    return jax.jit(jax.vmap(lambda seconds: protocol.schedule(seconds, network)))(durations)


def _record(
    stragglers: str, names: list[str], times: Times, window_index: int, window: int, num_rounds: int
) -> dict[str, Any]:
    """The row of the table for one kind of stragglers and window (in rounds), at `window_index`.

    `names` are those of the codes. Ratios are to the seconds of the code that is best in hindsight, seed by seed.
    """
    best_seconds = times.fixed.min(axis=0)  # float64[S] seconds of all rounds
    ratios = times.adaptive[window_index] / best_seconds  # [S]
    most_often_best = int(np.bincount(times.fixed.argmin(axis=0)).argmax())
    slowest = int(times.fixed.mean(axis=1).argmax())  # `fixed` is [codes, S]
    cells = (
        stragglers,
        str(window),
        names[most_often_best],
        f"{best_seconds.mean() / num_rounds:.3f}",
        f"{ratios.mean():.3f}",
        f"{ratios.std(ddof=1):.3f}",
        f"{ratios.max():.3f}",
        f"{times.changes[window_index].mean():.1f}",
        names[slowest],
        f"{(times.fixed[slowest] / best_seconds).mean():.2f}",
        f"{(times.best_rounds / best_seconds).mean():.3f}",
    )
    return dict(zip(HEADS, cells, strict=True))
