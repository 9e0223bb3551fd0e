"""The workers of `experiments.live_protocols`: each is a process that takes part in one run after the other.

What happens to a worker happens at a number of its units, so it is the same in every run: it is slow, it stops itself
for a while, or it is killed. Whoever has started a process that was killed starts another one in its place.
"""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.pause_process import interrupted
from gcjax import config, parameter_server, progress
from gcjax.config.errors import without_gin_suffixes
from gcjax.parameter_server import flight
from gcjax.parameter_server.wire import Message

SLOW = 1  # the worker that is slow, is stopped, or is killed
NOTHING, STOP, KILL = "", "stop", "kill"
EVENT_UNIT = 10


class Scenario(NamedTuple):
    """What happens to worker SLOW: how many times longer its units take, and what is done to it in one of them."""

    slowdown: float = 1.0
    event: str = NOTHING


class Case(NamedTuple):
    """A scheme in a scenario.

    Attributes:
      scheme_name: of the scheme.
      scenario_name: of the scenario.
      scenario: what happens.
      setup: what all processes make alike; its identity is told by no other case.
    """

    scheme_name: str
    scenario_name: str
    scenario: Scenario
    setup: parameter_server.Setup

    @property
    def label(self) -> str:
        """For a person."""
        return f"{self.scheme_name}, {self.scenario_name}"


class Place(NamedTuple):
    """Which worker a process is (-1: the server), where the server is reached, and how many seconds it waits."""

    worker: int
    address: str
    token: str
    patience: float

    @property
    def security(self) -> parameter_server.Security:
        """With the token; there is none if others cannot reach the server, or somebody has said that none is wanted."""
        return parameter_server.Security(self.token, open_to_all=not self.token)


_places: list[Place] = []


def place() -> Place | None:
    """That of this process, if it is a worker."""
    return _places[-1] if _places else None


def member(text: str, worker: int, address: str, token: str, patience: float) -> None:
    """What a process of a worker does: runs the experiment of a config, given as text, as that worker.

    `address` and `token` are those of the server; it is waited for for `patience` seconds.
    """
    _places.append(Place(worker, address, token, patience))
    with tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder) / "config.gin"
        config_file.write_text(text)
        config.load(config_file)
        try:
            config.run_loaded(Path(folder), progress.silent())
        except parameter_server.Disconnected as error:
            raise parameter_server.Disconnected(without_gin_suffixes(str(error))) from error


def take_part(cases: Sequence[Case], place: Place, *, pace: float, stop_seconds: float) -> None:
    """Takes part in the runs of the server, one after the other, until the last one is done.

    Args:
      cases: all runs, in their order.
      place: which worker this is.
      pace: seconds that a unit takes at least.
      stop_seconds: how long a worker stops itself.

    Raises:
      ValueError: if the server runs something that is none of the cases.
    """
    identity = ""  # of the last run; none yet
    while identity != cases[-1].setup.identity:
        try:
            identity = _next_identity(place, identity)
        except parameter_server.Disconnected:
            # A process that was started anew after a kill may come when the server has ended its last run and left.
            were_all_runs_done_before = parameter_server.is_restarted()
            if were_all_runs_done_before:
                return
            raise
        case = next((case for case in cases if case.setup.identity == identity), None)
        if case is None:
            raise ValueError(f"server and workers must have the same config; the server runs {identity!r}.")
        with contextlib.ExitStack() as interruptions, _refusal_by_next_run_ignored(place, identity):
            throttle = Throttle(case.scenario, interruptions, pace=pace, stop_seconds=stop_seconds)
            parameter_server.work(
                case.setup, place.address, worker=place.worker, throttle=throttle, security=place.security,
                patience=place.patience,
            )  # fmt: skip


@contextlib.contextmanager
def _refusal_by_next_run_ignored(place: Place, identity: str) -> Iterator[None]:
    """Lets it pass if a worker that has lost its server is refused by that of the next run."""
    try:
        yield
    except parameter_server.Refused:
        try:
            is_same_run = _served_identity(place) == identity
        except parameter_server.Disconnected:  # the run of the server that has answered is done
            is_same_run = False
        if is_same_run:
            raise


class Throttle:
    """`(worker, unit) -> seconds`; what a scenario does to a worker is done here."""

    def __init__(
        self, scenario: Scenario, stack: contextlib.ExitStack, *, pace: float, stop_seconds: float,
        interrupt: Callable[..., contextlib.AbstractContextManager[Any]] = interrupted,
    ) -> None:  # fmt: skip
        """`pace`: seconds that a unit takes at least; `stop_seconds`: for which a worker stops itself.

        An interruption ends with the stack. `interrupt` begins one: `(stopped, running, times) ->` a context.
        """
        self._scenario, self._stack, self._pace, self._stop_seconds = scenario, stack, pace, stop_seconds
        self._interrupt = interrupt
        self._is_event_due = False

    def __call__(self, worker: int, unit: int) -> float:
        """The seconds that a unit takes at least; at unit `EVENT_UNIT` the slow worker is stopped or killed, if due.

        Once a run; not in a process that was started again, which does not begin with unit 0.
        """
        if worker != SLOW:
            return self._pace
        was_there_from_begin = unit == 0  # a process that was started again later was not
        self._is_event_due |= was_there_from_begin and self._scenario.event != NOTHING
        if self._is_event_due and unit >= EVENT_UNIT:
            self._is_event_due = False
            if self._scenario.event == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                self._stack.enter_context(self._interrupt(stopped=self._stop_seconds, running=0.0, times=1))
        return self._pace * self._scenario.slowdown


def _next_identity(place: Place, last_identity: str) -> str:
    """The identity of the run that the server serves, once that is another one than the last.

    A `Disconnected` if there is none within the place's `patience`, in seconds.
    """
    deadline = time.monotonic() + place.patience
    while True:
        try:
            identity = _served_identity(place)
            if identity != last_identity:
                return identity
            problem = f"the server at {place.address} serves no other run."
        except parameter_server.Disconnected as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise parameter_server.Disconnected(f"{problem} It was waited for for {place.patience:g} s.")
        time.sleep(0.1)


def _served_identity(place: Place) -> str:
    """What the server says that it serves; a `Disconnected` if it says that its run is done."""
    with contextlib.closing(flight.connect(place.address, max_bytes=0, security=place.security)) as connection:
        connection.send(Message({"kind": "ping"}))
        answer = connection.receive()
        if answer.kind != "pong":
            raise parameter_server.Disconnected(f"the server at {place.address} ends.")
        return str(answer.header["identity"])
