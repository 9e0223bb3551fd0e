"""Commits of what servers of groups send to a central one: each has parameters, and an optimizer, of its own.

The central parameters are those of the run. Which version a worker has read of its group's server, nobody need look up:
it goes on from what there is when its push has been dealt with, and this is written down for it then.

Letters: W workers, G groups, E commits, C contributions to a commit.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax._shared_loops import max_over_runs, read_first, run_if, select_active
from gcjax.engine.gradients import Contribution, Inputs
from gcjax.engine.local_state import LocalState, repeated
from gcjax.engine.local_steps import LocalProgram, LocalSteps, steps_of_commit
from gcjax.engine.local_work import (
    Beginning,
    LocalCommit,
    beginning_of_contribution,
    change_after_beginning,
    contribution_of_changes,
)
from gcjax.engine.messages import in_dtypes_of, weighted, zero_sum
from gcjax.engine.version_ring import read_slot, write_slot
from gcjax.protocols.base import LocalWork
from gcjax.protocols.groups import GroupServers
from gcjax.protocols.schedule import Commits, Schedule


class Servers(NamedTuple):
    """The servers of the groups; every leaf [G, ...], without the first axis for one of them.

    Attributes:
      params: their parameters.
      opt_state: of their optimizers.
      answer: the central parameters that the last commit of each group has made.
    """

    params: Any
    opt_state: Any
    answer: Any


class _LastCommit(NamedTuple):
    """The last commit of the same group before each commit; arrays [E], or [] for one.

    Attributes:
      commit: int32; -1 if there is none.
      reader: int32, who has pushed last before it was sent, if that worker goes on from the merge with its answer
        because this comes at once; -1 otherwise.
    """

    commit: jax.Array
    reader: jax.Array


def initial_servers(local: LocalWork, params: Any) -> Servers | None:
    """The servers of the G groups before the first commit: all have the initial parameters; None if there are none.

    Every leaf is [G, ...].
    """
    if local.servers is None:
        return None
    num_groups = max(local.servers.group_of_worker) + 1
    return repeated(Servers(params, local.servers.optimizer.init(params), answer=params), num_groups)


def group_commit_maker(program: LocalProgram, schedule: Schedule) -> LocalCommit:
    """The function that makes commits of groups' servers; arguments as of `gcjax.engine.local_work.local_commit_maker`.

    The C contributions to a commit are pushes to the server of one group. They follow one after the other, so that
    there is nothing to be spread over devices.
    """
    local = program.local
    assert local.servers is not None
    last_commits_of_groups = _last_commits_of_groups(schedule, local.servers)

    def make_commit(
        inputs: Inputs, commits: Commits, index: jax.Array, local_states: LocalState
    ) -> tuple[Contribution, LocalState]:
        """The contribution of commit `index`, and the local parameters of all workers and servers after it.

        `change_sum` is of weighted steps of the group's server; `losses` float[C] are means over local steps.
        `last_commits_of_groups` has arrays [E], an entry for each commit.
        """
        local_states = _with_answer(local.servers, commits, index, inputs.versions.params, local_states)
        steps = steps_of_commit(local, commits, index)
        last_commit_of_group = jax.tree.map(lambda x: x[index], last_commits_of_groups)
        change_sum, local_states, losses = _changes_in_order(program, inputs, steps, last_commit_of_group, local_states)
        return contribution_of_changes(steps, change_sum, losses), local_states

    return make_commit


def _group_of_commits(worker: jax.Array, servers: GroupServers | None) -> jax.Array:
    """int32[...]: the group of commits, from their workers int32[..., C], of which the first is there always.

    But in commits that never happen, of -1: these count as of the group of worker 0.
    """
    assert servers is not None
    return jnp.asarray(servers.group_of_worker, jnp.int32)[worker[..., 0].clip(0)]


def _last_commits_of_groups(schedule: Schedule, servers: GroupServers) -> _LastCommit:
    """The last commit of the same group before each commit of a schedule, arrays [E], -1 for none.

    Its reader is who pushed last before it was sent, if that worker then reads the version that it makes; else -1.
    """
    num_groups, max_commits = max(servers.group_of_worker) + 1, schedule.time.size
    group = _group_of_commits(schedule.worker, servers)  # [E]

    def step(last_commit_of_group: jax.Array, commit: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """The last commit of each group, int32[G], after one more, `(number, group)`; and that of its own before it."""
        number, group = commit
        return last_commit_of_group.at[group].set(number), last_commit_of_group[group]

    no_commits = jnp.full(num_groups, -1, jnp.int32)
    _, last_commit_of_group = jax.lax.scan(step, no_commits, (jnp.arange(max_commits, dtype=jnp.int32), group))
    num_columns = schedule.weight.shape[1]
    # The last column with a weight: that of the push with which the commit was sent. From here on arrays are [E].
    column = num_columns - 1 - jnp.argmax(schedule.weight[:, ::-1] > 0, axis=1)
    commit = jnp.arange(max_commits, dtype=jnp.int32)
    sender, next_unit = schedule.worker[commit, column], (schedule.unit + schedule.work)[commit, column]
    read_next = schedule.read.at[next_unit, sender].get(mode="fill", fill_value=-1)  # -1: there is no next unit
    reader = jnp.where(read_next == commit + 1, sender, -1).astype(jnp.int32)
    return _LastCommit(
        commit=last_commit_of_group,
        reader=jnp.where(last_commit_of_group >= 0, reader[last_commit_of_group.clip(0)], -1),
    )


def _with_answer(
    servers: GroupServers | None, commits: Commits, index: jax.Array, central_params: Any, local_states: LocalState
) -> LocalState:
    """The local states where the group of the commit before `index` has got what that made, `central_params`."""
    is_first = index == 0
    group = _group_of_commits(commits.worker[(index - 1).clip(0)], servers)
    # Before the first there is none: W, the size of `version`, is out of bounds as G <= W, and so dropped.
    group = jnp.where(is_first, local_states.version.size, group)
    answer = jax.tree.map(
        lambda all_answers, x: all_answers.at[group].set(x, mode="drop"), local_states.servers.answer, central_params
    )
    return local_states._replace(servers=local_states.servers._replace(answer=answer))


def _changes_in_order(
    program: LocalProgram,
    inputs: Inputs,
    steps: LocalSteps,
    last_commit_of_group: _LastCommit,
    local_states: LocalState,
) -> tuple[Any, LocalState, jax.Array]:
    """The pushes of a commit, one after the other, as the group's server has taken them.

    Args:
      program: what is the same in all commits.
      inputs: the data and the key, and versions, which nobody reads.
      steps: of the C contributions, every field [C, ...]; padding is behind all of them.
      last_commit_of_group: before this one.
      local_states: of all workers, with the servers.

    Returns:
      What the group sends, the sum of its server's steps; the local parameters afterwards; and the mean loss of each
      contribution, float[C].
    """
    servers = program.local.servers
    group = _group_of_commits(steps.worker[:, 0], servers)
    num_contributions = (steps.num_steps > 0).sum(dtype=jnp.int32)
    # Pushes before it, of weight 0, came while the last exchange of the group was under way; before it, the server
    # merges the answer to that.
    first_with_weight = jnp.argmax(steps.weight > 0).astype(jnp.int32)
    workers, all_servers = local_states._replace(servers=None), local_states.servers
    server = read_first(num_contributions, lambda all_servers: read_slot(all_servers, group), all_servers)

    def push(
        i: jax.Array, carry: tuple[Any, LocalState, Servers, jax.Array]
    ) -> tuple[Any, LocalState, Servers, jax.Array]:
        """The sum of the weighted changes, all workers, the group's server and the losses [C] after the i-th push.

        Before the first push that has a weight the server merges the answer to the last commit of the group, if there
        was one (its number is -1 otherwise). A run of a vmap that has fewer pushes stays as it is.
        """
        change_sum, workers, server, losses = carry
        merges = (i == first_with_weight) & (last_commit_of_group.commit >= 0)
        merge = partial(_server_and_workers_after_merge, servers, merges, last_commit_of_group.reader)
        server, workers = run_if(merges, merge, (server, workers))
        steps_of_one = jax.tree.map(lambda x: x[i], steps)
        worker = steps_of_one.worker[0].clip(0)
        begin = partial(_beginning_of_worker, program, inputs, steps_of_one, worker)
        beginning = read_first(steps_of_one.num_steps, begin, workers)
        change, server, of_worker, loss = _push(program, inputs, steps_of_one, server, beginning)
        workers = write_slot(workers, worker, of_worker)
        after = jax.tree.map(jnp.add, change_sum, change), workers, server, losses.at[i].set(loss)
        return select_active(i < num_contributions, after, carry)

    carry = zero_sum(server.params), workers, server, jnp.zeros(steps.weight.size, steps.weight.dtype)
    change_sum, workers, server, losses = jax.lax.fori_loop(0, max_over_runs(num_contributions), push, carry)
    workers = workers._replace(servers=write_slot(all_servers, group, server))
    return in_dtypes_of(change_sum, server.params), workers, losses


def _server_and_workers_after_merge(
    servers: GroupServers | None, merges: jax.Array, reader: jax.Array, server_and_workers: tuple[Servers, LocalState]
) -> tuple[Servers, LocalState]:
    """A server that has merged the answer to its last message, if `merges bool[]`, and the worker that reads this.

    Args:
      servers: of the protocol.
      merges: as said.
      reader: int32[], the worker; -1 if there is none.
      server_and_workers: the server before it, whose `answer` has the central parameters, of which it takes the share
        `merge_weight`; and all workers.
    """
    assert servers is not None
    server, workers = server_and_workers
    share = servers.merge_weight
    merged_params = jax.tree.map(
        lambda x, answer: jnp.where(merges, (1 - share) * x + share * answer, x), server.params, server.answer
    )
    reader_index = jnp.where(merges & (reader >= 0), reader, workers.version.size)  # W is out of bounds, and so dropped
    params = jax.tree.map(
        lambda x, params_of_reader: x.at[reader_index].set(params_of_reader, mode="drop"), workers.params, merged_params
    )
    return server._replace(params=merged_params), workers._replace(params=params)


def _beginning_of_worker(
    program: LocalProgram, inputs: Inputs, steps: LocalSteps, worker: jax.Array, workers: LocalState
) -> Beginning:
    """What the `steps` of a worker, int32[], begin with, from the states of all workers."""
    return beginning_of_contribution(program, inputs, read_slot(workers, worker), _with_weight_one(steps))


def _with_weight_one(steps: LocalSteps) -> LocalSteps:
    """The steps with a weight of 1: that of the contribution comes after the step of the group's server."""
    return steps._replace(weight=jnp.ones_like(steps.weight))


def _push(
    program: LocalProgram, inputs: Inputs, steps: LocalSteps, server: Servers, beginning: Beginning
) -> tuple[Any, Servers, LocalState, jax.Array]:
    """What a worker's push changes.

    Args:
      program: what is the same in all contributions.
      inputs: the data and the key.
      steps: of this contribution.
      server: of the worker's group.
      beginning: what the worker's steps begin with.

    Returns:
      The server's step, times the weight of the contribution; the server and the worker after it; and the mean loss.
    """
    assert program.local.servers is not None
    change, worker, loss = change_after_beginning(program, inputs, beginning, _with_weight_one(steps))
    change = in_dtypes_of(change, server.params)
    gradient = jax.tree.map(jnp.negative, change)  # an optimizer steps against its gradient
    step, opt_state = program.local.servers.optimizer.update(gradient, server.opt_state, server.params)
    params = optax.apply_updates(server.params, step)
    # The worker goes on with what its push has made of the server's parameters.
    return (
        weighted(step, steps.weight),
        server._replace(params=params, opt_state=opt_state),
        worker._replace(params=params),
        loss,
    )
