"""The secret that only the processes of a group know; nothing but what is derived from it crosses the network."""

import os
from pathlib import Path

from gcjax.processes.rendezvous import Rendezvous

VARIABLE, FILE_VARIABLE = "GCJAX_SECRET", "GCJAX_SECRET_FILE"
MIN_BYTES = 16
"""Bytes of a secret at least; a shorter one could be found by trying."""

_MAKE_COMMAND = f"export {VARIABLE}=$(openssl rand -hex 32)"


def secret(rendezvous: Rendezvous, *, file: str | os.PathLike[str] | None = None, no_secret: bool = False) -> bytes:
    """The group's secret: of the file, or else of `GCJAX_SECRET`, or of the file that `GCJAX_SECRET_FILE` names.

    Args:
      rendezvous: where the group meets.
      file: whose text, without white space around it, is the secret.
      no_secret: go without a secret, also where others can reach the coordinator.

    Returns:
      At least `MIN_BYTES` bytes; none if there is no secret.

    Raises:
      ValueError: if it is too short, or cannot be read, or is missing where others can reach the coordinator.
    """
    if no_secret and file is not None:
        raise ValueError(f"A group has a secret or has none; got both secret-file {str(file)!r} and no-secret.")
    if no_secret:
        return b""
    if file is None and VARIABLE in os.environ:
        return _stripped_secret(VARIABLE, os.fsencode(os.environ[VARIABLE]))
    file = os.environ.get(FILE_VARIABLE) if file is None else file
    if file is not None:
        return _stripped_secret(f"The file {str(file)!r}", _file_bytes(file))
    if rendezvous.num_processes > 1 and not rendezvous.is_loopback:
        raise ValueError(
            f"Others can reach {rendezvous.address}, so the processes that meet there need a secret in common; got "
            f"none. Set {VARIABLE} to the same text for all of them, for example by '{_MAKE_COMMAND}' where they are "
            "launched, or name a file with --secret-file; or believe everybody who reaches that port, with --no-secret."
        )
    return b""


def _file_bytes(file: str | os.PathLike[str]) -> bytes:
    """The bytes of the file with the secret."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"secret-file must be a file that can be read; got {str(file)!r}: {error.strerror}.") from None


def _stripped_secret(name: str, content: bytes) -> bytes:
    """The secret without white space around it; a `ValueError` if it is too short. `name` says where it is from."""
    content = content.strip()
    if len(content) < MIN_BYTES:  # the secret itself is not shown
        raise ValueError(
            f"{name} must hold a secret of at least {MIN_BYTES} bytes; got {len(content)}. Make one: {_MAKE_COMMAND}"
        )
    return content
