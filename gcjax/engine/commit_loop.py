"""The commits of a run, one by one or wavefront by wavefront, as a loop of one XLA program.

A gradient depends only on the version that it reads, so the commits from e on whose versions are all there already (a
wavefront) can be computed at once. Past versions that are still to be read live in a ring.

Letters: E commits, C contributions to a commit.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine import version_ring as rings
from gcjax.engine.base import Info, State
from gcjax.engine.coded_step import mesh_estimate
from gcjax.engine.gradients import (
    CommitGradient,
    Contribution,
    Inputs,
    coded_gradients,
    estimate_on_one_device,
    unit_gradients,
)
from gcjax.engine.local_work import LocalCommit, local_commits
from gcjax.engine.program import Program, ring_slots_of, server_optimizer
from gcjax.engine.spread import Spread, one_device
from gcjax.protocols.schedule import Commits, Schedule, commits

Carry = tuple[State, Info]


class CommitMaker(NamedTuple):
    """What makes the commits of one schedule.

    Attributes:
      program: what is compiled.
      gradient: of a commit of plain or coded gradients.
      local_work: of a commit of local work; None if workers push gradients.
      wavefront_spread: how the commits of a wavefront are spread over devices.
      commits: of the schedule.
      ring_slots: int32[E + 1], see `version_ring.allocate_slots`; None where every commit reads the latest version.
      data: of the task.
      batch_key: of the batches.
    """

    program: Program
    gradient: CommitGradient
    local_work: LocalCommit | None
    wavefront_spread: Spread
    commits: Commits
    ring_slots: jax.Array | None
    data: Any
    batch_key: jax.Array

    def inputs(self, state: State) -> Inputs:
        """What the next gradients are computed from."""
        return Inputs(rings.Versions(state.params, state.ring, self.ring_slots), self.data, self.batch_key)


def commit_maker(program: Program, data: Any, batch_key: jax.Array, schedule: Schedule) -> CommitMaker:
    """What makes the commits of a schedule: the gradients that its protocol asks for, spread as the layout says."""
    task, protocol, optimizer, options = program
    spread, num_workers, contributions = options.layout.spread(), schedule.start.shape[1], schedule.worker.shape[1]
    # Contributions to one commit are spread over the devices; where there is only one, commits are.
    contribution_spread, wavefront_spread = (spread, one_device()) if contributions > 1 else (one_device(), spread)
    local_work = None
    if protocol.local is not None:
        at_once = spread if spread.size > 1 or options.wavefront_width > 1 else None
        local_work = local_commits(task, protocol.local, optimizer, num_workers, at_once)
    if protocol.code is None:
        gradient = unit_gradients(task, protocol.one_version, contribution_spread, ragged=protocol.padded)
    else:
        on_mesh = mesh_estimate(task, protocol.code, options.layout)
        gradient = coded_gradients(protocol.code, on_mesh or estimate_on_one_device(task, protocol.code))
    return CommitMaker(
        program=program,
        gradient=gradient,
        local_work=local_work,
        wavefront_spread=wavefront_spread,
        commits=commits(schedule),
        ring_slots=ring_slots_of(program, schedule),
        data=data,
        batch_key=batch_key,
    )


def make_commits(maker: CommitMaker, end: jax.Array, state: State, info: Info) -> Carry:
    """Makes the commits up to `end` (not included), one by one or wavefront by wavefront."""
    carry = state, info
    if maker.program.options.wavefront_width == 1 or maker.local_work is not None:
        commit = partial(_make_commit, maker, end)
        return jax.lax.fori_loop(0, max_over_runs(end - state.commit), lambda _, carry: commit(carry), carry)
    return jax.lax.while_loop(lambda carry: carry[0].commit < end, partial(_make_wavefront, maker, end), carry)


def _make_commit(maker: CommitMaker, end: jax.Array, carry: Carry) -> Carry:
    """The next commit; none if the run has come to `end`, as it can only under vmap."""
    state, info = carry
    active = state.commit < end
    if maker.local_work is None:
        contribution = maker.gradient(maker.inputs(state), maker.commits, state.commit)
    else:
        contribution, local = maker.local_work(maker.inputs(state), maker.commits, state.commit, state.local)
        state = state._replace(local=select_active(active, local, state.local))
    return _apply_contribution(maker, (state, info), contribution, active)


def _make_wavefront(maker: CommitMaker, end: jax.Array, carry: Carry) -> Carry:
    """The next wavefront: the gradients of so many commits at once, those applied in order whose versions exist.

    The others, which read versions that are still to be made, are computed again with a later one.
    """
    state, _ = carry
    indices = state.commit + jnp.arange(maker.program.options.wavefront_width, dtype=jnp.int32)
    reads_known = (maker.commits.version.at[indices].get(mode="clip") <= state.commit).all(axis=1) & (indices < end)
    num_ready = jnp.maximum(jnp.cumprod(reads_known.astype(jnp.int32)).sum(), 1)
    contributions = maker.wavefront_spread.each(
        lambda shared, index: maker.gradient(shared[0], shared[1], index),
        (maker.inputs(state), maker.commits),
        indices.clip(0, end - 1),
    )

    def apply(i: jax.Array, carry: Carry) -> Carry:
        return _apply_contribution(maker, carry, jax.tree.map(lambda x: x[i], contributions), i < num_ready)

    return jax.lax.fori_loop(0, max_over_runs(num_ready), apply, carry)


def _apply_contribution(maker: CommitMaker, carry: Carry, contribution: Contribution, active: jax.Array) -> Carry:
    """The server's step: new parameters, optimizer state and version in the ring; nothing if not `active`."""
    (state, info), options, optimizer = carry, maker.program.options, server_optimizer(maker.program)
    updates, new_opt_state = optimizer.update(contribution.gradient, state.opt_state, state.params)
    params = options.layout.params(select_active(active, optax.apply_updates(state.params, updates), state.params))
    new_opt_state = options.layout.opt_state(optimizer, new_opt_state, params)
    opt_state = select_active(active, new_opt_state, state.opt_state)
    ring = state.ring
    if maker.ring_slots is not None:
        unread = options.ring_size
        ring = rings.write_slot(ring, jnp.where(active, maker.ring_slots[state.commit + 1], unread), params)
    index = jnp.where(active, state.commit, maker.commits.time.size)  # out of bounds: dropped
    info = info._replace(
        loss=info.loss.at[index].set(contribution.loss.astype(info.loss.dtype), mode="drop"),
        residual=info.residual.at[index].set(contribution.residual.astype(info.residual.dtype), mode="drop"),
    )
    num_commits = state.commit + active.astype(state.commit.dtype)
    return state._replace(commit=num_commits, params=params, ring=ring, opt_state=opt_state), info
