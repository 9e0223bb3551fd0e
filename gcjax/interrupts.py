"""Ctrl-C and SIGTERM end a command at any moment: soon, with one line on stderr, and the status that shells expect.

Python itself answers a signal only between two steps of its own code in the main thread. While XLA compiles or runs
there are none for seconds, and an exception raised inside a library may be swallowed, or end threads of C++ in the
wrong order. So a thread of its own hears of the signal and ends the process, and no exception is raised anywhere.
Files stay whole because they get their names when they are: see `gcjax.files`.
A loop that can save what it has asks for time to do so, see `grace_period`; the first signal is then a request.

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

EXIT_STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""The exit status after each signal: 128 and its number."""

SAVING_SECONDS: dict[int, float] = {signal.SIGINT: 5.0, signal.SIGTERM: 10.0}
"""How long after each signal a run has for its last checkpoint."""

_SIGNAL_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_MAX_FLUSH_SECONDS = 0.5  # whoever holds stdout may hang
_MAX_SECONDS_UNTIL_LISTENER_ENDS_PROCESS = 20.0
_STDOUT, _STDERR = 1, 2  # file descriptors
_CLEAR_LINE, _SHOW_CURSOR = b"\r\x1b[2K", b"\x1b[?25h"  # a progress bar has written the one and hidden the other


def _no_advice() -> str:
    """The empty text."""
    return ""


class _SignalState:
    """What this process does about signals.

    Attributes:
      received_signal: the last signal that came; None if none has.
      saving_seconds: signal -> seconds that a run has for its last checkpoint.
      grace_seconds: signal -> seconds from the first one to the end of the process, in the current `grace_period`.
      grace_purpose: what these are for, in words.
      make_advice: returns what to tell a person to do.
      actions_before_end: called before the process ends, the last one first.
    """

    def __init__(self) -> None:
        """No signal has come, and the first one ends the process at once."""
        self.received_signal: int | None = None
        self.saving_seconds: Mapping[int, float] = {}  # by signal, as the next
        self.grace_seconds: Mapping[int, float] = {}
        self.grace_purpose = ""
        self.make_advice: Callable[[], str] = _no_advice
        self.actions_before_end: list[Callable[[], None]] = []


_signal_state = _SignalState()


@contextmanager
def end_on_signals(*, until_exit: bool = False) -> Iterator[None]:
    """Ends the process if SIGINT or SIGTERM comes in the block; not for one that it was started to ignore.

    In another thread than the main one, where Python takes no signals, it does nothing.

    Args:
      until_exit: also after the block, for a process that does nothing else. When nothing of Python is left but to end,
        a signal changes nothing any more.
    """
    can_take_signals = threading.current_thread() is threading.main_thread()
    if not can_take_signals:
        yield
        return
    _signal_state.make_advice, _signal_state.saving_seconds = _no_advice, {}
    read_end, write_end = os.pipe()  # Python writes the number of a signal to it at once, in C
    os.set_blocking(write_end, False)
    listener = threading.Thread(target=_listen_for_signals, args=(read_end,), name="gcjax-interrupts", daemon=True)
    listener.start()
    previous_wakeup_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    previous_handlers = {signal_number: signal.getsignal(signal_number) for signal_number in EXIT_STATUS}
    handled_signals = [
        signal_number for signal_number, handler in previous_handlers.items() if handler is not signal.SIG_IGN
    ]
    for signal_number in handled_signals:
        signal.signal(signal_number, _hold_main_thread)
    try:
        yield
    finally:
        if until_exit:
            atexit.register(_ignore_signals, handled_signals)
        else:
            for signal_number in handled_signals:
                signal.signal(signal_number, previous_handlers[signal_number])
            signal.set_wakeup_fd(previous_wakeup_fd)
            os.close(write_end)  # which ends the listener
            listener.join()
            _signal_state.saving_seconds = {}


def set_advice(advice: Callable[[], str]) -> None:
    """Sets what a person is told to do after a signal.

    Args:
      advice: returns the end of the sentence "gcjax: interrupted"; called on another thread when the signal comes, so
        it must import nothing.
    """
    _signal_state.make_advice = advice


def advice() -> str:
    """What a person is told to do, as the end of a sentence: `; go on with: ...`; empty if nobody knows."""
    with contextlib.suppress(Exception):
        return _signal_state.make_advice()
    return ""


@contextmanager
def before_end(action: Callable[[], None]) -> Iterator[None]:
    """Calls a function before a signal ends the process in this block, on another thread. Its errors are ignored."""
    _signal_state.actions_before_end.append(action)
    try:
        yield
    finally:
        _signal_state.actions_before_end.remove(action)


