"""The log of a server, read from its file.

Letters: W workers.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gcjax.parameter_server.run_end import RunEnd
from gcjax.parameter_server.setups import differences
from gcjax.parameter_server.turn_log import Turn, TurnLog
from gcjax.protocols.conformance.memberships import Membership

FILE_NAME = "events.jsonl"


class SavedLog(TurnLog):
    """A `TurnLog` that is in a file.

    Attributes:
      last_time: seconds of the last event in the file; 0 if there is none.
      end: of the run; None if it has not ended, as that of a server that was killed, or if a server went on with it.
      last_commit_view: what the rule knew at the last commit, as it is in the file; None if there is no commit.
    """

    def __init__(self, num_workers: int, *, has_code: bool = False) -> None:
        """Nothing is read yet; `has_code`: whether the turns are those of rounds of a code."""
        super().__init__(num_workers)
        self._has_code = has_code
        self.last_time = 0.0
        self.end: RunEnd | None = None
        self.last_commit_view: dict[str, Any] | None = None

    def read(
        self,
        file: Path,
        lines: list[bytes],
        fingerprint: dict[str, str],
        *,
        ignored_names: Sequence[str] = (),
        here: str = "at the server",
    ) -> None:
        """Takes over the lines of a file.

        Args:
          file: for errors.
          lines: of it, without their ends (`complete_lines`).
          fingerprint: by name, what of the setup the file must have been written for.
          ignored_names: those that may differ.
          here: where the setup is, in words.

        Raises:
          ValueError: if the file is of another setup, with the differences, or is no log.
        """
        _check_first(file, lines[:1], fingerprint, ignored_names, here)
        for number, line in enumerate(lines[1:], start=2):
            self._read_line(file, number, line)

    def take_back_unwritten_commit(self) -> None:
        """Takes back that a round of a code has ended whose commit is not in the file: it is under way.

        The server was killed between two lines. What it took then is lost, as with a server that is started again.
        """
        for worker, turns in enumerate(self.turns):
            if turns and turns[-1].num_counted is not None and turns[-1].version == len(self.commit_times):
                self.turns[worker][-1] = turns[-1]._replace(send_start=math.inf, arrive=math.inf, num_counted=None)

    def _read_line(self, file: Path, line_number: int, text: bytes) -> None:
        """Does what a line of the log says: a turn, a commit, a membership, the end; `line_number` is for the error."""
        try:
            line = json.loads(text)
            self.end = None  # what follows on the end is of a server that went on
            if "turn" in line:
                worker, index = line["turn"]
                self._read_turn(worker, index, line["fields"])
            elif "commit" in line:
                self._check_next_commit(line["commit"], line["messages"])
                super().add_commit(line["commit"], line["messages"], line["loss"], line["time"])
                self.last_commit_view = line["view"]
                self.last_time = max(self.last_time, line["time"])
            elif "end" in line:
                self.end = RunEnd.of_json(line["end"])
                self.last_time = max(self.last_time, self.end.seconds)
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


def complete_lines(file: Path) -> list[bytes]:
    """The lines of a file, without their ends.

    Left out is a last line that was not written to its end, or is no object in JSON.
    """
    content = file.read_bytes()
    lines = content.split(b"\n")[:-1]
    return lines[:-1] if lines and not _is_json_object(lines[-1]) else lines


def _is_json_object(text: bytes) -> bool:
    """Whether a line is an object in JSON."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _check_first(
    file: Path, first_line: list[bytes], fingerprint: dict[str, str], ignored_names: Sequence[str], here: str
) -> None:
    """Raises an error unless the first line, if there is one, is that of a log of a setup with this fingerprint.

    Names that are ignored may differ; `here`: where the setup is, in words.
    """
    logged = json.loads(first_line[0]).get("fingerprint") if first_line and _is_json_object(first_line[0]) else None
    if not isinstance(logged, dict):
        raise ValueError(f"the log {file} must begin with what is trained; it does not. Take another folder.")
    compared, logged = ({k: v for k, v in names.items() if k not in ignored_names} for names in (fingerprint, logged))
    if difference_lines := differences(compared, logged, here=here, where="in the log"):
        raise ValueError(
            f"a log must be read with the setup that it was written with; {file} differs in\n{difference_lines}\n"
            "Take another folder, or the same setup."
        )
