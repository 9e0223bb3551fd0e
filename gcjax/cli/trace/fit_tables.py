"""What `gcjax trace fit` prints: the verdict, tables of models and of what they simulate, the best as a config."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from gcjax.cli.trace.description_tables import number_text
from gcjax.stragglers.traces import base
from gcjax.stragglers.traces.departures import who_has_left
from gcjax.stragglers.traces.fitting import Fit, Fits
from gcjax.stragglers.traces.fitting.scores import Score
from gcjax.stragglers.traces.fitting.statistics import StatisticsWithFailures
from gcjax.tables import RichTable

_STATISTICS_HEADS = ["Model", "median", "p99 / median", "P(slow)", "P(slow | slow)", "slowest / median", "S"]


def printed_parts(fits: Fits) -> Iterator[Any]:
    """The texts and tables that are printed, one below the other."""
    yield Text(fits.verdict, style="bold")
    if fits.caution:
        yield Text(f"Caution: {fits.caution}")
    yield Text(
        f"\nFitted to the first {fits.num_fitted_steps:,} steps, ranked on the {fits.num_held_out_steps:,} after them."
    )
    if fits.num_missing_steps:
        yield Text(base.sentence_on_missing_steps(fits.num_missing_steps))
    if fits.num_zero_times:
        yield Text(f"{fits.num_zero_times:,} times of 0 s are left out.")
    if fits.departures:
        clause = who_has_left(fits.departures)
        yield Text(f"{clause[0].upper()}{clause[1:]}: models are fitted to the times before, and simulate no leaving.")
    yield Text()
    yield _ranking_table("Times: log-likelihood of the held-out times", fits.duration_fits)
    yield Text()
    yield _ranking_table(
        "Patterns: log-likelihood of who is slow when, of models whose times are one of two", fits.pattern_fits
    )
    yield Text()
    yield _statistics_table(fits)
    yield Text()
    yield Text("\n".join([*_remarks(fits), "", "The best one, for a config:", fits.best.gin]))


def _ranking_table(title: str, best_first: Sequence[Fit]) -> RichTable:
    """A row for each model, the best first: its scores on the held-out steps, in nats, with 90 % intervals."""
    heads = ["Model", "numbers fitted", "nats a step and worker", "behind the best"]
    rows = [
        [
            fit.name,
            str(fit.num_parameters),
            _interval_text(fit.held_out_score),
            _interval_text(fit.score_behind_best) if num_better > 0 else "-",
        ]
        for num_better, fit in enumerate(best_first)
    ]
    return RichTable(title, heads, rows, caption="Intervals of 90 %, of resampled blocks of steps.")


def _statistics_table(fits: Fits) -> RichTable:
    """The statistics of the trace, and below it those of the models, with a mark where the trace is outside."""
    models = [*fits.duration_fits, *fits.pattern_fits, *fits.fits_without_likelihood]
    rows = [["measured", *map(number_text, fits.measured_statistics)]]
    rows += [
        [fit.name, *_simulated_cells(fit, fits.measured_statistics)]
        for fit in models
        if fit.simulated_range is not None
    ]
    caption = (
        f"Simulated: the median of {fits.num_draws} draws [smallest, largest]; * where the measured value is outside. "
        "Slow: over 1.5 times the step's median. S: the slowest over the median, all steps added up."
    )
    return RichTable("Measured and simulated", _STATISTICS_HEADS, rows, caption=caption)


def _remarks(fits: Fits) -> list[str]:
    """Why models have no likelihood, or are not fitted."""
    likelihood_remarks = [f"{fit.name}: {fit.note}." for fit in fits.fits_without_likelihood]
    return [*likelihood_remarks, *(f"{name} is not fitted: {reason}." for name, reason in fits.not_fitted.items())]


def _simulated_cells(fit: Fit, measured: StatisticsWithFailures) -> list[str]:
    """The median of each number over the draws and its range, with a star where the measured one is outside."""
    assert fit.simulated_statistics is not None and fit.simulated_range is not None
    outside = fit.statistics_outside(measured)
    return [
        f"{number_text(median)} [{number_text(low)}, {number_text(high)}]{'*' if name in outside else ''}"
        for name, median, low, high in zip(
            measured._fields, fit.simulated_statistics, *fit.simulated_range, strict=True
        )
    ]


def _interval_text(score: Score | None) -> str:
    """A mean with its interval."""
    return "-" if score is None else f"{score.mean:.3f} [{score.low:.3f}, {score.high:.3f}]"
