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

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine import version_ring as rings
from gcjax.engine.base import Info, Run, State, Trajectory
from gcjax.engine.coded_step import mesh_estimate
from gcjax.engine.feedback_windows import by_windows
from gcjax.engine.gradients import (
    CommitGradient,
    Contribution,
    Inputs,
    coded_gradients,
    estimate_on_one_device,
    unit_gradients,
)
from gcjax.engine.layout import Layout
from gcjax.engine.local_work import LocalCommit, beginning, local_commits
from gcjax.engine.spread import Spread, one_device
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Commits, Schedule, commits
from gcjax.stragglers.network import Network
from gcjax.tasks.base import Task

Carry = tuple[State, Info]
Execution = Callable[[jax.Array, State, Info], Carry]
Source = tuple[jax.Array, Network]
"""The durations and the network, for a protocol that makes its schedule on the way."""


class Options(NamedTuple):
    """The static numbers of a run; see `run`."""

    num_commits: int | None
    eval_every: int
    ring_size: int
    front_width: int
    layout: Layout


class Program(NamedTuple):
    """What is compiled: the static arguments of `begin` and `advance`."""

    task: Task
    protocol: Protocol
    optimizer: optax.GradientTransformation
    options: Options


def begin(program: Program, schedule: Schedule, data: Any, rng_key: jax.Array, params: Any) -> Run:
    """Initial parameters and their evaluation. Arguments as in `gcjax.engine.run`."""
    task, protocol, _, options = program
    optimizer = on_server(program)
    possible = schedule.time.shape[0]
    num_commits = jnp.minimum(jnp.sum(jnp.isfinite(schedule.time)), options.num_commits or possible).astype(jnp.int32)
    # A protocol that looks at the loss shows on the way which versions it needs.
    alive = versions_alive(schedule) if protocol.adaptive is None else jnp.zeros((), jnp.int32)
    impossible = jnp.any(schedule.version > jnp.arange(possible, dtype=jnp.int32)[:, None])
    params = task.init(_keys(rng_key)[0]) if params is None else params
    params = rings.poisoned(params, (alive > options.ring_size) | impossible)
    params = options.layout.params(params)
    place = _places(program, schedule)
    ring = None if place is None else rings.create(params, options.ring_size, place[0])
    local = None
    if protocol.local is not None:
        local = beginning(protocol, program.optimizer, params, schedule.start.shape[1])
    state = State(jnp.zeros((), jnp.int32), params, ring, optimizer.init(params), local)
    if protocol.adaptive is not None:
        controls = protocol.adaptive.initial(protocol.adaptive.num_windows)
        state = state._replace(window=jnp.zeros((), jnp.int32), controls=controls)
    info = Info(
        loss=jnp.full(possible, jnp.nan, schedule.time.dtype),
        residual=jnp.zeros(possible, schedule.time.dtype),
        staleness=jnp.where(jnp.arange(possible, dtype=jnp.int32) < num_commits, rings.staleness(schedule), -1),
        num_commits=num_commits,
        versions_alive=alive,
    )
    num_evals = 1 + -(-(options.num_commits or possible) // options.eval_every)
    shapes = jax.eval_shape(task.metrics, state.params, data)
    trajectory = Trajectory(
        jnp.full(num_evals, -1, jnp.int32),
        jnp.full(num_evals, jnp.inf, schedule.time.dtype),
        {name: jnp.full(num_evals, jnp.nan, shape.dtype) for name, shape in shapes.items()},
    )
    start = Run(state, info, trajectory)
    return _placed(options, optimizer, evaluated(task, data, options, schedule, jnp.zeros((), jnp.int32), start))


def on_server(program: Program) -> optax.GradientTransformation:
    """The optimizer of the server."""
    local = program.protocol.local
    return program.optimizer if local is None or local.merge is None else local.merge


def advance(
    program: Program,
    schedule: Schedule,
    data: Any,
    rng_key: jax.Array,
    run: Run,
    num_evals: jax.Array,
    source: Source | None = None,
) -> Run:
    """Goes on until so many evaluations have been made in all, the first one not counted, or the run ends.

    Args:
      program: what is compiled.
      schedule: what happens when; only its shapes count if there is a source.
      data: of the task.
      rng_key: of the run.
      run: so far.
      num_evals: int32[].
      source: of the schedule, for a protocol that looks at the loss.
    """
    options = program.options
    if source is not None:
        made = partial(_commits_of, program, data, rng_key)
        judged = partial(evaluated, program.task, data, options)
        run = by_windows(program, made, judged, run, num_evals, source)
        return _placed(options, on_server(program), run)
    commits = _commits_of(program, data, rng_key, schedule)

    def block(i: jax.Array, run: Run) -> Run:
        index = first + i
        end = jnp.minimum((index + 1) * options.eval_every, run.info.num_commits)
        state, info = commits(end, run.state, run.info)
        slot = jnp.where(index < last, index + 1, -1)
        return evaluated(program.task, data, options, schedule, slot, run._replace(state=state, info=info))

    first = -(-run.state.commit // options.eval_every)
    last = jnp.minimum(-(-run.info.num_commits // options.eval_every), num_evals)
    run = jax.lax.fori_loop(0, max_over_runs(last - first), block, run)
    return _placed(options, on_server(program), run)


def _commits_of(program: Program, data: Any, rng_key: jax.Array, schedule: Schedule) -> Execution:
    """`(end, state, info) -> (state, info)`: makes the commits of a schedule up to `end` (not included)."""
    task, protocol, optimizer, options = program
    spread, batch_key = options.layout.spread(), _keys(rng_key)[1]
    apart = spread if schedule.worker.shape[1] > 1 else one_device()
    fronts = one_device() if apart is spread else spread
    local = None
    if protocol.local is not None:
        at_once = spread if spread.size > 1 or options.front_width > 1 else None
        local = local_commits(task, protocol.local, optimizer, schedule.start.shape[1], at_once)
    if protocol.code is None:
        gradient = unit_gradients(task, protocol.one_version, apart, padded=protocol.padded)
    else:
        on_mesh = mesh_estimate(task, protocol.code, options.layout)
        gradient = coded_gradients(protocol.code, on_mesh or estimate_on_one_device(task, protocol.code))
    server, place = on_server(program), _places(program, schedule)
    return partial(make_commits, gradient, local, server, options, fronts, commits(schedule), place, data, batch_key)


def _placed(options: Options, optimizer: optax.GradientTransformation, run: Run) -> Run:
    """Every array where it belongs."""
    layout, state = options.layout, run.state
    params = layout.params(state.params)
    ring = None if state.ring is None else layout.params(state.ring, leading=1)
    opt_state = layout.opt_state(optimizer, state.opt_state, params)
    placed = state._replace(params=params, ring=ring, opt_state=opt_state, local=layout.workers(state.local))
    return Run(placed, layout.everywhere(run.info), layout.everywhere(run.trajectory))


def _keys(rng_key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The key of the initial parameters and that of the batches."""
    init_key, batch_key = jax.random.split(rng_key)
    return init_key, batch_key


def _places(program: Program, schedule: Schedule) -> jax.Array | None:
    size = program.options.ring_size
    if not size:
        return None
    if program.protocol.adaptive is None:
        return rings.places(schedule, size)
    return jnp.arange(schedule.time.shape[0] + 1, dtype=jnp.int32) % size  # nobody knows yet which versions are read


def evaluated(task: Task, data: Any, options: Options, schedule: Schedule, slot: jax.Array, run: Run) -> Run:
    """Judges the parameters and writes the result to a slot of the trajectory; to none if it is negative."""
    state, trajectory = run.state, run.trajectory
    poisoned = run.info.versions_alive > options.ring_size
    metrics = {k: jnp.where(poisoned, jnp.nan, v) for k, v in task.metrics(state.params, data).items()}
    time = jnp.where(state.commit > 0, schedule.time[(state.commit - 1).clip(0)], 0)
    slot = jnp.where(slot < 0, trajectory.time.size, slot)  # out of bounds: dropped
    trajectory = Trajectory(
        trajectory.commit.at[slot].set(state.commit, mode="drop"),
        trajectory.time.at[slot].set(time, mode="drop"),
        {name: trajectory.metrics[name].at[slot].set(value, mode="drop") for name, value in metrics.items()},
    )
    return run._replace(trajectory=trajectory)


def make_commits(
    gradient: CommitGradient,
    local_work: LocalCommit | None,
    optimizer: optax.GradientTransformation,
    options: Options,
    fronts: Spread,
    commits: Commits,
    place: jax.Array | None,
    data: Any,
    batch_key: jax.Array,
    end: jax.Array,
    state: State,
    info: Info,
) -> tuple[State, Info]:
    """Makes the commits up to `end` (not included), front by front."""

    def inputs(state: State) -> Inputs:
        return Inputs(rings.Versions(state.params, state.ring, place), data, batch_key)

    def commit(carry: Carry, contribution: Contribution, active: jax.Array) -> Carry:
        (index, params, ring, opt_state, *_), info = carry
        updates, new_opt_state = optimizer.update(contribution.gradient, opt_state, params)
        params = options.layout.params(select_active(active, optax.apply_updates(params, updates), params))
        opt_state = select_active(active, options.layout.opt_state(optimizer, new_opt_state, params), opt_state)
        if place is not None:
            ring = rings.write(ring, jnp.where(active, place[index + 1], options.ring_size), params)
        slot = jnp.where(active, index, commits.time.size)  # out of bounds: dropped
        info = info._replace(
            loss=info.loss.at[slot].set(contribution.loss.astype(info.loss.dtype), mode="drop"),
            residual=info.residual.at[slot].set(contribution.residual.astype(info.residual.dtype), mode="drop"),
        )
        done = index + active.astype(index.dtype)
        return carry[0]._replace(commit=done, params=params, ring=ring, opt_state=opt_state), info

    def single(_: jax.Array, carry: Carry) -> Carry:
        state, info = carry
        if local_work is None:
            return commit(carry, gradient(inputs(state), commits, state.commit), state.commit < end)
        active = state.commit < end
        contribution, local = local_work(inputs(state), commits, state.commit, state.local)
        state = state._replace(local=select_active(active, local, state.local))
        return commit((state, info), contribution, active)

    def front(carry: Carry) -> Carry:
        first = carry[0].commit
        index = first + jnp.arange(options.front_width, dtype=jnp.int32)
        there = (commits.version.at[index].get(mode="clip") <= first).all(axis=1) & (index < end)
        width = jnp.maximum(jnp.cumprod(there.astype(jnp.int32)).sum(), 1)
        known = index.clip(0, end - 1)
        contributions = fronts.each(
            lambda shared, e: gradient(shared[0], shared[1], e), (inputs(carry[0]), commits), known
        )

        def one(i: jax.Array, carry: Carry) -> Carry:
            return commit(carry, jax.tree.map(lambda x: x[i], contributions), i < width)

        return jax.lax.fori_loop(0, max_over_runs(width), one, carry)

    if options.front_width == 1 or local_work is not None:
        return jax.lax.fori_loop(0, max_over_runs(end - state.commit), single, (state, info))
    return jax.lax.while_loop(lambda carry: carry[0].commit < end, front, (state, info))


@jax.jit
def versions_alive(schedule: Schedule) -> jax.Array:
    """int32[]: the past versions that a schedule needs at once; 0 if every commit reads the latest one."""
    if schedule.time.ndim > 1:
        return jax.vmap(versions_alive)(schedule)
    return jnp.where(rings.staleness(schedule).max() <= 0, 0, rings.versions_alive(schedule))
