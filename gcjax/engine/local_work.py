"""Commits of local work: workers take optimizer steps of their own, and push what these have changed.

Letters: W workers, U workers of one device, C contributions to a commit. Owners of local parameters are workers, or
groups of them; members are workers who take steps together.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax._shared_loops import max_over_runs, read_first, run_if, select_active
from gcjax.engine.compressed_messages import estimate_and_new_state
from gcjax.engine.fragments import mean_change
from gcjax.engine.gradient_points import GradientPoints
from gcjax.engine.gradient_table import change_of_mean, mean_after_commit, mean_gradient_after_contribution
from gcjax.engine.gradients import Contribution, Inputs, mean_from_sums
from gcjax.engine.local_state import LocalState
from gcjax.engine.local_steps import LocalProgram, LocalSteps, step_gradient, steps_of_commit
from gcjax.engine.messages import in_dtypes_of, weighted, zero_sum
from gcjax.engine.mixing import local_states_after_mixing, states_after_exchange
from gcjax.engine.new_processes import local_state_before_unit
from gcjax.engine.version_ring import read_slot, write_slot
from gcjax.mixing_matrices import MixingMatrix
from gcjax.protocols.schedule import Commits, Schedule

LocalCommit = Callable[[Inputs, Commits, jax.Array, LocalState], tuple[Contribution, LocalState]]
"""`(inputs, commits, index, local_states) -> (contribution, local_states)`: makes a commit; states of all owners."""


def local_commit_maker(program: LocalProgram, schedule: Schedule) -> LocalCommit:
    """The function that makes a commit of local work, pushed to the central server or mixed.

    Args:
      program: how. Workers take their steps one after the other where a commit has fewer contributions than workers.
      schedule: the record that says who mixes.
    """
    mixing = program.local.mixing
    if mixing is not None and mixing.neighbour is not None:
        if schedule.worker.shape[1] != 1 or mixing.push_sum:
            raise ValueError(
                "where workers average with a neighbour, each commit must have one contribution, and there are no "
                f"weights of push-sum; got commits of {schedule.worker.shape[1]} and push_sum={mixing.push_sum}."
            )
        matrix_of_two = mixing.matrix(schedule)
        weights, columns = jax.eval_shape(matrix_of_two, jnp.zeros((), jnp.int32))
        if columns is not None or weights.shape != (2, 2):
            raise ValueError(
                "where workers average with a neighbour, the matrix must be whole, weights float[2, 2] without "
                f"columns; got weights of shape {weights.shape}."
            )
        return partial(_commit_of_exchange, program, mixing.neighbour(schedule), matrix_of_two)
    matrix_of_commit = None if mixing is None else mixing.matrix(schedule)

    def make_commit(
        inputs: Inputs, commits: Commits, index: jax.Array, local_states: LocalState
    ) -> tuple[Contribution, LocalState]:
        """The contribution of commit `index` by `program`, and the local parameters of all owners after it.

        `change_sum` is weighted already; `losses` float[C] are means over the steps of each contribution.
        """
        steps = steps_of_commit(program.local, commits, index)
        num_contributions, num_workers = steps.num_steps.shape[0], program.owner_of_worker.size
        has_all_workers = num_contributions == program.local.max_contributions * num_workers
        workers_step_at_once = has_all_workers and program.worker_spread is not None
        sum_changes = _changes_side_by_side if workers_step_at_once else _changes_one_by_one
        # The mean has no axis of owners, as all other states have.
        table_mean, local_states = local_states.table_mean, local_states._replace(table_mean=None)
        has_room = local_states.room is not None
        change_sum, local_states, losses = sum_changes(program, inputs, steps, local_states)
        params_after_steps = local_states.params
        if program.local.gradient_table:
            table_mean = mean_after_commit(table_mean, change_sum, local_states.params, index)
            local_states = local_states._replace(table_mean=table_mean)
            change_sum = table_mean
        if matrix_of_commit is None:
            change_sum = in_dtypes_of(change_sum, inputs.versions.params)
        else:
            local_states = local_states_after_mixing(matrix_of_commit(index), local_states)
            local_states = local_states._replace(room=params_after_steps if has_room else None)
            change_sum = None  # there is no server
        if program.local.fragments is not None:
            change_sum, local_states = _pushed_fragment(program, inputs, steps, local_states)
        return contribution_of_changes(steps, change_sum, losses), local_states

    return make_commit


def _commit_of_exchange(
    program: LocalProgram,
    neighbours: jax.Array,
    matrix_of_commit: Callable[[jax.Array], MixingMatrix],
    inputs: Inputs,
    commits: Commits,
    index: jax.Array,
    local_states: LocalState,
) -> tuple[Contribution, LocalState]:
    """Makes commit `index`: its worker averages with its neighbour of int32[E], and then its step is added.

    The step is at the parameters with which the worker began it: so both rows are written once.
    """
    only_contribution = 0
    steps = steps_of_commit(program.local, commits, index)
    steps_of_one = jax.tree.map(lambda x: x[only_contribution], steps)
    worker = steps_of_one.worker[only_contribution].clip(0)
    state, local_states = states_after_exchange(
        worker, neighbours[index], matrix_of_commit(index).weights, local_states
    )
    _, new_state, loss = change_of_contribution(program, inputs, state, steps_of_one)
    return contribution_of_changes(steps, None, loss[None]), write_slot(local_states, worker, new_state)


def contribution_of_changes(steps: LocalSteps, change_sum: Any, losses: jax.Array) -> Contribution:
    """What a commit applies: minus the sum of the changes as a gradient, and the weighted mean of `losses float[C]`.

    The sum is weighted already; None where no server applies it.
    """
    loss_weights = steps.loss_weight.astype(losses.dtype)
    mean_loss = mean_from_sums(jnp.sum(losses * loss_weights), loss_weights.sum())
    server_gradient = jax.tree.map(jnp.negative, change_sum)  # its optimizer steps against its gradient
    return Contribution(server_gradient, mean_loss, residual=jnp.zeros((), steps.weight.dtype))  # no code, nothing lost


def _pushed_fragment(
    program: LocalProgram, inputs: Inputs, steps: LocalSteps, local_states: LocalState
) -> tuple[Any, LocalState]:
    """The mean over all workers of their parameters minus the server's, and the states of all after pushing it."""
    compression = program.compression
    # int32[W], of the first contributions, which are those of all W workers in order, from [W, members=1].
    first_unit = steps.unit[: program.owner_of_worker.size].max(axis=1).clip(0)

    def compress(change: Any, state: Any, worker: jax.Array) -> tuple[Any, Any]:
        """What the server gets of the change of a worker, and the worker's state after it."""
        assert compression is not None
        return estimate_and_new_state(
            compression, change, state, batch_key=inputs.rng_key, sender=worker, unit=first_unit[worker]
        )

    change, states = mean_change(
        None if compression is None else compress, inputs.versions.params, local_states.params, local_states.compression
    )
    return change, local_states._replace(compression=states)


