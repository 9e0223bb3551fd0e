"""What each scheme would have done with a trace.

Letters: T steps, W workers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_seed
from gcjax.advice import blocks, evaluation, verdicts
from gcjax.advice.base import CLASS_OF, Advice, Estimate, Scheme, SchemeAdvice
from gcjax.advice.batches import batches_of_blocks
from gcjax.advice.evaluation import Baseline
from gcjax.advice.results import Result, Sample, scheme_results
from gcjax.advice.schemes import BASELINE, default_schemes
from gcjax.advice.training import check_study, with_seconds_to_target
from gcjax.codes.base import has_repeated_chunks
from gcjax.progress import Progress, silent
from gcjax.protocols import Protocol, bsp
from gcjax.protocols.base import code_of_messages
from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.departures import departures
from gcjax.stragglers.traces.files import as_trace
from gcjax.study.base import Study

_BASELINE_NAMES = "slowest of each step", "median of each step"
"""In `Advice.bootstraps`, besides the schemes."""
_NO_DIFFERENCE = 1e-3
"""Of the seconds per step: schemes are tied if the interval of the regret contains 0, or a smaller difference."""
_SIMULATED_FRACTION = 0.3  # of the whole, before schemes are trained; for the progress bar only


def advise(
    trace: Trace | str | Path | np.ndarray,
    *,
    schemes: Mapping[str, Protocol] | Sequence[Scheme] | None = None,
    study: Study | None = None,
    num_bootstraps: int = 100,
    block_steps: int | None = None,
    gradient_bytes: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Advice:
    """What each scheme would win back of the time that stragglers cost, on block bootstraps of a trace.

    A measured step is one BSP step of a worker's share, 1/W of the examples of a step; a chunk of a code with N chunks
    takes W/N of it, so that a worker with the load K pays for all K of them. An effective step is the use of as much
    work as BSP uses in one, so all schemes are compared at the same number of examples used. Messages are free: a trace
    has the time of communication together with that of waiting.

    The schedules of each scheme are computed on blocks of steps, all workers together. Before each is a warm-up that
    lets a scheme begin as in the middle of a run, and behind it are steps in which its units come into commits. Work
    counts when it is computed, if it is used. Each bootstrap draws blocks with replacement, the same for all schemes.
    What stragglers cost is the time of BSP minus that with everybody at the step's median.

    Intervals are for another stretch of as many steps of the same job: 90 % of these would give a value inside, if the
    job went on as in the trace. What the trace has not seen, a rarer event or a change of level, is not in them.

    Args:
      trace: measured times, or a file or array of them.
      schemes: name -> protocol, for as many workers as the trace has, or a `Scheme`; all protocols and codes that need
        no task if None. BSP is added where it is missing.
      study: a task, with its optimizer, sizes and target: BSP and the best scheme of each class are trained on the
        trace until they reach the target. None trains nothing.
      num_bootstraps: 20 at least.
      block_steps: the length of a block, a multiple of 8 for local steps to fit, and a quarter of T at most; if None,
        the square root of T, 16 at least, or more where steps are slow for long
        (`gcjax.advice.blocks.default_block_steps`).
      gradient_bytes: of one message, for the table.
      seed: of the bootstraps.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the trace cannot be read, or is too short, or a worker fails in it, or a scheme is for another
        number of workers.

    Example:
      >>> seconds = np.ones((64, 4))
      >>> seconds[:, 3] = 1.5  # one slow worker
      >>> advice = gcjax.advice.advise(seconds, schemes={"asp": gcjax.protocols.asp()})
      >>> round(advice.cost.value, 3)
      0.333
    """
    trace = as_trace(trace)
    seconds, num_filled = blocks.step_seconds(trace)
    num_steps, num_workers = seconds.shape
    if study is not None:
        check_study(study, num_workers)
    if gradient_bytes is not None:
        _validate.single_number("gradient_bytes", gradient_bytes, finite=True)
    sample = _sample(seconds, num_bootstraps, block_steps, seed)
    all_schemes, left_out = _default_schemes(seconds, sample) if schemes is None else (_given_schemes(schemes), {})
    progress = progress or silent()
    simulation_progress = progress if study is None else progress.portion(0, _SIMULATED_FRACTION)
    results = scheme_results(all_schemes, seconds, sample, simulation_progress)
    baseline = evaluation.baseline(seconds, *sample)
    advice = Advice(
        verdict="",
        cost=evaluation.estimate(baseline.cost),
        bsp_seconds=evaluation.estimate(baseline.bsp),
        median_seconds=evaluation.estimate(baseline.median),
        schemes=_ranked_advice(results, baseline),
        left_out=left_out,
        num_steps=num_steps,
        num_workers=num_workers,
        num_filled=num_filled,
        is_relative=trace.is_relative,
        block_steps=sample.block_steps,
        num_bootstraps=num_bootstraps,
        gradient_bytes=gradient_bytes,
        bootstraps={result.scheme.label: result.ratios.seconds_per_step[1:] for result in results}
        | dict(zip(_BASELINE_NAMES, (baseline.bsp[1:], baseline.median[1:]), strict=True)),
        cost_of_halves=evaluation.cost_of_halves(seconds),
        departures=departures(trace.compute, trace.steps, trace.workers),
        num_missing_steps=trace.reading.num_missing_steps,
        has_communication=trace.communication is not None,
    )
    if study is not None:
        advice = with_seconds_to_target(advice, seconds, study, progress.portion(_SIMULATED_FRACTION, 1))
    return advice._replace(verdict=verdicts.verdict(advice))


def _sample(seconds: np.ndarray, num_bootstraps: int, block_steps: int | None, seed: int) -> Sample:
    """The blocks of a trace float64[T, W], and how often each counts: first all once, then as bootstraps draw them.

    `block_steps` is the length of a block; None for the default. The longest is a quarter of T.
    """
    num_steps = len(seconds)
    num_bootstraps = _validate.integer("num_bootstraps", num_bootstraps, minimum=20)
    num_block_steps = blocks.default_block_steps(seconds) if block_steps is None else block_steps
    num_block_steps = _validate.integer(
        "block_steps", num_block_steps, minimum=1, maximum=blocks.longest_block_steps(num_steps),
        hint=f"Intervals need {blocks.MIN_BLOCKS_OF_TRACE} blocks of the trace at least.",
    )  # fmt: skip
    first_step_of_block = blocks.first_steps(num_steps, num_block_steps)
    drawn_block_counts = blocks.drawn_block_counts(
        generator_of_seed(seed), num_bootstraps, len(first_step_of_block), num_steps, num_block_steps
    )
    each_block_once = np.ones((1, len(first_step_of_block)))
    return Sample(first_step_of_block, num_block_steps, np.concatenate([each_block_once, drawn_block_counts]))


def _default_schemes(seconds: np.ndarray, sample: Sample) -> tuple[list[Scheme], dict[str, str]]:
    """The schemes for a trace float64[T, W], and name -> why, also for those whose schedules would be too large."""
    schemes, left_out = default_schemes(seconds)
    for scheme in schemes:
        try:
            batches_of_blocks(scheme, seconds.shape, sample.first_step_of_block, sample.block_steps)
        except ValueError as error:
            left_out[scheme.label] = str(error)
    return [scheme for scheme in schemes if scheme.label not in left_out], left_out


def _given_schemes(schemes: Mapping[str, Protocol] | Sequence[Scheme]) -> list[Scheme]:
    """The schemes of a user, and BSP first where it is not among them."""
    if isinstance(schemes, Mapping):
        schemes = [Scheme(name, "", protocol) for name, protocol in schemes.items()]
    schemes = list(schemes)
    for scheme in schemes:
        if not isinstance(scheme, Scheme) or not isinstance(scheme.protocol, Protocol):
            raise ValueError(f"schemes must be protocols by name, as in {{'asp': asp()}}, or Schemes; got {scheme!r}.")
        if _has_units_of_blocks(scheme.protocol):
            raise ValueError(
                f"{scheme.label} has units that are blocks of a chunk's gradient, of which a trace of whole gradients "
                "says nothing. Leave it out, and simulate it with durations of its own."
            )
    if not any(scheme.protocol == bsp() for scheme in schemes):
        schemes = [Scheme(BASELINE, "", bsp()), *schemes]
    names = [*(scheme.label for scheme in schemes), *_BASELINE_NAMES]
    if len(set(names)) < len(names):
        raise ValueError(
            f"schemes must have different names and settings, also than those that are always there; got "
            f"{', '.join(names)}."
        )
    return schemes


def _ranked_advice(results: Sequence[Result], baseline: Baseline) -> tuple[SchemeAdvice, ...]:
    """The advice about each scheme, the fastest first.

    Ratios are float64[1 + bootstraps], entry 0 on the trace; `baseline` is BSP, of which they won back a share.
    """
    results = sorted(results, key=lambda result: (result.ratios.seconds_per_step[0], result.scheme.label))
    best_of_class: dict[str, Result] = {}
    for result in results:
        best_of_class.setdefault(CLASS_OF[result.exactness], result)
    return tuple(
        _scheme_advice(result, baseline, best=results[0], best_of_class=best_of_class[CLASS_OF[result.exactness]])
        for result in results
    )


def _scheme_advice(result: Result, baseline: Baseline, *, best: Result, best_of_class: Result) -> SchemeAdvice:
    """The advice about one scheme, beside the best of all and of its class.

    `result.ratios`: on the trace and each bootstrap, of which an estimate is the first and the interval of the others.
    """
    seconds_per_step, estimate = result.ratios.seconds_per_step, evaluation.estimate  # float64[1 + bootstraps]
    regret = _regret(result, best)
    return SchemeAdvice(
        scheme=result.scheme,
        exactness=result.exactness,
        seconds=estimate(seconds_per_step),
        won_back=estimate(evaluation.won_back(seconds_per_step, baseline)),
        regret=regret,
        is_best=result is best,
        is_indistinguishable=regret.low <= _NO_DIFFERENCE,
        is_fastest_of_class=result is best_of_class,
        is_tied_in_class=_regret(result, best_of_class).low <= _NO_DIFFERENCE,
        waiting=estimate(result.ratios.waiting),
        mean_staleness=estimate(result.ratios.mean_staleness),
        max_staleness=result.max_staleness,
        wasted=estimate(result.ratios.wasted),
        redundant=estimate(result.ratios.redundant),
        messages=estimate(result.ratios.messages),
    )


def _has_units_of_blocks(protocol: Protocol) -> bool:
    """Whether workers compute the blocks of a chunk one after the other: it then stands several times in their load."""
    code = code_of_messages(protocol)
    return code is not None and bool(has_repeated_chunks(code.assignment).any())


def _regret(result: Result, best: Result) -> Estimate:
    """The share by which seconds per step are above those of `best`, paired by bootstraps."""
    return evaluation.estimate(result.ratios.seconds_per_step / best.ratios.seconds_per_step - 1)
