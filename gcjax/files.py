"""Files that are whole or not there, whenever the process ends.

Each is written under another name in the same folder, and then renamed.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gcjax import interrupts


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """The name to write under in this block; at its end the file gets its own, unless an error leaves the block.

    The name ends as the other one does, so that libraries that go by it write the right format.
    """
    path = Path(path)
    temporary_path = path.with_name(f".part-{path.name}")

    def discard_temporary_file() -> None:
        """Removes the temporary file, if it is still there."""
        temporary_path.unlink(missing_ok=True)

    with interrupts.before_end(discard_temporary_file):
        try:
            yield temporary_path
            os.replace(temporary_path, path)
        except OSError as error:
            if error.filename is not None and Path(error.filename) == temporary_path:
                error.filename = str(path)  # what the caller knows
            raise
        finally:
            discard_temporary_file()


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file."""
    with atomic_write(path) as temporary_path:
        temporary_path.write_text(text)


@contextmanager
def os_errors_as_value_error(rule: str, path: str | Path, advice: str = "") -> Iterator[None]:
    """Reraises errors of the operating system in the block as a `ValueError`: the path cannot be written.

    Args:
      rule: how the sentence begins, for example "The file must be one".
      path: of what the block writes.
      advice: what to do, as a sentence.
    """
    try:
        yield
    except OSError as error:
        reason = f"{str(path)[:200]} cannot: {error.strerror}. {advice}".rstrip()
        raise ValueError(f"{rule} that can be written; {reason}") from error


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_digest(body: Any) -> dict[str, Any]:
    """JSON as it is written with the SHA-256 of its text, by which `intact_body` notices a change."""
    return {"body": body, "sha256": hashlib.sha256(json.dumps(body).encode()).hexdigest()}


def intact_body(path: Path) -> Any | None:
    """What a file of JSON that `with_digest` made has; None if it was changed. `OSError` if it cannot be read."""
    text = path.read_bytes()
    try:
        content = json.loads(text)
        return content["body"] if content == with_digest(content["body"]) else None
    except (ValueError, KeyError, TypeError):  # not text, not JSON, or other JSON
        return None


def write_table(path: str | Path, columns: Any) -> None:
    """Writes a table to Parquet, with checksums of its pages.

    Args:
      path: of the file.
      columns: name -> column, or a `pyarrow.Table`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    with atomic_write(path) as temporary_path:
        pq.write_table(table, temporary_path, write_page_checksum=True)


def read_table(path: str | Path) -> Any:
    """Reads a `pyarrow.Table` from Parquet.

    Raises:
      ValueError: if the file is damaged, as far as checksums of its pages tell.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        reason_on_one_line = " ".join(str(error).split())
        raise ValueError(
            f"The file {path} must be a whole Parquet file; it is damaged: {reason_on_one_line}"
        ) from error


def check_figure_ending(path: str | Path, what: str) -> None:
    """Raises `ValueError` if the file of a figure, named `what`, has an ending whose format is not known."""
    if Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{what} must end in .png, .pdf or .svg; got {path}.")


def figure(width: float, height: float) -> Any:
    """An empty figure of Matplotlib, `width` × `height` inches large, that needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    inches = (width, height)
    empty_figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(empty_figure)  # which becomes its canvas
    return empty_figure


def add_legend(figure: Any, handles: Any, *, loc: str, max_columns: int, **style: Any) -> None:
    """Adds a legend to a figure, in as many columns as fit into its width, and in rows that are about equally long.

    Args:
      figure: of Matplotlib.
      handles: the entries, with labels.
      loc: where, as Matplotlib says it.
      max_columns: the most columns.
      style: further arguments of Matplotlib's `Figure.legend`.
    """
    max_columns = max(1, min(max_columns, len(handles)))
    for num_rows in range(-(-len(handles) // max_columns), len(handles) + 1):
        num_columns = -(-len(handles) // num_rows)
        legend = figure.legend(handles=handles, loc=loc, ncols=num_columns, frameon=False, **style)
        width = legend.get_window_extent(figure.canvas.get_renderer()).width
        if width <= figure.bbox.width or num_columns == 1:
            return
        legend.remove()


def figure_text(name: str) -> str:
    """A name as Matplotlib shows it as it is: `$` begins no formula, and a first `_` hides no entry of a legend."""
    zero_width_space = "\u200b"
    return zero_width_space * name.startswith("_") + name.replace("$", r"\$")


def write_figure(path: str | Path, figure: Any) -> None:
    """Writes a figure of Matplotlib."""
    with atomic_write(path) as temporary_path:
        figure.savefig(temporary_path, dpi=130)
