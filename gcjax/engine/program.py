"""What is compiled of a run: everything about it that is no array.

Letters: E commits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax.compression.base import Compression
from gcjax.engine import version_ring as rings
from gcjax.engine.layout import Layout
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule
from gcjax.tasks.base import Task


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


def reads_versions(protocol: Protocol) -> bool:
    """Whether contributions are computed from versions of common parameters; not where workers mix their own."""
    return protocol.local is None or protocol.local.mixing is None


def server_optimizer(program: Program) -> optax.GradientTransformation:
    """The optimizer of the server: of a protocol of local work that which merges the changes, if it has its own."""
    local = program.protocol.local
    return program.optimizer if local is None or local.merge is None else local.merge


def ring_slots_of(program: Program, schedule: Schedule) -> jax.Array | None:
    """int32[E + 1]: the slot of each version in the ring; None where every commit reads the latest version."""
    ring_size = program.options.ring_size
    if not ring_size:
        return None
    if program.protocol.adaptive is None:
        return rings.allocate_slots(schedule, ring_size)
    # The schedule is not final, so nobody knows yet which versions are read: each is kept for `ring_size` commits.
    versions = jnp.arange(schedule.time.shape[0] + 1, dtype=jnp.int32)
    return versions % ring_size
