"""A whole training run under a protocol, as one XLA program.

The schedule comes first: timing never depends on gradient values. Then the commits are made in order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from gcjax import _validate
from gcjax.compression.base import Compression, validated
from gcjax.engine.attacked_rounds import check_wrong_senders
from gcjax.engine.base import Run
from gcjax.engine.checkpoint import Checkpoints
from gcjax.engine.compressed_messages import network_of_run
from gcjax.engine.fragments import compression_of_fragments
from gcjax.engine.layout import MeshOptions, layout
from gcjax.engine.new_processes import first_units_of_processes, with_new_processes
from gcjax.engine.pieces import advance_in_pieces
from gcjax.engine.program import (
    Options,
    Program,
    eval_every_or_default,
    ring_size_or_default,
    wavefront_width_or_default,
)
from gcjax.engine.program_digest import identity_of_run
from gcjax.engine.resume import Resume, check_same_run, check_same_schedule, resume_options, same_ring_size
from gcjax.engine.start import Start, run_at_start
from gcjax.engine.state_memory import check_state_fits, check_state_fits_at_begin
from gcjax.engine.training_loop import DurationsAndNetwork, advance, begin
from gcjax.engine.validation import (
    check_chunks,
    check_commits,
    check_compression,
    check_from_beginning,
    check_record,
    check_residual,
    check_versions,
    reads_one_version,
)
from gcjax.engine.wrong_messages import WrongSenders
from gcjax.protocols.base import (
    Protocol,
    Schedule,
    checked_absences,
    code_of_messages,
    simulation_inputs,
    with_absences,
)
from gcjax.protocols.compiled_schedules import compiled_schedule, shapes_of_schedule
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.conformance.runnable import check_commits_happen, check_schedule
from gcjax.protocols.conformance.structure import check_shapes, check_structure
from gcjax.stragglers.absences import Absences
from gcjax.stragglers.network import Links, Network
from gcjax.tasks.base import Task

Progress = Callable[[int, int], None]


class Arrays(NamedTuple):
    """The arrays that a run is computed from; the last one is None unless the protocol looks at the loss."""

    schedule: Schedule
    data: Any
    rng_key: jax.Array
    params: Any
    durations_and_network: DurationsAndNetwork | None


def run(
    task: Task,
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    durations: jax.Array,
    *,
    rng_key: jax.Array,
    params: Any = None,
    network: Network | Links | None = None,
    absences: Absences | None = None,
    compression: Compression | None = None,
    wrong_senders: WrongSenders | None = None,
    num_commits: int | None = None,
    eval_every: int | None = None,
    ring_size: int | None = None,
    wavefront_width: int | None = None,
    progress: Progress | None = None,
    mesh: Mesh | MeshOptions | None = None,
    resume: Run | Checkpoints | Resume | None = None,
) -> Run:
    """Trains under a protocol, on given durations.

    It ends after `num_commits`, or when the first worker has used its T units, or when it comes to a halt, since a
    worker that is waited for never ends a unit: `schedule.horizon` is then inf.

    Works under `jit` and `vmap`. There nothing can be raised: call `gcjax.engine.check` on the result. Outside, a
    second call with the same protocol, optimizer and task functions compiles nothing; make them once, since new ones
    count as other ones.

    Args:
      task: what is trained.
      protocol: who waits for whom.
      optimizer: optax optimizer on the server; its gradient is the weighted mean of the contributions.
      durations: float[T, W] seconds that each unit of work takes on each worker; inf is a failed worker.
      rng_key: decides the initial parameters and all batches; the same key gives the same bits.
      params: the initial parameters; made by the task if None.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous by default.
      absences: when workers are away; never if None.
      compression: of the messages that workers send, which then take as long as their compressed size says; the
        parameters that they receive stay whole. What is in no commit counts as not sent. None for none.
      wrong_senders: workers that send wrong messages in the rounds of a code (`wrong_messages.wrong_senders`); none if
        None. The codes `majority` and `error_correcting` find them. Losses and residuals are those of right messages.
      num_commits: stop after so many commits; all that the durations allow if None.
      eval_every: commits between two evaluations; a hundredth of the possible commits if None.
      ring_size: past versions kept. If None, W + C, or one more than the greatest staleness that the protocol allows if
        that is fewer, none if it allows none; more if the schedule needs more and is known, as it is not under `jit`
        and `vmap`; 4 W for a protocol that looks at the loss and reads past versions.
      wavefront_width: the most commits computed at once; by default 1, which is fastest on a small CPU, or one a device
        along the mesh axis.
      progress: called between the pieces of the run with (commits made, commits in all), up to a hundred times, at
        evaluations. Not under `jit`.
      mesh: the devices to run on, or `MeshOptions` where more than them is to be said. The contributions to a commit
        are computed in parallel along the axis of the workers (where a commit has only one: the commits of a
        wavefront), the messages of coded workers where the workers are; results are those of one device up to
        rounding. With several processes, all call this with the same arguments.
      resume: a run to go on with, or checkpoints to save it to and to go on from, or `Resume` to say more, for example
        where to stop.

    Returns:
      Parameters, trajectory, info and schedule.

    Raises:
      ValueError: for bad input, or if the durations are too few for `num_commits` or for any commit at all (a run that
        comes to a halt before, as something fails, may have none), or nobody does any work for any commit, or the ring
        is too small, or what it is to go on from is another run, or its state does not fit into memory.

    Example:
      >>> task = gcjax.tasks.linear_regression(num_chunks=4)
      >>> durations = jnp.ones((20, 4))  # [T, W] seconds
      >>> run = gcjax.engine.run(task, gcjax.protocols.bsp(), optax.sgd(0.1), durations, rng_key=jax.random.key(0))
      >>> int(run.info.num_commits), float(run.trajectory.time[-1])
      (20, 20.0)
      >>> bool(run.final("suboptimality") < run.trajectory.metrics["suboptimality"][0])
      True
    """
    resume, device_layout = resume_options(resume), layout(mesh)
    counts = {"num_commits": num_commits, "eval_every": eval_every, "ring_size": ring_size}
    _check_arguments(task, protocol, optimizer, **counts, wavefront_width=wavefront_width)
    durations = _validate.durations(durations)
    check_chunks(task, code_of_messages(protocol), durations.shape[1])
    _validate.rng_key(rng_key)
    check_compression(compression, protocol, durations.shape[1])
    check_wrong_senders(wrong_senders, protocol, compression)
    network = network_of_run(network, task, params, durations.shape[1], compression, protocol)
    compression = compression_of_fragments(compression, protocol)
    absences = checked_absences(absences, durations)
    protocol = with_absences(protocol, absences)
    inputs = durations, rng_key, params, network, absences, task.data, resume.run
    is_traced = any(_validate.is_traced(x) for x in jax.tree.leaves(inputs))
    inputs_of_simulation = simulation_inputs(durations, network, absences)
    schedule, is_traced = _schedule_and_is_traced(protocol, inputs_of_simulation, resume.run, is_traced)
    if resume.run is None:
        ring_size = ring_size_or_default(ring_size, protocol, schedule, is_traced)
    else:
        ring_size = same_ring_size(resume.run, ring_size)
    options = Options(
        num_commits=num_commits, eval_every=eval_every_or_default(eval_every, schedule), ring_size=ring_size,
        wavefront_width=wavefront_width_or_default(wavefront_width, schedule, device_layout), layout=device_layout,
    )  # fmt: skip
    program = Program(task._replace(data=None), protocol, optimizer, options, compression, wrong_senders)
    arrays = Arrays(
        schedule=schedule, data=task.data, rng_key=rng_key, params=params,
        durations_and_network=None if protocol.loss_feedback is None else (durations, network),
    )  # fmt: skip
    if resume.run is not None:
        new_run = _begin.eval_shape(program, schedule, task.data, rng_key, params)
        check_same_run(
            resume.run, new_run, num_commits or schedule.time.shape[0], options.eval_every, device_layout.mesh
        )
    return (_traced_run if is_traced else _concrete_run)(program, arrays, resume, progress)


def replay(
    task: Task,
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    schedule: Schedule,
    *,
    rng_key: jax.Array,
    memberships: Sequence[Membership] = (),
    params: Any = None,
    compression: Compression | None = None,
    wrong_senders: WrongSenders | None = None,
    num_commits: int | None = None,
    eval_every: int | None = None,
    wavefront_width: int | None = None,
    progress: Progress | None = None,
    mesh: Mesh | MeshOptions | None = None,
    start: Start | None = None,
) -> Run:
    """Trains by the record of another run, simulated or live, to the same parameters up to rounding.

    A gradient depends only on the version that it reads, the worker and the unit, and all three are in the record: so
    an asynchronous run on the real clock can be repeated, evaluated on the way, and looked into.

    Args:
      task: as in that run.
      protocol: as in that run. It is asked for no schedule and looks at no loss: the record has what it did.
      optimizer: as in that run.
      schedule: the record, for example `gcjax.parameter_server.LiveRun.schedule`.
      rng_key: as in that run.
      memberships: who came and went, for example `gcjax.parameter_server.LiveRun.memberships`: the own parameters of a
        worker, and its optimizer state, begin anew with another process.
      params: the initial parameters; made by the task if None.
      compression: as in that run. Its workers must not have begun anew, and the replay not in the midst.
      wrong_senders: as in that run.
      num_commits: stop after so many commits; all of the record if None.
      eval_every: commits between two evaluations; a hundredth of the commits if None.
      wavefront_width: as in `run`.
      progress: as in `run`.
      mesh: as in `run`.
      start: a state of that run to go on from, instead of its beginning; evaluations are then every `start.commit`
        commits.

    Returns:
      Parameters, trajectory, info and schedule.

    Raises:
      ValueError: for bad input, if the record has no commits or breaks a rule of records, or if the start lacks a
        version that is read, or workers keep something from before it.

    Example:
      >>> task = gcjax.tasks.linear_regression(num_chunks=4)
      >>> protocol, key = gcjax.protocols.ssp(staleness=1), jax.random.key(0)
      >>> run = gcjax.engine.run(task, protocol, optax.sgd(0.1), jnp.ones((20, 4)), rng_key=key)
      >>> again = gcjax.engine.replay(task, protocol, optax.sgd(0.1), run.schedule, rng_key=key)
      >>> bool((again.params == run.params).all())
      True
    """
    device_layout, protocol = layout(mesh), protocol.replace(loss_feedback=None)
    counts = {"num_commits": num_commits, "eval_every": eval_every, "wavefront_width": wavefront_width}
    _check_arguments(task, protocol, optimizer, **counts)
    eval_every = eval_every if start is None else _validate.integer("start.commit", start.commit, minimum=1)
    check_record(schedule)
    check_chunks(task, code_of_messages(protocol), schedule.start.shape[1])
    _validate.rng_key(rng_key)
    check_wrong_senders(wrong_senders, protocol, compression)
    if compression is not None:
        check_compression(compression, protocol, schedule.start.shape[1])
        check_from_beginning(validated(compression), memberships, start)
        compression = compression_of_fragments(compression, protocol)
    check_shapes(schedule, schedule.start.shape)
    check_structure(schedule, protocol)
    if protocol.code is None:  # a worker that comes back can have read a newer version than others in its commit
        protocol = protocol.replace(one_version=protocol.one_version and reads_one_version(schedule))
    schedule = jax.tree.map(jnp.asarray, schedule)
    options = Options(
        num_commits=num_commits, eval_every=eval_every_or_default(eval_every, schedule),
        ring_size=ring_size_or_default(None, protocol, schedule, is_traced=False),
        wavefront_width=wavefront_width_or_default(wavefront_width, schedule, device_layout), layout=device_layout,
    )  # fmt: skip
    program = Program(task._replace(data=None), protocol, optimizer, options, compression, wrong_senders)
    arrays = Arrays(schedule=schedule, data=task.data, rng_key=rng_key, params=params, durations_and_network=None)
    if start is not None:
        initial_run = _begin(program, arrays.schedule, arrays.data, arrays.rng_key, arrays.params)
        run = run_at_start(program, schedule, task.data, initial_run, start)
        return _concrete_run(program, arrays, Resume(run=run), progress)
    if protocol.local is None or not any(membership.anew for membership in memberships):
        return _concrete_run(program, arrays, Resume(), progress)
    run = _concrete_run(program, arrays, Resume(run=_begin_with_new_processes(program, arrays, memberships)), progress)
    return run._replace(state=run.state._replace(local=run.state.local._replace(new_processes=None)))


def _begin_with_new_processes(program: Program, arrays: Arrays, memberships: Sequence[Membership]) -> Run:
    """The run before its first commit, whose workers will begin anew as the memberships say."""
    arrays = program.options.layout.put_on_devices(arrays)
    run = _begin(program, arrays.schedule, arrays.data, arrays.rng_key, arrays.params)
    first_unit_of_processes = first_units_of_processes(arrays.schedule, memberships)
    local = with_new_processes(run.state.local, first_unit_of_processes)
    return run._replace(state=run.state._replace(local=local))


def _schedule_and_is_traced(
    protocol: Protocol, inputs_of_simulation: tuple[Any, ...], run: Run | None, is_traced: bool
) -> tuple[Schedule, bool]:
    """The schedule of the run to go on with, or else the protocol's, checked; and whether it is traced.

    `inputs_of_simulation` are the durations, the network and, if there are any, the absences.
    """
    durations, network, *absences = inputs_of_simulation
    simulation = protocol.simulation(network, *absences)
    if run is None:
        simulate = simulation if is_traced else partial(compiled_schedule, simulation)
        schedule = simulate(*inputs_of_simulation)
        check_schedule(schedule, protocol, durations)
        if protocol.rule is not None and not absences:  # else it may be cut off, or of workers who were away
            check_commits_happen(schedule, durations, network)
    else:
        schedule = run.schedule
        check_same_schedule(run, shapes_of_schedule(simulation, *inputs_of_simulation))
        check_structure(schedule, protocol)
    is_traced = is_traced or _validate.is_traced(schedule.time)  # inside a jit, or by a parameter of the protocol
    if not is_traced:
        check_versions(protocol.one_version, schedule)
    return schedule, is_traced


def _traced_run(program: Program, arrays: Arrays, resume: Resume, progress: Progress | None) -> Run:
    """A run inside of a `jit`, from `arrays`, as far as `resume` says; what can be checked only afterwards is not."""
    for name, value in {"checkpoints": resume.checkpoints, "progress": progress}.items():
        if value is not None:
            raise ValueError(f"{name} come between the pieces of a run, so they cannot be used under jit or vmap.")
    schedule, data, rng_key, params, durations_and_network = arrays
    run = begin(program, schedule, data, rng_key, params) if resume.run is None else resume.run.unscheduled
    check_state_fits(run)
    last_eval = _last_eval(resume, schedule)
    if _may_be_positive(last_eval):
        num_evals = jnp.asarray(last_eval, jnp.int32)
        run = advance(program, schedule, data, rng_key, run, num_evals, durations_and_network)
    return _with_schedule(run, program.protocol, schedule, durations_and_network)


def _concrete_run(program: Program, arrays: Arrays, resume: Resume, progress: Progress | None) -> Run:
    """A run outside of any `jit`: compiled, checked, and with checkpoints if there are to be any.

    `resume` says where it goes on from, stops and is saved; `progress` hears of (commits made, commits in all).
    """
    options, put_on_devices = program.options, program.options.layout.put_on_devices
    if resume.run is None:
        check_state_fits_at_begin(_begin, program, arrays.schedule, arrays.data, arrays.rng_key, arrays.params)
    schedule, data, rng_key, params, durations_and_network = put_on_devices(arrays)
    run = _begin(program, schedule, data, rng_key, params) if resume.run is None else resume.run.unscheduled
    last_eval, looks_at_loss = _last_eval(resume, schedule), durations_and_network is not None

    def advance_to(run: Run, num_evals: int | jax.Array) -> Run:
        """The run once `num_evals` evaluations have been made, by the compiled program."""
        num_evals = put_on_devices(jnp.asarray(num_evals, jnp.int32))
        return _advance(program, schedule, data, rng_key, run, num_evals, durations_and_network)

    if resume.checkpoints is not None or progress is not None:
        max_commits = schedule.time.shape[0] if looks_at_loss else int(run.info.num_commits)
        evals_until_end = -(-max_commits // options.eval_every)  # rounded up
        run = advance_in_pieces(
            advance_to, run, min(int(last_eval), evals_until_end),
            checkpoints=resume.checkpoints,
            identity=identity_of_run(_advance, program, arrays, run, resume) if resume.checkpoints else "",
            report=progress and (lambda run: progress(int(run.state.commit), int(run.info.num_commits))),
        )  # fmt: skip
    elif _may_be_positive(last_eval):
        run = advance_to(run, last_eval)
    run = _with_schedule(run, program.protocol, schedule, durations_and_network)
    if not _validate.is_traced(run.info.num_commits):  # an optimizer's parameter may be traced
        if looks_at_loss:
            check_structure(run.schedule, program.protocol)
        check_residual(run, program.protocol)
        check_commits(run, num_commits=options.num_commits)
    return run


def _last_eval(resume: Resume, schedule: Schedule) -> int | jax.Array:
    """Where to stop, in evaluations; at least as many as there are if it is not said."""
    return schedule.time.shape[0] if resume.num_evals is None else resume.num_evals


def _may_be_positive(num_evals: int | jax.Array) -> bool:
    """Whether there may be evaluations to go on to: not if their number is known to be 0."""
    return not isinstance(num_evals, int) or num_evals != 0


def _with_schedule(
    run: Run, protocol: Protocol, schedule: Schedule, durations_and_network: DurationsAndNetwork | None
) -> Run:
    """A run with the schedule that it has followed: if it looks at the loss, made anew with what it has chosen."""
    if protocol.loss_feedback is not None and durations_and_network is not None:
        schedule = compiled_schedule(protocol.loss_feedback.schedule, *durations_and_network, run.state.controls)
    return run._replace(schedule=schedule)


def _check_arguments(
    task: Task, protocol: Protocol, optimizer: optax.GradientTransformation, **counts: int | None
) -> None:
    """Checks task, protocol and optimizer, and numbers that are at least 1 if they are given."""
    _validate.instance("task", task, Task, "gcjax.tasks.digits(num_chunks=8)")
    _validate.instance("protocol", protocol, Protocol, "gcjax.protocols.bsp(), or coded(code) for a code")
    _validate.optimizer("optimizer", optimizer)
    for name, value in counts.items():
        if value is not None:
            _validate.integer(name, value, minimum=1)


_begin = jax.jit(begin, static_argnums=0)
_advance = jax.jit(advance, static_argnums=0, donate_argnums=4)
