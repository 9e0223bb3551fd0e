"""Bounded staleness with other thresholds: DSSP (Zhao et al. 2019) and PSP (Wang et al. 2017).

The state has the clocks of SSP. What the thresholds come from, predicted times and random samples, is left open: they
may be anything that the protocol allows. The guarantees are about clocks only.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry, zeros
from gcjax.specifications.clocks import (
    Clocks,
    counted_from_slowest,
    push_event_arguments,
    pushing_workers,
    replay_clocks,
)


class Granted(NamedTuple):
    """The state.

    Attributes:
      clock: int[W], the units that each worker has pushed.
      num_granted_left: int[W], the steps that each may still take beyond the lower threshold, after its next one.
      is_next_granted: int[W], whether each may take its next step beyond the lower threshold by a grant.
    """

    clock: Numbers
    num_granted_left: Numbers
    is_next_granted: Numbers


@comparable
def dssp(num_workers: int = 3, *, lower: int = 1, span: int = 2) -> Specification:
    """DSSP refines SSP(lower + span): nobody is more than lower + span + 1 units ahead of anybody.

    When the fastest worker may not go on, it is granted any number of steps from 0 to the span that keeps it within the
    upper threshold; the protocol chooses by predicted waiting (Zhao et al. 2019, algorithms 1 and 2).

    Args:
      num_workers: W.
      lower: the least threshold.
      span: how many steps more can be granted.
    """
    check_num_workers(num_workers)
    upper_threshold = _validate.integer("lower", lower) + _validate.integer("span", span)

    def guarantee(before: Granted, after: Granted, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes one unit, within the upper threshold; with any grant in its range.

        That is `num_granted_left` of the steps after its next one, below the span; for the next one `is_next_granted`.
        """
        clock = before.clock[worker]
        pushes = (after.clock[worker] == clock + 1) & (clock - before.clock.min() <= upper_threshold)
        is_granted_in_range = (after.num_granted_left[worker] >= 0) & (after.num_granted_left[worker] < max(span, 1))
        is_0_or_1 = (after.is_next_granted[worker] >= 0) & (after.is_next_granted[worker] <= 1)
        return pushes & is_granted_in_range & is_0_or_1

    zero_per_worker = zeros(num_workers)
    actions = [_push_action(grant, lower, upper_threshold) for grant in range(span + 1)]
    return Specification(
        f"dssp({num_workers} workers, thresholds {lower} to {upper_threshold})",
        num_workers,
        initial=Granted(clock=zero_per_worker, num_granted_left=zero_per_worker, is_next_granted=zero_per_worker),
        sizes=Granted(  # values: clocks 0, ..., upper threshold + 1, from the slowest; grants left below the span
            clock=zero_per_worker + upper_threshold + 2,
            num_granted_left=zero_per_worker + max(span, 1),
            is_next_granted=zero_per_worker + 2,
        ),
        worker=Role.of_workers(Granted, num_workers, Granted._fields, actions, guarantee),
        claim=f"nobody is more than {upper_threshold + 1} ahead of anybody",
        invariant=lambda state: state.clock.max() - state.clock.min() <= upper_threshold + 1,
        canonicalise=lambda state: state._replace(clock=state.clock - state.clock.min()),
        replay=replay_clocks,
    )


def _push_action(grant: int, lower_threshold: int, upper_threshold: int) -> Action:
    """A worker's push, with which it is granted `grant` steps beyond `lower_threshold` units, if it asks for them.

    It asks if it has none left, is more than `lower_threshold` ahead of the slowest, and nobody is ahead of it.
    """

    def move(state: Granted, worker: jax.Array) -> tuple[Granted, jax.Array]:
        """The state with one unit more of the worker and its grant, and whether it may push with this grant.

        Its next push may be beyond the threshold if `is_next_granted`; `num_granted_left` are those after the next one.
        Who does not ask pushes with grant 0, and keeps what it has.
        """
        clock = state.clock.at[worker].add(1)
        num_ahead, num_granted_left = clock[worker] - clock.min(), state.num_granted_left[worker]
        asks_for_grant = (num_granted_left == 0) & (num_ahead > lower_threshold) & (clock[worker] == clock.max())
        num_granted = jnp.where(asks_for_grant, grant, num_granted_left)
        num_left_after_next_push = (num_granted - 1).clip(0)
        after = Granted(
            clock,
            num_granted_left=state.num_granted_left.at[worker].set(num_left_after_next_push),
            is_next_granted=state.is_next_granted.at[worker].set((num_granted > 0).astype(jnp.int32)),
        )
        may_be_granted = (grant == 0) | (asks_for_grant & (grant <= upper_threshold + 1 - num_ahead))
        may_push = (state.is_next_granted[worker] == 1) | (state.clock[worker] - state.clock.min() <= lower_threshold)
        return after, may_push & may_be_granted

    if grant:  # grants do not show in a run; what they allow is in the guarantee
        return Action(f"push, granted {grant}", move)
    return Action("push", move, **push_event_arguments(commits_are_rounds=False))


