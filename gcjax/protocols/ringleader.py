"""Ringleader ASGD (Maranjyan, Richtárik, ICLR 2026, arXiv 2509.22860)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax import specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule, own_params
from gcjax.protocols.not_served import not_served
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.stragglers.network import Network

_not_served = not_served(
    "ringleader cannot be served: a commit applies gradients of earlier commits again, and gcjax.parameter_server "
    "keeps none. Simulate it, or serve ringmaster, rennala or k_batch_async."
)


@comparable
def ringleader() -> Protocol:
    """Ringleader ASGD: each step is with the mean of all workers' own mean gradients, in rounds of W steps.

    For data that differ between the workers, whose fast ones must not count more than the slow ones. The server keeps a
    table, for each worker w the mean of its b[w] gradients, and a commit applies `1/W sum_w 1/b[w] sum_j g[w, j]`, with
    gradients of earlier commits of the round among them. A round first only collects, until everybody has a gradient in
    the table; then each worker brings one commit: the one that came last at once, every other one with its next
    gradient, which goes into the table. Only who has brought a commit reads the new version. What it sends before the
    round is over goes into the table of the next round. Nobody waits, no gradient is lost, and none has a delay above
    `2 W - 2` (Maranjyan and Richtárik 2026; tables and order as in their released code).

    In the schedule a gradient stands in the commit that is the first to apply it, with its factor in this commit. The
    table is `run.state.local.params`, with minus signs.

    It is simulated only: the parameter server adds up what workers push, and keeps none of it.

    Example:
      >>> durations = jnp.array([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]])
      >>> schedule = gcjax.protocols.ringleader()(durations)  # a round of two commits is over at 3
      >>> schedule.time[:3].tolist(), schedule.work[:2].tolist()
      ([2.5, 3.0, 5.0], [[2, 1], [1, -1]])
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds of W commits."""
        num_workers = durations.shape[1]
        fewest_units_of_round = 2 * num_workers - 1  # all but one worker give two gradients
        max_rounds = durations.size // fewest_units_of_round + 1
        record = event_schedule(
            _rule(num_workers), durations, network, num_commits=min(durations.size, num_workers * max_rounds)
        )
        return record._replace(weight=_weights(record))

    return Protocol(
        schedule,
        one_version=False,
        max_staleness=lambda num_workers: 2 * num_workers - 2,
        local=LocalWork(
            optimizer=optax.sgd(1.0),
            server_optimizer=None,
            pull=own_params,
            gradients_at_version=True,
            gradient_table=True,
        ),
        rule=_not_served,
        specification=specifications.ringleader,
    )


def _weights(record: Schedule) -> jax.Array:
    """float[E, C]: the factor of each gradient in its first commit, 1 / (W b), b its worker's in the table.

    A round has W commits, one brought by each worker; the first of them collects gradients of all (C = W).

    After the first commit of a round, these are the gradients of that commit and the new one. Column w of a commit is
    worker w; where there is no contribution, the factor is 0.
    """
    max_commits, num_workers = record.work.shape
    commit = jnp.arange(max_commits, dtype=jnp.int32)
    first_of_round = commit - commit % num_workers  # int32[E], the commit with which the round of each begins
    comes_later = (commit > first_of_round).astype(jnp.int32)[:, None]
    num_in_table = record.work[first_of_round].clip(0) + comes_later
    factor = 1 / (num_workers * num_in_table.clip(1)).astype(record.time.dtype)
    return jnp.where(record.worker >= 0, factor, 0)


class _Round(NamedTuple):
    """What the server keeps in mind of a round.

    Attributes:
      num_commits: int32[], the commits so far; a round collects gradients if W divides them.
      in_table: bool[W], who has a gradient in the table that the next first commit of a round applies.
      has_committed: bool[W], who has brought a commit in this round.
      may_read: bool[W], whose last message brought a commit.
    """

    num_commits: jax.Array
    in_table: jax.Array
    has_committed: jax.Array
    may_read: jax.Array


def _rule(num_workers: int) -> Rule:
    """The rule of rounds of W commits, one brought by each worker."""

    def is_collecting(commits: jax.Array) -> jax.Array:
        """bool[]: whether the round has no commit yet."""
        return commits % num_workers == 0

    def is_worker(worker: jax.Array) -> jax.Array:
        """bool[W]: true for the worker only."""
        return jnp.arange(num_workers, dtype=jnp.int32) == worker

    def commits(view: View, worker: jax.Array) -> jax.Array:
        """bool[]: whether all are in the table now; later in the round, whether the worker has brought no commit."""
        all_in_table = (view.memory.in_table | is_worker(worker)).all()
        return jnp.where(is_collecting(view.num_commits), all_in_table, ~view.memory.has_committed[worker])

    def postpones(view: View, worker: jax.Array) -> jax.Array:
        """int32[]: the commits left in the round, if the worker has brought its own already."""
        has_to_wait = ~is_collecting(view.num_commits) & view.memory.has_committed[worker]
        return jnp.where(has_to_wait, num_workers - view.num_commits % num_workers, 0)

    def remember(view: View, worker: jax.Array) -> _Round:
        """The memory after a message of the worker, which may have brought a commit; a round has W commits.

        The first one takes the whole table; from then on its sender alone has brought one.
        """
        memory, is_sender = view.memory, is_worker(worker)
        brings_commit = view.num_commits > memory.num_commits
        was_collecting = is_collecting(memory.num_commits)
        in_table_with_sender = jnp.where(brings_commit, memory.in_table, memory.in_table | is_sender)
        return _Round(
            num_commits=view.num_commits,
            in_table=in_table_with_sender & ~(was_collecting & brings_commit),
            has_committed=jnp.where(
                brings_commit, is_sender | (memory.has_committed & ~was_collecting), memory.has_committed
            ),
            may_read=jnp.where(is_sender, brings_commit, memory.may_read),
        )

    def nothing_yet(num_workers: int, dtype: jnp.dtype) -> _Round:
        """The memory before the first message: all read first."""
        nobody = jnp.zeros(num_workers, bool)
        return _Round(jnp.zeros((), jnp.int32), in_table=nobody, has_committed=nobody, may_read=~nobody)

    return Rule(
        commits=commits,
        postpones=postpones,
        pulls=lambda view: view.memory.may_read,
        memory=nothing_yet,
        remember=remember,
        num_contributions=num_workers,
        one_contribution_per_worker=True,
    )
