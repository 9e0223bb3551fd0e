"""What the paper reports, as data: mean errors and mean completion times over the trials.

Source: the data released with Ramamoorthy, Meng, Girimaji (NeurIPS 2024, arXiv 2405.19509), for the random 8-regular
graph on 200 vertices, G1; completion times from the paper's text. Entries given as below 1e-14 stand here as 0.
"""

from experiments.partial_stragglers.simulate import SCHEMES

DEADLINES = (3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 24.0)

NUM_TRIALS = 1000
"""Trials behind each mean (for the completion times, at least)."""

_ORIGINAL, _BEST, _RANDOM = SCHEMES

ERRORS: dict[tuple[str, int, str], tuple[float, ...]] = {
    ("G1", 1, _ORIGINAL): (5.884, 3.448, 2.233, 1.513, 1.067, 0.784, 0.594, 0.471),
    ("G1", 1, _BEST): (0.111, 0, 0, 0, 0, 0, 0, 0),
    ("G1", 1, _RANDOM): (0.374, 0.008, 0, 0, 0, 0, 0, 0),
    ("G1", 2, _BEST): (1.477, 0.0314, 0, 0, 0, 0, 0, 0),
    ("G1", 2, _RANDOM): (2.124, 0.117, 0.006, 0, 0, 0, 0, 0),
}
"""(setting, L, scheme) -> mean Frobenius norm of the error at each of `DEADLINES`."""

COMPLETION: dict[tuple[str, int, str], float] = {
    ("G1", 1, _ORIGINAL): 6.61,
    ("G1", 1, _BEST): 2.86,
    ("G1", 1, _RANDOM): 3.44,
}
"""(setting, L, scheme) -> mean completion time in whole units."""


def error(setting: str, num_blocks: int, scheme: str, deadline: float) -> float:
    """The published mean error; NaN where none is given."""
    row = ERRORS.get((setting, num_blocks, scheme))
    return float("nan") if row is None or deadline not in DEADLINES else float(row[DEADLINES.index(deadline)])


def completion(setting: str, num_blocks: int, scheme: str) -> float:
    """The published mean completion time; NaN where none is given."""
    return COMPLETION.get((setting, num_blocks, scheme), float("nan"))


NOTES = """\
- Published: released data and text of Ramamoorthy, Meng, Girimaji (NeurIPS 2024, arXiv 2405.19509); ours: this run. The
  difference is counted in standard errors of both means together.
- A chunk takes each worker a time drawn from Exp(1), kept for the round. Were it the speed that is drawn from Exp(1),
  the errors would be about twice as large, so that reading is ruled out.
- "Original" for L > 1 is our generalisation: the partial code's coefficients at full progress, decoded by least squares
  from the workers that have finished everything. The paper's data have it for L = 1 only.
- Where we differ: the original scheme at late deadlines is 2 to 4 % (2 to 4 standard errors) below the paper.
  It is not the graph (six others give the same) and not the number of failures (8 instead of 7 give more than
  published); least squares leave the smallest error there is, so a solver that stops earlier would explain it, but we
  cannot tell. The random order depends on which one is drawn: one draw gives 3.36 for the completion time, the best of
  100 gives 3.30, the paper has 3.44.
"""
