"""What happened, also on the disk: a line of JSON for each change, written before anybody acts on it.

A line is with the operating system once it is written: it outlives the process, but not a failure of the machine. The
file is forced onto the disk (fsync) now and then, with a commit.

A server that is killed and started again reads its log. Commits stay; turns that were under way, and pushes that were
in no commit yet, are lost, since gradients are not in the log.

Letters: W workers.
"""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import files, locks
from gcjax._keys import is_key, without_key_type
from gcjax.parameter_server.run_end import RunEnd
from gcjax.parameter_server.saved_log import FILE_NAME, SavedLog, complete_lines
from gcjax.parameter_server.turn_log import Turn
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.simulation.rules import View

GO_ON_SECONDS = 1e-3
"""So long after the last event in its log a server goes on that is started again."""


class WrittenLog(SavedLog):
    """A `TurnLog` that is in a file, too, and is written there as it grows.

    Attributes:
      view: `() -> View`, what the rule knows now; it is written with each commit.
      last_time: seconds of the last event in the file when it was opened, and when `go_on` was called; 0 if it was
        empty.
      is_as_read: whether the file had something when it was opened, and nothing was written since.
    """

    def __init__(
        self,
        file: Path,
        num_workers: int,
        fingerprint: dict[str, str],
        view: Callable[[], View],
        *,
        sync_seconds: float = 1.0,
        has_code: bool = False,
    ) -> None:
        """Reads what the file has; nothing is written before something happens, unless it is empty.

        Args:
          file: of the log.
          num_workers: W.
          fingerprint: by name, what of the setup the file must have been written for.
          view: `() -> View`, what the rule knows now; it is written with each commit.
          sync_seconds: the first commit this long after the last fsync brings another one; 0 for each commit, inf for
            none.
          has_code: whether its turns are those of rounds of a code.

        Raises:
          ValueError: if the file is of another setup, with the differences, or is no log, or another server writes it.
        """
        super().__init__(num_workers, has_code=has_code)
        self.view, self.is_as_read = view, False
        with files.os_errors_as_value_error("checkpoints must be a folder", file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer: what cannot be written would stay there, and be written later.
            self._file: Any = file.open("ab", buffering=0)
        self._sync_seconds, self._last_sync = sync_seconds, -math.inf
        try:
            if not locks.locked(self._file.fileno(), file.parent):
                raise locks.HeldError(
                    f"One server at a time may write to a folder; another one writes to {file.parent}. Wait until it "
                    "has ended, or choose another folder."
                )
            self._read_or_begin(file, fingerprint)
        except BaseException:
            self._file.close()
            raise

    def _read_or_begin(self, file: Path, fingerprint: dict[str, str]) -> None:
        """Reads what the file has, which must be of this setup; or begins it.

        A last line that is not whole is cut off.
        """
        lines = complete_lines(file)
        num_bytes = sum(len(line) + 1 for line in lines)  # 1: the end of the line
        if num_bytes < file.stat().st_size:
            os.truncate(file, num_bytes)
        if lines:
            self.read(file, lines, fingerprint)
            self.is_as_read = True
        else:
            self._write({"fingerprint": fingerprint})

    def add_turn(self, worker: int, turn: Turn) -> None:
        """Writes down that a worker begins a turn."""
        super().add_turn(worker, turn)
        self._write_turn(worker, self.last_turn_number(worker), turn._asdict())

    def update_last_turn(self, worker: int, **fields: Any) -> Turn:
        """The worker's last turn, with other fields."""
        turn = super().update_last_turn(worker, **fields)
        self._write_turn(worker, self.last_turn_number(worker), fields)
        return turn

    def add_commit(self, commit: int, messages: list[tuple[int, int]], loss: float, now: float) -> None:
        """Writes down commit number `commit` at `now` seconds; a message is a worker and the number of its turn."""
        super().add_commit(commit, messages, loss, now)
        self._write({"commit": commit, "messages": messages, "loss": loss, "time": now, "view": _as_json(self.view())})
        if time.monotonic() >= self._last_sync + self._sync_seconds:
            self._sync()

    def add_membership(self, membership: Membership, incarnation: str = "") -> None:
        """Writes down who came or went, and which process it is."""
        super().add_membership(membership, incarnation)
        self._write({"member": list(membership), "incarnation": incarnation})

    def restored_view(self, view: View) -> View:
        """`view`, in which nobody takes part yet, with what the last commit's view says: time, commits, clocks, memory.

        Pushes that were in no commit are lost, and do not count.
        """
        if self.last_commit_view is None:
            return view
        arrays = _from_json(self.last_commit_view, view)
        num_pushed = np.asarray(arrays.clock) - np.asarray(arrays.num_uncommitted)
        return view._replace(
            now=arrays.now, num_commits=arrays.num_commits, clock=jnp.asarray(num_pushed), memory=arrays.memory
        )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def go_on(self) -> None:
        """Ends the turns that are in no commit, and puts out all workers, of which none is connected to this server.

        To be called before anything else happens; if the file was empty, nothing is written.
        """
        members = {worker for worker in range(len(self.turns)) if self._takes_part(worker)}
        now = self.last_time + GO_ON_SECONDS  # after all that the log has
        for worker, turns in enumerate(self.turns):
            lost_turns = [number for number, turn in enumerate(turns) if self._is_pending(turn)]
            for number in lost_turns:
                turn = turns[number]
                if turn.unit_ends and turn.unit_ends[-1] > turn.compute_end:  # it went on after it was stopped
                    turn = turn.ended(now)
                fields: dict[str, Any] = {"compute_end": min(turn.compute_end, now), "num_lost": turn.num_lost}
                fields |= {"send_start": math.inf, "arrive": math.inf}
                fields |= {"num_counted": None}  # it was set where the end of a round is in the log, and its commit not
                turns[number] = turn._replace(**fields)
                self._write_turn(worker, number, fields)
            if len(lost_turns) > 1:  # a worker goes back by one turn only: no process is to be taken for this one
                self.incarnations[worker] = "of which not all is in a commit"
                self._write({"process": [worker, self.incarnations[worker]]})
        for worker in sorted(members):
            self.add_membership(Membership(now, worker, "left", "the server was started again"))
        self.last_time = now

    def end_seconds(self, now: float) -> float:
        """When the run has ended: at `now` seconds, or as the file says if nothing has happened since it was read."""
        return self.last_time if self.is_as_read else now

    def write_end(self, end: RunEnd) -> RunEnd:
        """Writes down how the run has ended, and forces it onto the disk; returns it.

        If nothing has happened since the file was read, the run has ended as the file says; a check is the new one.
        """
        if self.is_as_read and self.end is not None:
            if not end.check_text:
                return self.end
            return self.end._replace(check_text=end.check_text, check_seconds=end.check_seconds)
        self.end = end
        self._write({"end": end.as_json()})
        if math.isfinite(self._sync_seconds):
            self._sync()
        return end

    def _is_pending(self, turn: Turn) -> bool:
        """Whether a turn is under way, or has arrived, and is in no commit yet; one that is ignored never will be.

        A turn of a code is of the round after the commits that it has read, also if nothing was asked of its worker.
        """
        if turn.is_ignored or turn.commit >= 0:
            return False
        is_under_way = not math.isfinite(turn.compute_end)
        is_of_ended_round = self._has_code and turn.version < len(self.commit_times)
        return is_under_way or (math.isfinite(turn.arrive) and not is_of_ended_round)

    def _takes_part(self, worker: int) -> bool:
        """Whether the worker's last change was that it joined or came back."""
        changes = [m.change for m in self.memberships if m.worker == worker and m.change != "skipped"]
        return bool(changes) and changes[-1] != "left"

    def _write_turn(self, worker: int, number: int, fields: dict[str, Any]) -> None:
        """Writes fields of a turn."""
        self._write({"turn": [worker, number], "fields": fields})

    def _write(self, line: dict[str, Any]) -> None:
        """Writes a line of JSON, which the operating system has when this returns; the disk may not."""
        text, self.is_as_read = f"{json.dumps(line)}\n".encode(), False
        try:
            while text:  # the operating system may take a part only
                text = text[self._file.write(text) :]
        except OSError as error:
            raise OSError(error.errno, f"{os.strerror(error.errno or 0)}: the log cannot go on", FILE_NAME) from error

    def _sync(self) -> None:
        """Forces the file onto the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, f"{os.strerror(error.errno or 0)}: the log cannot go on", FILE_NAME) from error
        self._last_sync = time.monotonic()


def _as_json(view: View) -> dict[str, Any]:
    """The numbers of a view, leaf by leaf."""
    leaves, _ = jax.tree.flatten(view)
    return {"leaves": [np.asarray(without_key_type(x)).tolist() for x in jax.device_get(leaves)]}


def _from_json(lines: dict[str, Any], like: View) -> View:
    """The view of the numbers that `_as_json` has made `lines` of, with the structure and the dtypes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    values = [_array(x, leaf) for x, leaf in zip(lines["leaves"], leaves, strict=True)]
    return jax.tree.unflatten(structure, values)


def _array(values: Any, like: jax.Array) -> jax.Array:
    """The array of these numbers, of the same dtype as another one."""
    if is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(values, jnp.uint32), impl=jax.random.key_impl(like))
    return jnp.asarray(values, like.dtype)
