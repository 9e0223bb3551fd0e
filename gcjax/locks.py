"""A lock on a folder, so that one process at a time writes there.

It is a lock of the operating system (`flock`) on the file `.lock` in the folder, and goes with the process that holds
it, however that ends; the file says who that is. On a shared file system it holds between machines where that passes
locks on: NFS does, Lustre when mounted with `flock`. Where there are none, a warning says so.
"""

import contextlib
import datetime
import errno
import fcntl
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from gcjax import interrupts

LOCK_FILE = ".lock"
_MAX_HOLDER_BYTES = 1000
_thread_of_held_folder: dict[Path, int] = {}
"""The folders that this process holds, and the thread of each."""
HELD_ERRNOS = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK}
_NO_LOCKS_ERRNOS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class HeldError(ValueError):
    """Another process writes to the folder."""


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Holds the lock on a folder, which must exist, in this block.

    Raises:
      HeldError: if somebody else does; it says who.
    """
    resolved_folder = folder.resolve()
    lock_file = folder / LOCK_FILE
    descriptor = _descriptor_with_lock(lock_file)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, _holder_text().encode())
    _thread_of_held_folder[resolved_folder] = threading.get_ident()

    def remove_lock_file() -> None:
        """Removes the lock file."""
        lock_file.unlink(missing_ok=True)

    with interrupts.before_end(remove_lock_file):
        try:
            yield
        finally:
            del _thread_of_held_folder[resolved_folder]
            remove_lock_file()  # before the lock goes: afterwards the file could be that of another process
            os.close(descriptor)


def is_held_by_this_thread(folder: Path) -> bool:
    """Whether this thread is in a block of `lock` on the folder."""
    return _thread_of_held_folder.get(folder.resolve()) == threading.get_ident()


def _descriptor_with_lock(file: Path) -> int:
    """A descriptor of the file, opened anew (and made if it is not there), with the lock on it; or `HeldError`.

    Tries again if the file was deleted between opening and locking: the lock would be on one that nobody else finds.
    """
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o666)
        try:
            _lock(descriptor, file)
            was_deleted_by_last_holder = not _still_has_name(descriptor, file)
            if not was_deleted_by_last_holder:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, file: Path) -> None:
    """Locks an open file, or raises `HeldError` with its holder; only a warning where the file system has no locks."""
    if not locked(descriptor, file.parent):
        holder_bytes = os.pread(descriptor, _MAX_HOLDER_BYTES, 0)
        holder = holder_bytes.decode(errors="replace") or "another process"
        raise HeldError(
            f"One process at a time may write to a folder; {file.parent} is held by {holder}. Wait until that has "
            "ended, or choose another folder."
        )


def locked(descriptor: int, folder: Path) -> bool:
    """Locks an open file in a folder until it is closed; returns whether it is locked now, and not held elsewhere.

    Where the file system has no locks there is only a warning.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD_ERRNOS:
            return False
        warn_of_missing_locks(error, folder)
    return True


def warn_of_missing_locks(error: OSError, folder: Path) -> None:
    """Warns that the file system of a folder has no locks, if that is why one could not be had; raises other errors."""
    if error.errno not in _NO_LOCKS_ERRNOS:
        raise error
    problem = f"the file system of {folder} has no locks ({error.strerror})"
    warnings.warn(f"{problem}; see to it that no other process writes there.", stacklevel=7)


def _still_has_name(descriptor: int, file: Path) -> bool:
    """Whether the file that is open still has its name."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), file.stat())
    return False


def _holder_text() -> str:
    """Who holds the lock, in words: this process, its machine, and the time."""
    begin_time = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {begin_time}"
