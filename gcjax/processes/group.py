"""The group that this process belongs to: it starts together, and ends together."""

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import jax

from gcjax import _validate, interrupts
from gcjax.processes.hub import Hub
from gcjax.processes.listening import interface
from gcjax.processes.member import Member
from gcjax.processes.rendezvous import Rendezvous, address_of, rendezvous
from gcjax.processes.secret import secret
from gcjax.processes.share import ErrorOnAllProcesses

LOST = 3
"""The exit status of a process that ends because another one was lost or ended with an error."""

_STATUS_OF_ERROR = {ValueError: 2, KeyboardInterrupt: 130}
# JAX's own watch is the last resort: it aborts, and does not say who was lost.
_JAX_HEARTBEAT_SECONDS = 100

_STDERR = 2  # the file descriptor
_TELL_SECONDS = 3.0  # that an interrupted process takes at most to tell the others
_SHUTDOWN_SECONDS: dict[int, float] = dict.fromkeys(interrupts.EXIT_STATUS, 10.0)  # signal -> to part in

_T = TypeVar("_T")


@contextmanager
def group(
    *,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    timeout: float = 60.0,
    lost_after: float = 30.0,
    secret_file: str | os.PathLike[str] | None = None,
    no_secret: bool = False,
    bind: str | None = None,
) -> Iterator[None]:
    """Runs its block in all processes of a group, instead of a call of `jax.distributed.initialize`.

    Call it before anything that uses a device. Without `coordinator`, `num_processes` and `process_id`, what JAX
    detects is used: SLURM, Open MPI before 5, TPU pods, GKE.

    A process that is killed, or whose machine is gone, or that leaves the block with an error, ends all others with a
    message on stderr that names it, and status `LOST`, whatever they are doing. Its closed connection is noticed at
    once; silence counts as a loss after `lost_after`. The block is left when all processes are done.

    The processes prove to each other that they know the same secret (`gcjax.processes.handshake`): that of the file, or
    else of the environment variable `GCJAX_SECRET`, or of the file that `GCJAX_SECRET_FILE` names. It is required
    unless the coordinator is a loopback address. Whoever does not know it is counted and ignored. JAX's coordination
    service, which takes over the port once all have come, and the collectives trust their network.

    Args:
      coordinator: `HOST:PORT`, a free port of the machine of process 0.
      num_processes: the processes of the group.
      process_id: which one this is, from 0.
      timeout: seconds to wait for process 0, and then for all others.
      lost_after: seconds without a word after which a process counts as lost; one that is suspended for less goes on.
      secret_file: a file with the secret, of at least 16 bytes.
      no_secret: believe everybody who reaches the port of process 0 and speaks its language.
      bind: the interface on which process 0 listens, as an address or a name, `0.0.0.0` or `::` for all; by default
        that of the coordinator's address, or all where that is none of its machine's. Other processes ignore it.

    Raises:
      ValueError: if the arguments are wrong, or the processes do not find each other in time.
    """
    _validate.number("timeout", timeout, above=True, finite=True)
    _validate.number("lost-after", lost_after, minimum=1.0, finite=True)
    own_rendezvous = rendezvous(coordinator, num_processes, process_id, timeout)
    host = None if own_rendezvous.process_id else interface(own_rendezvous, bind)
    link = _Link(
        own_rendezvous, secret(own_rendezvous, file=secret_file, no_secret=no_secret), timeout, lost_after, host
    )
    address = link.run(link.node.meet())
    if isinstance(link.node, Hub) and (strangers_text := link.node.strangers_text()):
        print(f"gcjax: {strangers_text}", file=sys.stderr)
    shared_error = None
    try:
        with interrupts.before_end(lambda: link.run(link.node.fail("interrupted"), _TELL_SECONDS)):
            _initialize(link.rendezvous, address, link.host, timeout, lost_after)
            try:
                yield
            except ErrorOnAllProcesses as error:  # every process has it, so nobody is to be told
                shared_error = error
            link.run(link.node.finish())
    except BaseException as error:
        link.run(link.node.fail(_error_line(error)))
        _leave_without_jax(error)
        raise
    _shut_down_jax(lost_after)
    if shared_error is not None:
        raise shared_error


