"""The rows of all processes, in a folder that they share: a CSV file for each, to which it appends now and then.

The file of a process is a trace that `gcjax.stragglers.read_trace` reads. A process that is killed has lost what it had
not appended yet; half a last line is left out.
"""

from pathlib import Path

from gcjax.stragglers.traces.files import write_trace
from gcjax.watching.joining import joined
from gcjax.watching.timeline import COLUMNS, Row, parse

_HEAD = ",".join(COLUMNS) + "\n"


class SharedFolder:
    """One process's view of the folder.

    Attributes:
      path: the folder.
      name: what the files begin with.
      start: the number of the first step of this run; rows of earlier runs are in files of their own.
    """

    is_shared = True

    def __init__(self, path: Path, name: str, start: int) -> None:
        """Makes the folder if there is none."""
        self.path, self.name, self.start = path, name, start
        path.mkdir(parents=True, exist_ok=True)
        self._file, self._worker = path, 0  # before `open`
        self._offsets: dict[Path, int] = {}

    def open(self, worker: int) -> None:
        """Makes the file of this process, with nothing but its head.

        Raises:
          ValueError: if there is one already, of a run that began with the same step, and that step is 0.
        """
        file = self.path / f"{self.name}.{self.start}.{worker}.csv"
        try:
            with file.open("w" if self.start else "x") as stream:
                stream.write(_HEAD)
        except FileExistsError:
            raise ValueError(
                f"A folder and a name are for one run and one wrapper; {file} is there already. Give another folder or "
                "name, or start=N to go on from step N."
            ) from None
        self._file, self._worker = file, worker

    def append(self, rows: list[Row]) -> None:
        """Appends rows to the file of this process, at once."""
        with self._file.open("a") as stream:
            stream.write("".join(row.text(self._worker) for row in rows))

    def close(self) -> None:
        """Writes the trace of all processes."""
        if entries := self.all_rows():
            write_trace(self.path / f"{self.name}.csv", joined(entries))

    def news(self) -> list[tuple[int, Row]]:
        """(worker, row) of what has come to the files of this run since the last call; damaged lines are left out."""
        return [entry for file in self._files(self.start) for entry in self._new_rows(file)]

    def all_rows(self) -> list[tuple[int, Row]]:
        """(worker, row) of all runs, later ones last; what a later run has measured again is left out of earlier ones.
        """
        starts = sorted({int(file.name.split(".")[-3]) for file in self.path.glob(f"{self.name}.*.*.csv")})
        entries: list[tuple[int, Row]] = []
        for start in starts:
            entries = [entry for entry in entries if entry[1].unit < start]
            entries += [entry for file in self._files(start) for entry in _rows(file.read_bytes())]
        return entries

    def _files(self, start: int) -> list[Path]:
        return sorted(self.path.glob(f"{self.name}.{start}.*.csv"))

    def _new_rows(self, file: Path) -> list[tuple[int, Row]]:
        """The rows of the whole lines after what was taken last time; from the beginning if the file is a new one."""
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            offset = self._offsets.get(file, 0)
            stream.seek(offset if offset <= size else 0)
            data = stream.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[file] = stream.tell() - len(data) + len(whole)
        return _rows(whole)


def _rows(data: bytes) -> list[tuple[int, Row]]:
    """The worker and the row of each line that is whole and no head."""
    entries = []
    for line in data.decode(errors="replace").splitlines(keepends=True):
        if line.endswith("\n"):
            try:
                entries.append(parse(line.rstrip("\n")))
            except ValueError:  # the head, or a line that was cut off by the end of a machine
                continue
    return entries
