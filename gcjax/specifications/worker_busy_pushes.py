"""What the eager variant of worker-busy synchronous parallel does promise (Yang et al. 2024, the released code)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, own, zeros
from gcjax.specifications.events import BEGIN, COMMIT, Event


class Pushes(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each has read last.
      busy: int[W], whether each is in a local step.
      due: int[W], the newest version when each began last, if communication and computing overlap; otherwise 0.
    """

    version: Numbers
    read: Numbers
    busy: Numbers
    due: Numbers


@comparable
def worker_busy_pushes(num_workers: int = 3, *, overlap: bool = False) -> Specification:
    """Eager WBSP: every push is a commit at once, and whoever reads, reads the newest version.

    Who reads when is left open, and with it whether workers agree: they need not (`worker_busy_eager`). If
    communication and computing overlap, the version is still on its way while a step is taken, so that it may be an
    older one than the newest, but none from before what was read last. States are finite since only it counts whether a
    version is the newest.

    Args:
      num_workers: W.
      overlap: whether communication and computing overlap.
    """
    check_num_workers(num_workers)

    def push(state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        after = state._replace(version=state.version + 1, busy=state.busy.at[worker].set(0))
        return after, state.busy[worker] == 1

    def begin(version: Callable[[Pushes, jax.Array], jax.Array]) -> Callable[..., tuple[Pushes, jax.Array]]:
        def move(state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
            due = state.due.at[worker].set(state.version) if overlap else state.due
            read = state.read.at[worker].set(version(state, worker))
            return Pushes(state.version, read, state.busy.at[worker].set(1), due), state.busy[worker] == 0

        return move

    def rule(before: Pushes, after: Pushes, worker: jax.Array) -> jax.Array:
        was, now, read = before.busy[worker], after.busy[worker], after.read[worker]
        same = (read == before.read[worker]) & (after.due[worker] == before.due[worker])
        ends = (was == 1) & (now == 0) & (after.version == before.version + 1) & same
        known = (read == before.version) | (read == before.read[worker]) | (overlap & (read == before.due[worker]))
        due = after.due[worker] == (before.version if overlap else before.due[worker])
        return ends | ((was == 0) & (now == 1) & (after.version == before.version) & known & due)

    def step_property(before: Pushes, after: Pushes, component: jax.Array) -> jax.Array:
        pushed = ((before.busy == 1) & (after.busy == 0)).sum()
        known = (after.read == before.read) | (after.read == before.version) | overlap
        return (after.version == before.version + pushed) & known.all()

    def begins(before: Pushes, after: Pushes, event: Event) -> jax.Array:
        return (after.read[event.worker] == event.version) & (after.busy[event.worker] == 1) & ~event.waited

    def commits(before: Pushes, after: Pushes, event: Event) -> jax.Array:
        return after.version == event.commit + 1

    def newest(state: Pushes, read: jax.Array) -> jax.Array:
        return (read == state.version).astype(jnp.int32)

    late = (Action("go on with what was pulled", begin(lambda state, worker: state.due[worker]), BEGIN, begins),)
    zero, each = np.int32(0), zeros(num_workers)
    return Specification(
        f"worker_busy_pushes({num_workers} workers{', overlap' * overlap})",
        num_workers,
        initial=Pushes(zero, each, each, each),
        sizes=Pushes(2, each + 2, each + 2, each + 1 + overlap),
        worker=Role(
            (
                Action("push", push, COMMIT, commits),
                Action("pull", begin(lambda state, worker: state.version), BEGIN, begins),
                Action("go on", begin(lambda state, worker: state.read[worker]), BEGIN, begins),
                *late[:overlap],
            ),
            lambda worker: Pushes(True, *(own(num_workers, worker),) * 2, own(num_workers, worker) & overlap),
            rule,
        ),
        claim="every push is a commit at once" + ", and whoever reads, reads the newest version" * (not overlap),
        step_property=step_property,
        canonicalise=lambda state: Pushes(
            jnp.ones_like(state.version), newest(state, state.read), state.busy, newest(state, state.due) * overlap
        ),
    )
