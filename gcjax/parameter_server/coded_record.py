"""The record of live rounds of a gradient code: the same as that of simulated ones.

Letters: W workers, K units of a worker in a round, E commits, T units of a worker.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import Assignment
from gcjax.parameter_server.turn_log import TurnLog, padded_commit_times, turns_of, unit_seconds
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.turns import Work, units_of


def schedule_of(
    log: TurnLog, assignment: Assignment, weight: float, end: float, *, size: int | None = None
) -> Schedule:
    """The record of a run that has ended at `end` seconds: commit r takes the progress of everybody in round r.

    Round r has the units r K, ..., r K + K - 1 of every worker; K is the assignment's load. A commit has a column for
    each row of the code, W or a multiple of it: row p W + w is of worker w. Every contribution has the factor `weight`.
    There is room for `size` commits (default: those of the log); commits that do not happen have the time inf.
    """
    dtype, load = jnp.result_type(float), assignment.load
    num_commits = len(log.commit_times) if size is None else size
    num_units = (num_commits + 1) * load  # with those of the round that is under way
    turns = turns_of(log, num_units, dtype)
    work = Work.of(jnp.asarray(unit_seconds(log, num_units), dtype))
    horizon = jnp.asarray(max([end, *log.commit_times]), dtype)
    timeline, read, _ = units_of(turns, work, horizon)
    num_rows = assignment.num_workers
    progress = _progress(log, num_commits, num_rows)  # int32[E, rows]
    return record(
        timeline,
        time=padded_commit_times(log, num_commits, dtype),
        worker=jnp.asarray(np.where(progress >= 0, np.arange(num_rows) % len(log.turns), -1)),
        unit=jnp.arange(num_commits, dtype=jnp.int32)[:, None] * load,
        work=jnp.asarray(progress),
        weight=weight,
        read=read,
    )


def _progress(log: TurnLog, num_commits: int, num_rows: int) -> Any:
    """int32[E, rows of the code]: the units in each commit of the worker that had each row; -1 if nobody had it.

    They are those of the worker's last turn on the version that the commit replaces, whose number is the commit's.
    """
    progress = np.full((num_commits, num_rows), -1, np.int32)
    for worker, turns in enumerate(log.turns):
        for turn in turns:
            if turn.version < len(log.commit_times):
                row = worker if turn.code_row is None else turn.code_row
                progress[turn.version, row] = turn.num_counted or 0  # None if the round has taken no unit of it
    return progress
