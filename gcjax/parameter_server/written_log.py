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
import numpy as np

from gcjax import files, locks
from gcjax.parameter_server.setups import differences
from gcjax.parameter_server.turn_log import Turn, TurnLog
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.simulation.rules import View

FILE_NAME = "events.jsonl"


class WrittenLog(TurnLog):
    """A `TurnLog` that is in a file, too.

    Attributes:
      view: `() -> View`, what the rule knows now; it is written with each commit.
      last_time: seconds of the last event in the file when it was opened, with what was written at once, the end of
        turns that were under way; 0 if it was empty.
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
        """Reads what the file has, and goes on at its end.

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
        super().__init__(num_workers)
        self.view, self.last_time, self._has_code = view, 0.0, has_code
        self._last_commit_view: dict[str, Any] | None = None
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
            self._go_on(file, fingerprint)
        except BaseException:
            self._file.close()
            raise

    def _go_on(self, file: Path, fingerprint: dict[str, str]) -> None:
        """Reads what the file has, which must be of this setup, and ends what was under way; or begins it."""
        lines = _complete_lines(file)
        if lines:
            _check_first(file, lines[0], fingerprint)
            for number, line in enumerate(lines[1:], start=2):
                self._read_line(file, number, line)
            self._end_uncommitted_turns()
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
        if self._last_commit_view is None:
            return view
        arrays = _from_json(self._last_commit_view, view)
        num_pushed = np.asarray(arrays.clock) - np.asarray(arrays.num_uncommitted)
        return view._replace(
            now=arrays.now, num_commits=arrays.num_commits, clock=jax.numpy.asarray(num_pushed), memory=arrays.memory
        )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _end_uncommitted_turns(self) -> None:
        """Ends the turns that are in no commit, and puts out all workers, of which none is connected to this server."""
        members = {worker for worker in range(len(self.turns)) if self._takes_part(worker)}
        now = self.last_time + 1e-3  # seconds, after all that the log has
        for worker, turns in enumerate(self.turns):
            lost_turns = [number for number, turn in enumerate(turns) if self._is_pending(turn)]
            for number in lost_turns:
                compute_end = min(turns[number].compute_end, now)
                fields: dict[str, Any] = {"compute_end": compute_end, "send_start": math.inf, "arrive": math.inf}
                fields |= {"num_counted": None}  # it was set where the end of a round is in the log, and its commit not
                turns[number] = turns[number]._replace(**fields)
                self._write_turn(worker, number, fields)
            if len(lost_turns) > 1:  # a worker goes back by one turn only: no process is to be taken for this one
                self.incarnations[worker] = "of which not all is in a commit"
                self._write({"process": [worker, self.incarnations[worker]]})
        for worker in sorted(members):
            self.add_membership(Membership(now, worker, "left", "the server was started again"))
        self.last_time = now

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
        text = f"{json.dumps(line)}\n".encode()
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

    def _read_line(self, file: Path, line_number: int, text: bytes) -> None:
        """Does what a line of the log says, a turn, a commit or a membership; `line_number` is for the error."""
        try:
            line = json.loads(text)
            if "turn" in line:
                worker, index = line["turn"]
                self._read_turn(worker, index, line["fields"])
            elif "commit" in line:
                self._check_next_commit(line["commit"], line["messages"])
                super().add_commit(line["commit"], line["messages"], line["loss"], line["time"])
                self._last_commit_view = line["view"]
                self.last_time = max(self.last_time, line["time"])
            elif "process" in line:
                worker, process = line["process"]
                self.incarnations[worker] = process
            else:
                membership = Membership(*line["member"])
                super().add_membership(membership, line["incarnation"])
                self.last_time = max(self.last_time, membership.time)
        except (ValueError, KeyError, TypeError, IndexError):
            raise ValueError(
                f"the log {file} must be as it was written; line {line_number} is not. Take another folder, or a copy "
                "of it."
            ) from None

    def _check_next_commit(self, commit: int, messages: list[tuple[int, int]]) -> None:
        """Raises a `ValueError` unless a commit of the log is the next one, of messages that are in none before it."""
        is_next = commit == len(self.commit_times)
        if not is_next or any(self.turns[worker][number].commit >= 0 for worker, number in messages):
            raise ValueError("a line is there twice, or one is not there")

    def _read_turn(self, worker: int, number: int, fields: dict[str, Any]) -> None:
        """Takes over the worker's turn number `number`, which begins, or new values of its fields."""
        fields = {name: tuple(value) if name == "unit_ends" else value for name, value in fields.items()}
        if number == len(self.turns[worker]):
            turn = Turn(**fields)
            if turn.version > len(self.commit_times):
                raise ValueError("the commit that it reads is not there")
            self.turns[worker].append(turn)
        else:
            self.turns[worker][number] = self.turns[worker][number]._replace(**fields)
        # Seconds; 0 for those that the line does not have, inf for what has not happened. Units end, and are reported,
        # long before a turn does that lasts until the server stops it.
        times = [fields.get(name, 0.0) for name in ("begin", "compute_start", "compute_end", "send_start", "arrive")]
        times += fields.get("unit_ends", ())
        self.last_time = max(self.last_time, *(time for time in times if math.isfinite(time)))


def _complete_lines(file: Path) -> list[bytes]:
    """The lines of a file, without their ends; none if there is no file.

    A last line that was not written to its end, or is no object in JSON, is cut off the file.
    """
    if not file.is_file():
        return []
    content = file.read_bytes()
    complete_part = content[: content.rfind(b"\n") + 1]
    lines = complete_part.splitlines()
    if lines and not _is_json_object(lines[-1]):
        complete_part = complete_part[: len(complete_part) - len(lines.pop()) - 1]  # 1: the end of the line
    if len(complete_part) < len(content):
        os.truncate(file, len(complete_part))
    return lines


def _is_json_object(text: bytes) -> bool:
    """Whether a line is an object in JSON."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _check_first(file: Path, text: bytes, fingerprint: dict[str, str]) -> None:
    """Raises an error unless `text`, the first line, is that of a log of a setup with this fingerprint."""
    logged = json.loads(text).get("fingerprint") if _is_json_object(text) else None
    if not isinstance(logged, dict):
        raise ValueError(f"the log {file} must begin with what is trained; it does not. Take another folder.")
    if difference_lines := differences(fingerprint, logged, where="in the log"):
        raise ValueError(
            f"a server must go on with what it began; the log {file} differs in\n{difference_lines}\n"
            "Take another folder, or the same setup."
        )


def _as_json(view: View) -> dict[str, Any]:
    """The numbers of a view, leaf by leaf."""
    leaves, _ = jax.tree.flatten(view)
    return {"leaves": [np.asarray(_numbers(x)).tolist() for x in jax.device_get(leaves)]}


def _from_json(lines: dict[str, Any], like: View) -> View:
    """The view of the numbers that `_as_json` has made `lines` of, with the structure and the dtypes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    values = [_array(x, leaf) for x, leaf in zip(lines["leaves"], leaves, strict=True)]
    return jax.tree.unflatten(structure, values)


def _numbers(leaf: Any) -> Any:
    """The numbers of an array, which may be one of random keys."""
    return jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _array(values: Any, like: jax.Array) -> jax.Array:
    """The array of these numbers, of the same dtype as another one."""
    if jax.numpy.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jax.numpy.asarray(values, jax.numpy.uint32), impl=jax.random.key_impl(like))
    return jax.numpy.asarray(values, like.dtype)
