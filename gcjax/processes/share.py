"""What all processes must know of each other before they start; in a single process, nothing."""

import difflib
import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from gcjax.processes.apart import place_apart


class SharedError(ValueError):
    """An error that every process of the group raises at the same place."""


def is_first() -> bool:
    """Whether this process is the one that writes and prints; true in a single process."""
    place = place_apart()
    if place is not None:
        return place.rendezvous.process_id == 0
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def share(make: Callable[[], Any]) -> list[Any]:
    """Calls a function in every process of the group, and tells all what it returned in each.

    All processes must call `share` the same number of times, in the same order.

    Args:
      make: called without arguments; returns what JSON can hold. What it may object to is a `ValueError`.

    Returns:
      What it returned, in the order of the processes; of length one in a single process.

    Raises:
      ValueError: in every process, if the function raised one in any of them.
    """
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return [make()]
    value, own_error = None, None
    try:
        value = make()
    except ValueError as error:
        own_error = error
    answer = value, None if own_error is None else str(own_error)
    answers = [json.loads(text) for text in _texts_of_all(json.dumps(answer))]  # (value, problem) of each process
    if own_error is not None:
        raise SharedError(str(own_error)) from own_error
    for rank, (_, problem) in enumerate(answers):
        if problem is not None:
            raise SharedError(f"Process {rank}: {problem}")
    return [value for value, _ in answers]


def agree(what: str, text: str) -> None:
    """Checks that all processes have the same text, e.g. their config; does nothing in a single process.

    Args:
      what: a name for it.
      text: this process's.

    Raises:
      ValueError: in every process, with the processes that differ from process 0 and how.
    """
    texts = share(lambda: text)
    others = [rank for rank, other in enumerate(texts) if other != texts[0]]
    if others:
        ranks = f"process {others[0]}" if len(others) == 1 else f"processes {', '.join(map(str, others))}"
        raise SharedError(
            f"All processes must have the same {what}; that of {ranks} is not that of process 0:\n"
            f"{_difference(texts[0], texts[others[0]], others[0])}\nStart all of them with the same {what}."
        )


def _difference(first: str, other: str, rank: int, max_lines: int = 20) -> str:
    """The lines in which the text of process `rank`, `other`, differs from that of process 0; at most so many."""
    lines = difflib.unified_diff(
        first.splitlines(), other.splitlines(), "process 0", f"process {rank}", n=0, lineterm=""
    )
    diff_lines = [line for line in itertools.islice(lines, max_lines + 1) if not line.startswith("@@")]
    shown_lines = diff_lines if len(diff_lines) <= max_lines else [*diff_lines[:max_lines], "..."]
    return "\n".join(f"  {line}" for line in shown_lines)


def _texts_of_all(text: str) -> list[str]:
    """Every process's text, by two all-gathers: of the lengths, and of the bytes."""
    _check_devices()
    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.array([data.size], np.int32)).reshape(-1)
    rows = multihost_utils.process_allgather(np.pad(data, (0, sizes.max() - data.size)))
    return [bytes(row[:size]).decode() for row, size in zip(rows, sizes, strict=True)]


def _check_devices() -> None:
    """Raises a `SharedError` unless all processes have equally many devices."""
    num_devices = Counter(device.process_index for device in jax.devices())
    rank_of_most = max(num_devices, key=lambda rank: num_devices[rank])
    rank_of_fewest = min(num_devices, key=lambda rank: num_devices[rank])
    if num_devices[rank_of_most] != num_devices[rank_of_fewest]:
        raise SharedError(
            f"All processes must have the same number of devices; process {rank_of_fewest} has "
            f"{num_devices[rank_of_fewest]}, process {rank_of_most} has {num_devices[rank_of_most]}."
        )
