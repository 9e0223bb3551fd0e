"""All gradient codes side by side: what they cost, what they tolerate, how exact and how fast they are.

gcjax run configs/codes.gin
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from gcjax import _validate, analysis, config, files
from gcjax.codes import GradientCode
from gcjax.codes.diagnostics import conditioning
from gcjax.codes.diagnostics.rounding import straggler_masks
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel, sample_durations

NOTES = """\
- Load: the share of all data that a worker computes, times the number of workers; 1 without redundancy. A chunk of a
  code with N chunks is 1/N of the data, and takes W/N times as long as one of W chunks.
- Sent: what a worker sends at most, in full gradients.
- Error: Frobenius distance of the decoded coefficients from the exact sum, over that of decoding nothing (0: exact; 1:
  nothing is known), when {stragglers} workers have done nothing; the mean and the largest over {masks} sets of them.
- Time: virtual, until the sum can be decoded exactly, the mean over {trials} rounds of those that get there; in
  brackets the share of rounds that never do. 1 is the mean time of one of W chunks.
- Plan: measured time of one plan, compiled, float32, on this machine.
- Condition: Skeel's condition number of decoding, typical and worst, over the same sets; rounding errors of messages
  grow by so much. The errors are measured: relative, the largest, float32 and bfloat16 messages.
