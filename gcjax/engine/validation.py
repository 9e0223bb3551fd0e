"""Whether a run is to be trusted: what cannot be said while it is computed is said afterwards."""

import warnings

import jax
import numpy as np

from gcjax import _validate
from gcjax.codes.diagnostics.rounding import MOSTLY_EXACT, InexactWarning
from gcjax.engine.base import Run
from gcjax.protocols.base import Protocol, Schedule, check_work
from gcjax.protocols.validation.structure import check_structure


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


def check_commits(run: Run, *, num_commits: int | None = None) -> None:
    """As `check`, if the schedule itself has been checked."""
    committed, needed = np.asarray(run.info.num_commits), int(np.max(run.info.versions_alive))
    ring_size = 0 if run.state.ring is None else jax.tree.leaves(run.state.ring)[0].shape[committed.ndim] - 1
    if needed > ring_size:
        raise ValueError(
            f"the ring keeps {ring_size} past versions of the parameters, but this schedule still needs {needed} at "
            f"once. Pass ring_size={needed} or more."
        )
    check_work(run.schedule)
    if num_commits is None:
        return
    if run.state.window is not None:  # a protocol that looks at the loss may still choose to commit more often
        committed = np.where(np.asarray(run.state.commit) < committed, num_commits, committed)
    if committed.min() < num_commits:
        _raise_too_few_commits(run.schedule, committed, num_commits)


def _raise_too_few_commits(schedule: Schedule, committed: np.ndarray, num_commits: int) -> None:
    """Raises the error of the run, among these, with the fewest commits."""
    worst, fewest = np.unravel_index(np.argmin(committed), committed.shape), int(committed.min())
    start, compute_start, compute_end, horizon = (
        np.asarray(x)[worst] for x in (schedule.start, schedule.compute_start, schedule.compute_end, schedule.horizon)
    )
    sampled = start.shape[0]
    lost = np.argwhere(np.isfinite(compute_start) & np.isinf(compute_end))
    who = f"worker {lost[0, 1]}, which does not return from unit {lost[0, 0]}" if len(lost) else "a failed worker"
    if np.isinf(horizon):
        why = f"the run never finishes, since it waits for {who}. Use a protocol that does not wait for failed workers."
    else:
        units = -(-sampled * num_commits // max(fewest, 1))
        why = f"a worker runs out of sampled units. Sample {units} units or more."
        why += _validate.transposed(start.shape)
    raise ValueError(
        f"num_commits={num_commits} asked for, but the durations of {sampled} units a worker give only {fewest} "
        f"commits: {why}"
    )


def check_versions(one_version: bool, schedule: Schedule) -> None:
    """A protocol that says that all contributions to a commit read one version must keep to it."""
    if one_version and schedule.worker.shape[-1] > 1:
        version, real = np.asarray(schedule.version), np.asarray(schedule.worker) >= 0
        newest = np.where(real, version, -1).max(axis=-1, keepdims=True)
        if (real & (version != newest)).any():
            raise ValueError(
                "contributions to one commit of this schedule read different versions, but the protocol says that "
                "they read the same. Make it with Protocol(schedule, one_version=False)."
            )


def check_residual(run: Run, protocol: Protocol) -> None:
    """Warns if the protocol waits for exact decodes and the residual of a commit is more than rounding.

    That is more than `MOSTLY_EXACT`, relative to the norm of what should be decoded.
    """
    code = protocol.code
    if code is None or protocol.specification is None:  # the latter says that rounds end when decodable
        return
    bound = MOSTLY_EXACT * np.sqrt(code.assignment.num_chunks * code.num_blocks)
    residual = np.asarray(run.info.residual)
    inexact = ~(residual <= bound)
    if inexact.any():
        warnings.warn(
            f"the protocol waits for exact decodes, but {inexact.sum()} of {inexact.size} commits have a residual "
            f"above {bound:.2g}, up to {residual.max():.2g}: in {residual.dtype} this code loses too much to rounding. "
            "Switch JAX to 64 bits (jax.config.update('jax_enable_x64', True)), or use a code that is better "
            "conditioned; gcjax.codes.diagnostics.conditioning tells.",
            InexactWarning,
            stacklevel=3,
        )