@comparable
def psp(num_workers: int = 3, *, num_sampled: int = 1, staleness: int = 0) -> Specification:
    """PSP: each worker is at most s + 1 units ahead of at least β others.

    A worker goes on if at least β others are at most s behind: then there is a sample of β that lets it go on, and
    without them there is none (Wang et al. 2017). Staleness 0 is pBSP, above it is pSSP.

    Clocks can be arbitrarily far apart, so only states in which nobody is ahead of the slowest by more than
    (W - 1)(s + 2) are explored. They show all there is: across a gap of s + 2 or more nobody is near, so whoever is
    above it has its β others above it too, and those above can go on, from the lowest to the highest, and leave the gap
    one wider. So what is reached with wider gaps is reached as well with all of these cut to s + 2, and looks the same
    to every rule.

    Args:
      num_workers: W.
      num_sampled: β, below W.
      staleness: s.
    """
    name = f"psp({num_workers} workers, {num_sampled} sampled, staleness {staleness})"
    return near_others(name, num_workers, num_sampled, staleness, commits_are_rounds=False)


def near_others(
    name: str, num_workers: int, num_sampled: int, staleness: int, *, commits_are_rounds: bool
) -> Specification:
    """Workers that go on if at least so many others are at most so far behind; for what is explored see `psp`.

    Args:
      name: of the protocol and its parameters.
      num_workers: W.
      num_sampled: the others.
      staleness: how far behind they may be.
      commits_are_rounds: as in `gcjax.specifications.clocks.push_event_arguments`.
    """
    check_num_workers(num_workers)
    num_sampled = _validate.integer(
        "num_sampled", num_sampled, maximum=num_workers - 1, hint="A worker looks at others."
    )
    staleness = _validate.integer("staleness", staleness)
    farthest = (num_workers - 1) * (staleness + 2)

    def num_others_near(clock: jax.Array, max_gap: int) -> jax.Array:
        """int[W]: for each worker, how many others are at most `max_gap` units behind it, or ahead of it."""
        # [W, W] leads of each (row) over the others. -1: each is near itself.
        return (clock[:, None] - clock[None] <= max_gap).sum(axis=1) - 1

    def push(state: Clocks, worker: jax.Array) -> tuple[Clocks, jax.Array]:
        """The state with one unit more of the worker, and whether at least β others are at most s behind it."""
        return Clocks(state.clock.at[worker].add(1)), num_others_near(state.clock, staleness)[worker] >= num_sampled

    def guarantee(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes one unit, and at least β others are at most s behind it."""
        is_near = before.clock[worker] - before.clock <= staleness
        num_near = (is_near & ~is_own_entry(num_workers, worker)).sum()
        return (after.clock[worker] == before.clock[worker] + 1) & (num_near >= num_sampled)

    return Specification(
        name,
        num_workers,
        initial=Clocks(zeros(num_workers)),
        sizes=Clocks(np.full(num_workers, farthest + 1)),  # clocks 0, ..., farthest, from the slowest
        worker=pushing_workers(num_workers, push, guarantee, commits_are_rounds=commits_are_rounds),
        claim=f"each worker is at most {staleness + 1} ahead of at least {num_sampled} others",
        invariant=lambda state: (num_others_near(state.clock, staleness + 1) >= num_sampled).all(),
        is_explored=lambda state: state.clock.max() - state.clock.min() <= farthest,
        canonicalise=counted_from_slowest,
        replay=replay_clocks,
    )
