"""Training by rounds with a deadline on the real clock: every process is a worker.

Round: everybody works through its chunks in order, keeps their gradients, and stops at the deadline. Then all share
what they have finished, form their messages by the same plan, decode the sum with one collective, and apply it.

Letters: W workers, K chunks a worker holds, N chunks, L blocks of the gradient, E rounds.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from gcjax import _validate, saved_progress
from gcjax.codes.base import GradientCode, check_code, norm_of_exact_sum
from gcjax.engine import pieces
from gcjax.engine.checkpoint import Checkpoints
from gcjax.engine.live import deadlines, saving
from gcjax.engine.live.chunk_work import ChunkGradients, Clock, compiled_chunk_gradient, zero_chunk_gradients
from gcjax.engine.live.deadlines import DeadlineRule
from gcjax.engine.live.exchange import Exchange, SharedProgress, global_rows, own_copy, round_exchange, worker_mesh
from gcjax.engine.live.round_records import CodedRun, Round, stack_rounds
from gcjax.engine.live.saving import Storage, TrainingState
from gcjax.engine.live.worker_round import RoundEnd, Worker, deadline_inputs, worker_round
from gcjax.engine.program_digest import digest_of_program
from gcjax.engine.validation import check_chunks
from gcjax.tasks.base import Task
from gcjax.throttle import Throttle, no_throttle


def train(
    task: Task,
    code: GradientCode,
    optimizer: optax.GradientTransformation,
    *,
    rng_key: jax.Array,
    num_rounds: int,
    deadline: DeadlineRule | None = None,
    max_residual: float | None = None,
    throttle: Throttle | None = None,
    on_round: Callable[[int, Round, Any], None] | None = None,
    checkpoints: Checkpoints | None = None,
    identity: str = "",
) -> CodedRun:
    """Trains with a gradient code, with partial work up to a deadline on the real clock.

    Call it in all processes, with the same arguments, after `jax.distributed.initialize`; each is a worker, and
    computes on its first device. In one process it is a code of one worker. Programs are compiled, and connections
    made, before the first round.

    A round in which too little was finished, by its residual, is extended, and never applied as it is. Every worker
    does at least one chunk in each round, so that one that was slow and is not any more is noticed. A round hence
    lasts at least as long as the slowest worker takes for a chunk, and a worker that is stopped holds up all of them
    until it goes on; then nobody waits for the rest of its load, as all would without a code.

    Initial parameters and batches are those of `gcjax.engine.run` for the same key. With the same progress in every
    round, so is the result.

    Args:
      task: what is trained.
      code: what is computed by whom; chunks are done in the order of the assignment.
      optimizer: optax optimizer, applied everywhere to the decoded sum divided by the N chunks.
      rng_key: decides the initial parameters and all batches; the same in all processes.
      num_rounds: E.
      deadline: when a round stops; `gcjax.engine.live.adaptive()` by default.
      max_residual: a round goes on until `residual` is not above it; up to 1e-3 counts as 0. By default 0 if the rule
        is exact, or else half of what it would be with nothing at all: sqrt(N·L)/2, with a partial code three quarters
        of the blocks of all chunks.
      throttle: what a chunk takes at least, the rest of which is slept: for demonstrations on machines on which no
        worker is slow. It stands for a device of that speed.
      on_round: called after every round with its number, what happened, and the parameters; not for the rounds of a
        checkpoint that the run goes on from.
      checkpoints: where the run is kept, on a disk that all processes see, and after how many rounds there is a
        checkpoint. If there is one already, the run goes on from it. What it ends with is what the same progress in
        every round would have given without a break: parameters, records, and deadlines, bit by bit. In `gcjax run`,
        SIGINT and SIGTERM let it save one more: when one process gets the signal, all save at the end of the round in
        which they are, and that one ends, and by that the others.
      identity: text that a person can compare, for example that of a config. A checkpoint made with another one is
        refused; so is one of another code, loss, optimizer, deadline, data or key. A deadline of your own is known by
        the name of its function only.

    Returns:
      Parameters, optimizer state, and what happened, also before a break.

    Raises:
      ValueError: for bad input; if there is not one process a worker; if even everybody's full work leaves a
        residual above what the rule or `max_residual` allows; if the checkpoints are of another run, or all are
        damaged; or if a process does not see their folder.
    """
    _validate.optimizer("optimizer", optimizer)
    _validate.rng_key(rng_key)
    for name, function in {"throttle": throttle, "on_round": on_round}.items():
        if function is not None and not callable(function):
            raise ValueError(f"{name} must be a function; got {function!r}.")
    _check_arguments(task, code, num_rounds, deadline, max_residual)
    rule = deadlines.adaptive() if deadline is None else deadline
    residual_bound = _residual_bound(code, rule, max_residual)
    exchange = round_exchange(code, optimizer, worker_mesh(code.assignment.num_workers))
    init_key, batch_key = jax.random.split(rng_key)
    chunk_gradient = compiled_chunk_gradient(task, code.num_blocks)
    worker = _worker_of_process(task, code, rule, residual_bound, throttle or no_throttle, batch_key, chunk_gradient)
    replicated = NamedSharding(exchange.mesh, PartitionSpec())
    params = jax.jit(task.init, out_shardings=replicated)(init_key)
    opt_state = jax.jit(optimizer.init, out_shardings=replicated)(params)
    state, storage = TrainingState(params, opt_state, []), None
    if checkpoints is not None:
        computation = _digest_of_computation(task, code, exchange, params, opt_state, batch_key, chunk_gradient)
        full_identity = saving.identity(
            identity, code=code, num_rounds=num_rounds, rule=rule, residual_bound=residual_bound,
            computation=computation, data=task.data, rng_key=rng_key,
        )  # fmt: skip
        saving.check_processes_agree(checkpoints, full_identity)
        progress = saved_progress.SavedProgress(checkpoints.label, num_rounds, checkpoints.on_disk)
        storage = Storage(
            checkpoints=checkpoints, identity=full_identity, code=code, num_rounds=num_rounds, mesh=exchange.mesh,
            progress=progress,
        )  # fmt: skip
    with contextlib.nullcontext() if storage is None else saving.grace(storage):
        if storage is not None:
            state = saving.restore(storage, state)
        if len(state.history) < num_rounds:
            chunk_gradients = _zero_chunk_gradients(task, code, params)
            state = _train_rounds(worker, exchange, num_rounds, state, chunk_gradients, on_round, storage)
    return CodedRun(own_copy(state.params), own_copy(state.opt_state), stack_rounds(state.history))


def _train_rounds(
    worker: Worker,
    exchange: Exchange,
    num_rounds: int,
    state: TrainingState,
    chunk_gradients: ChunkGradients,
    on_round: Callable[[int, Round, Any], None] | None,
    storage: Storage | None,
) -> TrainingState:
    """The training after the rounds that are left of `num_rounds`, or after the one in which a signal came.

    Args:
      worker: this process's.
      exchange: the collectives.
      num_rounds: of the whole training.
      state: the training so far.
      chunk_gradients: room for this worker's, of zeros; donated.
      on_round: called after each round with its number, its record, and the parameters; None for nothing.
      storage: where checkpoints go; None for none.
    """
    params, opt_state, history = state
    chunk_gradients = _warm_up(worker, exchange, params, opt_state, chunk_gradients)
    if storage is not None:
        pieces.stop_requested(params)  # compiles it
    seconds_between_rounds = 0.0
    for round_number in range(len(history), num_rounds):
        params, opt_state, chunk_gradients, record = _train_round(
            worker, exchange, round_number, history, params, opt_state, chunk_gradients
        )
        record = record._replace(seconds=seconds_between_rounds + record.seconds)
        history.append(record)
        if on_round is not None:
            on_round(round_number, record, own_copy(params))
        if storage is not None:
            asking_time = worker.clock.now()
            any_process_stops = pieces.stop_requested(params)  # waits for who is late, as the next round would
            seconds_between_rounds = worker.clock.now() - asking_time
            if saving.save(storage, TrainingState(params, opt_state, history), any_process_stops=any_process_stops):
                break
    return TrainingState(params, opt_state, history)


def _train_round(
    worker: Worker,
    exchange: Exchange,
    round_number: int,
    history: list[Round],
    params: Any,
    opt_state: Any,
    chunk_gradients: ChunkGradients,
) -> tuple[Any, Any, ChunkGradients, Round]:
    """One round, as this process's worker sees it: work, share, decode, update.

    Returns:
      The new parameters and optimizer state, the chunk gradients (which the next round overwrites), and the
      record of this round.
    """
    start_time = worker.clock.now()
    round_end = _work_and_share(worker, exchange, round_number, start_time, history, own_copy(params), chunk_gradients)
    # Of all workers the leaves are [W, ...], from this one's [1, ...].
    shared, gradients_of_all = round_end.shared, global_rows(exchange.mesh, round_end.gradients)
    new_params, new_opt_state, loss = jax.block_until_ready(
        exchange.update(params, opt_state, gradients_of_all, shared.progress)
    )
    record = Round(
        seconds=worker.clock.now() - start_time,
        deadline=round_end.deadline,
        extensions=round_end.extensions,
        progress=shared.progress,
        residual=float(shared.residual),
        loss=float(own_copy(loss)),
        chunk_seconds=shared.seconds.T,  # [K, W] from [W, K]
    )
    return new_params, new_opt_state, round_end.gradients, record


def _work_and_share(worker: Worker, exchange: Exchange, *round_arguments: Any) -> RoundEnd:
    """Runs the generator `worker_round`: gives it what all workers have finished each time it yields its own work.

    `round_arguments` are its arguments after the worker.
    """
    own_round = worker_round(worker, *round_arguments)
    own_seconds = next(own_round)
    while True:
        try:
            own_seconds = own_round.send(_share_progress(worker, exchange, own_seconds))
        except StopIteration as stop:  # carries what the generator returned
            round_end: RoundEnd = stop.value
            return round_end


def _share_progress(worker: Worker, exchange: Exchange, own_seconds: list[float]) -> SharedProgress:
    """What all workers have finished in this round, on the host.

    `own_seconds` are those of each chunk that this process's worker has finished.
    """
    own_row = np.full((1, worker.code.assignment.load), np.nan, np.float32)  # [1, K]; NaN: not finished
    own_row[0, : len(own_seconds)] = own_seconds
    seconds_of_all = global_rows(exchange.mesh, own_row)  # [W, K]
    shared: SharedProgress = jax.device_get(own_copy(exchange.share_progress(seconds_of_all)))
    return shared


def _worker_of_process(
    task: Task,
    code: GradientCode,
    rule: DeadlineRule,
    residual_bound: float,
    throttle: Throttle,
    batch_key: jax.Array,
    chunk_gradient: Callable[..., ChunkGradients],
) -> Worker:
    """The worker of this process: of the same number, `rank`, with the chunks of that row of the assignment [W, K].

    `chunk_gradient` is what `compiled_chunk_gradient` has made.
    """
    rank = jax.process_index()

    def with_chunk_gradient(
        chunk_gradients: ChunkGradients, params: Any, slot: int, round_number: int
    ) -> ChunkGradients:
        """The chunk gradients with that of the chunk in number `slot` of this worker's row, computed anew."""
        chunk = code.assignment.chunks[rank, slot]
        return chunk_gradient(
            chunk_gradients, params, task.data, batch_key, np.int32(slot), np.int32(chunk), np.int32(round_number)
        )

    completion = deadlines.compiled_completion(code)
    return Worker(rank, code, with_chunk_gradient, completion, rule, residual_bound, throttle, Clock())


