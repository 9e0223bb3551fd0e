"""Workers as processes of this machine, beside a server in this one.

A process gets the name of a function and its arguments, from which it makes what it needs itself: arrays do not go from
one process to another.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import connection as pipes
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.parameter_server.limits import Limits
from gcjax.parameter_server.live_run import LiveRun
from gcjax.parameter_server.security import NO_SECURITY, Security, check_worker
from gcjax.parameter_server.server import Server
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.worker import work
from gcjax.throttle import Throttle

MAX_ARGUMENT_BYTES = 1 << 16
"""What the arguments of a process may take."""

END_SECONDS = 10.0
"""How long processes that are told that a run is done may take to end before they are ended."""

_MISUSE = "put it into a module, and give numbers and text from which it makes the rest"


_restarts: list[bool] = []


def is_restarted() -> bool:
    """Whether this process was started in the place of one that was ended by a signal."""
    return any(_restarts)


class WorkerError(ChildProcessError):
    """A worker process has ended with an error; the text has its number and what it said."""


class _Child(NamedTuple):
    """A process, and the end of a pipe on which it says how it ended."""

    process: Any
    reader: Any


class Processes:
    """Processes by number; made by `processes`."""

    def __init__(
        self,
        target: Callable[..., Any],
        arguments: Mapping[int, Mapping[str, Any]],
        *,
        restart: bool,
        on_error: Callable[[], None],
        is_needed: Callable[[int], bool],
    ) -> None:
        """Starts a child for each number in `arguments`, which calls `target(**arguments[number])`.

        `restart`: whether a child that is ended by a signal is started again; if not, `is_needed(number)` says whether
        that is an error. `on_error` and `is_needed` are called in another thread.
        """
        self.results: dict[int, Any] = {}  # what the targets returned, by number
        self.num_restarts = 0
        self._target, self._arguments, self._restart, self._on_error = target, arguments, restart, on_error
        self._is_needed = is_needed
        self._errors: list[str] = []
        self._is_ending = threading.Event()
        self._children_lock = threading.Lock()
        self._numbers_started_before: set[int] = set()  # the next child of such a number is a restart
        self._children: dict[int, _Child] = {}
        try:
            for number in arguments:
                self._children[number] = self._new_child(number)
        except BaseException:
            for child in self._children.values():
                child.process.kill()
            raise
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def send_signal(self, number: int, signal_number: int) -> None:
        """Sends a signal such as `signal.SIGKILL` to a process."""
        with self._children_lock:
            pid = self._children[number].process.pid
        os.kill(pid, signal_number)

    def join(self, seconds: float) -> bool:
        """Waits until all have ended, so many seconds at most; returns whether they have."""
        self._watcher.join(seconds)
        return not self._watcher.is_alive()

    def end(self) -> None:
        """Kills all children that are left, and waits until they are gone."""
        self._is_ending.set()
        with self._children_lock:
            children = list(self._children.values())
        for child in children:
            child.process.kill()  # also one that is stopped
        self._watcher.join()  # it alone waits for processes: of two waiting threads one gets no exit status

    def check(self) -> None:
        """Raises a `WorkerError` with the first error, if there was one."""
        if self._errors:
            raise WorkerError(self._errors[0])

    def _new_child(self, number: int) -> _Child:
        """A new process with this number."""
        context = multiprocessing.get_context("spawn")
        reader, writer = context.Pipe(duplex=False)
        arguments = dict(self._arguments[number])
        is_x64, is_restart = jnp.result_type(float) == jnp.float64, number in self._numbers_started_before
        values = self._target, arguments, writer, is_x64, is_restart
        self._numbers_started_before.add(number)
        process = context.Process(target=_main, args=values, name=f"worker-{number}", daemon=True)
        process.start()
        writer.close()
        return _Child(process, reader)

    def _watch(self) -> None:
        """Waits for children to end, and starts those again that have to, until none is left.

        What they say at their end is read as it comes: a child with more of it than a pipe takes waits for that.
        """
        running = dict(self._children)
        # By number, how those end that have said so and are still there.
        ends_by_number: dict[int, tuple[str, Any]] = {}
        while running:
            readers = [child.reader for number, child in running.items() if number not in ends_by_number]
            ready = pipes.wait([*readers, *(child.process.sentinel for child in running.values())], timeout=0.5)
            for number, child in list(running.items()):
                has_ended = child.process.sentinel in ready
                if number not in ends_by_number and (has_ended or child.reader in ready):
                    ends_by_number[number] = _kind_and_value(child.reader)
                if has_ended:
                    del running[number]
                    if self._has_to_start_again(number, child, *ends_by_number.pop(number)):
                        with self._children_lock:
                            if not self._is_ending.is_set():
                                self._children[number] = running[number] = self._new_child(number)
                                self.num_restarts += 1
        if self._children and not self.results and not self._errors:
            self._note_error("all workers", "signals have ended them\n")

    def _has_to_start_again(self, number: int, child: _Child, kind: str, value: Any) -> bool:
        """Takes the result or the error of a child that has ended; returns whether another one is to take its place.

        `kind`, `value`: what it has said, see `_kind_and_value`. An exit status below 0 is that of a signal.
        """
        child.process.join()
        if kind == "result":
            self.results[number] = value
        is_ended_by_signal, error = child.process.exitcode < 0, ""
        if kind == "error":
            error = value
        elif kind == "" and not is_ended_by_signal:
            error = f"it ended with status {child.process.exitcode}\n"
        elif is_ended_by_signal and not self._restart and self._is_needed(number):
            error = f"signal {-child.process.exitcode} has ended it, and the others cannot go on without it\n"
        if error:
            self._note_error(f"worker {number}", error)
        return self._restart and is_ended_by_signal

    def _note_error(self, who: str, error: str) -> None:
        """Notes and shows an error, a line of text or several, unless the children are being ended anyway."""
        if not self._is_ending.is_set():
            self._errors.append(f"{who}: {error}")
            sys.stderr.write(f"{who}: {error}")
            self._on_error()


@contextlib.contextmanager
def processes(
    target: Callable[..., Any],
    arguments: Mapping[int, Mapping[str, Any]],
    *,
    restart: bool = False,
    on_error: Callable[[], None] = lambda: None,
    is_needed: Callable[[int], bool] = lambda number: False,
) -> Iterator[Processes]:
    """Processes of this machine that call a function each; they are ended whatever happens.

    They use the processor (or what `JAX_PLATFORMS` says), and floats as wide as here. If this process is killed, they
    end too.

    Args:
      target: a function that can be imported by its name; returns what JSON can hold.
      arguments: by the number of each process, the keyword arguments of its call of `target`.
      restart: whether one that is ended by a signal is started again.
      on_error: called, in another thread, once a process ends with an error, which is then on stderr; and once signals
        have ended all of them before any has returned.
      is_needed: called, in another thread, with the number of one that a signal has ended and that is not started
        again; returns whether that is an error.

    Yields:
      The processes; on leaving, they have `END_SECONDS` to end by themselves.

    Raises:
      ValueError: if the function cannot be imported, or the arguments are large.
      WorkerError: at the end, or in place of an error of the block, if one has ended with an error.
    """
    _check_arguments(target, arguments)
    children = Processes(target, arguments, restart=restart, on_error=on_error, is_needed=is_needed)
    try:
        yield children
        children.join(END_SECONDS)
    except Exception:
        children.check()  # what a worker says is nearer to the cause
        raise
    finally:
        children.end()
    children.check()


def workers(
    make_setup: Callable[..., Setup],
    address: str,
    numbers: Mapping[int, Any] | range | tuple[int, ...],
    *,
    arguments: Mapping[str, Any] | None = None,
    throttle: Throttle | None = None,
    security: Security = NO_SECURITY,
    patience: float = 60.0,
    restart: bool = False,
    on_error: Callable[[], None] = lambda: None,
    is_needed: Callable[[int], bool] = lambda number: False,
) -> contextlib.AbstractContextManager[Processes]:
    """Workers as processes of this machine; `results` of what is entered are their reports, as dicts.

    Args:
      make_setup: a function that can be imported by its name; `make_setup(**arguments)` is the setup.
      address: HOST:PORT of the server.
      numbers: of the workers, 0, ..., W - 1, or some of them; of a mapping its keys.
      arguments: of `make_setup`, numbers and text.
      throttle: `(worker, unit) -> seconds` that a unit takes at least; can be imported by its name.
      security: the token and the certificate of the server.
      patience: of each, as in `work`.
      restart: whether a worker that is ended by a signal is started again.
      on_error: called, in another thread, once a worker ends with an error.
      is_needed: as in `processes`.

    Raises:
      ValueError: for bad input, or if a function cannot be imported, or the arguments are large.
      WorkerError: at the end, if a worker has ended with an error.
    """
    check_worker(address, security)
    _validate.single_number("patience", patience)
    common = {
        "make_setup": make_setup, "arguments": dict(arguments or {}), "address": address, "throttle": throttle,
        "security": security, "patience": patience,
    }  # fmt: skip
    arguments_of_worker = {number: {**common, "worker": number} for number in numbers}
    return processes(_work, arguments_of_worker, restart=restart, on_error=on_error, is_needed=is_needed)


def local_run(
    make_setup: Callable[..., Setup],
    limits: Limits,
    *,
    arguments: Mapping[str, Any] | None = None,
    throttle: Throttle | None = None,
    restart: bool = False,
    checkpoints: str | Path | None = None,
) -> LiveRun:
    """A run with the server in this process, and all its workers in processes of this machine.

    Args:
      make_setup: a function that can be imported by its name; `make_setup(**arguments)` is the setup.
      limits: when the run ends.
      arguments: of `make_setup`, numbers and text.
      throttle: `(worker, unit) -> seconds` that a unit takes at least; can be imported by its name.
      restart: whether a worker that is ended by a signal is started again.
      checkpoints: a folder in which the server keeps the run, as in `Server`.

    Raises:
      ValueError: for bad input.
      WorkerError: if a worker has ended with an error, or signals have ended so many that the run cannot begin.
    """
    setup = make_setup(**dict(arguments or {}))
    server = Server(setup, limits, checkpoints=checkpoints)
    if server.is_over:  # it is the run that the folder has
        return server.run()
    numbers, num_needed = range(setup.num_workers), limits.min_workers or setup.num_workers
    ended_workers: set[int] = set()

    def is_needed(worker: int) -> bool:
        """Whether the run has not begun, and cannot without this worker that has ended."""
        ended_workers.add(worker)
        return not server.has_begun and setup.num_workers - len(ended_workers) < num_needed

    options: dict[str, Any] = {"arguments": arguments, "throttle": throttle, "restart": restart, "is_needed": is_needed}
    with workers(make_setup, server.address, numbers, on_error=server.stop, **options):
        return server.run()


def _work(
    make_setup: Callable[..., Setup], arguments: Mapping[str, Any], address: str, worker: int, **options: Any
) -> dict[str, int]:
    """The report of a worker."""
    return work(make_setup(**arguments), address, worker=worker, **options)._asdict()


def _main(
    target: Callable[..., Any], arguments: Mapping[str, Any], writer: Any, is_x64: bool, is_restart: bool
) -> None:
    """What a process does: calls the target, and sends ("result", value) or ("error", text) to its parent by `writer`.

    `is_x64`: whether floats have 64 bits; `is_restart`: whether it takes the place of a process that was ended.
    """
    _restarts.append(is_restart)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that has started this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    jax.config.update("jax_enable_x64", is_x64)
    # JAX would look at all of a machine's accelerators from each process.
    jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS") or "cpu")
    try:
        kind_and_value = "result", target(**arguments)
    except (ValueError, OSError) as error:  # what a user can change
        kind_and_value = "error", f"{error}\n"
    except Exception:
        kind_and_value = "error", traceback.format_exc()
    writer.send_bytes(json.dumps(kind_and_value).encode())
    writer.close()


def _end_with_parent() -> None:
    """Ends this process once the one that has started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # waits for its end
        time.sleep(0.1)
        os._exit(1)