def _changes_one_by_one(
    program: LocalProgram, inputs: Inputs, steps: LocalSteps, local_states: LocalState
) -> tuple[Any, LocalState, jax.Array]:
    """Takes the steps of a commit, one contribution after the other.

    Args:
      program: what is the same in all commits.
      inputs: the versions, the data and the key.
      steps: of the C contributions, every field [C, ...].
      local_states: the local parameters of all owners, every leaf [num_owners, ...].

    Returns:
      The sum of the weighted changes, the local parameters of all owners after it (without room; they are there, if
      there was some), and the mean loss of each contribution, float[C].
    """
    num_so_far = jnp.cumsum(steps.num_steps > 0, dtype=jnp.int32)  # [C], contributions up to each column, it included
    num_contributions = num_so_far[-1]
    params_to_read, room = local_states.params, local_states.room
    if room is not None:
        is_somebody_missing = num_contributions < program.owner_of_worker.size  # who keeps its parameters
        room = run_if(is_somebody_missing, lambda room: params_to_read, room)
        local_states = local_states._replace(params=room, room=None)

    def add_change(i: jax.Array, carry: tuple[Any, LocalState, jax.Array]) -> tuple[Any, LocalState, jax.Array]:
        """Adds the weighted change of the i-th contribution; a run of a vmap that has fewer stays as it is."""
        change_sum, local_states, losses = carry
        is_contribution = i < num_contributions
        column = (num_so_far <= i).sum(dtype=jnp.int32)  # C, which no array has, if there are fewer
        steps_of_one = jax.tree.map(lambda x: x[column], steps)
        any_member = steps_of_one.worker.max().clip(0)  # the max, as padding may stand before the workers
        owner = program.owner_of_worker[any_member]

        def begin(local_states: LocalState) -> Beginning:
            """What the steps begin with, from the states of all owners."""
            if room is not None:
                local_states = local_states._replace(params=params_to_read)
            return beginning_of_contribution(program, inputs, read_slot(local_states, owner), steps_of_one)

        if program.local.reads_always:  # there are no local parameters to read
            beginning = begin(local_states)
        else:
            beginning = read_first(steps_of_one.num_steps, begin, local_states)  # before anything is written
        change, new_state, loss = change_after_beginning(program, inputs, beginning, steps_of_one)
        new_state = select_active(is_contribution, new_state, read_slot(local_states, owner))
        local_states = write_slot(local_states, owner, new_state)
        losses = losses.at[column].set(loss, mode="drop")
        new_sum = jax.tree.map(jnp.add, change_sum, change)
        return select_active(is_contribution, new_sum, change_sum), local_states, losses

    zero_change = zero_sum(inputs.versions.params)
    zero_losses = jnp.zeros(num_so_far.size, steps.weight.dtype)
    carry = zero_change, local_states, zero_losses
    if num_so_far.size == 1:  # a commit of one column has its contribution
        return add_change(jnp.zeros((), jnp.int32), carry)
    return jax.lax.fori_loop(0, max_over_runs(num_contributions), add_change, carry)


