"""Whether a run is to be trusted: what cannot be said while it is computed is said afterwards."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.codes.diagnostics.rounding import InexactWarning, max_exact_residual
from gcjax.compression.base import Compression, validated
from gcjax.engine.base import Run
from gcjax.engine.local_state import owner_of_workers
from gcjax.engine.start import Start
from gcjax.engine.version_ring import size_of_ring
from gcjax.protocols.base import Protocol, Schedule, code_of_messages
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.conformance.runnable import check_work
from gcjax.protocols.conformance.structure import check_structure
from gcjax.tasks.base import Task


def check(run: Run, protocol: Protocol | None = None, *, num_commits: int | None = None) -> None:
    """Raises an error if a run made under `jit` or `vmap` is not to be trusted.

    Args:
      run: one run, or a batch of them.
      protocol: of the run. Without it, three rules of its schedule are left out: that no unit is in two commits, that
        the weights add up to a mean, and that there is work in every contribution; and nothing is said about residuals.
      num_commits: the commits asked for.

    Warns:
      InexactWarning: if the protocol waits for exact decodes, and the residual of a commit says that it was none.

    Raises:
      ValueError: if the schedule breaks a rule that all keep to, or the ring was too small, or the units were used up
        before the first commit, or nobody has done any work for any commit, or the run has come to its end with fewer
        than `num_commits` commits.
    """
    check_structure(run.schedule, protocol)
    if protocol is not None:
        check_versions(protocol.one_version, run.schedule)
        check_residual(run, protocol)
    check_commits(run, num_commits=num_commits)


def check_record(schedule: Schedule) -> None:
    """Raises a `ValueError` unless this is the record of a run, with a commit at least."""
    if not isinstance(schedule, Schedule):
        raise ValueError(
            f"replay needs the record of a run, a gcjax.protocols.Schedule; got {type(schedule).__name__}."
        )
    if schedule.time.shape[0] == 0:
        raise ValueError("replay needs a record with commits; this run ended before its first one.")


def check_commits(run: Run, *, num_commits: int | None) -> None:
    """Raises a `ValueError` if the ring was too small, or nobody did any work, or there are too few commits.

    Args:
      run: one run, or a batch of them.
      num_commits: the commits asked for.
    """
    # int32[], or [S] of a batch of S runs; and the most of any of them.
    commits_made, needed_versions = np.asarray(run.info.num_commits), int(np.asarray(run.info.versions_alive).max())
    ring_size = size_of_ring(run.state.ring, slot_axis=commits_made.ndim)
    if needed_versions > ring_size:
        raise ValueError(
            f"the ring keeps {ring_size} past versions of the parameters, but this schedule still needs "
            f"{needed_versions} at once. Pass ring_size={needed_versions} or more."
        )
    check_work(run.schedule)
    if num_commits is None:
        return
    if run.state.window is not None:  # a protocol that looks at the loss may still choose to commit more often
        may_commit_later = np.asarray(run.state.commit) < commits_made
        commits_made = np.where(may_commit_later, num_commits, commits_made)
    if commits_made.min() < num_commits:
        _raise_too_few_commits(run.schedule, commits_made, num_commits)


def _raise_too_few_commits(schedule: Schedule, commits_made: np.ndarray, num_commits: int) -> None:
    """Raises the error about a run with fewer than `num_commits` commits: of a batch, the run with the fewest.

    It says why: a worker that never returns, or too few sampled units.

    Args:
      schedule: of all runs.
      commits_made: int32[], or [S] of a batch of S runs, the commits of each.
      num_commits: the commits asked for.
    """
    worst_run = np.unravel_index(np.argmin(commits_made), commits_made.shape)  # its index; () without a batch
    fewest_commits = int(commits_made.min())
    unit_start, compute_start, compute_end, horizon = (
        np.asarray(x)[worst_run]
        for x in (schedule.start, schedule.compute_start, schedule.compute_end, schedule.horizon)
    )
    num_units = unit_start.shape[0]
    lost_units = np.argwhere(np.isfinite(compute_start) & np.isinf(compute_end))  # [lost, 2]: unit, worker
    failed_worker = "a failed worker"
    if len(lost_units):
        unit, worker = lost_units[0]
        failed_worker = f"worker {worker}, which does not return from unit {unit}"
    if np.isinf(horizon):
        reason = (
            f"the run never finishes, since it waits for {failed_worker}. Use a protocol that does not wait for failed "
            "workers."
        )
    else:
        needed_units = -(-num_units * num_commits // max(fewest_commits, 1))  # in proportion, rounded up
        reason = f"a worker runs out of sampled units. Sample {needed_units} units or more."
        reason += _validate.hint_if_transposed(unit_start.shape)  # a question if the axes of the durations look swapped
    raise ValueError(
        f"num_commits={num_commits} asked for, but the durations of {num_units} units a worker give only "
        f"{fewest_commits} commits: {reason}"
    )


def check_chunks(task: Task, code: GradientCode | None, num_workers: int) -> None:
    """Raises a `ValueError` if the chunks of a task are not those of a code, or not of its workers where they must be.

    Args:
      task: what is trained.
      code: of the workers' messages; None for uncoded work.
      num_workers: W, who draw units of the task if there is no code.
    """
    if code is None:
        if task.local_data and num_workers % task.num_chunks:
            raise ValueError(
                "where workers draw from chunks of their own (local_data=True), all chunks must have equally many of "
                f"them; got {num_workers} workers for {task.num_chunks} chunks. Make the task with "
                f"num_chunks={num_workers}."
            )
        return
    num_chunks = code.assignment.num_chunks
    if num_chunks != task.num_chunks:
        raise ValueError(
            f"the code and the task must cut the data into the same chunks; the code has {num_chunks}, the task "
            f"{task.num_chunks}. Make the task with num_chunks={num_chunks}."
        )


def check_versions(one_version: bool, schedule: Schedule) -> None:
    """Raises a `ValueError` if the contributions to a commit read different versions though `one_version` is set."""
    if one_version and not reads_one_version(schedule):
        raise ValueError(
            "contributions to one commit of this schedule read different versions, but the protocol says that "
            "they read the same. Make it with Protocol(schedule, one_version=False)."
        )


def reads_one_version(schedule: Schedule) -> bool:
    """Whether all contributions to a commit read the same version."""
    host: Any = jax.tree.map(np.asarray, schedule)  # before anything is computed, which NumPy does at once
    version, is_contribution = host.version, host.worker >= 0  # [..., E, C]
    newest_version = np.where(is_contribution, version, -1).max(axis=-1, keepdims=True)
    return not (is_contribution & (version != newest_version)).any()


def check_residual(run: Run, protocol: Protocol) -> None:
    """Warns if the protocol waits for exact decodes and the residual of a commit is above `max_exact_residual`."""
    code = code_of_messages(protocol)
    if code is None or not protocol.waits_for_exact_sum:
        return
    bound = max_exact_residual(code.assignment.num_chunks, code.num_blocks)
    residual = np.asarray(run.info.residual)
    is_inexact = ~(residual <= bound)  # NaN counts
    if is_inexact.any():
        warnings.warn(
            f"the protocol waits for exact decodes, but {is_inexact.sum()} of {is_inexact.size} commits have a "
            f"residual above {bound:.2g}, up to {residual.max():.2g}: in {residual.dtype} this code loses too much to "
            "rounding. "
            "Switch JAX to 64 bits (jax.config.update('jax_enable_x64', True)), or use a code that is better "
            "conditioned; gcjax.codes.diagnostics.conditioning tells.",
            InexactWarning,
            stacklevel=3,
        )


def check_compression(compression: Compression | None, protocol: Protocol, num_workers: int) -> None:
    """Raises a `ValueError` if messages of this protocol, of so many workers, cannot be compressed so."""
    if compression is not None:
        _check_sent_to_server(compression, protocol)
        _check_workers_of_compression(validated(compression), protocol, num_workers)


def _check_workers_of_compression(compression: Compression, protocol: Protocol, num_workers: int) -> None:
    """Raises a `ValueError` if each worker has a compression of its own, and these are not those of the senders.

    They are if there are as many, each worker sends messages of its own, and the code, if there is one, does without
    those who send nothing.
    """
    if compression.num_workers is None:
        return
    code, senders = protocol.code, num_workers if protocol.code is None else protocol.code.assignment.num_workers
    if compression.num_workers != num_workers or senders != num_workers:
        raise ValueError(
            f"a compression that differs by worker must be for those of the run, {num_workers}, and its messages those "
            f"of workers; got one for {compression.num_workers}, and a protocol with messages of {senders}."
        )
    if protocol.local is not None:
        owners = owner_of_workers(protocol.local, num_workers)
        if np.unique(owners).size < num_workers:
            raise ValueError(
                "workers of this protocol push what their group has changed together, which no worker's own "
                "compression can compress. Pass one compression for all."
            )
    # bool[W]: by the bytes of a message of one number.
    sends_nothing = np.asarray(compression.num_bytes(jax.ShapeDtypeStruct((1,), jnp.float32))) == 0
    if code is not None and sends_nothing.any() and code.num_alternatives == 1:
        with jax.ensure_compile_time_eval():
            # bool[W], from [W, M]: whether the code has messages of a worker that has done its whole load.
            has_message = np.asarray(code.sent(jnp.asarray(code.assignment.loads))).any(axis=1)
        sends_nothing &= has_message
    if sends_nothing.any():
        raise ValueError(
            f"a worker that sends nothing would count as a message of zeros; got worker {np.argmax(sends_nothing)} "
            "without any levels. Pass a code that does without it, as "
            "gcjax.codes.unbiased(..., message_noise=noise[bits]) does where its noise is inf."
        )


def _check_sent_to_server(compression: Compression, protocol: Protocol) -> None:
    """Raises a `ValueError` if messages are to be compressed that workers send to each other, or make by a code."""
    if protocol.local is None:
        return
    if protocol.local.message_code is not None:
        raise ValueError(
            "only gradients, what local steps have changed, and the messages of a protocol's code can be compressed; "
            "workers of this protocol send a code's messages of gradients that they keep. Got "
            f"{compression}; leave it out."
        )
    if protocol.local.mixing is not None:
        raise ValueError(
            "only messages to a server can be compressed; workers of this protocol send their parameters to each "
            f"other, and an average of estimates is no average of them. Got {compression}; leave it out."
        )


def check_from_beginning(compression: Compression, memberships: Sequence[Membership], start: Start | None) -> None:
    """Raises a `ValueError` if a replay with compression begins with a start, or a process begins anew.

    Nobody has recorded the states of the workers' compression at that moment.
    """
    if start is not None or any(membership.anew for membership in memberships):
        raise ValueError(
            "a replay with compression must begin at the beginning, with workers that do not begin anew, since nobody "
            f"has recorded the states of their compression; got start={start is not None} for {compression}."
        )
