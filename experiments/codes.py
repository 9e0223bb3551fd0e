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
from matplotlib.axes import Axes

from gcjax import _validate, analysis, config, files, register
from gcjax.codes import GradientCode
from gcjax.codes.base import norm_of_exact_sum
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
      time_errors: float[models], standard errors; NaN of fewer than two.
      never: float[models], the share of rounds in which the sum is never decoded exactly.
      plan_seconds: of one plan, the median.
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


@register("experiment")
def compare_codes(
    codes: dict[str, GradientCode],
    *,
    stragglers: dict[str, StragglerModel],
    num_stragglers: int,
    num_trials: int = 1000,
    max_masks: int = 256,
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
      max_masks: sets of stragglers at most.
      seed: of everything random here.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the codes have different numbers of workers, or there is none.
    """
    worker_counts = {code.assignment.num_workers for code in codes.values()}
    if len(worker_counts) != 1:
        raise ValueError(f"codes must all have the same number of workers; got {sorted(worker_counts) or 'no code'}.")
    num_workers = worker_counts.pop()
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)
    mask_key, condition_key, time_key = jax.random.split(config.key(seed=seed), 3)
    masks, _ = straggler_masks(num_workers, num_stragglers, max_masks=max_masks, rng_key=mask_key)
    # The largest load in units, rounded up: a chunk of 1/N of the data is W/N units.
    most_units = max(-(-code.assignment.load * num_workers // code.assignment.num_chunks) for code in codes.values())
    durations_by_model = {
        name: _sample_rounds(model, jax.random.fold_in(time_key, i), num_trials, most_units, num_workers)
        for i, (name, model) in enumerate(stragglers.items())
    }
    measurements = []
    for i, (name, code) in enumerate(codes.items()):
        progress.update(name, i / len(codes))
        measurement = _measurement(name, code, masks, durations_by_model, num_stragglers, max_masks, condition_key)
        measurements.append(measurement)
    facts = {"num_stragglers": num_stragglers, "num_trials": num_trials, "num_masks": len(masks)}
    _write(measurements, list(stragglers), facts, out, progress)
    return measurements


def _sample_rounds(
    model: StragglerModel, rng_key: jax.Array, num_trials: int, num_units: int, num_workers: int
) -> jax.Array:
    """float[trials, units, W] seconds of the units of independent rounds."""
    keys = jax.random.split(rng_key, num_trials)
    return jax.jit(jax.vmap(lambda key: sample_durations(model, key, num_units, num_workers)))(keys)


def _measurement(
    name: str, code: GradientCode, straggler_masks: np.ndarray, durations_by_model: dict[str, jax.Array],
    num_stragglers: int, max_masks: int, rng_key: jax.Array,
) -> Measurement:  # fmt: skip
    """What one code costs, tolerates and leaves, over straggler masks `bool[masks, W]` and durations of each model.

    `straggler_masks`: True for who has done nothing; `durations_by_model`: float[trials, units, W] seconds each.
    """
    assignment = code.assignment
    progress_of_masks = jnp.asarray(np.where(straggler_masks, 0, assignment.loads), jnp.int32)  # [masks, W]
    residual_of_all = jax.jit(
        lambda rows: jax.lax.map(lambda progress: code.plan(progress).residual, rows, batch_size=64)
    )
    exact_norm = norm_of_exact_sum(assignment.num_chunks, code.num_blocks)
    relative_errors = np.asarray(residual_of_all(progress_of_masks)) / exact_norm  # [masks]
    times_by_model = np.stack([_round_completion_times(code, durations) for durations in durations_by_model.values()])
    is_completed = np.isfinite(times_by_model)  # [models, trials]
    finite_times_by_model = [times[np.isfinite(times)] for times in times_by_model]
    is_message_sent = np.asarray(code.sent(jnp.asarray(assignment.loads)))  # [W, messages], of 1/L gradient each
    condition = conditioning(code, num_stragglers=num_stragglers, rng_key=rng_key, max_masks=max_masks)
    return Measurement(
        code=name,
        load=float(assignment.loads.sum() / assignment.num_chunks),
        sent=float(is_message_sent.sum(axis=1).max() / code.num_blocks),
        mean_error=float(relative_errors.mean()),
        worst_error=float(relative_errors.max()),
        times=np.array([times.mean() if times.size else np.nan for times in finite_times_by_model]),
        time_errors=np.array(
            [times.std(ddof=1) / np.sqrt(times.size) if times.size > 1 else np.nan for times in finite_times_by_model]
        ),
        never=1 - is_completed.mean(axis=1),
        plan_seconds=_median_seconds(jax.jit(code.plan), progress_of_masks[0]),
        typical_condition=condition.median_condition_number,
        worst_condition=condition.worst_condition_number,
        float32_error=condition.errors["float32"],
        bfloat16_error=condition.errors["bfloat16"],
    )


def _round_completion_times(code: GradientCode, durations: jax.Array) -> np.ndarray:
    """float[trials] seconds: when each round can be decoded exactly (inf: never), by `durations [trials, units, W]`.

    A chunk of 1/N of the data is W/N units of work, of which the last may be a part only. A worker has K chunks.
    """
    assignment = code.assignment
    units_per_chunk = assignment.num_workers / assignment.num_chunks

    def completion_of_round(unit_seconds: jax.Array) -> jax.Array:  # [units, W]
        # float[units+1, W]: when each unit begins, and the last one ends.
        seconds_before_unit = jnp.concatenate([jnp.zeros_like(unit_seconds[:1]), jnp.cumsum(unit_seconds, axis=0)])
        units_to_chunk_end = units_per_chunk * np.arange(1, assignment.load + 1)  # [K]
        # Where a chunk ends with the last unit of all, that is the next unit, of which then the whole is taken.
        whole_units = np.minimum(units_to_chunk_end.astype(int), unit_seconds.shape[0] - 1)
        seconds_of_whole_units = seconds_before_unit[whole_units]  # [K, W]
        share_of_next_unit = (units_to_chunk_end - whole_units)[:, None]
        needs_next_unit = (units_to_chunk_end > whole_units)[:, None]
        # A unit that never ends (inf) and is not needed must not count: 0 * inf is NaN.
        seconds_of_share = jnp.where(needs_next_unit, share_of_next_unit * unit_seconds[whole_units], 0)
        chunk_finish = seconds_of_whole_units + seconds_of_share
        return code.completion(chunk_finish.T.astype(unit_seconds.dtype))

    return np.asarray(jax.jit(lambda rounds: jax.lax.map(completion_of_round, rounds, batch_size=64))(durations))


def _median_seconds(function: Callable[[jax.Array], Any], argument: jax.Array) -> float:
    """The median seconds of nine calls, after one that compiles."""
    jax.block_until_ready(function(argument))
    seconds = []
    for _ in range(9):
        start_time = time.perf_counter()
        jax.block_until_ready(function(argument))
        seconds.append(time.perf_counter() - start_time)
    return statistics.median(seconds)


def _write(
    measurements: list[Measurement], models: list[str], run_facts: dict[str, Any], out: Path, progress: Progress
) -> None:
    """Writes the table, its numbers and the figure, and shows the table; `models`: names of the straggler models."""
    heads, rows = _heads(models), [_table_row(measurement) for measurement in measurements]
    notes = NOTES.format(
        stragglers=run_facts["num_stragglers"], masks=run_facts["num_masks"], trials=run_facts["num_trials"]
    )
    analysis.write_page(out, "\n".join(["# Codes", "", analysis.markdown_table(heads, rows), "", notes]), run_facts)
    records = [_parquet_record(measurement, models) for measurement in measurements]
    files.write_table(out / "codes.parquet", pa.Table.from_pylist(records))
    _figure(measurements, models, out / "codes.png")
    progress.show(analysis.RichTable(f"Codes, {run_facts['num_stragglers']} stragglers", heads, rows))


def _heads(models: list[str]) -> list[str]:
    errors = ["Error", "largest"]
    return ["Code", "Load", "Sent", *errors, *models, "Plan (ms)", "Condition", "worst", "float32", "bfloat16"]


def _table_row(measurement: Measurement) -> list[str]:
    """The cells of a code, by `_heads`: its load, and the full gradients that a worker sends at most; relative errors.

    Mean and largest error; up to 1e-3 it is rounding, and the code exact. Then for each straggler model the mean time
    to an exact sum and the share of rounds that never get there, the milliseconds of one plan, the condition numbers,
    typical and worst, and the largest errors with float32 and with bfloat16 messages.
    """
    milliseconds = 1000 * measurement.plan_seconds
    return [
        measurement.code,
        f"{measurement.load:.3g}",
        f"{measurement.sent:.3g}",
        *(f"{error:.2g}" if error > 1e-3 else "exact" for error in (measurement.mean_error, measurement.worst_error)),
        *(_time_text(mean_time, never) for mean_time, never in zip(measurement.times, measurement.never, strict=True)),
        f"{milliseconds:.2g}",
        f"{measurement.typical_condition:.3g}",
        f"{measurement.worst_condition:.3g}",
        f"{measurement.float32_error:.1g}",
        f"{measurement.bfloat16_error:.1g}",
    ]


def _time_text(mean_time: float, share_never: float) -> str:
    """A mean time until decoding, with the percentage of rounds that never get there; "never" if none does."""
    if share_never == 1:
        return "never"
    return f"{mean_time:.2f}" + (f" ({100 * share_never:.0f} %)" if share_never else "")


def _parquet_record(measurement: Measurement, models: list[str]) -> dict[str, Any]:
    """The row of a code in the table of results: its numbers, and its times under each straggler model.

    A time is the mean over rounds that can be decoded (NaN: none can); beside it stand its standard error, and the
    share of rounds that cannot ("never").
    """
    record = {name: value for name, value in measurement._asdict().items() if not isinstance(value, np.ndarray)}
    for i, model in enumerate(models):
        record |= {
            f"{model} time": float(measurement.times[i]),
            f"{model} standard error": float(measurement.time_errors[i]),
        }
        record |= {f"{model} never": float(measurement.never[i])}
    return record


def _figure(measurements: list[Measurement], models: list[str], file: Path) -> None:
    """Draws mean times to an exact sum, errors and condition numbers of every code, a row each; NaN draws no bar.

    The label of a row has the code's load and what a worker sends at most.
    """
    figure = files.figure(13, 1.5 + 0.3 * len(measurements))
    time_axes, error_axes, condition_axes = figure.subplots(1, 3, sharey=True)
    positions = np.arange(len(measurements))
    bar_height = 0.8 / len(models)
    for i, model in enumerate(models):
        offset_around_position = (i - (len(models) - 1) / 2) * bar_height
        time_axes.barh(
            positions + offset_around_position, [m.times[i] for m in measurements], bar_height,
            label=files.figure_text(model), xerr=[m.time_errors[i] for m in measurements],
        )  # fmt: skip
    time_axes.set_xlabel("time to an exact sum (missing: never)")
    time_axes.legend(fontsize="small")
    error_axes.barh(positions - 0.2, [m.mean_error for m in measurements], 0.4, label="mean")
    error_axes.barh(positions + 0.2, [m.worst_error for m in measurements], 0.4, label="largest")
    error_axes.set_xlabel("relative error with s workers gone")
    error_axes.legend(fontsize="small")
    _draw_conditions(condition_axes, positions, measurements)
    time_axes.set_yticks(
        positions, [f"{files.figure_text(m.code)}  ({m.load:.2g} | {m.sent:.2g})" for m in measurements]
    )
    time_axes.set_title("code (load | sent)", loc="left", fontsize="medium")
    time_axes.invert_yaxis()
    files.write_figure(file, figure)


def _draw_conditions(axes: Axes, positions: np.ndarray, measurements: list[Measurement]) -> None:
    """Typical and worst condition number of every code, joined by a line; those below 1, by rounding, as 1.

    `positions`: int[codes], the rows of the codes.
    """
    typical = [max(m.typical_condition, 1) for m in measurements]
    worst = [max(m.worst_condition, 1) for m in measurements]
    axes.hlines(positions, typical, worst, color="C0", linewidth=1)
    axes.plot(worst, positions, "o", markersize=9, fillstyle="none", color="C0", label="worst")
    axes.plot(typical, positions, "o", markersize=4, color="C1", label="typical")
    axes.set_xscale("log")
    axes.set_xlabel("condition number")
    axes.legend(fontsize="small")
