"""Where a run goes on from, where it stops, and where it is saved."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from gcjax import _validate
from gcjax.engine.base import Run, State
from gcjax.engine.checkpoint import Checkpoints
from gcjax.engine.version_ring import size_of_ring
from gcjax.protocols.schedule import Schedule


class Resume(NamedTuple):
    """Where a run goes on from, where it stops, and where it is saved; the argument `resume` of `gcjax.engine.run`.

    Attributes:
      run: a run with the same arguments to go on with, bit by bit as if it had not been interrupted. Its arrays are
        donated: they cannot be used afterwards. From the beginning if None.
      num_evals: where to stop, in evaluations since the beginning, the first one not counted; at the end if None. A
        run, or a checkpoint, that is further on stays as it is. An int32[] under `jit`.
      checkpoints: where to save the run on its way, and to go on from if it was killed; the resumed run ends with the
        same bits. Not under `jit`.
      identity: text that a person can compare, for example that of a config: checkpoints with another one are refused,
        and the difference is shown. So are checkpoints of other arrays, or of another computation: another loss,
        optimizer or protocol, or other numbers in one of them.
    """

    run: Run | None = None
    num_evals: int | jax.Array | None = None
    checkpoints: Checkpoints | None = None
    identity: str = ""


def resume_options(resume: Run | Checkpoints | Resume | None) -> Resume:
    """The options from what a user gives as the argument `resume` of `gcjax.engine.run`.

    Raises:
      ValueError: if it is nothing that a run can go on from, or the number of evaluations is negative.
    """
    if resume is None:
        return Resume()
    if isinstance(resume, Run):
        resume = Resume(run=resume)
    if isinstance(resume, Checkpoints):
        return Resume(checkpoints=resume)
    if not isinstance(resume, Resume):
        raise ValueError(
            f"resume must be a Run, Checkpoints, or gcjax.engine.Resume(run=..., num_evals=..., checkpoints=...); got "
            f"{resume!r}."
        )
    if resume.run is not None and not isinstance(getattr(resume.run, "schedule", None), Schedule):
        raise ValueError(
            f"resume.run must be a Run with its schedule, as gcjax.engine.run returns it; got {resume.run!r}."
        )
    if not isinstance(resume.num_evals, jax.Array | None):
        _validate.integer("num_evals", resume.num_evals)
    return resume


def check_same_run(run: Run, new_run: Run, max_commits: int, eval_every: int, mesh: Mesh | None) -> None:
    """Checks that a run can go on: it must suit the arguments of the call that goes on with it.

    Args:
      run: to go on with.
      new_run: under these arguments, before its first commit; shapes are enough.
      max_commits: the most commits under these arguments.
      eval_every: likewise, the commits between two evaluations.
      mesh: the devices of the call; None for one device.

    Raises:
      ValueError: if it has room for another number of evaluations, or other arrays, or other commits, or lies on other
        devices.
    """
    evals_in_run, evals_in_new_run = (x.trajectory.time.shape[-1] for x in (run, new_run))
    if evals_in_run != evals_in_new_run:
        raise ValueError(
            f"resume must be a run with the same num_commits and eval_every; it has room for {evals_in_run} "
            f"evaluations, this one for {evals_in_new_run}."
        )
    _check_same_arrays(run, new_run)
    if _validate.is_traced(run.state.commit):
        return
    _check_same_commits(run, max_commits, eval_every)
    if mesh is None:
        return
    devices_of_run = run.state.commit.sharding.device_set
    if devices_of_run != set(mesh.devices.flat):
        raise ValueError(
            f"resume must be a run on the same devices; it lies on {len(devices_of_run)} others, the mesh "
            f"has {mesh.size}. To go on elsewhere, save it with checkpoints and resume from them."
        )


def check_same_schedule(run: Run, new_schedule: Schedule) -> None:
    """Raises a `ValueError` unless the schedule of a run is like that of its protocol and durations, by its shapes."""
    if _shapes(run.schedule) != _shapes(new_schedule):
        raise ValueError(
            "resume must be a run with the same protocol and durations; its schedule is "
            f"{_shapes(run.schedule):.600}, that of these {_shapes(new_schedule):.600}."
        )


def _check_same_arrays(run: Run, new_run: Run) -> None:
    """Raises a `ValueError` unless parameters, states and metrics of two runs have the same shapes and types."""
    parts = {f"state.{name}": (getattr(run.state, name), getattr(new_run.state, name)) for name in State._fields}
    parts["trajectory.metrics"] = run.trajectory.metrics, new_run.trajectory.metrics
    for name, (value, new_value) in parts.items():
        if _shapes(value) != _shapes(new_value):
            raise ValueError(
                f"resume must be a run with the same task, protocol, optimizer and compression; its {name} is "
                f"{_shapes(value):.300}, that of a run with these is {_shapes(new_value):.300}."
            )


def _shapes(tree: Any) -> str:
    """The structure of a pytree with the dtypes and shapes of its arrays, as text."""
    return str(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree))


def _check_same_commits(run: Run, max_commits: int, eval_every: int) -> None:
    """Raises a `ValueError` unless a run that is not traced is of these commits, and evaluated after so many."""
    num_commits = int(run.info.num_commits)
    if run.state.window is None:  # what a protocol that looks at the loss will do is not known
        num_expected = min(int(np.isfinite(np.asarray(run.schedule.time)).sum()), max_commits)
        if num_commits != num_expected:
            raise ValueError(
                f"resume must be a run with the same num_commits; it is one of {num_commits} commits, this one of "
                f"{num_expected}."
            )
    commits_at_evals = np.asarray(run.trajectory.commit)  # int32[V], -1 for those to come
    commits_at_evals = commits_at_evals[commits_at_evals >= 0]
    expected_commits = np.minimum(eval_every * np.arange(commits_at_evals.size), num_commits)
    if (commits_at_evals != expected_commits).any():
        raise ValueError(
            f"resume must be a run with the same eval_every; its evaluations came after {commits_at_evals.tolist()} "
            f"commits, those of this one would have come after {expected_commits.tolist()}."
        )


def same_ring_size(run: Run, ring_size: int | None) -> int:
    """The past versions that the ring of a run keeps, with which it must go on: the slots of versions depend on it.

    Raises:
      ValueError: if `ring_size` asks for another number.
    """
    size_of_run = size_of_ring(run.state.ring)
    if ring_size is not None and ring_size != size_of_run:
        raise ValueError(
            f"resume must be a run with the same ring_size; it has {size_of_run}, asked for is {ring_size}."
        )
    return size_of_run
