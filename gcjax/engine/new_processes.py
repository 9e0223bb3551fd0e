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
NOTHING_READ = -1
"""The version that a worker has read last, before it has read any."""


def first_units(schedule: Schedule, memberships: Sequence[Membership]) -> np.ndarray:
    """int32[W, R]: the first unit of each new process of a worker, those of a worker in order."""
    unit_start = np.asarray(schedule.start)  # float[T, W]
    units_of_worker: list[list[int]] = [[] for _ in range(unit_start.shape[1])]
    for membership in memberships:
        if membership.anew:
            num_units_begun_before = (unit_start[:, membership.worker] < membership.time).sum()
            units_of_worker[membership.worker].append(int(num_units_begun_before))
    max_processes = max(map(len, units_of_worker))
    return np.array([[*units, *[NEVER] * (max_processes - len(units))] for units in units_of_worker], np.int32)


def with_new_processes(local: Any, unit: np.ndarray) -> Any:
    """The local parameters of all workers, before the first commit, which will begin anew at `unit int32[W, R]`."""
    params, opt_state = jax.tree.map(jnp.copy, (local.params, local.opt_state))
    return local._replace(new_processes=NewProcesses(jnp.asarray(unit), params, opt_state))


def begun_anew(local: Any, unit: jax.Array) -> Any:
    """The local parameters of a worker before its contribution from `unit int32[]` on; new ones if a process begins."""
    new_processes = local.new_processes
    if new_processes is None:
        return local
    has_begun = new_processes.unit <= unit  # bool[R]
    begins_anew = has_begun.any()
    params, opt_state = jax.tree.map(
        lambda new, old: jnp.where(begins_anew, new, old),
        (new_processes.params, new_processes.opt_state),
        (local.params, local.opt_state),
    )
    return local._replace(
        params=params,
        opt_state=opt_state,
        version=jnp.where(begins_anew, NOTHING_READ, local.version),
        new_processes=new_processes._replace(unit=jnp.where(has_begun, NEVER, new_processes.unit)),
    )
