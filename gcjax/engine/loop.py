"""The commits of a run and their evaluation, as loops of one XLA program.

A gradient depends only on the version that it reads, so the commits from e on whose versions are all there already (a
front) can be computed at once. Past versions that are still to be read live in a ring.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax.engine import ring as rings
from gcjax.engine.base import Info, Run, State, Trajectory
from gcjax.engine.gradients import CommitGradient, Contribution, coded_gradients, unit_gradients
from gcjax.engine.together import keep_idle, most
from gcjax.protocols.base import Protocol, Schedule
from gcjax.tasks.base import Task

Progress = Callable[[int, int], None]
Carry = tuple[State, Info]


class Options(NamedTuple):
    """The static numbers of a run; see `run`."""

    num_commits: int | None
    eval_every: int
    ring_size: int
    front_width: int
    progress: Progress | None


def train(
    task: Task,
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    options: Options,
    schedule: Schedule,
    data: Any,
    rng_key: jax.Array,
) -> Run:
    """The whole run: initial parameters, all commits, all evaluations. Arguments as in `gcjax.engine.run`."""
    init_key, batch_key = jax.random.split(rng_key)
    possible = schedule.time.shape[0]
    num_commits = jnp.minimum(jnp.sum(jnp.isfinite(schedule.time)), options.num_commits or possible).astype(jnp.int32)
    alive = versions_alive(schedule)
    impossible = jnp.any(schedule.version > jnp.arange(possible, dtype=jnp.int32)[:, None])
    params = _poisoned(task.init(init_key), (alive > options.ring_size) | impossible)
    if options.ring_size:
        place = rings.places(schedule, options.ring_size)
        ring = rings.create(params, options.ring_size, place[0])
    else:
        place, ring = None, None
    state = State(jnp.zeros((), jnp.int32), params, ring, optimizer.init(params))
    info = Info(
        loss=jnp.full(possible, jnp.nan, schedule.time.dtype),
        residual=jnp.zeros(possible, schedule.time.dtype),
        staleness=jnp.where(jnp.arange(possible, dtype=jnp.int32) < num_commits, _staleness(schedule), -1),
        num_commits=num_commits,
        versions_alive=alive,
    )
    if protocol.code is None:
        gradient = unit_gradients(task, data, batch_key, protocol.one_version)
    else:
        gradient = coded_gradients(task, data, batch_key, protocol.code)
    advance = partial(make_commits, gradient, optimizer, options, schedule, place)
    state, info, trajectory = _evaluated(task, data, advance, options, schedule.time, state, info)
    return Run(state, trajectory, info, schedule)


def _poisoned(params: Any, poison: jax.Array) -> Any:
    """All NaN if a version that is not there would be read, so that the run cannot pass for a result."""

    def leaf(x: jax.Array) -> jax.Array:
        return jnp.where(poison, jnp.nan, x) if jnp.issubdtype(x.dtype, jnp.inexact) else x

    return jax.tree.map(leaf, params)


def _evaluated(
    task: Task,
    data: Any,
    advance: Callable[[jax.Array, State, Info], tuple[State, Info]],
    options: Options,
    commit_times: jax.Array,
    state: State,
    info: Info,
) -> tuple[State, Info, Trajectory]:
    """Makes all commits, judging the parameters before the first and then every `eval_every` commits."""
    times = jnp.concatenate([jnp.zeros(1, commit_times.dtype), commit_times])

    def evaluate(trajectory: Trajectory, index: jax.Array, state: State) -> Trajectory:
        poisoned = info.versions_alive > options.ring_size
        metrics = {k: jnp.where(poisoned, jnp.nan, v) for k, v in task.metrics(state.params, data).items()}
        if options.progress is not None:
            jax.debug.callback(options.progress, state.commit, info.num_commits)
        return Trajectory(
            trajectory.commit.at[index].set(state.commit, mode="drop"),
            trajectory.time.at[index].set(times[state.commit], mode="drop"),
            {name: trajectory.metrics[name].at[index].set(value, mode="drop") for name, value in metrics.items()},
        )

    def block(index: jax.Array, carry: tuple[State, Info, Trajectory]) -> tuple[State, Info, Trajectory]:
        state, info, trajectory = carry
        end = jnp.minimum((index + 1) * options.eval_every, info.num_commits)
        state, info = advance(end, state, info)
        slot = jnp.where(index < num_blocks, index + 1, num_evals)  # out of bounds: dropped
        return state, info, evaluate(trajectory, slot, state)

    num_blocks = -(-info.num_commits // options.eval_every)
    num_evals = 1 + -(-(options.num_commits or commit_times.size) // options.eval_every)
    shapes = jax.eval_shape(task.metrics, state.params, data)
    trajectory = Trajectory(
        jnp.full(num_evals, -1, jnp.int32),
        jnp.full(num_evals, jnp.inf, commit_times.dtype),
        {name: jnp.full(num_evals, jnp.nan, shape.dtype) for name, shape in shapes.items()},
    )
    start = state, info, evaluate(trajectory, jnp.zeros((), jnp.int32), state)
    return jax.lax.fori_loop(0, most(num_blocks), block, start)


def make_commits(
    gradient: CommitGradient,
    optimizer: optax.GradientTransformation,
    options: Options,
    schedule: Schedule,
    place: jax.Array | None,
    end: jax.Array,
    state: State,
    info: Info,
) -> tuple[State, Info]:
    """Makes the commits up to `end` (not included), front by front."""

    def reader(state: State) -> Callable[[jax.Array], Any]:
        if place is None:
            return lambda version: state.params
        return lambda version: rings.read(state.ring, place[version])

    def commit(carry: Carry, contribution: Contribution, active: jax.Array) -> Carry:
        (index, params, ring, opt_state), info = carry
        updates, new_opt_state = optimizer.update(contribution.gradient, opt_state, params)
        params = keep_idle(active, optax.apply_updates(params, updates), params)
        opt_state = keep_idle(active, new_opt_state, opt_state)
        if place is not None:
            ring = rings.write(ring, jnp.where(active, place[index + 1], options.ring_size), params)
        slot = jnp.where(active, index, schedule.time.size)  # out of bounds: dropped
        info = info._replace(
            loss=info.loss.at[slot].set(contribution.loss.astype(info.loss.dtype), mode="drop"),
            residual=info.residual.at[slot].set(contribution.residual.astype(info.residual.dtype), mode="drop"),
        )
        return State(index + active.astype(index.dtype), params, ring, opt_state), info

    def single(_: jax.Array, carry: Carry) -> Carry:
        index = carry[0].commit
        return commit(carry, gradient(reader(carry[0]), schedule, index), index < end)

    def front(carry: Carry) -> Carry:
        first = carry[0].commit
        commits = first + jnp.arange(options.front_width, dtype=jnp.int32)
        there = (schedule.version.at[commits].get(mode="clip") <= first).all(axis=1) & (commits < end)
        width = jnp.maximum(jnp.cumprod(there.astype(jnp.int32)).sum(), 1)
        known = commits.clip(0, end - 1)
        contributions = jax.vmap(lambda e: gradient(reader(carry[0]), schedule, e))(known)

        def one(i: jax.Array, carry: Carry) -> Carry:
            return commit(carry, jax.tree.map(lambda x: x[i], contributions), i < width)

        return jax.lax.fori_loop(0, most(width), one, carry)

    if options.front_width == 1:
        return jax.lax.fori_loop(0, most(end - state.commit), single, (state, info))
    return jax.lax.while_loop(lambda carry: carry[0].commit < end, front, (state, info))


@jax.jit
def versions_alive(schedule: Schedule) -> jax.Array:
    """int32[]: the past versions that a schedule needs at once; 0 if every commit reads the latest one."""
    if schedule.time.ndim > 1:
        return jax.vmap(versions_alive)(schedule)
    return jnp.where(_staleness(schedule).max() <= 0, 0, rings.versions_alive(schedule))


def _staleness(schedule: Schedule) -> jax.Array:
    """int32[E]: the largest staleness of each commit; -1 for commits that are not used."""
    commits = jnp.arange(schedule.time.shape[0], dtype=jnp.int32)[:, None]
    return jnp.where(schedule.worker >= 0, commits - schedule.version, -1).max(axis=1)
