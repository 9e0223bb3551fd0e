"""Groups of about equally fast workers against random groups, and against BSP and ASP.

gcjax run configs/grouped/hybrid.gin
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments.grouped import claims
from experiments.grouped.claims import Claim
from gcjax import _validate, analysis, config, files, processes
from gcjax.progress import Progress


@config.experiment
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
      ValueError: if the comparison has no such scheme.
    """
    results = comparison(out=out, progress=progress)
    for name in (hybrid, synchronous, *others):
        _validate.choice("a scheme that is compared", name, results.schemes)
    all_claims = [_faster(results, hybrid, synchronous), _as_accurate(results, hybrid, synchronous, points)]
    asked = [_faster(results, hybrid, other) for other in others]
    asked += [_less_waiting(results, hybrid, other) for other in (synchronous, *others)]
    all_claims += [claim._replace(text=f"Asked by us: {claim.text[0].lower()}{claim.text[1:]}") for claim in asked]
    if processes.is_first():
        files.write_text(out / "claims.md", f"# Claims\n\n{claims.markdown(all_claims)}\n\n{NOTES}")
        progress.show(analysis.rich_table("Claims, and the means over seeds", claims.HEADS, claims.lines(all_claims)))
    return all_claims


def _faster(results: analysis.Results, hybrid: str, other: str) -> Claim:
    """The claim that the hybrid needs less time to the target than another scheme, seed by seed."""
    times, other_times = (analysis.reach_times(results, name) for name in (hybrid, other))
    target = results.facts["target"]
    text = f"Less time to {target['metric']} {target['value']:g} than {other}"
    both_reached = np.isfinite(times) & np.isfinite(other_times)
    if not both_reached.all():
        reached, other_reached = np.isfinite(times).sum(), np.isfinite(other_times).sum()
        ours = f"reached by {reached} and {other_reached} of {both_reached.size} seeds"
        return Claim(text=text, ours=ours, spread="-", holds=bool(reached > other_reached), explanation=ours)
    return claims.at_most(text, times / other_times, 1.0, "times the time")


def _as_accurate(results: analysis.Results, hybrid: str, other: str, points: float) -> Claim:
    name = results.facts["target"]["metric"]
    final, other_final = (np.array([seed[name][-1] for seed in results.seeds(s)]) for s in (hybrid, other))
    sign = 1 if results.facts["target"]["higher_is_better"] else -1
    text = f"Correctness kept: at most {points:g} points of {name} less in the end than {other}"
    less = 100 * sign * (other_final - final)
    claim = claims.at_most(text, less, points, "points less")
    return claim if less.mean() >= 0 else claim._replace(ours=f"{claims.rounded(-less.mean(), 2)} points more")


def _less_waiting(results: analysis.Results, hybrid: str, other: str) -> Claim:
    waiting, other_waiting = (np.array([seed["waiting"][-1] for seed in results.seeds(s)]) for s in (hybrid, other))
    shares = f"{100 * waiting.mean():.0f} % against {100 * max(0.0, other_waiting.mean()):.0f} %"
    text = f"No more waiting than {other}"
    spread, holds = claims.spread(100 * (waiting - other_waiting), 1), bool(waiting.mean() <= other_waiting.mean())
    return Claim(text=text, ours=shares, spread=spread, holds=holds, explanation=shares)


NOTES = """\
- Time to the target is divided by that of the other scheme on the same seed; waiting is the share of the workers' time
  up to the end of the run, which is at the same moment for all schemes.
- ± is the standard deviation over seeds, for waiting that of the difference; a claim holds if it does in the mean.
"""
