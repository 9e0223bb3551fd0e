"""What the eager variant of worker-busy synchronous parallel does promise (Yang et al. 2024, the released code)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.specifications.base import Action, Numbers, Role, Specification, check_workers, own, zeros
from gcjax.equality import comparable


class Pushes(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each has read last.
      busy: int[W], whether each is in a local step.
    """

    version: Numbers
    read: Numbers
    busy: Numbers


@comparable
def worker_busy_pushes(*, workers: int = 3) -> Specification:
    """Eager WBSP: every push is a commit at once, and whoever reads, reads the newest version.

    Who reads when is left open, and with it whether workers agree: they need not (`worker_busy_eager`). States are
    finite since only it counts whether a version is the newest.

    Args:
      workers: W.
    """
    check_workers(workers)

    def push(state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        after = state._replace(version=state.version + 1, busy=state.busy.at[worker].set(0))
        return after, state.busy[worker] == 1

    def pull(state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        read, busy = state.read.at[worker].set(state.version), state.busy.at[worker].set(1)
        return state._replace(read=read, busy=busy), (state.busy[worker] == 0) & (state.read[worker] < state.version)

    def go_on(state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        return state._replace(busy=state.busy.at[worker].set(1)), state.busy[worker] == 0

    def rule(before: Pushes, after: Pushes, worker: jax.Array) -> jax.Array:
        was, now, read = before.busy[worker], after.busy[worker], after.read[worker]
        ends = (was == 1) & (now == 0) & (after.version == before.version + 1) & (read == before.read[worker])
        newest = (read == before.version) | (read == before.read[worker])
        return ends | ((was == 0) & (now == 1) & (after.version == before.version) & newest)

    def step_property(before: Pushes, after: Pushes, component: jax.Array) -> jax.Array:
        pushed = ((before.busy == 1) & (after.busy == 0)).sum()
        changed = after.read != before.read
        return (after.version == before.version + pushed) & (~changed | (after.read == before.version)).all()

    zero, each = np.int32(0), zeros(workers)
    return Specification(
        f"worker_busy_pushes({workers} workers)",
        workers,
        initial=Pushes(zero, each, each),
        sizes=Pushes(2, each + 2, each + 2),
        worker=Role(
            (Action("push", push), Action("pull", pull), Action("go on", go_on)),
            lambda worker: Pushes(True, own(workers, worker), own(workers, worker)),
            rule,
        ),
        claim="every push is a commit at once, and whoever reads, reads the newest version",
        step_property=step_property,
        normalise=lambda state: Pushes(
            jnp.ones_like(state.version), (state.read == state.version).astype(jnp.int32), state.busy
        ),
    )
