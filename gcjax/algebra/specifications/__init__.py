"""Protocols as specifications: what their components do and guarantee, and what holds; checked on small instances.

A check explores all states of an instance, with a shortest counterexample if something does not hold:

    result = check(ssp(workers=4, staleness=3))
    assert result.holds
"""

from gcjax.algebra.specifications.base import Action, Role, Specification
from gcjax.algebra.specifications.check import Finding, Result, check, states_per_second
from gcjax.algebra.specifications.clocks import bsp, ssp, ssp_cached
from gcjax.algebra.specifications.reachability import Exploration, Step, explore, shown
from gcjax.algebra.specifications.worker_busy import worker_busy, worker_busy_eager
from gcjax.registry import Entry

SPECIFICATIONS: dict[str, Entry] = {
    "bsp": Entry(bsp, "Valiant 1990"),
    "ssp": Entry(ssp, "Ho et al. 2013"),
    "ssp_cached": Entry(ssp_cached, "Ho et al. 2013"),
    "worker_busy": Entry(worker_busy, "Yang et al. 2024"),
    "worker_busy_eager": Entry(worker_busy_eager, "Yang et al. 2024, code"),
}

__all__ = [
    "SPECIFICATIONS",
    "Action",
    "Exploration",
    "Finding",
    "Result",
    "Role",
    "Specification",
    "Step",
    "bsp",
    "check",
    "explore",
    "shown",
    "ssp",
    "ssp_cached",
    "states_per_second",
    "worker_busy",
    "worker_busy_eager",
]
