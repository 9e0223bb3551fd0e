"""The first K gradients (Dutta, Joshi, Ghosh, Dube, Nagpurkar, AISTATS 2018), and backup workers (Chen et al. 2016).

Four protocols by two questions: whether a commit waits for gradients of K different workers or for any K gradients, and
whether it cuts off those who are still computing or lets them go on with the version that they have read.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View, all_have_pushed, all_under_way, num_messages
from gcjax.stragglers.network import Network


@comparable
def k_sync(*, num_contributions: int) -> Protocol:
    """K-sync: a commit takes the first gradients of K workers; the others are cut off and begin anew.

    With A[1] <= ... <= A[W] the times at which the gradients of a round arrive, it ends at A[K]. If they are
    exponential with rate μ, a round takes `(H_W - H_{W-K}) / μ` on average, H the harmonic numbers (Dutta et al. 2018).
    K = W is `bsp`. Of arrivals at the same moment those of the lower numbers are first; so where durations are equal
    for many, those of the highest numbers may be in no commit.

    Args:
      num_contributions: K, from 1 to W.

    Raises:
      ValueError: if K is below 1, or above W.
    """
    return _protocol_of_first_gradients(
        _checked_num_contributions("k_sync", "k_batch_sync", num_contributions),
        one_push_per_worker=True,
        cancels_others=True,
    ).replace(specification=lambda num_workers: specifications.k_sync(num_workers, num_contributions=num_contributions))


@comparable
def k_batch_sync(*, num_contributions: int) -> Protocol:
    """K-batch-sync: a commit takes the first K gradients, several of a fast worker; the others are cut off.

    A worker that has sent its gradient begins the next one on the same version. Commit e happens at the K-th arrival
    after commit e - 1. Under exponential times with rate μ a round takes `K / (W μ)` on average (Dutta et al.
    2018).

    Args:
      num_contributions: K, 1 or more; more than W is possible.

    Raises:
      ValueError: if K is below 1.
    """
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    return _protocol_of_first_gradients(
        lambda num_workers: num_contributions, one_push_per_worker=False, cancels_others=True
    ).replace(
        specification=lambda num_workers: specifications.k_batch_sync(num_workers, num_contributions=num_contributions)
    )


@comparable
def k_async(*, num_contributions: int) -> Protocol:
    """K-async: a commit takes gradients of K workers, each on the version that it read; the others go on.

    A worker that has sent its gradient waits for the commit and reads it. Commit e happens when K workers have sent one
    since commit e - 1. K = W is `bsp` (Dutta et al. 2018).

    Args:
      num_contributions: K, from 1 to W.

    Raises:
      ValueError: if K is below 1, or above W.
    """
    return _protocol_of_first_gradients(
        _checked_num_contributions("k_async", "k_batch_async", num_contributions),
        one_push_per_worker=True,
        cancels_others=False,
    ).replace(
        specification=lambda num_workers: specifications.k_async(num_workers, num_contributions=num_contributions)
    )


@comparable
def k_batch_async(*, num_contributions: int) -> Protocol:
    """K-batch-async: a commit takes any K gradients, each on the version that it read; nobody waits.

    A worker that has sent its gradient reads the newest version and goes on; K = 1 is `asp` with the weight 1. Under
    exponential times with rate μ a commit comes every `K / (W μ)` on average (Dutta et al. 2018). That is
    n-softsync with n = W / K (Zhang et al. 2016).

    Args:
      num_contributions: K, 1 or more.

    Raises:
      ValueError: if K is below 1.
    """
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    return _protocol_of_first_gradients(
        lambda num_workers: num_contributions, one_push_per_worker=False, cancels_others=False
    ).replace(
        specification=lambda num_workers: specifications.k_batch_async(num_workers, num_contributions=num_contributions)
    )


@comparable
def backup_workers(*, num_backup: int) -> Protocol:
    """Backup workers: of W workers, a round waits for the first W - b, and drops what the others do (Chen et al. 2016).

    With A[1] <= ... <= A[W] the arrivals of a round, it ends at A[W - b]: `k_sync` with K = W - b.

    Args:
      num_backup: b, from 0 to W - 1.

    Raises:
      ValueError: if b is negative, or not below the number of workers.
    """
    num_backup = _validate.integer("num_backup", num_backup)

    def num_waited(num_workers: int) -> int:
        """W - b, checked to be one at least."""
        hint = "Somebody must be waited for."
        return num_workers - _validate.integer("num_backup", num_backup, maximum=num_workers - 1, hint=hint)

    return _protocol_of_first_gradients(num_waited, one_push_per_worker=True, cancels_others=True).replace(
        specification=lambda num_workers: specifications.backup_workers(num_workers, num_backup=num_backup)
    )


def _checked_num_contributions(name: str, alternative: str, num_contributions: int) -> Callable[[int], int]:
    """The function `num_workers -> count`, which raises `ValueError` if there are fewer workers than the count.

    The error says that the protocol `name` takes one gradient of a worker, and `alternative` several.
    """
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    hint = f"{name} takes one gradient of a worker; {alternative} takes several."
    return lambda num_workers: _validate.integer(
        "num_contributions", num_contributions, minimum=1, maximum=num_workers, hint=hint
    )


def _protocol_of_first_gradients(
    num_gradients: Callable[[int], int], *, one_push_per_worker: bool, cancels_others: bool
) -> Protocol:
    """The protocol whose commits take the first K gradients, K = `num_gradients(num_workers)`.

    `one_push_per_worker`: they are of K different workers; `cancels_others`: a commit cuts off who is still computing.
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which the first K gradients since the last commit are a commit, each with the weight 1/K.

        K is the rule's `num_contributions`.
        """
        waiting_rule = rule(durations.shape[1])
        max_commits = max(1, durations.size // waiting_rule.num_contributions)
        return event_schedule(waiting_rule, durations, network, num_commits=max_commits)

    def rule(num_workers: int) -> Rule:
        """The rule by which a commit takes the first `num_gradients(num_workers)` gradients."""
        return first_arrivals(
            num_gradients(num_workers), one_push_per_worker=one_push_per_worker, cancels_others=cancels_others
        )

    return Protocol(
        schedule,
        one_version=cancels_others,
        max_staleness=(lambda num_workers: 0) if cancels_others else None,
        rule=rule,
    )


def first_arrivals(num_contributions: int, *, one_push_per_worker: bool, cancels_others: bool) -> Rule:
    """The rule by which a commit takes the first K = `num_contributions` messages, each with the weight 1/K.

    `one_push_per_worker`: of different workers, who then wait for the commit; `cancels_others`: it cuts off all others.
    """

    def commits(view: View, worker: jax.Array) -> jax.Array:
        """bool[]: whether `num_contributions` messages are in no commit yet.

        Where each worker has one at most, also if all have one who are alive: there may be fewer of these.
        """
        del worker
        is_full = num_messages(view) >= num_contributions
        return is_full | all_have_pushed(view) if one_push_per_worker else is_full

    def ready(view: View) -> jax.Array:
        """bool[W]: who may begin; with one push per worker, who has no message that waits for a commit, else all."""
        return view.num_uncommitted == 0 if one_push_per_worker else jnp.ones_like(view.idle)

    return Rule(
        commits=commits,
        ready=ready,
        waits_for_commit=True,
        cuts_off=all_under_way if cancels_others else None,
        weight=1.0 / num_contributions,
        num_contributions=num_contributions,
    )