class _Link:
    """The event loop, on a thread of its own, that talks to the other processes.

    Attributes:
      rendezvous: this process's place in the group.
      host: where process 0 listens; None for everywhere, and in other processes.
      node: this process's side of the talk.
    """

    def __init__(
        self, rendezvous: Rendezvous, secret: bytes, timeout: float, lost_after: float, host: str | None
    ) -> None:
        """Starts the thread that talks to other processes; both times in seconds; `host`: where process 0 listens."""
        self.rendezvous, self.host = rendezvous, host
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="gcjax-processes", daemon=True).start()
        self.node: Hub | Member = self.run(self._new_node(rendezvous, secret, timeout, lost_after))

    def run(self, coroutine: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """The result of a coroutine of the loop; `TimeoutError` if it is not there after so many seconds."""
        future: Future[_T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(timeout)

    async def _new_node(self, rendezvous: Rendezvous, secret: bytes, timeout: float, lost_after: float) -> Hub | Member:
        """This process's side of the talk; a coroutine, since it must be made on the loop that it belongs to."""
        if rendezvous.process_id:
            return Member(rendezvous, secret, timeout, lost_after, _end_this_process)
        return Hub(rendezvous, secret, timeout, lost_after, _end_this_process, self.host)


def _initialize(rendezvous: Rendezvous, address: str, host: str | None, timeout: float, lost_after: float) -> None:
    """Starts JAX's coordination service at `address`, or joins it, with time-outs in seconds."""
    # JAX would catch SIGTERM as the notice of a preemption that nobody here asks for; it shall end the process.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        address,
        rendezvous.num_processes,
        rendezvous.process_id,
        coordinator_bind_address=None if host is None else address_of(host, rendezvous.port),  # None: all interfaces
        local_device_ids=rendezvous.local_devices,
        cluster_detection_method="deactivate",  # the rendezvous is known
        initialization_timeout=max(1, int(timeout)),
        heartbeat_timeout_seconds=max(_JAX_HEARTBEAT_SECONDS, int(2 * lost_after)),
    )


def _shut_down_jax(lost_after: float) -> None:
    """Parts from the others, who are done, too; ends this process if that takes longer than `lost_after` seconds.

    In it all wait for each other, and nobody watches any more: who is killed now would be missed only by JAX's own
    watch.
    """
    text = f"another process was lost when all were done: they did not part in {lost_after:g} s; nothing else is lost."
    watchdog = threading.Timer(lost_after, _end_this_process, (text,))
    watchdog.daemon = True
    watchdog.start()
    try:
        with interrupts.grace_period(_SHUTDOWN_SECONDS, purpose="parting from the other processes"):
            jax.distributed.shutdown()
    finally:
        watchdog.cancel()


def _error_line(error: BaseException) -> str:
    """The first line of an error; the process that has it shows the rest."""
    line = str(error).partition("\n")[0][:1000]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _end_this_process(text: str) -> None:
    """Ends this process at once, also where it hangs in a collective, with a text on stderr and the status `LOST`."""
    flushing_thread = threading.Thread(target=interrupts.flush_output, daemon=True)
    flushing_thread.start()
    flushing_thread.join(1.0)  # whoever holds stdout may hang
    show_cursor = b"\n\x1b[?25h" if os.isatty(_STDERR) else b""  # a progress bar hides it
    os.write(_STDERR, show_cursor + f"gcjax: {text}\n".encode(errors="replace"))
    os._exit(LOST)


def _leave_without_jax(error: BaseException) -> None:
    """At its end JAX would wait for the others, who are gone; so this process ends before that.

    Its exit status is that of the error: 2 for a `ValueError`, 130 if interrupted, 1 for any other.
    """
    status = next((status for error_type, status in _STATUS_OF_ERROR.items() if isinstance(error, error_type)), 1)
    atexit.register(os._exit, status)
    atexit.register(interrupts.flush_output)  # called before `os._exit`: what is registered last is called first
