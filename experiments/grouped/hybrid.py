"""Groups of about equally fast workers against random groups, and against BSP and ASP.

gcjax run configs/grouped/hybrid.gin
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments.grouped import claims
from experiments.grouped.claims import Claim
from gcjax import _validate, analysis, files, processes, register
from gcjax.progress import Progress


@register("experiment")
def hybrid_groups(
    comparison: Callable[..., analysis.Results],
    *,
    hybrid: str,
    synchronous: str,
    others: Sequence[str],
    points: float = 2.5,
    out: Path,
    progress: Progress,
) -> list[Claim]:
    """Compares schemes, and writes the claims about the hybrid beside what was found to `claims.md`.

    The claims: the hybrid takes less time to the target than the synchronous scheme, and is as accurate in the end.
    Asked by us: whether it takes less time than the others too, and whether its workers wait less.

    Args:
      comparison: makes the comparison, for example `@compare`.
      hybrid: the scheme that the claims are about.
      synchronous: what is taken as correct.
      others: further schemes that it is held against.
      points: the loss of final accuracy in percentage points that counts as none.
      out: the folder to write, as the comparison does.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the comparison has no such scheme, or the loss is below 0.
    """
    _validate.single_number("points", points, finite=True)
    results = comparison(out=out, progress=progress)
    for name in (hybrid, synchronous, *others):
        _validate.choice("a scheme that is compared", name, results.schemes)
    all_claims = [_time_claim(results, hybrid, synchronous), _accuracy_claim(results, hybrid, synchronous, points)]
    claims_asked_by_us = [_time_claim(results, hybrid, other) for other in others]
    claims_asked_by_us += [_waiting_claim(results, hybrid, other) for other in (synchronous, *others)]
    all_claims += [
        claim._replace(text=f"Asked by us: {claim.text[0].lower()}{claim.text[1:]}") for claim in claims_asked_by_us
    ]
    if processes.is_first():
        files.write_text(out / "claims.md", f"# Claims\n\n{claims.markdown(all_claims)}\n\n{NOTES}")
        progress.show(claims.table(all_claims))
    return all_claims


def _time_claim(results: analysis.Results, hybrid: str, other: str) -> Claim:
    """The claim that the hybrid needs less time to the target than another scheme, seed by seed.

    If one of them has not always got there, it holds if the hybrid has with more seeds.
    """
    # float[S] seconds each; inf if the target was not reached.
    times, other_times = (analysis.reach_times(results, name) for name in (hybrid, other))
    target = results.facts["target"]
    claim_text = f"Less time to {target['metric']} {target['value']:g} than {other}"
    num_reached, num_other_reached = np.isfinite(times).sum(), np.isfinite(other_times).sum()
    have_all_reached = num_reached == num_other_reached == times.size
    if not have_all_reached:
        reached_text = f"reached by {num_reached} and {num_other_reached} of {times.size} seeds"
        holds = bool(num_reached > num_other_reached)
        return Claim(text=claim_text, ours=reached_text, spread="-", holds=holds, explanation=reached_text)
    return claims.at_most(claim_text, times / other_times, limit=1.0, unit="times the time")


def _accuracy_claim(results: analysis.Results, hybrid: str, other: str, points: float) -> Claim:
    """The claim that the hybrid loses at most `points` percentage points of the target's metric against another.

    The metric is a share, at the end of the runs. If the hybrid gains in the mean, the claim says how much.
    """
    metric = results.facts["target"]["metric"]
    final_values, other_final_values = (_final_values(results, scheme, metric) for scheme in (hybrid, other))
    sign = 1 if results.facts["target"]["higher_is_better"] else -1
    claim_text = f"Correctness kept: at most {points:g} points of {metric} less in the end than {other}"
    points_less = 100 * sign * (other_final_values - final_values)
    claim = claims.at_most(claim_text, points_less, limit=points, unit="points less")
    if points_less.mean() >= 0:
        return claim
    return claim._replace(ours=f"{claims.rounded(-points_less.mean())} points more")


def _waiting_claim(results: analysis.Results, hybrid: str, other: str) -> Claim:
    """The claim that the hybrid's workers wait for no larger share of the time than those of another scheme."""
    waiting_shares, other_waiting_shares = (_final_values(results, scheme, "waiting") for scheme in (hybrid, other))
    # Rounding can leave less than nothing.
    percents = " against ".join(
        f"{100 * max(0.0, shares.mean()):.0f} %" for shares in (waiting_shares, other_waiting_shares)
    )
    return Claim(
        text=f"No more waiting than {other}",
        ours=percents,
        spread=claims.spread(100 * (waiting_shares - other_waiting_shares), 1),
        holds=bool(waiting_shares.mean() <= other_waiting_shares.mean()),
        explanation=percents,
    )


def _final_values(results: analysis.Results, scheme: str, column: str) -> np.ndarray:
    """float[S]: the last value of a column for each seed of a scheme."""
    return np.array([seed[column][-1] for seed in results.seeds(scheme)])


NOTES = """\
- Time to the target is divided by that of the other scheme on the same seed; waiting is the share of the workers' time
  up to the end of the run, which is at the same moment for all schemes.
- ± is the standard deviation over seeds, for waiting that of the difference; a claim holds if it does in the mean.
"""
