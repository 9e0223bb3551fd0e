"""A run from its beginning on: commits and evaluations in turn, as one XLA program.

Letters: E commits, V evaluations.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs
from gcjax.engine import version_ring as rings
from gcjax.engine.base import Info, Run, State, Trajectory
from gcjax.engine.commit_loop import Carry, commit_maker, in_layout_of_commits, make_commits
from gcjax.engine.compressed_messages import initial_states, message_shapes, num_senders
from gcjax.engine.feedback_windows import advance_by_windows
from gcjax.engine.group_commits import initial_servers
from gcjax.engine.layout import Layout
from gcjax.engine.local_state import LocalState, initial_local_states
from gcjax.engine.optimizers import initial_opt_state
from gcjax.engine.parameters import arrays_of_params
from gcjax.engine.program import (
    Program,
    past_versions_needed,
    reads_versions,
    server_optimizer,
    slices_layout,
    with_layout,
)
from gcjax.protocols.schedule import Schedule
from gcjax.stragglers.network import Network

DurationsAndNetwork = tuple[jax.Array, Network]
"""For a protocol that makes its schedule on the way."""


def begin(program: Program, schedule: Schedule, data: Any, rng_key: jax.Array, params: Any) -> Run:
    """The run before its first commit, with the initial parameters evaluated. Arguments as in `gcjax.engine.run`.

    All parameters are NaN if the run cannot be right: if the schedule reads versions before they are made, or its past
    versions do not fit into the ring.
    """
    info = _initial_info(program, schedule)
    # Commit e can read version e, the parameters after e commits, at most.
    versions_read = schedule.version  # [E, C]
    latest_version = jnp.arange(schedule.time.shape[0], dtype=jnp.int32)[:, None]  # [E, 1]
    reads_future = jnp.any(versions_read > latest_version)
    params = _initial_params(program, rng_key, params)
    ring_overflows = info.versions_alive > program.options.ring_size
    params = rings.nan_if(ring_overflows | reads_future, params)
    state = _initial_state(program, schedule, program.options.layout.constrain_params(params), rng_key)
    run = Run(state, info, _empty_trajectory(program, schedule, data, state.params))
    initial_evaluation = jnp.zeros((), jnp.int32)
    return _constrain_layout(program, schedule, evaluate(program, data, schedule, initial_evaluation, run))


def _initial_params(program: Program, rng_key: jax.Array, params: Any) -> Any:
    """The parameters given, or else those of the task, as arrays; a `ValueError` if nothing could be trained."""
    if params is None:
        init_key, _ = _init_and_batch_keys(rng_key)
        params = program.task.init(init_key)
    return arrays_of_params(params)


def _initial_info(program: Program, schedule: Schedule) -> Info:
    """The info of a run before its first commit: staleness and number of commits by the schedule, no losses yet."""
    options, max_commits = program.options, schedule.time.shape[0]
    num_possible_commits = jnp.sum(jnp.isfinite(schedule.time))  # time is inf for commits that never happen
    num_commits = jnp.minimum(num_possible_commits, options.num_commits or max_commits)
    num_commits = num_commits.astype(jnp.int32)
    # A protocol that looks at the loss shows on the way which versions it needs.
    needs_are_known = program.protocol.loss_feedback is None and reads_versions(program.protocol)
    past_versions = past_versions_needed(schedule) if needs_are_known else jnp.zeros((), jnp.int32)
    no_losses = jnp.full(max_commits, jnp.inf, schedule.time.dtype)
    no_residuals = jnp.zeros(max_commits, schedule.time.dtype)
    is_to_be_made = jnp.arange(max_commits, dtype=jnp.int32) < num_commits
    return Info(
        loss=no_losses,
        residual=no_residuals,
        staleness=jnp.where(is_to_be_made, schedule.staleness.max(axis=1), -1),
        num_commits=num_commits,
        versions_alive=past_versions,
    )


def _initial_state(program: Program, schedule: Schedule, params: Any, rng_key: jax.Array) -> State:
    """The state before the first commit: version 0 in the ring, and all other states as they begin."""
    protocol, ring_size = program.protocol, program.options.ring_size
    ring = rings.new_ring(params, ring_size) if ring_size else None
    local = None
    if protocol.local is not None:
        local = initial_local_states(protocol.local, program.optimizer, params, schedule.start.shape[1])
        local = local._replace(servers=initial_servers(protocol.local, params))
    opt_state = initial_opt_state(server_optimizer(program.protocol, program.optimizer), params)
    state = State(jnp.zeros((), jnp.int32), params=params, ring=ring, opt_state=opt_state, local=local)
    state = _with_compression_states(program, schedule, state, rng_key)
    if protocol.loss_feedback is None:
        return state
    controls = protocol.loss_feedback.initial(protocol.loss_feedback.num_windows)
    return state._replace(window=jnp.zeros((), jnp.int32), controls=controls)


def _with_compression_states(program: Program, schedule: Schedule, state: State, rng_key: jax.Array) -> State:
    """The state before the first commit with those of a compression, if there is one, of all senders."""
    compression, code = program.compression, program.protocol.code
    if compression is None:
        return state
    shapes, (_, batch_key) = message_shapes(state.params, code), _init_and_batch_keys(rng_key)
    if state.local is not None:
        num_owners = state.local.version.shape[0]
        states = initial_states(compression, batch_key, shapes, num_owners)
        return state._replace(local=state.local._replace(compression=states))
    num_states = num_senders(schedule.start.shape[1], code)
    return state._replace(compression=initial_states(compression, batch_key, shapes, num_states))


def _empty_trajectory(program: Program, schedule: Schedule, data: Any, params: Any) -> Trajectory:
    """A trajectory with room for all V evaluations of a run, none of which has been made: commit -1, the rest inf."""
    options = program.options
    max_commits = options.num_commits or schedule.time.shape[0]
    num_later_evals = -(-max_commits // options.eval_every)  # rounded up: the last commit is evaluated too
    num_evals_with_initial = 1 + num_later_evals
    metric_shapes = jax.eval_shape(partial(_metrics, program), params, data)
    return Trajectory(
        commit=jnp.full(num_evals_with_initial, -1, jnp.int32),
        time=jnp.full(num_evals_with_initial, jnp.inf, schedule.time.dtype),
        metrics={name: jnp.full(num_evals_with_initial, jnp.inf, shape.dtype) for name, shape in metric_shapes.items()},
    )


def advance(
    program: Program,
    schedule: Schedule,
    data: Any,
    rng_key: jax.Array,
    run: Run,
    num_evals: jax.Array,
    durations_and_network: DurationsAndNetwork | None = None,
) -> Run:
    """The run once `num_evals` evaluations have been made in all, the first one not counted, or once it has ended.

    Args:
      program: what is compiled.
      schedule: what happens when; if there are durations, only its shapes matter.
      data: of the task.
      rng_key: of the run.
      run: so far.
      num_evals: int32[].
      durations_and_network: what a protocol that looks at the loss makes schedules from; None for others.
    """
    options, (_, batch_key) = program.options, _init_and_batch_keys(rng_key)
    if durations_and_network is not None:

        def make_commits_of_schedule(schedule: Schedule, end_commit: jax.Array, state: State, info: Info) -> Carry:
            """State and info once the commits of this schedule up to `end_commit` (not included) are made."""
            return make_commits(commit_maker(program, data, batch_key, schedule), end_commit, state, info)

        run = advance_by_windows(
            program, make_commits_of_schedule, partial(evaluate, program, data), run, num_evals, durations_and_network
        )
        return _constrain_layout(program, schedule, run)
    maker = commit_maker(program, data, batch_key, schedule)
    # Evaluation i comes after i * eval_every commits, the last one after all (rounded up); 0 is the initial one.
    evals_made = -(-run.state.commit // options.eval_every)
    last_eval = jnp.minimum(-(-run.info.num_commits // options.eval_every), num_evals)

    def advance_to_evaluation(i: jax.Array, run: Run) -> Run:
        """The run after the commits up to evaluation `evals_made + i + 1` (at most `last_eval`), and with it."""
        evaluation = evals_made + i + 1
        end_commit = jnp.minimum(evaluation * options.eval_every, run.info.num_commits)
        state, info = make_commits(maker, end_commit, run.state, run.info)
        no_evaluation = -1  # under vmap other runs may have more evaluations to go
        evaluation = jnp.where(evaluation <= last_eval, evaluation, no_evaluation)
        return evaluate(program, data, schedule, evaluation, run._replace(state=state, info=info))

    run = jax.lax.fori_loop(0, max_over_runs(last_eval - evals_made), advance_to_evaluation, run)
    return _constrain_layout(program, schedule, run)


def evaluate(program: Program, data: Any, schedule: Schedule, evaluation: jax.Array, run: Run) -> Run:
    """The run with the metrics of its parameters as entry `evaluation` (int32[]) of the trajectory; as it is if < 0."""
    state, trajectory = run.state, run.trajectory
    ring_overflowed = run.info.versions_alive > program.options.ring_size
    metrics = {
        name: jnp.where(ring_overflowed, jnp.nan, value)
        for name, value in _metrics(program, state.params, data).items()
    }
    # `state.commit` commits have been made, so that the latest is number `state.commit - 1`; 0 s before the first.
    time_of_latest_commit = jnp.where(state.commit > 0, schedule.time[(state.commit - 1).clip(0)], 0)
    out_of_bounds = trajectory.time.size  # an index that is dropped
    index = jnp.where(evaluation < 0, out_of_bounds, evaluation)
    trajectory = Trajectory(
        commit=trajectory.commit.at[index].set(state.commit, mode="drop"),
        time=trajectory.time.at[index].set(time_of_latest_commit, mode="drop"),
        metrics={name: trajectory.metrics[name].at[index].set(value, mode="drop") for name, value in metrics.items()},
    )
    return run._replace(trajectory=trajectory)


def _metrics(program: Program, params: Any, data: Any) -> dict[str, jax.Array]:
    """The metrics of the task, name -> float[]; whole numbers and booleans become floats.

    Raises:
      ValueError: if they are no dictionary of single numbers.
    """
    metrics = program.task.metrics(params, data)
    if not isinstance(metrics, Mapping):
        raise ValueError(f"the metrics of a task must be a dict, name -> float[]; got {type(metrics).__name__}.")
    arrays = {name: jnp.asarray(value) for name, value in metrics.items()}
    for name, value in arrays.items():
        if value.shape != () or jnp.iscomplexobj(value):
            raise ValueError(
                f"a metric must be one number, float[]; {name!r} is {value.dtype}{list(value.shape)}. Take its mean."
            )
    default_type = jnp.result_type(float)
    return {
        name: value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(default_type)
        for name, value in arrays.items()
    }


def _constrain_layout(program: Program, schedule: Schedule, run: Run) -> Run:
    """The run with every array on the devices where the layout wants it."""
    layout, slices = program.options.layout, slices_layout(program, schedule)
    # Past versions and the optimizer's state stay in slices, if they are committed so; parameters do not.
    state = in_layout_of_commits(with_layout(program, slices or layout), run.state)
    state = state._replace(
        params=layout.constrain_params(state.params), local=_local_in_layout(layout, state.local),
        compression=layout.replicate(state.compression),
    )  # fmt: skip
    return Run(state, layout.replicate(run.info), layout.replicate(run.trajectory))


def _local_in_layout(layout: Layout, local: LocalState | None) -> LocalState | None:
    """The states of owners of parameters on the devices of these; the mean over a table has no axis of owners."""
    if local is None:
        return None
    local_on_devices: LocalState = layout.cut_by_worker(local._replace(table_mean=None))
    if local.table_mean is None:
        return local_on_devices
    return local_on_devices._replace(table_mean=layout.constrain_params(local.table_mean))


def _init_and_batch_keys(rng_key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The key of the initial parameters and that of the batches, from the key of a run."""
    init_key, batch_key = jax.random.split(rng_key)
    return init_key, batch_key