"""


class Measurement(NamedTuple):
    """What is found out about one code; arrays are over the straggler models.

    Attributes:
      code: its name.
      load: redundancy, K·W over N where all loads are full.
      sent: full gradients that a worker sends at most.
      mean_error: over the sets of stragglers, relative.
      worst_error: the largest of them.
      times: float[models], mean time of exact decoding; NaN if never.
      time_errors: float[models], standard errors.
      never: float[models], the share of rounds in which the sum is never decoded exactly.
      plan_seconds: of one plan.
      typical_condition: see `gcjax.codes.diagnostics.conditioning`.
      worst_condition: the same.
      float32_error: the same.
      bfloat16_error: the same.
    """

    code: str
    load: float
    sent: float
    mean_error: float
    worst_error: float
    times: np.ndarray
    time_errors: np.ndarray
    never: np.ndarray
    plan_seconds: float
    typical_condition: float
    worst_condition: float
    float32_error: float
    bfloat16_error: float


@config.experiment
def compare_codes(
    codes: dict[str, GradientCode],
    *,
    stragglers: dict[str, StragglerModel],
    num_stragglers: int,
    num_trials: int = 1000,
    num_masks: int = 256,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[Measurement]:
    """Measures every code at the same number of workers and writes a table and a figure.

    Args:
      codes: name -> code, all with the same number of workers.
      stragglers: name -> straggler model, for the completion times. One unit is 1/W of the data.
      num_stragglers: s, the workers that have done nothing in the errors and condition numbers.
      num_trials: rounds for each straggler model.
      num_masks: sets of stragglers at most.
      seed: of everything random here.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the codes have different numbers of workers, or there is none.
    """
    workers = {code.assignment.num_workers for code in codes.values()}
    if len(workers) != 1:
        raise ValueError(f"codes must all have the same number of workers; got {sorted(workers) or 'no code'}.")
    num_workers = workers.pop()
    _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)
    mask_key, condition_key, time_key = jax.random.split(config.key(seed=seed), 3)
    masks, _ = straggler_masks(num_workers, num_stragglers, max_masks=num_masks, rng_key=mask_key)
    units = max(-(-code.assignment.load * num_workers // code.assignment.num_chunks) for code in codes.values())
    durations = {
        name: _rounds(model, jax.random.fold_in(time_key, i), num_trials, units, num_workers)
        for i, (name, model) in enumerate(stragglers.items())
    }
    measurements = []
    for i, (name, code) in enumerate(codes.items()):
        progress.update(name, i / len(codes))
        measurements.append(_measurement(name, code, masks, durations, num_stragglers, num_masks, condition_key))
    facts = {"num_stragglers": num_stragglers, "num_trials": num_trials, "num_masks": len(masks)}
    _write(measurements, list(stragglers), facts, out, progress)
    return measurements


def _rounds(model: StragglerModel, rng_key: jax.Array, num_trials: int, units: int, num_workers: int) -> jax.Array:
    """float[trials, units, W]: independent rounds."""
    keys = jax.random.split(rng_key, num_trials)
    return jax.jit(jax.vmap(lambda key: sample_durations(model, key, units, num_workers)))(keys)


def _measurement(
    name: str, code: GradientCode, masks: np.ndarray, durations: dict[str, jax.Array], num_stragglers: int,
    num_masks: int, rng_key: jax.Array,
) -> Measurement:  # fmt: skip
    """What one code costs, tolerates and leaves, over masks `bool[masks, W]` and durations of each model."""
    a = code.assignment
    chunks_done = jnp.asarray(np.where(masks, 0, a.loads), jnp.int32)
    residuals = jax.jit(lambda rows: jax.lax.map(lambda p: code.plan(p).residual, rows, batch_size=64))(chunks_done)
    errors = np.asarray(residuals) / np.sqrt(a.num_chunks * code.num_blocks)
    times = np.stack([_completion(code, each) for each in durations.values()])
    ends = np.isfinite(times)
    condition = conditioning(code, num_stragglers=num_stragglers, rng_key=rng_key, max_masks=num_masks)
    return Measurement(
        code=name,
        load=float(a.loads.sum() / a.num_chunks),
        sent=float(np.asarray(code.sent(jnp.asarray(a.loads))).sum(axis=1).max() / code.num_blocks),
        mean_error=float(errors.mean()),
        worst_error=float(errors.max()),
        times=np.array([t[e].mean() if e.any() else np.nan for t, e in zip(times, ends, strict=True)]),
        time_errors=np.array(
            [t[e].std() / np.sqrt(e.sum()) if e.any() else np.nan for t, e in zip(times, ends, strict=True)]
        ),
        never=1 - ends.mean(axis=1),
        plan_seconds=_seconds(jax.jit(code.plan), chunks_done[0]),
        typical_condition=condition.typical,
        worst_condition=condition.worst,
        float32_error=condition.errors["float32"],
        bfloat16_error=condition.errors["bfloat16"],
    )


def _completion(code: GradientCode, durations: jax.Array) -> np.ndarray:
    """float[trials]: when each round can be decoded; a chunk of 1/N of the data is W/N units of work."""
    a = code.assignment
    share = a.num_workers / a.num_chunks

    def one(units: jax.Array) -> jax.Array:  # [units, W]
        spent = jnp.concatenate([jnp.zeros_like(units[:1]), jnp.cumsum(units, axis=0)])
        at = share * np.arange(1, a.load + 1)
        whole = np.minimum(at.astype(int), units.shape[0] - 1)
        finish = spent[whole] + jnp.where((at > whole)[:, None], (at - whole)[:, None] * units[whole], 0)
        return code.completion(finish.T.astype(units.dtype))

    return np.asarray(jax.jit(lambda rows: jax.lax.map(one, rows, batch_size=64))(durations))


def _seconds(function: Callable[[jax.Array], Any], argument: jax.Array) -> float:
    """The median of nine calls."""
    jax.block_until_ready(function(argument))
    seconds = []
    for _ in range(9):
        start_time = time.perf_counter()
        jax.block_until_ready(function(argument))
        seconds.append(time.perf_counter() - start_time)
    return statistics.median(seconds)


def _write(
    measurements: list[Measurement], models: list[str], facts: dict[str, Any], out: Path, progress: Progress
) -> None:
    """Writes the table, its numbers and the figure, and shows the table."""
    heads, rows = _heads(models), [_row(each) for each in measurements]
    notes = NOTES.format(stragglers=facts["num_stragglers"], masks=facts["num_masks"], trials=facts["num_trials"])
    analysis.write_page(out, "\n".join(["# Codes", "", analysis.markdown_table(heads, rows), "", notes]), facts)
    files.write_table(out / "codes.parquet", pa.Table.from_pylist([_plain(each, models) for each in measurements]))
    _figure(measurements, models, out / "codes.png")
    progress.show(analysis.rich_table(f"Codes, {facts['num_stragglers']} stragglers", heads, rows))


def _heads(models: list[str]) -> list[str]:
    errors = ["Error", "largest"]
    return ["Code", "Load", "Sent", *errors, *models, "Plan (ms)", "Condition", "worst", "float32", "bfloat16"]


def _row(m: Measurement) -> list[str]:
    """The cells of a code in the table."""
    return [
        m.code,
        f"{m.load:.3g}",
        f"{m.sent:.3g}",
        *(f"{error:.2g}" if error > 1e-3 else "exact" for error in (m.mean_error, m.worst_error)),
        *(
            "never" if never == 1 else f"{mean:.2f}" + (f" ({100 * never:.0f} %)" if never else "")
            for mean, never in zip(m.times, m.never, strict=True)
        ),
        f"{1000 * m.plan_seconds:.2g}",
        f"{m.typical_condition:.3g}",
        f"{m.worst_condition:.3g}",
        f"{m.float32_error:.1g}",
        f"{m.bfloat16_error:.1g}",
    ]


def _plain(m: Measurement, models: list[str]) -> dict[str, Any]:
    """One row of the table of results."""
    plain = {name: value for name, value in m._asdict().items() if not isinstance(value, np.ndarray)}
    for i, model in enumerate(models):
        plain |= {f"{model} time": float(m.times[i]), f"{model} standard error": float(m.time_errors[i])}
        plain |= {f"{model} never": float(m.never[i])}
    return plain


def _conditions(m: Measurement) -> tuple[float, float]:
    return m.typical_condition, m.worst_condition


def _figure(measurements: list[Measurement], models: list[str], file: Path) -> None:
    """Completion time and error of every code, with what it computes and sends."""
    figure = files.figure(13, 1.5 + 0.3 * len(measurements))
    axes = figure.subplots(1, 3, sharey=True)
    positions = np.arange(len(measurements))
    for i, model in enumerate(models):
        height = 0.8 / len(models)
        axes[0].barh(
            positions + (i - (len(models) - 1) / 2) * height, [m.times[i] for m in measurements], height, label=model,
            xerr=[m.time_errors[i] for m in measurements],
        )  # fmt: skip
    axes[0].set_xlabel("time to an exact sum (missing: never)")
    axes[0].legend(fontsize="small")
    axes[1].barh(positions - 0.2, [m.mean_error for m in measurements], 0.4, label="mean")
    axes[1].barh(positions + 0.2, [m.worst_error for m in measurements], 0.4, label="largest")
    axes[1].set_xlabel("relative error with s workers gone")
    axes[1].legend(fontsize="small")
    typical, worst = ([max(c, 1) for c in each] for each in zip(*map(_conditions, measurements), strict=True))
    axes[2].hlines(positions, typical, worst, color="C0", linewidth=1)
    axes[2].plot(worst, positions, "o", markersize=9, fillstyle="none", color="C0", label="worst")
    axes[2].plot(typical, positions, "o", markersize=4, color="C1", label="typical")
    axes[2].set_xscale("log")
    axes[2].set_xlabel("condition number")
    axes[2].legend(fontsize="small")
    axes[0].set_yticks(positions, [f"{m.code}  ({m.load:.2g} | {m.sent:.2g})" for m in measurements])
    axes[0].set_title("code (load | sent)", loc="left", fontsize="medium")
    axes[0].invert_yaxis()
    files.write_figure(file, figure)
