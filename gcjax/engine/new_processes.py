"""Workers that were lost and started again: their own parameters and optimizer state begin anew.

Letters: T units of a worker, W workers. Every worker has room for as many new processes as any of them has.
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
      first_unit: int32[processes], the first unit of each new process that has not begun; `NO_MORE_PROCESSES` pads.
      params: with which it begins.
      opt_state: with which it begins.
    """

    first_unit: jax.Array
    params: Any
    opt_state: Any


NO_MORE_PROCESSES = np.iinfo(np.int32).max
"""In place of the first unit of a process, where there is none or it has begun."""
NO_VERSION_READ = -1
"""The version that a worker has read last, before it has read any."""


def first_units_of_processes(schedule: Schedule, memberships: Sequence[Membership]) -> np.ndarray:
    """int32[W, processes]: the first unit of each new process of a worker, those of a worker in order.

    The largest integer pads the rows of workers with fewer processes.
    """
    unit_start = np.asarray(schedule.start)  # float[T, W]
    units_of_worker: list[list[int]] = [[] for _ in range(unit_start.shape[1])]  # the first ones of its processes
    for membership in memberships:
        if membership.anew:
            num_units_begun_before = (unit_start[:, membership.worker] < membership.time).sum()
            units_of_worker[membership.worker].append(int(num_units_begun_before))
    max_processes = max(map(len, units_of_worker))
    return np.array(
        [[*units, *[NO_MORE_PROCESSES] * (max_processes - len(units))] for units in units_of_worker], np.int32
    )


def with_new_processes(local_states: Any, first_unit: np.ndarray) -> Any:
    """The local states of all workers before the first commit, with the first units of their new processes."""
    # Copies, since the state is donated, and no array may be in it twice.
    params, opt_state = jax.tree.map(jnp.copy, (local_states.params, local_states.opt_state))
    return local_states._replace(new_processes=NewProcesses(jnp.asarray(first_unit), params, opt_state))


def local_state_before_unit(local_state: Any, unit: jax.Array) -> Any:
    """The state of a worker before its contribution from `unit int32[]` on; the initial one if a new process begins.

    `first_unit`, int32[processes], has the unit with which each process that has not begun will begin. Those that begin
    now get the largest integer there, which also pads.
    """
    new_processes = local_state.new_processes
    if new_processes is None:
        return local_state
    has_begun = new_processes.first_unit <= unit  # bool[processes]
    process_begins = has_begun.any()
    params, opt_state = jax.tree.map(
        lambda new, old: jnp.where(process_begins, new, old),
        (new_processes.params, new_processes.opt_state),
        (local_state.params, local_state.opt_state),
    )
    return local_state._replace(
        params=params,
        opt_state=opt_state,
        version=jnp.where(process_begins, NO_VERSION_READ, local_state.version),
        new_processes=new_processes._replace(
            first_unit=jnp.where(has_begun, NO_MORE_PROCESSES, new_processes.first_unit)
        ),
    )
