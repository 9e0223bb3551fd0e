"""Workers that were lost and started again: their own parameters and optimizer state begin anew.

Letters: T units of a worker, W workers, R times that a worker begins anew at most.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule


class NewProcesses(NamedTuple):
    """What is still to begin anew; every leaf [W, ...] for all workers.

    Attributes:
      unit: int32[R], the first unit of each new process; the largest number if there is none any more.
      params: with which it begins.
      opt_state: with which it begins.
    """

    unit: jax.Array
    params: Any
    opt_state: Any


NEVER = np.iinfo(np.int32).max


def first_units(schedule: Schedule, memberships: Sequence[Membership]) -> np.ndarray:
    """int32[W, R]: the first unit of each new process of a worker, those of a worker in order."""
    start = np.asarray(schedule.start)
    units: list[list[int]] = [[] for _ in range(start.shape[1])]
    for membership in memberships:
        if membership.anew:
            units[membership.worker].append(int((start[:, membership.worker] < membership.time).sum()))
    longest = max(map(len, units))
    return np.array([[*own, *[NEVER] * (longest - len(own))] for own in units], np.int32)


def with_new_processes(local: Any, unit: np.ndarray) -> Any:
    """The local parameters of all workers, before the first commit, which will begin anew at `unit int32[W, R]`."""
    params, opt_state = jax.tree.map(jnp.copy, (local.params, local.opt_state))
    return local._replace(new_processes=NewProcesses(jnp.asarray(unit), params, opt_state))


def begun_anew(local: Any, unit: jax.Array) -> Any:
    """The local parameters of a worker before its contribution from `unit int32[]` on; new ones if a process begins."""
    new = local.new_processes
    if new is None:
        return local
    is_begun = new.unit <= unit  # bool[R]
    begins = is_begun.any()
    params, opt_state = jax.tree.map(
        lambda x, y: jnp.where(begins, x, y), (new.params, new.opt_state), (local.params, local.opt_state)
    )
    return local._replace(
        params=params,
        opt_state=opt_state,
        version=jnp.where(begins, -1, local.version),
        new_processes=new._replace(unit=jnp.where(is_begun, NEVER, new.unit)),
    )
