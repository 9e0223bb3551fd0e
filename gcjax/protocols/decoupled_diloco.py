"""Decoupled DiLoCo (Douillard, Rush, Donchev and others 2026, arXiv 2604.21428)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.local_sgd import OUTER, check_units
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View, all_have_pushed, num_messages
from gcjax.stragglers.network import Network


@comparable
def decoupled_diloco(
    *,
    num_local_steps: int,
    min_quorum: int = 1,
    grace_seconds: float | None = None,
    overlap_steps: float = 2.0,
    margin: float = 0.5,
    inner: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
) -> Protocol:
    """Decoupled DiLoCo: a commit waits for K learners and a grace window more; no learner ever waits.

    A learner (a worker) pushes what H steps have changed, and goes on at once, from the newest version if there is a
    newer one than its own. With a[1] <= a[2] <= ... the times of the first push of each learner since the last commit,
    the commit is at `a[K] + G`, or with the first push of the last learner if that is before. The grace window is
    `G = max(0, γ (τ ξ - (a[K] - a[1])))`, ξ the mean seconds of a step of those K learners (Douillard et al. 2026,
    equation 3, where τ is the steps that hide a synchronisation). The outer gradient is the mean of what the learners
    have changed, weighted by tokens times tokens a step: since all steps here have as many tokens, by the steps of each
    learner.

    K = W with equal speeds is `diloco`. The paper's experiments have K = 1, H = 24 and τ = 2.

    Ours, or otherwise in the paper: γ is below 1 there, without a value; ξ is a running average; a learner reads
    between two pushes, and not in the midst of its steps; what a late learner has changed counts from the version it
    has read, not from the newest. Synchronised at once are all parameters, not one fragment of 24 after the other;
    their mean is the plain one, not that of lengths and directions apart.

    Args:
      num_local_steps: H, 1 or more.
      min_quorum: K, from 1 to W.
      grace_seconds: G, if it is to be fixed, 0 for no window; as above if None.
      overlap_steps: τ, 0 or more.
      margin: γ, from 0 to 1.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the learner.
      outer: the optimizer of the server; as in `diloco` if None.

    Raises:
      ValueError: if there is no step, or K is not between 1 and W, or a number is out of its range, or an optimizer is
        none.

    Example:
      >>> durations = jnp.array([[1.0, 1.25, 3.0]] * 6)
      >>> protocol = gcjax.protocols.decoupled_diloco(num_local_steps=2, min_quorum=1, grace_seconds=0.5)
      >>> schedule = protocol(durations)  # the push of worker 1 at 2.5 comes within half a second of that at 2
      >>> schedule.time[:3].tolist(), schedule.work[:3].clip(0).sum(axis=1).tolist()
      ([2.5, 4.5, 5.5], [4, 2, 2])
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    min_quorum = _validate.integer("min_quorum", min_quorum, minimum=1)
    if grace_seconds is not None:
        _validate.single_number("grace_seconds", grace_seconds, minimum=0.0, finite=True)
    _validate.single_number("overlap_steps", overlap_steps, minimum=0.0, finite=True)
    _validate.single_number("margin", margin, minimum=0.0, maximum=1.0)
    _validate.optional_optimizers(inner=inner, outer=outer)

    def grace(quorum_seconds: jax.Array, step_seconds: jax.Array) -> jax.Array:
        """float[] seconds of the window, never negative.

        `quorum_seconds float[]` are those from the first to the K-th learner's push, K = `min_quorum`, and
        `step_seconds float[]` the mean ones of a step of these learners.
        """
        if grace_seconds is not None:
            return jnp.asarray(grace_seconds, step_seconds.dtype)
        return jnp.maximum(margin * (overlap_steps * step_seconds - quorum_seconds), 0)

    def rule(num_workers: int) -> Rule:
        """The rule of a quorum and a grace window."""
        hint = "No more learners can be waited for than there are."
        _validate.integer("min_quorum", min_quorum, minimum=1, maximum=num_workers, hint=hint)
        return _rule(num_workers, num_local_steps, min_quorum, grace)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which `min_quorum` learners have pushed in each commit, at least."""
        num_units, num_workers = durations.shape
        waiting_rule = rule(num_workers)
        check_units(durations, num_local_steps)
        num_turns = num_units // num_local_steps
        max_commits = max(1, num_turns * num_workers // min_quorum)
        return event_schedule(waiting_rule, durations, network, num_commits=max_commits, num_turns=num_turns)

    return Protocol(
        schedule,
        one_version=False,
        round_units=num_local_steps,
        local=LocalWork(
            optimizer=inner, server_optimizer=OUTER if outer is None else outer, max_contributions=_NUM_VERSIONS
        ),
        rule=rule,
        specification=lambda num_workers: specifications.decoupled_diloco(
            num_workers, num_local_steps=num_local_steps, min_quorum=min_quorum
        ),
    )


_NUM_VERSIONS = 2
"""That the pushes of a learner to one commit can be based on: the newest, and that of the push under way before."""


class _Window(NamedTuple):
    """What is known of the pushes since the last commit.

    Attributes:
      first_time: float[] seconds, when the first one came.
      step_seconds: float[], a step of each learner's first push, with its messages, added up.
      end: float[] seconds, when the window is over; inf before K learners have pushed. It is computed once, on arrival:
        computed anew when it is over, it could be rounded otherwise, and not be over yet.
      num_commits: int32[], the commits after the last push, with the one that it has brought.
      is_open: bool[], whether it has brought none, so that it is waiting for one.
    """

    first_time: jax.Array
    step_seconds: jax.Array
    end: jax.Array
    num_commits: jax.Array
    is_open: jax.Array


def _no_pushes(num_workers: int, dtype: jnp.dtype) -> _Window:
    """The memory before the first push: no window is open."""
    del num_workers
    zero_seconds = jnp.zeros((), dtype)
    return _Window(
        first_time=zero_seconds,
        step_seconds=zero_seconds,
        end=jnp.full((), jnp.inf, dtype),
        num_commits=jnp.zeros((), jnp.int32),
        is_open=jnp.zeros((), bool),
    )


_Grace = Callable[[jax.Array, jax.Array], jax.Array]
"""`(quorum_seconds, step_seconds) -> float[]` seconds of the window."""


def _rule(num_workers: int, num_local_steps: int, min_quorum: int, grace: _Grace) -> Rule:
    """The rule: a commit once K = `min_quorum` learners have pushed, and the window is over or all have."""

    def window_with_push(view: View, worker: jax.Array) -> _Window:
        """The memory with the push of a worker that has just arrived, and is counted; it may be its learner's first.

        Who has left has pushed nothing now.
        """
        is_new = view.alive[worker] & (view.num_uncommitted[worker] == 1)
        is_first_of_all = is_new & (num_messages(view) == 1)
        # If pushes were waiting, and this is the first of all, a commit without a push has taken them.
        num_commits_before = view.memory.num_commits + (is_first_of_all & view.memory.is_open).astype(jnp.int32)
        first_time = jnp.where(is_first_of_all, view.now, view.memory.first_time)
        own_step_seconds = jnp.where(is_new, (view.now - view.begin_time[worker]) / num_local_steps, 0)
        step_seconds = own_step_seconds + jnp.where(is_first_of_all, 0, view.memory.step_seconds)
        # Pushes come one after the other, so the quorum are all who have pushed when it is complete. That is once:
        # whoever comes back may have a push from before it left.
        end, num_pushed = remembered_end(view), (view.num_uncommitted > 0).sum(dtype=jnp.int32)
        completes_quorum = is_new & (num_pushed == min_quorum) & jnp.isinf(end)
        end_of_quorum = view.now + grace(view.now - first_time, step_seconds / min_quorum)
        return _Window(
            first_time=first_time,
            step_seconds=step_seconds,
            end=jnp.where(completes_quorum, end_of_quorum, end),
            num_commits=view.num_commits,
            is_open=view.num_commits == num_commits_before,
        )

    def remembered_end(view: View) -> jax.Array:
        """float[] seconds, when the window is over, as of the last push; inf if there is none since the last commit."""
        is_waiting = view.memory.is_open & (view.memory.num_commits == view.num_commits)
        return jnp.where(is_waiting, view.memory.end, jnp.inf)

    def is_over(view: View, worker: jax.Array) -> jax.Array:
        """bool[]: whether all have pushed, or the window is over, be it only with the push that has just arrived."""
        return all_have_pushed(view) | (view.now >= window_with_push(view, worker).end)

    return Rule(
        commits=is_over,
        num_units=num_local_steps,
        memory=_no_pushes,
        remember=window_with_push,
        alarm=remembered_end,
        needs_everybody=min_quorum == num_workers,
        weight=partial(_share_of_steps, num_workers),
        num_contributions=_NUM_VERSIONS * num_workers,
        one_contribution_per_worker=True,
    )


def _share_of_steps(num_workers: int, staleness: Any, work: Any) -> Any:
    """float[..., C]: the steps of each learner in the commit over those of all, in all of its columns.

    `work int32[..., C]` are the steps in each column; column v W + w is learner w's on its v-th version, from 0 on.
    """
    del staleness
    by_version = work.reshape(*work.shape[:-1], work.shape[-1] // num_workers, num_workers)  # [..., versions, W]
    steps_of_learner = by_version.sum(axis=-2, keepdims=True)
    share = steps_of_learner / steps_of_learner.sum(axis=-1, keepdims=True).clip(1)
    return share.repeat(by_version.shape[-2], axis=-2).reshape(work.shape)
