"""The secret that only the processes of a group know; nothing but what is derived from it crosses the network."""

import os
from pathlib import Path

from gcjax.processes.rendezvous import Rendezvous

VARIABLE, FILE_VARIABLE = "GCJAX_SECRET", "GCJAX_SECRET_FILE"
LEAST = 16
"""Bytes of a secret at least; a shorter one could be found by trying."""

_MAKE = f"export {VARIABLE}=$(openssl rand -hex 32)"


def secret(rendezvous: Rendezvous, *, file: str | os.PathLike[str] | None = None, none: bool = False) -> bytes:
    """The group's secret: of the file, or else of `GCJAX_SECRET`, or of the file that `GCJAX_SECRET_FILE` names.

    Args:
      rendezvous: where the group meets.
      file: whose text, without white space around it, is the secret.
      none: go without a secret, also where others can reach the coordinator.

    Returns:
      At least `LEAST` bytes; none if there is no secret.

    Raises:
      ValueError: if it is too short, or cannot be read, or is missing where others can reach the coordinator.
    """
    if none and file is not None:
        raise ValueError(f"A group has a secret or has none; got both secret-file {str(file)!r} and no-secret.")
    if none:
        return b""
    if file is None and VARIABLE in os.environ:
        return _long_enough(VARIABLE, os.fsencode(os.environ[VARIABLE]))
    file = os.environ.get(FILE_VARIABLE) if file is None else file
    if file is not None:
        return _long_enough(f"The file {str(file)!r}", _text(file))
    if rendezvous.num_processes > 1 and not rendezvous.is_loopback:
        raise ValueError(
            f"Others can reach {rendezvous.address}, so the processes that meet there need a secret in common; got "
            f"none. Set {VARIABLE} to the same text for all of them, for example by '{_MAKE}' where they are launched, "
            "or name a file with --secret-file; or believe everybody who reaches that port, with --no-secret."
        )
    return b""


def _text(file: str | os.PathLike[str]) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"secret-file must be a file that can be read; got {str(file)!r}: {error.strerror}.") from None


def _long_enough(name: str, text: bytes) -> bytes:
    text = text.strip()
    if len(text) < LEAST:  # the secret itself is not shown
        raise ValueError(f"{name} must hold a secret of at least {LEAST} bytes; got {len(text)}. Make one: {_MAKE}")
    return text
