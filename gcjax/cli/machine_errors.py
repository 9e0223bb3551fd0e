"""Errors whose cause is the machine and not the config: a full disk, a missing device, a process that was ended."""

import errno
import logging
import os
import sys
import traceback
from collections.abc import Iterator

from gcjax import interrupts

_MAX_MESSAGE_CHARACTERS = 300
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded")  # how XLA, Arrow and orbax say it
_NO_BACKEND_PREFIX = "Unable to initialize backend"


def explanation(error: BaseException) -> str | None:
    """What is wrong with the machine and what to do, if that is what an error, or one that led to it, comes from."""
    for cause in _causes(error):
        if _is_disk_full(cause):
            return (
                f"There is no space left on the disk that the command writes to. Free some{interrupts.advice() or '.'}"
            )
        if _is_without_device(cause):
            return _no_device_sentence(str(cause).splitlines())
        if isinstance(cause, ChildProcessError):
            from gcjax.config.errors import without_gin_suffixes  # with gin, which `gcjax --help` need not load

            said = without_gin_suffixes(str(cause))
            return f"A process that the command has started ended with an error: {said}"
    return None


def silence_checkpoint_errors() -> None:
    """Keeps orbax from printing the errors that it also raises, each several times, with all its threads and tasks."""
    from absl import logging as absl_logging

    absl_logging.set_verbosity(absl_logging.FATAL)
    # A write that fails leaves tasks behind, of which asyncio tells when they are collected: after our sentence.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def shorten_plugin_errors() -> None:
    """Has JAX's plugins that find no device of theirs, where JAX goes on without, say so in a line on stderr."""
    logger = logging.getLogger("jax._src.xla_bridge")
    if _keep_unless_plugin_error not in logger.filters:
        logger.addFilter(_keep_unless_plugin_error)


def _keep_unless_plugin_error(record: logging.LogRecord) -> bool:
    """A filter of log records: false for a plugin that cannot start, of which it prints a line instead."""
    is_plugin_error = record.getMessage().startswith("Jax plugin configuration error")
    if not is_plugin_error or not record.exc_info:
        return True
    _, error, _ = record.exc_info
    print(
        f"gcjax: JAX goes on without a device, whose plugin says: {error} (JAX_PLATFORMS=cpu takes the CPU at once.)",
        file=sys.stderr,
    )
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that led to it, the last one first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_disk_full(error: BaseException) -> bool:
    """Whether an error says that a disk or a quota is full."""
    number = error.errno if isinstance(error, OSError) else None
    return number in _DISK_FULL_ERRNOS or any(text in str(error) for text in _DISK_FULL_TEXTS)


def _is_without_device(error: BaseException) -> bool:
    """Whether JAX could not start with the devices that it is to use; of some it only asserts that they are there."""
    frames = traceback.extract_tb(error.__traceback__)
    is_starting = bool(frames) and os.path.basename(frames[-1].filename) == "xla_bridge.py"
    return str(error).startswith(_NO_BACKEND_PREFIX) or (isinstance(error, AssertionError) and is_starting)


def _no_device_sentence(error_lines: list[str]) -> str:
    """What to do without the device that JAX is to use; `error_lines` are the lines of JAX's error."""
    first_line = error_lines[0] if error_lines else ""
    message, _, _ = first_line.partition(" (")
    reason = f" JAX says: {message[:_MAX_MESSAGE_CHARACTERS].rstrip('.')}." if first_line.strip() else ""
    platforms = os.environ.get("JAX_PLATFORMS")
    if platforms:
        return (
            f"JAX_PLATFORMS must name devices that are there; got '{platforms}'.{reason} Unset it to take what is "
            "there, or install JAX for that device."
        )
    return f"A device cannot be used.{reason} Set JAX_PLATFORMS=cpu to take the CPU."
