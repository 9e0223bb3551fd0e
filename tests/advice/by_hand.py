"""Advice that was not computed, for what shows it."""

from gcjax import protocols
from gcjax.advice import Advice, Estimate, Scheme, SchemeAdvice
from gcjax.advice.base import EXACT

NOTHING = Estimate(0.0, 0.0, 0.0)


def scheme_advice(name, exactness=EXACT, won_back=NOTHING, *, is_best=False, seconds_to_target=None):
    """What is said of a scheme; all that has no argument is 0."""
    return SchemeAdvice(
        scheme=Scheme(name, "", protocols.bsp()), exactness=exactness, seconds=NOTHING, won_back=Estimate(*won_back),
        regret=NOTHING, is_best=is_best, is_indistinguishable=False, is_fastest_of_class=False, is_tied_in_class=False,
        waiting=NOTHING, mean_staleness=NOTHING, max_staleness=0.0, wasted=NOTHING, redundant=NOTHING, messages=NOTHING,
        seconds_to_target=seconds_to_target,
    )  # fmt: skip


def advice_of(*rows, cost=0.5, target=""):
    """The advice with these schemes, where stragglers cost such a share of BSP's time."""
    return Advice(
        verdict="Stragglers cost 50 % [40, 60] of BSP's time.\nMore.", cost=Estimate(cost, cost, cost),
        bsp_seconds=NOTHING, median_seconds=NOTHING, schemes=tuple(rows), left_out={}, num_steps=64, num_workers=4,
        num_filled=0, is_relative=False, block_steps=8, num_bootstraps=20, gradient_bytes=None, bootstraps={},
        cost_of_halves=(0.5, 0.5), target=target,
    )  # fmt: skip
