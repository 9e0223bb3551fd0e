"""What all processes must know of each other before they start; in a single process, nothing."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from gcjax.processes.apart import current_place
from gcjax.text_differences import differing_lines


class ErrorOnAllProcesses(ValueError):
    """An error that every process of the group raises at the same place."""


def is_first() -> bool:
    """Whether this process is the one that writes and prints; true in a single process."""
    place = current_place()
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
    value_and_problem = value, None if own_error is None else str(own_error)
    values_and_problems = [json.loads(text) for text in _texts_of_all(json.dumps(value_and_problem))]
    if own_error is not None:
        raise ErrorOnAllProcesses(str(own_error)) from own_error
    for rank, (_, problem) in enumerate(values_and_problems):
        if problem is not None:
            raise ErrorOnAllProcesses(f"Process {rank}: {problem}")
    return [value for value, _ in values_and_problems]


def agree(what: str, text: str) -> None:
    """Checks that all processes have the same text, e.g. their config; does nothing in a single process.

    Args:
      what: a name for it.
      text: this process's.

    Raises:
      ValueError: in every process, with the processes that differ from process 0 and how.
    """
    texts = share(lambda: text)
    differing_ranks = [rank for rank, other_text in enumerate(texts) if other_text != texts[0]]
    if differing_ranks:
        plural = "processes" if len(differing_ranks) > 1 else "process"
        shown_rank = differing_ranks[0]
        difference_lines = differing_lines(texts[0], texts[shown_rank], "process 0", f"process {shown_rank}")
        difference_text = "\n".join(f"  {line}" for line in difference_lines)
        raise ErrorOnAllProcesses(
            f"All processes must have the same {what}; that of {plural} {', '.join(map(str, differing_ranks))} is not "
            f"that of process 0:\n{difference_text}\n"
            f"Start all of them with the same {what}."
        )


def _texts_of_all(text: str) -> list[str]:
    """Every process's text, by two all-gathers: of the lengths, and of the bytes."""
    _check_devices()
    text_bytes = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.array([text_bytes.size], np.int32)).reshape(-1)  # int32[processes]
    # uint8[processes, the largest size], padded with 0
    padded_texts = multihost_utils.process_allgather(np.pad(text_bytes, (0, sizes.max() - text_bytes.size)))
    return [bytes(padded_text[:size]).decode() for padded_text, size in zip(padded_texts, sizes, strict=True)]


def _check_devices() -> None:
    """Raises an `ErrorOnAllProcesses` unless all processes have equally many devices."""
    num_devices_of_rank = Counter(device.process_index for device in jax.devices())  # rank: the number of a process
    rank_of_most = max(num_devices_of_rank, key=lambda rank: num_devices_of_rank[rank])
    rank_of_fewest = min(num_devices_of_rank, key=lambda rank: num_devices_of_rank[rank])
    most_devices, fewest_devices = num_devices_of_rank[rank_of_most], num_devices_of_rank[rank_of_fewest]
    if most_devices != fewest_devices:
        raise ErrorOnAllProcesses(
            f"All processes must have the same number of devices; process {rank_of_fewest} has "
            f"{fewest_devices}, process {rank_of_most} has {most_devices}."
        )
