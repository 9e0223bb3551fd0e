"""Whether a schedule can be run: what is checked before a run begins.

Letters: T units sampled per worker, W workers, E commits.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gcjax import _validate
from gcjax.protocols.conformance.structure import check_resolution, check_shapes, check_structure
from gcjax.protocols.schedule import Schedule
from gcjax.stragglers.network import Network

if TYPE_CHECKING:
    from gcjax.protocols.base import Protocol


def check_schedule(schedule: Any, protocol: "Protocol", durations: jax.Array) -> None:
    """Raises an error if a protocol has not made a schedule of these durations `float[T, W]` that can be run.

    Shapes and types are checked always, what is in the arrays where it is known.
    """
    if not isinstance(schedule, Schedule):
        raise ValueError(f"a protocol must make a gcjax.protocols.Schedule; this one made {type(schedule).__name__}.")
    check_shapes(schedule, durations.shape)
    check_resolution(schedule, durations)
    check_structure(schedule, protocol)
    check_work(schedule)


def check_commits_happen(schedule: Schedule, durations: jax.Array, network: Network) -> None:
    """Raises an error if a schedule, or one of a batch, comes to a halt without a commit though nothing takes for ever.

    Its horizon is then inf, and no duration is, and no time of a message. It is for whole schedules, which are cut off
    at no time, of workers who are never away.
    """
    if any(_validate.is_traced(x) for x in jax.tree.leaves((schedule.time, durations, network))):
        return
    has_commit = np.isfinite(schedule.time).any(axis=-1)
    runs = has_commit.shape  # () of one schedule
    nothing_fails = np.ones(runs, bool)
    for seconds in jax.tree.leaves((durations, network)):
        nothing_fails &= np.isfinite(seconds).reshape(*runs, -1).all(axis=-1)
    if (~has_commit & np.isinf(schedule.horizon) & nothing_fails).any():
        raise ValueError(
            "some commit must happen; nothing fails, and still the protocol waits for ever. Look at when it commits, "
            "and at who may begin; gcjax.testing.check_protocol tries it on small cases."
        )


def check_work(schedule: Schedule) -> None:
    """Raises an error if a schedule, or one of a batch, has no commit since units run out, or no work in any of them.

    One without a commit because somebody is waited for for ever passes: its horizon (when units run out) is inf.
    """
    if any(_validate.is_traced(x) for x in (schedule.time, schedule.work, schedule.horizon)):
        return
    happens = np.isfinite(schedule.time)  # bool[..., E]
    units_run_out = np.isfinite(schedule.horizon)
    if (~happens.any(axis=-1) & units_run_out).any():
        raise ValueError(
            f"some commit must happen; the {schedule.start.shape[-2]} units sampled for each worker are used up before "
            "the first one. Sample more units, or choose a protocol whose commits take less work."
            + _validate.hint_if_transposed(schedule.start.shape[-2:])
        )
    has_work = happens & (np.asarray(schedule.work) > 0).any(axis=-1)
    if (happens.any(axis=-1) & ~has_work.any(axis=-1)).any():
        raise ValueError(
            f"some commit must have work in it; of the {happens.sum(axis=-1).max()} commits of this schedule none has: "
            "nobody ever finishes a unit before the deadline. Give the rounds more seconds than the fastest unit takes."
        )