def _changes_side_by_side(
    program: LocalProgram, inputs: Inputs, steps: LocalSteps, local_states: LocalState
) -> tuple[Any, LocalState, jax.Array]:
    """Takes the steps of a commit with contributions of all W workers in order, `max_contributions` times: C in all.

    All workers take their steps at once, pass by pass; each is the owner of its parameters. Arguments and results are
    those of `_changes_one_by_one`: the sum of the weighted changes, the local parameters of all owners after it, and
    the losses, float[C], here for each contribution the weighted mean loss of all.
    """
    assert program.worker_spread is not None  # otherwise the caller takes `_changes_one_by_one`

    def sum_over_workers(
        inputs: Inputs, old_states: LocalState, steps: LocalSteps
    ) -> tuple[tuple[Any, jax.Array], LocalState]:
        """Sums of the weighted changes and weighted losses, and the local states after one contribution each.

        Leaves of states and steps are [W, ...], or [U, ...] of a device's workers. `changes` are weighted already,
        `losses`, the means over the steps of each, are not.
        """
        changes, new_states, losses = jax.vmap(partial(change_of_contribution, program), (None, 0, 0))(
            inputs, old_states, steps
        )
        has_steps = steps.num_steps > 0  # bool[W]

        def select_new_where_steps(new: jax.Array, old: jax.Array) -> jax.Array:
            """[W, ...]: the new leaf for the workers that have steps, the old one for the others."""
            return jnp.where(has_steps.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        new_states = jax.tree.map(select_new_where_steps, new_states, old_states)
        change_sum = jax.tree.map(lambda x: jnp.sum(x, axis=0), changes)
        weighted_loss_sum = jnp.sum(steps.loss_weight * losses)
        return (change_sum, weighted_loss_sum), new_states

    num_workers, change_sum, loss_sum = program.owner_of_worker.size, None, jnp.zeros((), steps.weight.dtype)
    for pass_number in range(program.local.max_contributions):
        first_contribution = pass_number * num_workers
        contributions_of_pass = slice(first_contribution, first_contribution + num_workers)  # of workers 0 to W - 1
        steps_of_pass = jax.tree.map(lambda x, pass_=contributions_of_pass: x[pass_], steps)
        (change_of_pass, loss_of_pass), local_states = program.worker_spread.sum_parts_with_states(
            sum_over_workers, inputs, local_states, steps_of_pass
        )
        change_sum = change_of_pass if change_sum is None else jax.tree.map(jnp.add, change_sum, change_of_pass)
        loss_sum += loss_of_pass
    mean_loss = mean_from_sums(loss_sum, steps.loss_weight.sum())
    return change_sum, local_states, jnp.broadcast_to(mean_loss, steps.num_steps.shape)


class Beginning(NamedTuple):
    """What the steps of a contribution begin with.

    Attributes:
      params: the parameters before the first step, from which the change is measured: after the pull, if there is one.
      version_params: of the version that is read.
      pulls: bool[], whether there are steps, and it is another version than the last.
      local_state: of the owner, before the pull.
    """

    params: Any
    version_params: Any
    pulls: jax.Array
    local_state: LocalState


def beginning_of_contribution(
    program: LocalProgram, inputs: Inputs, local_state: LocalState, steps: LocalSteps
) -> Beginning:
    """What the steps of a contribution begin with; arguments as of `change_of_contribution`.

    `local_state` is of the owner of the parameters; `pull(params, version_params)` gives them after reading.
    """
    first_member = 0
    local_state = local_state_before_unit(local_state, steps.unit[first_member])
    version_params = inputs.versions.read(steps.version.clip(0))
    if program.local.reads_always:
        params = program.local.pull(None, version_params)
        return Beginning(params, version_params, pulls=steps.num_steps > 0, local_state=local_state)
    has_server = program.local.mixing is None  # otherwise there is nothing to read
    pulls = has_server & (steps.num_steps > 0) & (steps.version != local_state.version)
    pull = program.local.pull
    if program.local.fragments is not None:
        pull = partial(program.local.fragments.merged, version_before=local_state.version, version=steps.version)
    pulled_params = pull(local_state.params, version_params)
    params = jax.tree.map(lambda new, old: jnp.where(pulls, new, old), pulled_params, local_state.params)
    if local_state.params_at_unit_begin is not None:
        params = local_state.params_at_unit_begin  # others may have changed the parameters since
    if program.local.gradient_table:  # from zero, as a sum that begins at the table would be rounded to it
        params = jax.tree.map(jnp.zeros_like, params)
    return Beginning(params=params, version_params=version_params, pulls=pulls, local_state=local_state)


def change_of_contribution(
    program: LocalProgram, inputs: Inputs, local_state: LocalState, steps: LocalSteps
) -> tuple[Any, LocalState, jax.Array]:
    """One contribution: a pull, if it reads another version than the one before; the steps; then the push.

    Args:
      program: what is the same in all contributions.
      inputs: the versions, the data and the key.
      local_state: of the owner of this contribution.
      steps: of this contribution.

    Returns:
      The weighted change that is pushed, the owner's local parameters afterwards, and the mean loss of the steps.
    """
    beginning = beginning_of_contribution(program, inputs, local_state, steps)
    return change_after_beginning(program, inputs, beginning, steps)


def change_after_beginning(
    program: LocalProgram, inputs: Inputs, beginning: Beginning, steps: LocalSteps
) -> tuple[Any, LocalState, jax.Array]:
    """The rest of a contribution, its steps and the push: (weighted change, owner's state, mean loss of the steps).

    `push(params, base, version_params, weight)` gives (change, params); this change is not weighted yet.
    """
    params_before_steps, version_params, pulls, local_state = beginning
    has_pulled_before = local_state.version >= 0  # nothing is under way before the first pull
    gradient_points = GradientPoints(
        version_params=version_params,
        params_before_pull=local_state.params if program.local.overlaps_pull else params_before_steps,
        pulls_during_first_step=pulls & has_pulled_before,
        local_state=local_state,
    )
    params_after_steps, opt_state, loss = _take_steps(
        program, inputs, steps, gradient_points, params_before_steps, local_state.opt_state
    )
    change, params = program.local.push(params_after_steps, params_before_steps, version_params, steps.weight)
    if program.compression is not None and program.local.fragments is None:
        owner = program.owner_of_worker[steps.worker.max().clip(0)]  # the max, as -1 pads; so below
        first_unit = steps.unit.max().clip(0)
        change, state = estimate_and_new_state(
            program.compression,
            change,
            local_state.compression,
            batch_key=inputs.rng_key,
            sender=owner,
            unit=first_unit,
        )
        local_state = local_state._replace(compression=state)
    if program.local.gradient_table:
        params = mean_gradient_after_contribution(
            local_state.params,
            change,
            weight=steps.weight,
            num_gradients=steps.num_steps,
            num_workers=program.owner_of_worker.size,
        )
    weighted_change = weighted(change, steps.weight)  # in the dtypes of sums
    if program.local.gradient_table:  # of the mean over all workers
        weighted_change = change_of_mean(params, local_state.params, program.owner_of_worker.size)
    if local_state.params_at_unit_begin is not None:  # others have changed them meanwhile
        params = jax.tree.map(jnp.add, local_state.params, change)
        local_state = local_state._replace(params_at_unit_begin=params)
    if program.local.reads_always:
        return weighted_change, local_state._replace(opt_state=opt_state), loss
    version = jnp.where(pulls, steps.version, local_state.version)
    new_state = local_state._replace(params=params, opt_state=opt_state, version=version)
    return weighted_change, new_state, loss


def _take_steps(
    program: LocalProgram,
    inputs: Inputs,
    steps: LocalSteps,
    gradient_points: GradientPoints,
    params: Any,
    opt_state: Any,
) -> tuple[Any, Any, jax.Array]:
    """The local parameters and the optimizer's state after the steps of a contribution, and the mean loss of the steps.

    Given are those before its first step; `gradient_points` says where else a gradient can be taken.
    """

    def take_step(step: jax.Array, carry: tuple[Any, Any, jax.Array]) -> tuple[Any, Any, jax.Array]:
        """Parameters, optimizer state and sum of losses after a step; as before from step `steps.num_steps` on."""
        params, opt_state, loss_sum = carry
        gradient_params = gradient_points.params_of_step_gradient(program.local, step, params)
        loss, gradient = step_gradient(program, inputs, steps, step, gradient_params)
        updates, new_opt_state = program.optimizer.update(gradient, opt_state, params)
        new_carry = optax.apply_updates(params, updates), new_opt_state, loss_sum + loss.astype(loss_sum.dtype)
        return select_active(step < steps.num_steps, new_carry, carry)

    zero_loss = jnp.zeros((), steps.weight.dtype)
    carry = params, opt_state, zero_loss
    if program.local.single_steps:  # a loop of one turn takes longer
        first_step = jnp.zeros((), jnp.int32)
        params, opt_state, loss_sum = take_step(first_step, carry)
    else:
        params, opt_state, loss_sum = jax.lax.fori_loop(0, max_over_runs(steps.num_steps), take_step, carry)
    at_least_one_step = jnp.maximum(steps.num_steps, 1)
    return params, opt_state, loss_sum / at_least_one_step.astype(loss_sum.dtype)
