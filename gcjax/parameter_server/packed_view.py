"""What a rule knows and decides, in two arrays: each array that goes to a program or comes from it costs a transfer.

Letters: W workers.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.simulation.rules import View


class PackedView(NamedTuple):
    """A `View`, and what was decided last.

    Attributes:
      integers: int32[rows, W], the rows of `INTEGER_ROWS`; what is one number for all workers stands in each column.
      floats: float[rows, W], those of `FLOAT_ROWS`.
      memory: of the rule, as it is.
    """

    integers: Any
    floats: Any
    memory: Any


class Decision(NamedTuple):
    """What follows from an event; NumPy arrays.

    Attributes:
      has_commit: bool[], whether there is a commit.
      is_committed: bool[W], whose pushes it takes.
      is_cut_off: bool[W], whose turns under way it cuts off.
      begins: bool[W], who begins a turn.
      pulls: bool[W], who of these gets the parameters first.
      version: int32[W], the version that each has read last, or reads now.
      num_units: int32[W], the units of a turn that begins.
      code_row: int32[W], the row of its code that each has in a turn that begins; its number if there is no code.
      alive: bool[W], who takes part now.
      idle: bool[W], who is between two turns now.
      progress: int32[W], the units done of each one's last turn; 0 where it has left.
      is_accepted: bool[], whether a message has arrived that the rule does not ignore.
      stops_turns: bool[], whether the turns under way are to be stopped now.
      alarm_time: float[] seconds, when to look again; inf for never.
      turn_seconds: float[W], what a turn that begins is to fill; 0 where it is as many units as `num_units` says.
    """

    has_commit: Any
    is_committed: Any
    is_cut_off: Any
    begins: Any
    pulls: Any
    version: Any
    num_units: Any
    code_row: Any
    alive: Any
    idle: Any
    progress: Any
    is_accepted: Any
    stops_turns: Any
    alarm_time: Any
    turn_seconds: Any


_FLAG_ROWS = "has_commit", "is_accepted", "stops_turns"
_MASK_ROWS = *_FLAG_ROWS, "is_committed", "is_cut_off", "begins", "pulls", "alive", "idle", "stopped"
INTEGER_ROWS = *_MASK_ROWS, "version", "num_units", "code_row", "progress", "clock", "num_uncommitted", "num_commits"
FLOAT_ROWS = "alarm_time", "turn_seconds", "now", "compute_seconds", "begin_time"
_NUMBERS = {"num_commits", "now", "compute_seconds"}
"""The fields of a `View` that are one number."""
_ROW = {name: row for rows in (INTEGER_ROWS, FLOAT_ROWS) for row, name in enumerate(rows)}


def packed(view: View, decision: Decision | None = None, *, numpy: Any = np) -> PackedView:
    """The arrays of a view, and of a decision (default: 0), made by `numpy`: the module of that name, or JAX's.

    What both have is taken from the view.
    """
    shape = view.clock.shape
    values = {
        **dict.fromkeys(Decision._fields, 0),
        **({} if decision is None else decision._asdict()),
        **view._asdict(),
    }

    def rows(names: tuple[str, ...], dtype: Any) -> Any:
        """dtype[rows, W]: a row for each name, with what is one number in each column."""
        return numpy.stack([numpy.broadcast_to(numpy.asarray(values[name], dtype), shape) for name in names])

    return PackedView(rows(INTEGER_ROWS, np.int32), rows(FLOAT_ROWS, view.begin_time.dtype), view.memory)


def unpacked(view: PackedView) -> View:
    """The view, whose arrays are rows of the packed ones: JAX's if these are, else NumPy's.

    Flags are 0 or 1 there, and what is one number stands in each column, of which the first is taken.
    """
    fields = {}
    for name in View._fields:
        if name in _ROW:
            row = view.integers[_ROW[name]] if name in INTEGER_ROWS else view.floats[_ROW[name]]
            row = row != 0 if name in _MASK_ROWS else row
            fields[name] = row[0] if name in _NUMBERS else row
    return View(**fields, memory=view.memory)


def decision_of(view: PackedView, *, has_times: bool) -> Decision:
    """The decision, in NumPy arrays.

    `has_times`: whether the rule has alarms or turns of so many seconds; if not, these rows are not even fetched.
    """
    integers = np.asarray(view.integers)
    masks = integers[: len(_MASK_ROWS)] != 0  # bool[rows, W]; the last row, who is stopped, is of the view only
    has_commit, is_accepted, stops_turns, is_committed, is_cut_off, begins, pulls, alive, idle, _ = masks
    version, num_units, code_row, progress = integers[len(_MASK_ROWS) : len(_MASK_ROWS) + 4]
    alarm_time, turn_seconds = np.asarray(view.floats)[:2] if has_times else _no_times(integers.shape[1])
    return Decision(
        has_commit=has_commit[0], is_committed=is_committed, is_cut_off=is_cut_off, begins=begins, pulls=pulls,
        version=version, num_units=num_units, code_row=code_row, alive=alive, idle=idle, progress=progress,
        is_accepted=is_accepted[0], stops_turns=stops_turns[0], alarm_time=alarm_time[0], turn_seconds=turn_seconds,
    )  # fmt: skip


@lru_cache
def _no_times(num_workers: int) -> tuple[np.ndarray, np.ndarray]:
    """float[W] each: no alarm, and no turn of so many seconds."""
    return np.full(num_workers, np.inf), np.zeros(num_workers)