@contextmanager
def grace_period(seconds: Mapping[int, float], *, purpose: str = "saving a checkpoint") -> Iterator[None]:
    """In this block, the first signal is a request, and ends the process so many seconds later, or when the block ends.

    A loop in the block asks `stop_requested`, and can save what it has before it ends. A second signal ends the process
    at once.

    Args:
      seconds: signal -> how many; one without any, or with 0, ends the process at once.
      purpose: what they are for, as a person is told at a terminal.
    """
    outer_grace = _signal_state.grace_seconds, _signal_state.grace_purpose
    _signal_state.grace_seconds, _signal_state.grace_purpose = seconds, purpose
    try:
        yield
    finally:
        _signal_state.grace_seconds, _signal_state.grace_purpose = outer_grace
        received_signal = _signal_state.received_signal
        if received_signal is not None:
            _end_process(received_signal)


def allow_last_checkpoint() -> None:
    """From now on a run may save a last checkpoint after a signal, as the command can go on from it."""
    _signal_state.saving_seconds = SAVING_SECONDS


def saving_seconds() -> Mapping[int, float]:
    """Signal -> seconds that a run has for its last checkpoint after it; empty if it has none. For `grace_period`."""
    return _signal_state.saving_seconds


def stop_requested() -> bool:
    """Whether a signal has come, in a block of `grace_period`."""
    return _signal_state.received_signal is not None


def _ignore_signals(signal_numbers: Iterable[int]) -> None:
    """Has the process ignore the signals of these numbers."""
    for signal_number in signal_numbers:
        signal.signal(signal_number, signal.SIG_IGN)


def _hold_main_thread(signal_number: int, frame: FrameType | None) -> None:
    """The handler of a signal: keeps the main thread from going on while the listening one ends the process.

    Where the signal is a request (see `grace_period`), it does nothing. Should the listening thread fail, it ends the
    process.
    """
    del frame
    grace_seconds = _signal_state.grace_seconds.get(signal_number, 0)
    is_only_a_request = grace_seconds > 0
    if not is_only_a_request:
        time.sleep(_MAX_SECONDS_UNTIL_LISTENER_ENDS_PROCESS)
        _end_process(signal_number)


def _listen_for_signals(read_end: int) -> None:
    """Ends the process, at once or after its time of grace, when a signal comes; returns when the pipe is closed.

    Args:
      read_end: the file descriptor of a pipe to which Python writes the number of each signal, as a byte.
    """
    with open(read_end, "rb", buffering=0) as pipe:
        while signal_byte := pipe.read(1):
            signal_number = signal_byte[0]
            is_handled_here = signal_number in EXIT_STATUS
            if not is_handled_here:
                continue
            is_first_signal, _signal_state.received_signal = _signal_state.received_signal is None, signal_number
            grace_seconds = _signal_state.grace_seconds.get(signal_number)
            if is_first_signal and grace_seconds:
                ending_timer = threading.Timer(grace_seconds, _end_process, [signal_number])
                ending_timer.daemon = True
                ending_timer.start()
                if os.isatty(_STDERR):
                    purpose = _signal_state.grace_purpose
                    _print_line(f"gcjax: {purpose}, for at most {grace_seconds:g} s; again to end at once\n")
            else:
                _end_process(signal_number)


def _end_process(signal_number: int) -> None:
    """Ends the process, whatever its other threads are doing, with a line on stderr and the exit status of a signal."""
    try:
        for action in reversed(_signal_state.actions_before_end):
            with contextlib.suppress(Exception):
                action()
        flushing_thread = threading.Thread(target=flush_output, daemon=True)  # which may never return
        flushing_thread.start()
        flushing_thread.join(_MAX_FLUSH_SECONDS)
        _print_line(f"gcjax: {_SIGNAL_WORDS[signal.Signals(signal_number)]}{advice()}\n")
    finally:
        os._exit(EXIT_STATUS[signal.Signals(signal_number)])


def flush_output() -> None:
    """Writes what is left in the buffers of stdout and stderr."""
    sys.stdout.flush()
    sys.stderr.flush()


def _print_line(line: str) -> None:
    """Writes a line to stderr past Python's buffers, and clears a progress bar from the terminal before."""
    with contextlib.suppress(OSError):
        may_have_progress_bar = os.isatty(_STDOUT)
        if may_have_progress_bar:
            os.write(_STDOUT, _CLEAR_LINE + _SHOW_CURSOR)
        os.write(_STDERR, line.encode())
