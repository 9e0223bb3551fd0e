"""The commits of a run, one by one or wavefront by wavefront, as a loop of one XLA program.

A gradient depends only on the version that it reads, so the commits from e on whose versions all exist already (a
wavefront) can be computed at once. Past versions that are still to be read live in a ring.

Letters: E commits, C contributions to a commit, W workers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine import version_ring as rings
from gcjax.engine.added_gradients import gradient_sum_commit_maker
from gcjax.engine.attacked_rounds import attacked_gradients
from gcjax.engine.base import Info, State
from gcjax.engine.coded_step import mesh_estimate
from gcjax.engine.compressed_messages import coded_messages, gradient_of_sums, sum_of_estimates, unit_messages
from gcjax.engine.gradients import (
    Contribution,
    ContributionFunction,
    Inputs,
    coded_gradients,
    estimate_on_one_device,
    unit_gradients,
    units_of_round,
)
from gcjax.engine.group_commits import group_commit_maker
from gcjax.engine.kept_gradients import kept_gradient_commit_maker
from gcjax.engine.layout import Layout
from gcjax.engine.local_state import owner_of_workers
from gcjax.engine.local_steps import LocalProgram
from gcjax.engine.local_work import LocalCommit, local_commit_maker
from gcjax.engine.mixing import mean_over_workers, with_room
from gcjax.engine.program import (
    Program,
    has_server,
    ring_slots_of,
    server_optimizer,
    slices_layout,
    with_layout,
)
from gcjax.engine.sliced_wavefronts import sliced_contributions
from gcjax.engine.spread import Spread, one_device
from gcjax.protocols.base import code_of_messages
from gcjax.protocols.schedule import Commits, Schedule, commits

Carry = tuple[State, Info]


class CommitMaker(NamedTuple):
    """What the commits of one schedule are made with.

    Attributes:
      program: what is compiled.
      contribution_of_commit: of plain or coded gradients; with compression of messages, instead of their sum.
      local_commit: `(inputs, commits, index, local_states) -> (contribution, local_states)`; None if workers push
        gradients.
      wavefront_spread: how the commits of a wavefront are spread over devices.
      slices: the layout of the parameters while wavefronts are committed; None for that of the program.
      commits: of the schedule.
      ring_slots: int32[E + 1], see `version_ring.allocate_slots`; None where every commit reads the latest version.
      data: of the task.
      batch_key: of the batches.
    """

    program: Program
    contribution_of_commit: ContributionFunction
    local_commit: LocalCommit | None
    wavefront_spread: Spread
    slices: Layout | None
    commits: Commits
    ring_slots: jax.Array | None
    data: Any
    batch_key: jax.Array

    def inputs(self, state: State) -> Inputs:
        """What the next gradients are computed from: the parameters of `state`, and the data and key of this run."""
        return Inputs(rings.Versions(state.params, state.ring, self.ring_slots), self.data, self.batch_key)


def commit_maker(program: Program, data: Any, batch_key: jax.Array, schedule: Schedule) -> CommitMaker:
    """What commits of a schedule are made with: gradients of the protocol's kind, spread as the layout says."""
    task, protocol, optimizer, options, compression, wrong_senders = program
    spread, num_workers, num_contributions = options.layout.spread(), schedule.start.shape[1], schedule.worker.shape[1]
    # Contributions to one commit are spread over the devices; where there is only one, commits are.
    spreads_contributions = num_contributions > 1
    contribution_spread, wavefront_spread = (spread, one_device()) if spreads_contributions else (one_device(), spread)
    local_commit = None
    if protocol.local is not None:
        worker_spread = spread if _workers_step_at_once(program) else None
        local_program = LocalProgram(
            task=task, local=protocol.local, optimizer=protocol.local.optimizer or optimizer,
            owner_of_worker=jnp.asarray(owner_of_workers(protocol.local, num_workers)), worker_spread=worker_spread,
            compression=compression,
        )  # fmt: skip
        local_commit = _maker_of_local_commits(local_program)(local_program, schedule)
    if wrong_senders is not None and protocol.code is not None:
        contribution_of_commit = attacked_gradients(
            task, protocol.code, units_of_round(protocol), wrong_senders, contribution_spread
        )
    elif compression is not None and protocol.code is None:
        contribution_of_commit = unit_messages(task, contribution_spread)
    elif compression is not None and protocol.code is not None:
        contribution_of_commit = coded_messages(task, protocol.code, units_of_round(protocol), contribution_spread)
    elif protocol.code is None:
        contribution_of_commit = unit_gradients(
            task, protocol.one_version, contribution_spread, skip_padding=protocol.padded
        )
    else:
        estimate_of_mesh = mesh_estimate(task, protocol.code, options.layout)  # None without a mesh
        contribution_of_commit = coded_gradients(
            protocol.code, units_of_round(protocol), estimate_of_mesh or estimate_on_one_device(task, protocol.code)
        )
    return CommitMaker(
        program=program,
        contribution_of_commit=contribution_of_commit,
        local_commit=local_commit,
        wavefront_spread=wavefront_spread,
        slices=slices_layout(program, schedule),
        commits=commits(schedule),
        ring_slots=ring_slots_of(program, schedule),
        data=data,
        batch_key=batch_key,
    )


