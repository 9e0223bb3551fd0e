"""Rounds that a clock or the fastest workers end: whatever has been done by then is in the commit."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Specification, check_num_workers
from gcjax.specifications.rounds import Condition, Rounds, commits_all_messages, specification_of_rounds


@comparable
def anytime_minibatch(num_workers: int = 3) -> Specification:
    """Anytime minibatch: whatever is in a commit was computed on the version that it replaces.

    When the time is over is left open: the server may commit at any time, with whatever there is (Ferdinand et al.
    2019). In a run that is all that has arrived, so that a commit is empty only if nobody has done anything. A second
    unit in a round counts as the first, since the rule does not count them.

    Args:
      num_workers: W.
    """
    return specification_of_rounds(
        f"anytime_minibatch({num_workers} workers)",
        num_workers,
        max_pending_units=1,
        goes_on_beyond_max=True,
        commit_matches=commits_all_messages,
        has_enough_to_commit=lambda state: jnp.ones((), bool),
        claim="whatever is in a commit was computed on the version that it replaces",
    )


@comparable
def stsyn(num_workers: int = 3, *, num_local_steps: int = 2, num_waited: int = 2) -> Specification:
    """STSyn: K workers have taken H steps at a commit, and all steps are from the version that it replaces.

    The others go on or have done less; who has done nothing is not in it (Zhu et al. 2022). More than H steps count as
    H, since the rule asks for no more.

    Args:
      num_workers: W.
      num_local_steps: H.
      num_waited: K.
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    check_num_workers(num_workers)
    num_waited = _validate.integer("num_waited", num_waited, minimum=1, maximum=num_workers)
    specification = _stsyn_rounds(
        num_workers,
        num_local_steps,
        num_waited,
        has_enough_to_commit=lambda state: (state.pending_units >= num_local_steps).sum() >= num_waited,
        claim=f"{num_waited} workers have taken {num_local_steps} steps at a commit",
    )
    return specification._replace(members=partial(_stsyn_with_members, num_workers, num_local_steps, num_waited))


def _stsyn_with_members(num_workers: int, num_local_steps: int, num_waited: int, alive: Any) -> Specification:
    """STSyn if the workers `alive bool[W]` take part: K of them have taken H steps, or all if they are fewer.

    Who has joined in this round counts once it has a unit in it. Of who has left, what has arrived before counts.
    """

    def has_enough_to_commit(state: Rounds) -> jax.Array:
        """bool[]: whether K workers have taken H steps, or as many as take part in the round, at least one.

        `pending_units int[W]` are the steps of each in this round. Who has read its version and has none counts as
        having just joined, from which the state does not tell it.
        """
        has_just_joined = (state.read == state.version) & (state.pending_units == 0)
        num_in_round = (alive & ~has_just_joined).sum()
        num_waited_for = jnp.minimum(num_waited, num_in_round).clip(1)
        return (state.pending_units >= num_local_steps).sum() >= num_waited_for

    def state_after_join(state: Rounds, worker: jax.Array) -> Rounds:
        """The state in which the worker has read the version of this round, and done nothing on it."""
        return state._replace(read=state.read.at[worker].set(state.version))

    specification = _stsyn_rounds(
        num_workers,
        num_local_steps,
        num_waited,
        has_enough_to_commit=has_enough_to_commit,
        claim=f"{num_waited} workers, or all if they are fewer, have taken {num_local_steps} steps at a commit",
    )
    return specification._replace(state_after_join=state_after_join)


def _stsyn_rounds(
    num_workers: int, num_local_steps: int, num_waited: int, *, has_enough_to_commit: Condition, claim: str
) -> Specification:
    """The rounds of STSyn, with what is enough for a commit, in words and as `state -> bool[]`."""
    return specification_of_rounds(
        f"stsyn({num_workers} workers, {num_local_steps} steps, {num_waited} waited for)",
        num_workers,
        max_pending_units=num_local_steps,
        goes_on_beyond_max=True,
        commit_matches=commits_all_messages,
        has_enough_to_commit=has_enough_to_commit,
        claim=f"{claim}, all from the version that it replaces",
    )
