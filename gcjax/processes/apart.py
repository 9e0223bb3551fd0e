"""Processes of an experiment that says itself how they talk: without collectives, and the end of one ends no other.

A config asks for them by `run.processes = 'apart'`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gcjax.processes.rendezvous import Rendezvous, address_of, rendezvous
from gcjax.processes.secret import secret

_APART_BINDING = re.compile(r"""^\s*run\.processes\s*=\s*(['"])apart\1""", re.MULTILINE)


class ApartPlace(NamedTuple):
    """The place of this process among those that know nothing of each other.

    Attributes:
      rendezvous: where process 0 is reached, and which process this is.
      listen: HOST:PORT at which process 0 listens.
      secret: that all processes know; empty for none, where others cannot reach process 0, or nobody is to be kept out.
    """

    rendezvous: Rendezvous
    listen: str
    secret: str


_stack_of_places: list[ApartPlace] = []


@contextmanager
def apart(
    *,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    timeout: float = 60.0,
    secret_file: str | os.PathLike[str] | None = None,
    no_secret: bool = False,
    bind: str | None = None,
) -> Iterator[None]:
    """In its block, this is one of several processes, which know nothing of each other but where process 0 is.

    Args:
      coordinator: HOST:PORT of process 0; detected if None, as in `gcjax.processes.group`.
      num_processes: how many there are.
      process_id: which one this is.
      timeout: seconds that the detection may take.
      secret_file: a file with the secret that all know; by default that of `GCJAX_SECRET` or `GCJAX_SECRET_FILE`.
      no_secret: go without one, also where others can reach process 0.
      bind: the host that process 0 listens at, if it is not that of the coordinator.

    Raises:
      ValueError: if the place is not known, or the secret is missing or too short.
    """
    own_rendezvous = rendezvous(coordinator, num_processes, process_id, timeout)
    secret_text = secret(own_rendezvous, file=secret_file, no_secret=no_secret).decode("latin-1")  # for any bytes
    listen_address = address_of(bind or own_rendezvous.host, own_rendezvous.port)
    _stack_of_places.append(ApartPlace(own_rendezvous, listen_address, secret_text))
    try:
        yield
    finally:
        _stack_of_places.pop()


def current_place() -> ApartPlace | None:
    """The place of this process, if it is in a block of `apart`."""
    return _stack_of_places[-1] if _stack_of_places else None


def asks_for_apart(config: str | Path, bindings: Sequence[str] = ()) -> bool:
    """Whether a config file, or one of the bindings, has `run.processes = 'apart'`; included files are not read.

    It is read as text, since nothing may be imported before a group of processes is there.
    """
    try:
        file_text = Path(config).read_text(errors="replace")
    except OSError:
        return False  # whoever loads it says what is wrong
    return any(_APART_BINDING.search(config_text) for config_text in (file_text, *bindings))