def _workers_step_at_once(program: Program) -> bool:
    """Whether workers that take steps of their own do so side by side in a commit; else one after the other.

    Such commits are made one by one; a wavefront is then the workers of one commit.
    """
    options = program.options
    return options.layout.spread().size > 1 or options.wavefront_width > 1


def _maker_of_local_commits(program: LocalProgram) -> Callable[[LocalProgram, Schedule], LocalCommit]:
    """What makes the function that makes commits: of pushes to one server or to groups', or of messages of a code."""
    local = program.local
    if local.message_code is not None:
        return kept_gradient_commit_maker
    # Where workers step side by side, or compress, each contribution is formed by itself.
    if local.sums_gradients and program.worker_spread is None and program.compression is None:
        return gradient_sum_commit_maker
    return local_commit_maker if local.servers is None else group_commit_maker


def make_commits(maker: CommitMaker, end_commit: jax.Array, state: State, info: Info) -> Carry:
    """State and info after commit `end_commit - 1` (int32[]), made from those of a run on its way.

    The commits are made one by one, or wavefront by wavefront where the program's `wavefront_width` is above 1 and
    workers push gradients: `local_commit` is then None. One by one it goes on, under vmap, as long as any run needs
    (`max_over_runs`).
    """
    carry = state, info
    one_by_one = maker.program.options.wavefront_width == 1 or maker.local_commit is not None
    if one_by_one:
        make_commit = partial(_make_commit, maker, end_commit)
        num_commits = max_over_runs(end_commit - state.commit)
        local = maker.program.protocol.local
        if local is not None and not _workers_step_at_once(maker.program):
            carry = state._replace(local=with_room(local, state.local)), info
        state, info = jax.lax.fori_loop(0, num_commits, lambda _, carry: make_commit(carry), carry)
        if local is not None:
            state = state._replace(local=state.local._replace(room=None))
        return _with_mean_of_workers(maker.program, state), info
    if maker.slices is not None:  # from here on
        maker = maker._replace(program=with_layout(maker.program, maker.slices))
        carry = in_layout_of_commits(maker.program, state), info
    make_wavefront = partial(_make_wavefront, maker, end_commit)
    return jax.lax.while_loop(lambda carry: carry[0].commit < end_commit, make_wavefront, carry)


def in_layout_of_commits(program: Program, state: State) -> State:
    """The state with parameters, past versions and the optimizer's state where the layout of the program wants them."""
    layout = program.options.layout
    params = layout.constrain_params(state.params)
    ring = None if state.ring is None else layout.constrain_params(state.ring, num_leading_axes=1)
    opt_state = layout.constrain_opt_state(
        server_optimizer(program.protocol, program.optimizer), state.opt_state, params
    )
    return state._replace(params=params, ring=ring, opt_state=opt_state)


def _make_commit(maker: CommitMaker, end_commit: jax.Array, carry: Carry) -> Carry:
    """State and info after one more commit; as before if the run is at `end_commit`, as it can be only under vmap.

    `local_commit` is None where workers push gradients instead of what local steps have changed.
    """
    state, info = carry
    has_commits_left = state.commit < end_commit  # bool[]
    if maker.local_commit is None:
        contribution = maker.contribution_of_commit(maker.inputs(state), maker.commits, state.commit)
    else:
        contribution, new_local_states = maker.local_commit(
            maker.inputs(state), maker.commits, state.commit, state.local
        )
        state = state._replace(local=select_active(has_commits_left, new_local_states, state.local))
    return _apply_contribution(maker, (state, info), contribution, is_active=has_commits_left)


def _with_mean_of_workers(program: Program, state: State) -> State:
    """The state; where there is no server, with the mean of the workers' parameters [W, ...], which no commit needs."""
    if has_server(program.protocol):
        return state
    return state._replace(params=program.options.layout.constrain_params(mean_over_workers(state.local.params)))