def _kind_and_value(reader: Any) -> tuple[str, Any]:
    """What a process sent at its end: ("result", value) or ("error", text); ("", "") if it has sent nothing."""
    try:
        kind, value = json.loads(reader.recv_bytes())
        return kind, value
    except (EOFError, OSError):
        return "", ""
    finally:
        reader.close()


def _check_arguments(target: Callable[..., Any], arguments: Mapping[int, Mapping[str, Any]]) -> None:
    """Raises a `ValueError` if something cannot go to a process, or is so large that it is better made there."""
    for number, values in arguments.items():
        _validate.integer("the number of a process", number, minimum=0)
        try:
            num_bytes = len(ForkingPickler.dumps((target, dict(values))))
        except (AttributeError, TypeError, ValueError, ImportError) as error:
            raise ValueError(f"a function of a process must be one that can be imported; {error}: {_MISUSE}.") from None
        except Exception as error:  # pickle.PicklingError, whose module is not to be imported
            raise ValueError(f"a process must be told what it can make itself; {error}: {_MISUSE}.") from None
        if num_bytes > MAX_ARGUMENT_BYTES:
            raise ValueError(
                f"the arguments of a process must take at most {MAX_ARGUMENT_BYTES} bytes; got {num_bytes}: {_MISUSE}."
            )