def _zero_chunk_gradients(task: Task, code: GradientCode, params: Any) -> ChunkGradients:
    """Zeros for the chunk gradients of this process's worker, in the dtypes of the task's gradients and losses."""
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)  # of chunk 0 in round 0: only the loss's dtype matters
    loss = jax.eval_shape(lambda p: task.loss(p, task.chunk_batch(task.data, key, zero, zero), key), own_copy(params))
    return zero_chunk_gradients(own_copy(params), code.assignment.load, code.num_blocks, loss.dtype)


def _digest_of_computation(
    task: Task,
    code: GradientCode,
    exchange: Exchange,
    params: Any,
    opt_state: Any,
    batch_key: jax.Array,
    chunk_gradient: Any,
) -> str:
    """Digests of the programs of a round: of a chunk's gradient, and of the update with what all workers have done."""
    own_gradients = jax.eval_shape(lambda: _zero_chunk_gradients(task, code, params))
    num_workers, zero = code.assignment.num_workers, np.int32(0)
    gradients_of_all = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((num_workers, *x.shape[1:]), x.dtype), own_gradients
    )  # [W, ...] from [1, ...]
    update: Any = exchange.update
    programs = (
        chunk_gradient.trace(own_gradients, own_copy(params), task.data, batch_key, zero, zero, zero),
        update.trace(params, opt_state, gradients_of_all, np.zeros(num_workers, np.int32)),
    )
    return f"<{' '.join(digest_of_program(program.jaxpr) for program in programs)}>"


