"""Ctrl-C and SIGTERM end a command at any moment: soon, with one line on stderr, and the status that shells expect.

Python itself answers a signal only between two steps of its own code in the main thread. While XLA compiles or runs
there are none for seconds, and an exception raised inside a library may be swallowed, or end threads of C++ in the
wrong order. So a thread of its own hears of the signal and ends the process, and no exception is raised anywhere.
Files stay whole because they get their names when they are: see `gcjax.files`.
A loop that can save what it has asks for time to do so, see `grace`; the first signal is then a request.

Nothing is imported here that takes long, so that a command is covered while it imports the rest.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""The exit status after each signal: 128 and its number."""

SAVING_SECONDS: dict[int, float] = {signal.SIGINT: 5.0, signal.SIGTERM: 10.0}
"""How long after each signal a run has for its last checkpoint."""

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_FLUSH_SECONDS = 0.5  # whoever holds stdout may hang
_HOLD_SECONDS = 20.0  # longer than the thread that listens takes to end the process
_CLEAR_LINE, _SHOW_CURSOR = b"\r\x1b[2K", b"\x1b[?25h"  # a progress bar has written the one and hidden the other


class _State:
    """What is known of signals in this process."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.saving: Mapping[int, float] = {}
        self.grace: Mapping[int, float] = {}
        self.advice: Callable[[], str] = str
        self.last_actions: list[Callable[[], None]] = []


_state = _State()


@contextmanager
def handled(*, until_exit: bool = False) -> Iterator[None]:
    """Ends the process if SIGINT or SIGTERM comes in the block; not for one that it was started to ignore.

    In another thread than the main one, where Python takes no signals, it does nothing.

    Args:
      until_exit: also after the block, for a process that does nothing else. When nothing of Python is left but to end,
        a signal changes nothing any more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.advice, _state.saving = str, {}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    listener = threading.Thread(target=_listen, args=(reading,), name="gcjax-interrupts", daemon=True)
    listener.start()
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {number: signal.getsignal(number) for number in STATUS}
    answered = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in answered:
        signal.signal(number, _hold)
    try:
        yield
    finally:
        if until_exit:
            atexit.register(_ignore, answered)
        else:
            for number in answered:
                signal.signal(number, before[number])
            signal.set_wakeup_fd(woken)
            os.close(writing)
            listener.join()
            _state.saving = {}


def advise(advice: Callable[[], str]) -> None:
    """Sets what a person is told to do after a signal.

    Args:
      advice: returns the end of the sentence "gcjax: interrupted"; called on another thread when the signal comes, so
        it must import nothing.
    """
    _state.advice = advice


@contextmanager
def before_end(action: Callable[[], None]) -> Iterator[None]:
    """Calls a function before a signal ends the process in this block, on another thread. Its errors are ignored."""
    _state.last_actions.append(action)
    try:
        yield
    finally:
        _state.last_actions.remove(action)


@contextmanager
def grace(seconds: Mapping[int, float]) -> Iterator[None]:
    """In this block, the first signal only asks, and ends the process so many seconds later, or when the block ends.

    A loop in it sees the question as `stop_requested`, and can save what it has before it ends. A second signal ends
    the process at once.

    Args:
      seconds: for each signal; 0, or none, ends the process at once.
    """
    previous, _state.grace = _state.grace, seconds
    try:
        yield
    finally:
        _state.grace = previous
        if _state.received is not None:
            _end(_state.received)


def allow_saving() -> None:
    """From now on a run may save a last checkpoint after a signal, as the command can go on from it."""
    _state.saving = SAVING_SECONDS


def saving() -> Mapping[int, float]:
    """How many seconds a run has for its last checkpoint after each signal; empty if it has none. For `grace`."""
    return _state.saving


def stop_requested() -> bool:
    """Whether a signal has come, in a block of `grace`."""
    return _state.received is not None


def _ignore(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _hold(number: int, frame: FrameType | None) -> None:
    """Keeps the main thread from going on while the other one ends the process."""
    del frame
    if not _state.grace.get(number):
        time.sleep(_HOLD_SECONDS)
        _end(number)


def _listen(reading: int) -> None:
    """Ends the process when a signal is told on the pipe; returns when the pipe is closed."""
    with open(reading, "rb", buffering=0) as told:
        while number := told.read(1):
            if number[0] not in STATUS:  # somebody else's signal
                continue
            first, _state.received = _state.received is None, number[0]
            seconds = _state.grace.get(number[0])
            if first and seconds:
                timer = threading.Timer(seconds, _end, number)
                timer.daemon = True
                timer.start()
                if os.isatty(2):
                    _say(f"gcjax: saving a checkpoint, for at most {seconds:g} s; again to end at once\n")
            else:
                _end(number[0])


def _end(number: int) -> None:
    """Says so and ends the process, whatever its other threads are doing."""
    try:
        for action in reversed(_state.last_actions):
            with contextlib.suppress(Exception):
                action()
        flush = threading.Thread(target=_flush, daemon=True)
        flush.start()
        flush.join(_FLUSH_SECONDS)
        advice = ""
        with contextlib.suppress(Exception):
            advice = _state.advice()
        _say(f"gcjax: {_WORDS[signal.Signals(number)]}{advice}\n")
    finally:
        os._exit(STATUS[signal.Signals(number)])


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, _CLEAR_LINE + _SHOW_CURSOR)
        os.write(2, line.encode())
