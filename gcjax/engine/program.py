"""What is compiled of a run: everything about it that is no array.

Letters: E commits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.compression.base import Compression
from gcjax.engine import version_ring as rings
from gcjax.engine.layout import Layout
from gcjax.engine.wrong_messages import WrongSenders
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule
from gcjax.tasks.base import Task

VERSIONS_KEPT_PER_WORKER = 4
"""Past versions in the ring of a protocol that looks at the loss, unless it is said how many."""


class Options(NamedTuple):
    """The static numbers of a run; see `run`."""

    num_commits: int | None
    eval_every: int
    ring_size: int
    wavefront_width: int
    layout: Layout


class Program(NamedTuple):
    """What is compiled: the static arguments of `begin` and `advance`."""

    task: Task
    protocol: Protocol
    optimizer: optax.GradientTransformation
    options: Options
    compression: Compression | None = None
    wrong_senders: WrongSenders | None = None


def reads_versions(protocol: Protocol) -> bool:
    """Whether contributions are computed from past versions of common parameters.

    Not where workers mix their own, nor where they read those of a server of their group; nor with fragments, as the
    newest version still has the fragment that is read of an older one.
    """
    local = protocol.local
    return local is None or (local.mixing is None and local.servers is None and local.fragments is None)


def has_server(protocol: Protocol) -> bool:
    """Whether commits change parameters of a server; not where workers mix theirs, whose mean the parameters are."""
    return protocol.local is None or protocol.local.mixing is None


def server_optimizer(protocol: Protocol, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer of the server: of local work that which merges the changes, if it has one; else the run's own."""
    local = protocol.local
    return optimizer if local is None or local.server_optimizer is None else local.server_optimizer


def ring_slots_of(program: Program, schedule: Schedule) -> jax.Array | None:
    """int32[E + 1]: the slot of each version in the ring; None where every commit reads the latest version."""
    ring_size = program.options.ring_size
    if not ring_size:
        return None
    if program.protocol.loss_feedback is None:
        return rings.allocate_slots(schedule, ring_size)
    # The schedule is not final, so nobody knows yet which versions are read: each is kept for `ring_size` commits.
    versions = jnp.arange(schedule.time.shape[0] + 1, dtype=jnp.int32)
    return versions % ring_size


def eval_every_or_default(eval_every: int | None, schedule: Schedule) -> int:
    """The commits between two evaluations; a hundredth of the possible ones if it is not said."""
    max_commits = schedule.time.shape[0]
    default_commits = max(1, max_commits // 100)
    return min(eval_every or default_commits, max_commits)


def wavefront_width_or_default(width: int | None, schedule: Schedule, device_layout: Layout) -> int:
    """The commits computed at once; if it is not said, one a device, or 1 where contributions are spread."""
    if width is not None:
        return width
    num_contributions = schedule.worker.shape[1]
    return device_layout.spread().size if num_contributions == 1 else 1


def ring_size_or_default(ring_size: int | None, protocol: Protocol, schedule: Schedule, is_traced: bool) -> int:
    """The past versions to keep: by default those that the protocol's staleness asks for, or as many as are read."""
    if ring_size is not None:
        return ring_size
    if not reads_versions(protocol):
        return 0
    num_workers, (max_commits, num_contributions) = schedule.start.shape[1], schedule.worker.shape
    max_staleness = None if protocol.max_staleness is None else protocol.max_staleness(num_workers)  # None: no bound
    if max_staleness == 0:
        default_size = 0
    elif protocol.loss_feedback is not None:
        # A version is kept for `default_size` commits, read or not; where these are too few, `check_commits` says so.
        default_size = min(VERSIONS_KEPT_PER_WORKER * num_workers, max_commits)
    else:
        default_size = min(num_workers + num_contributions, max_commits)
        if max_staleness is not None:  # of the versions, only so many before the newest one are read
            default_size = min(default_size, max_staleness + 1)
    if is_traced or protocol.loss_feedback is not None:
        return default_size
    needed_size = int(np.max(jax.device_get(past_versions_needed(schedule))))
    # A size from the data alone would compile anew for other durations.
    return max(default_size, needed_size)


@jax.jit
def past_versions_needed(schedule: Schedule) -> jax.Array:
    """int32[]: the past versions that a schedule needs at once; 0 if every commit reads the latest one.

    int32[S] of a batch of S schedules.
    """
    if schedule.time.ndim > 1:
        return jax.vmap(past_versions_needed)(schedule)
    all_read_latest = schedule.staleness.max() <= 0
    return jnp.where(all_read_latest, 0, rings.versions_alive(schedule))


def slices_layout(program: Program, schedule: Schedule) -> Layout | None:
    """The layout of parameters while wavefronts that are spread over devices are committed, in slices.

    None where they are whole, or sharded as they are anyway: where contributions are spread instead of commits, or a
    commit is made of other things than a plain gradient.
    """
    makes_wavefronts = program.options.wavefront_width > 1 and program.protocol.local is None
    is_plain_gradient = schedule.worker.shape[1] == 1 and program.protocol.code is None and program.compression is None
    return program.options.layout.sliced() if makes_wavefronts and is_plain_gradient else None


def with_layout(program: Program, layout: Layout) -> Program:
    """The program with its arrays on devices as another layout says."""
    return program._replace(options=program.options._replace(layout=layout))