def _warm_up(
    worker: Worker, exchange: Exchange, params: Any, opt_state: Any, chunk_gradients: ChunkGradients
) -> ChunkGradients:
    """Compiles and runs everything once, so that the first round takes no longer; returns the chunk gradients.

    These were donated, and hold a gradient in slot 0 now. It counts nowhere: of a round only those slots count that are
    computed in it. All other results are dropped.
    """
    slot, round_number = 0, 0
    chunk_gradients = worker.with_chunk_gradient(chunk_gradients, own_copy(params), slot, round_number)
    no_progress = _share_progress(worker, exchange, own_seconds=[])  # `seconds` [W, K] are NaN, `progress` [W] is 0
    # The history of one round, whose times are float[K, W].
    deadlines.time_to_decode(deadline_inputs(worker, [no_progress.seconds.T]), no_progress.progress)
    gradients_of_all = global_rows(exchange.mesh, chunk_gradients)
    jax.block_until_ready(exchange.update(params, opt_state, gradients_of_all, no_progress.progress))
    return chunk_gradients


def _residual_bound(code: GradientCode, rule: DeadlineRule, max_residual: float | None) -> float:
    """The residual up to which a round may stop: `max_residual` or its default, but at least what counts as zero.

    Raises:
      ValueError: if even the full work of all workers leaves a larger residual, so that no round could end.
    """
    residual_without_messages = norm_of_exact_sum(code.assignment.num_chunks, code.num_blocks)
    default_bound = 0.0 if rule.exact else residual_without_messages / 2
    wanted_bound = default_bound if max_residual is None else float(max_residual)
    residual_bound = max(wanted_bound, deadlines.ZERO_RESIDUAL)
    full_work_residual = deadlines.full_residual(code)
    if full_work_residual > residual_bound:
        raise ValueError(
            f"a round must be able to end: everybody's full work must leave a residual of at most "
            f"{residual_bound:.3g}; this code leaves {full_work_residual:.3g}. Use a code that full work decodes "
            "(at most as many blocks as the smallest replication), or a deadline rule that is not exact, with a larger "
            "max_residual."
        )
    return residual_bound


def _check_arguments(
    task: Task, code: GradientCode, num_rounds: int, rule: DeadlineRule | None, max_residual: float | None
) -> None:
    """Raises a `ValueError` if an argument of `train` is of the wrong kind, or code and task do not fit."""
    _validate.integer("num_rounds", num_rounds, minimum=1)
    check_code(code, "train")
    if rule is not None and not isinstance(rule, DeadlineRule):
        raise ValueError(f"deadline must be a rule, for example gcjax.engine.live.adaptive(); got {rule!r}.")
    if max_residual is not None:
        _validate.single_number("max_residual", max_residual, finite=True)
    check_chunks(task, code, code.assignment.num_workers)
