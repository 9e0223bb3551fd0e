"""A whole training run under a protocol, as one XLA program.

The schedule comes first: timing never depends on gradient values. Then the commits are made in order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from gcjax import _validate
from gcjax.engine import resume
from gcjax.engine.base import Run
from gcjax.engine.checkpoint import Checkpoints
from gcjax.engine.commit_loop import Options, Program, Source, advance, begin, versions_alive
from gcjax.engine.layout import ParamSpecs, layout
from gcjax.engine.validation import check_made, check_residual, check_versions
from gcjax.protocols.base import Adaptive, Protocol, Schedule, check_schedule, checked_network
from gcjax.protocols.validation.structure import check_structure
from gcjax.stragglers.network import Links, Network
from gcjax.tasks.base import Task


class Pieces(NamedTuple):
    """What happens between the pieces of a run; see `run`."""

    checkpoints: Checkpoints | None
    identity: str
    progress: Callable[[int, int], None] | None

    @property
    def report(self) -> Callable[[Run], None] | None:
        """Says how far a run is."""
        progress = self.progress
        return progress and (lambda so_far: progress(int(so_far.state.commit), int(so_far.info.num_commits)))


def run(
    task: Task,
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    durations: jax.Array,
    *,
    rng_key: jax.Array,
    params: Any = None,
    network: Network | Links | None = None,
    num_commits: int | None = None,
    eval_every: int | None = None,
    ring_size: int | None = None,
    front_width: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    mesh: Mesh | None = None,
    axis: str = "workers",
    param_specs: ParamSpecs | None = None,
    start: Run | None = None,
    num_evals: int | jax.Array | None = None,
    checkpoints: Checkpoints | None = None,
    identity: str = "",
) -> Run:
    """Trains under a protocol, on given durations.

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
      num_commits: stop after so many commits; all that the durations allow if None.
      eval_every: commits between two evaluations; a hundredth of the possible commits if None.
      ring_size: past versions kept. If None, one for each worker and contribution, or none if the protocol allows no
        staleness; more if the schedule needs more and is known, as it is not under `jit` and `vmap`.
      front_width: the most commits computed at once; by default 1, which is fastest on a small CPU, or one a device
        along the mesh axis.
      progress: called between the pieces of the run with (commits made, commits in all), up to a hundred times, at
        evaluations. Not under `jit`.
      mesh: the devices to run on. The contributions to a commit are computed in parallel along one axis (where a
        commit has only one: the commits of a front), the messages of coded workers where the workers are; results
        are those of one device up to rounding. With several processes, all call this with the same arguments.
      axis: the axis of the mesh along which the workers lie; several share a device where there are more of them.
      param_specs: pure function `params -> jax.sharding.PartitionSpec` of each array, over the other axes of the mesh.
        By default each array is sharded over the first of them, along the largest dimension that it divides.
      start: a run with the same arguments to go on with, bit by bit as if it had not been interrupted. Its arrays are
        donated: they cannot be used afterwards.
      num_evals: where to stop, in evaluations since the beginning, the first one not counted; at the end if None.
      checkpoints: where to save the run on its way, and to go on from if it was killed; the resumed run ends with the
        same bits. Not under `jit`.
      identity: what the bits depend on besides the arguments that are arrays or numbers, for example the text of a
        config with the optimizer's settings: checkpoints with another one are refused, and the difference is shown.

    Returns:
      Parameters, trajectory, info and schedule.

    Raises:
      ValueError: for bad input, or if the durations are too few for `num_commits` or for any commit at all, or nobody
        does any work for any commit, or the ring is too small, or the checkpoints are of another run.
    """
    _validate.optimizer("optimizer", optimizer)
    _check_arguments(task, protocol, num_commits, eval_every, ring_size, front_width, num_evals)
    where = layout(mesh, axis, param_specs)
    durations = _validate.durations(durations)
    _validate.rng_key(rng_key)
    network = _network(network, task, params, durations.shape[1])
    traced = any(
        _validate.is_traced(x) for x in jax.tree.leaves((durations, rng_key, params, network, task.data, start))
    )
    schedule = _schedule_of(protocol, durations, network, traced) if start is None else start.schedule
    traced = traced or _validate.is_traced(schedule.time)  # inside a jit, or by a parameter of the protocol
    if start is None:
        check_schedule(schedule, protocol, durations)
    if not traced:
        check_versions(protocol.one_version, schedule)
    possible = schedule.time.shape[0]
    if start is not None:
        ring_size = _ring_size_of(start, ring_size)
    elif ring_size is None:
        ring_size = _default_ring_size(protocol, schedule)
        # A size from the data alone would compile anew for other durations.
        if not traced and protocol.adaptive is None:
            ring_size = max(ring_size, required_ring_size(schedule))
    if front_width is None:  # contributions to one commit are spread by themselves
        front_width = where.spread().size if schedule.worker.shape[1] == 1 else 1
    every = min(eval_every or max(1, possible // 100), possible)
    program = Program(
        task._replace(data=None), protocol, optimizer,
        Options(num_commits, every, ring_size, front_width, where),
    )  # fmt: skip
    if start is not None:
        _check_start(start, 1 + -(-(num_commits or possible) // every), where.mesh)
    last = possible if num_evals is None else num_evals
    source = None if protocol.adaptive is None else (durations, network)
    if not traced:
        pieces = Pieces(checkpoints, identity, progress)
        return _run_now(program, schedule, task.data, rng_key, params, start, last, pieces, source)
    for name, value in {"checkpoints": checkpoints, "progress": progress}.items():
        if value is not None:
            raise ValueError(f"{name} come between the pieces of a run, so they cannot be used under jit or vmap.")
    so_far = begin(program, schedule, task.data, rng_key, params) if start is None else start.unscheduled
    if not _is_zero(last):
        so_far = advance(program, schedule, task.data, rng_key, so_far, jnp.asarray(last, jnp.int32), source)
    return _scheduled(so_far, protocol, schedule, source)


def _run_now(
    program: Program,
    schedule: Schedule,
    data: Any,
    rng_key: jax.Array,
    params: Any,
    start: Run | None,
    last: int | jax.Array,
    pieces: Pieces,
    source: Source | None,
) -> Run:
    """A run that is not inside of a `jit`: compiled, checked, and with checkpoints if there is a place for them."""
    options = program.options
    put = options.layout.put
    given = {"data": data, "schedule": schedule, "rng_key": rng_key, "params": params}
    schedule, data, rng_key, params, source = put((schedule, data, rng_key, params, source))
    so_far = _begin(program, schedule, data, rng_key, params) if start is None else start.unscheduled

    def go_on(so_far: Run, num_evals: int | jax.Array) -> Run:
        return _advance(program, schedule, data, rng_key, so_far, put(jnp.asarray(num_evals, jnp.int32)), source)

    if pieces.checkpoints is None and pieces.progress is None:
        so_far = so_far if _is_zero(last) else go_on(so_far, last)
    else:
        number = schedule.time.shape[0] if source is not None else int(so_far.info.num_commits)
        last = min(int(last), -(-number // options.eval_every))
        counts = {"num_commits": options.num_commits, "eval_every": options.eval_every}
        name = "" if pieces.checkpoints is None else resume.identity(pieces.identity, **counts, **given)
        so_far = resume.in_pieces(
            go_on, so_far, last, checkpoints=pieces.checkpoints, identity=name, report=pieces.report
        )
    result = _scheduled(so_far, program.protocol, schedule, source)
    if not _validate.is_traced(result.info.num_commits):  # an optimizer's parameter may be traced
        if source is not None:
            check_structure(result.schedule, program.protocol)
        check_residual(result, program.protocol)
        check_made(result, num_commits=options.num_commits)
    return result


def _network(network: Network | Links | None, task: Task, params: Any, num_workers: int) -> Network:
    """The network for the parameters and the workers of a run."""
    if isinstance(network, Links):
        network = network.of(jax.eval_shape(task.init, jax.random.key(0)) if params is None else params)
    return checked_network(network, num_workers)


@partial(jax.jit, static_argnums=0)
def _chosen(adaptive: Adaptive, durations: jax.Array, network: Network, controls: Any) -> Schedule:
    return adaptive.schedule(durations, network, controls)


def _scheduled(run: Run, protocol: Protocol, schedule: Schedule, source: Source | None) -> Run:
    """A run with the schedule that it has followed."""
    if protocol.adaptive is not None and source is not None:
        schedule = _chosen(protocol.adaptive, *source, run.state.controls)
    return run._replace(schedule=schedule)


def _check_start(start: Run, num_slots: int, mesh: Mesh | None) -> None:
    """A run can only be gone on with under the arguments that it was begun with."""
    if start.trajectory.time.shape[-1] != num_slots:
        raise ValueError(
            f"start must be a run with the same num_commits and eval_every; it has room for "
            f"{start.trajectory.time.shape[-1]} evaluations, this one for {num_slots}."
        )
    commit = start.state.commit
    if mesh is not None and not _validate.is_traced(commit) and commit.sharding.device_set != set(mesh.devices.flat):
        raise ValueError(
            f"start must be a run on the same devices; it lies on {len(commit.sharding.device_set)} others, the mesh "
            f"has {mesh.size}. To go on elsewhere, save it with checkpoints and resume from them."
        )


def _ring_size_of(start: Run, ring_size: int | None) -> int:
    """The past versions that a run has room for; its schedule's places in the ring go by that."""
    kept = 0 if start.state.ring is None else jax.tree.leaves(start.state.ring)[0].shape[0] - 1
    if ring_size is not None and ring_size != kept:
        raise ValueError(f"start must be a run with the same ring_size; it has {kept}, asked for is {ring_size}.")
    return kept