def _make_wavefront(maker: CommitMaker, end_commit: jax.Array, carry: Carry) -> Carry:
    """State and info after the next wavefront: the gradients of `wavefront_width` commits are computed at once.

    Those are applied, in order, that come before the first one that reads a version still to be made; the others are
    computed again in a later wavefront.
    """
    state, _ = carry
    commit_indices = state.commit + jnp.arange(maker.program.options.wavefront_width, dtype=jnp.int32)
    # [width, C]; -1 pads. An index behind the last commit reads what that one does (`clip`), and is not ready anyway.
    versions_read = maker.commits.version.at[commit_indices].get(mode="clip")
    versions_exist = (versions_read <= state.commit).all(axis=1)
    is_ready = versions_exist & (commit_indices < end_commit)
    num_ready_in_row = jnp.cumprod(is_ready.astype(jnp.int32)).sum()
    # At least one is made, so that the loop ends even for a schedule that reads versions before they are made; the
    # results are then NaN, see `begin`.
    num_applied = jnp.maximum(num_ready_in_row, 1)

    def contribution_of_commit(inputs_and_commits: tuple[Inputs, Commits], index: jax.Array) -> Contribution:
        """What commit `index` applies; inputs and commits are the same for all of the wavefront."""
        inputs, commits = inputs_and_commits
        return maker.contribution_of_commit(inputs, commits, index)

    inputs, indices = maker.inputs(state), commit_indices.clip(0, end_commit - 1)  # what is clipped is not applied
    if maker.slices is None:
        contributions = maker.wavefront_spread.map_entries(contribution_of_commit, (inputs, maker.commits), indices)
    else:
        mesh, axis, _ = maker.slices
        assert mesh is not None and axis is not None
        contributions = sliced_contributions(
            maker.contribution_of_commit, inputs, maker.commits, indices,
            mesh=mesh, axis=axis, specs=maker.slices.specs(state.params),
        )  # fmt: skip

    def apply_commit(i: jax.Array, carry: Carry) -> Carry:
        """Applies the i-th of the `contributions` of the wavefront, leaves [width, ...], if it is ready."""
        contribution = jax.tree.map(lambda x: x[i], contributions)
        return _apply_contribution(maker, carry, contribution, is_active=i < num_applied)

    return jax.lax.fori_loop(0, max_over_runs(num_applied), apply_commit, carry)


def _apply_contribution(maker: CommitMaker, carry: Carry, contribution: Contribution, is_active: jax.Array) -> Carry:
    """State and info after the server's step: new parameters and optimizer state, and the new version in the ring.

    As before if `is_active`, bool[], is false, as it can only be under vmap. `ring_slots[v]` is the slot of version v
    in the ring of past versions; None where there is no ring.
    """
    (state, info), options = carry, maker.program.options
    if maker.program.compression is not None and maker.local_commit is None:
        contribution, states = _contribution_of_estimates(maker, state, contribution)
        state = state._replace(compression=select_active(is_active, states, state.compression))
    params, opt_state, ring = state.params, state.opt_state, state.ring
    if has_server(maker.program.protocol):
        params, opt_state = _server_step(maker.program, state, contribution.gradient, is_active)
    if maker.ring_slots is not None:
        unread_slot = jnp.asarray(options.ring_size, maker.ring_slots.dtype)  # the last one, which nobody reads
        slot_of_new_version = select_active(is_active, maker.ring_slots[state.commit + 1], unread_slot)
        ring = rings.write_slot(ring, slot_of_new_version, params)
    out_of_bounds = jnp.asarray(maker.commits.time.size, state.commit.dtype)  # an index that is dropped
    commit_index = select_active(is_active, state.commit, out_of_bounds)
    info = info._replace(loss=info.loss.at[commit_index].set(contribution.loss.astype(info.loss.dtype), mode="drop"))
    if code_of_messages(maker.program.protocol) is not None:  # otherwise it stays 0
        residual = contribution.residual.astype(info.residual.dtype)
        info = info._replace(residual=info.residual.at[commit_index].set(residual, mode="drop"))
    # For one run this counts the turns of the loop, whatever `is_active` is; XLA sees that, and keeps one counter less.
    # It was 8 to 15 µs a commit, and nothing on one core: its threads seem to share operations that are ready at once.
    num_commits = select_active(is_active, state.commit + 1, state.commit)
    return state._replace(commit=num_commits, params=params, ring=ring, opt_state=opt_state), info


def _server_step(program: Program, state: State, gradient: Any, is_active: jax.Array) -> tuple[Any, Any]:
    """Parameters and optimizer state after the server's step; those of `state` if `is_active`, bool[], is false.

    `gradient`, a pytree like the parameters, is that of the commit: weighted and added up already.
    """
    optimizer, layout = server_optimizer(program.protocol, program.optimizer), program.options.layout
    updates, new_opt_state = optimizer.update(gradient, state.opt_state, state.params)
    new_params = optax.apply_updates(state.params, updates)
    params = layout.constrain_params(select_active(is_active, new_params, state.params))
    new_opt_state = layout.constrain_opt_state(optimizer, new_opt_state, params)
    return params, select_active(is_active, new_opt_state, state.opt_state)


def _contribution_of_estimates(
    maker: CommitMaker, state: State, contribution: Contribution
) -> tuple[Contribution, Any]:
    """The contribution with the server's estimate in place of its messages, and the new states of all senders.

    The estimate is the weighted sum of what it makes of each message, a pytree like the parameters.
    """
    compression, code = maker.program.compression, maker.program.protocol.code
    assert compression is not None
    sums, states = sum_of_estimates(compression, maker.batch_key, contribution.messages, state.compression)
    return contribution._replace(gradient=gradient_of_sums(sums, state.params, code), messages=None), states