def _is_zero(value: int | jax.Array) -> bool:
    return isinstance(value, int) and value == 0


def required_ring_size(schedule: Schedule) -> int:
    """The past versions that must be kept for a schedule, or for the worst of a batch of them."""
    return int(np.max(jax.device_get(versions_alive(schedule))))


@partial(jax.jit, static_argnums=0)
def _schedule(protocol: Protocol, durations: jax.Array, network: Network) -> Schedule:
    return protocol.schedule(durations, network)


def _schedule_of(protocol: Protocol, durations: jax.Array, network: Network, traced: bool) -> Schedule:
    if traced:
        return protocol.schedule(durations, network)
    return _schedule(protocol, durations, network)


def _default_ring_size(protocol: Protocol, schedule: Schedule) -> int:
    num_workers, (possible, contributions) = schedule.start.shape[1], schedule.worker.shape
    if protocol.max_staleness is not None and protocol.max_staleness(num_workers) == 0:
        return 0
    if protocol.adaptive is not None:  # a version is kept for as long as it can be read
        return min(4 * num_workers, possible)
    return min(num_workers + contributions, possible)


def _check_arguments(
    task: Task,
    protocol: Protocol,
    num_commits: int | None,
    eval_every: int | None,
    ring_size: int | None,
    front_width: int | None,
    num_evals: int | jax.Array | None,
) -> None:
    if not isinstance(protocol, Protocol):
        raise ValueError(f"run needs a Protocol, for example gcjax.protocols.bsp(); got {protocol!r}.")
    counts = {"num_commits": num_commits, "eval_every": eval_every, "ring_size": ring_size, "front_width": front_width}
    for name, value in counts.items():
        if value is not None:
            _validate.integer(name, value, minimum=1)
    if isinstance(num_evals, int):
        _validate.integer("num_evals", num_evals)
    if protocol.code is not None and protocol.code.assignment.num_chunks != task.num_chunks:
        raise ValueError(
            f"the code and the task must cut the data into the same chunks; the code has "
            f"{protocol.code.assignment.num_chunks}, the task {task.num_chunks}. Make the task with "
            f"num_chunks={protocol.code.assignment.num_chunks}."
        )


_begin = jax.jit(begin, static_argnums=0)
_advance = jax.jit(advance, static_argnums=0, donate_argnums=4)
