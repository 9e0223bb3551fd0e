"""The callable that `gcjax.watch` gives."""

import atexit
import functools
import itertools
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gcjax import processes
from gcjax.stragglers.traces.base import Trace
from gcjax.watching import under_way
from gcjax.watching.exchange import MAX_ROWS, Exchange
from gcjax.watching.group import Group
from gcjax.watching.joining import empty_rows, joined_trace
from gcjax.watching.outputs import Outputs
from gcjax.watching.recorder import FAILURE, Periodic, Recorder
from gcjax.watching.reports import Report

CLOSE_SECONDS = 5.0
"""How long the end waits for steps that are under way, and for the last rows of others."""

_clock = time.perf_counter
_beginning = threading.Lock()


class Watch:
    """A step that is watched; see `gcjax.watch`. At the end of a `with` block, or of the process, it is closed."""

    def __init__(
        self,
        step: Callable[..., Any],
        exchange: Exchange,
        *,
        start: int,
        every: float,
        waits: bool,
        tell: Callable[[Report], None] | None,
    ) -> None:
        """Starts nothing before the first call; arguments are those of `gcjax.watch`, with `tell` for its `report`.

        `exchange`: where rows go, and those of others come from.
        """
        functools.update_wrapper(self, step, updated=())
        self._step, self._every, self._waits = step, every, waits
        self._unsent = empty_rows()
        self._exchange, self._tell = exchange, tell
        self._outputs = Outputs(step)
        self._recorder: Recorder | None = None
        self._step_numbers = itertools.count(start)
        self._is_over = False
        self._is_interval_over = False  # whether a time of `every` is over that is not counted yet
        self._num_forks = under_way.num_forks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the step, and has the recorder note when its output is there; an error of the step is raised again."""
        if self._is_over or self._num_forks != under_way.num_forks:
            return self._step(*args, **kwargs)
        recorder = self._recorder or self._begin()
        under_way_here, call_time = under_way.of_this_thread, _clock()  # seconds
        outer_watch, under_way_here.watch = under_way_here.watch, self
        try:
            output = self._step(*args, **kwargs)
        except BaseException:
            recorder.put(FAILURE)
            raise
        finally:
            under_way_here.watch = outer_watch
        outputs = self._outputs
        copies = outputs.copied_numbers(output) if outputs.needs_copies else ()
        recorder.put((next(self._step_numbers), call_time, outputs, output, copies, _clock()))
        return output

    def __getattr__(self, name: str) -> Any:
        """Attributes of the step, such as `lower`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._step, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The step as a method, where it is an attribute of a class."""
        return self if instance is None else types.MethodType(self, instance)

    def __enter__(self) -> "Watch":
        """The step itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Closes it."""
        self.close()

    def note_end_of_local_work(self, outputs: Outputs, output: Any) -> None:
        """A local part of the step that is under way has returned this."""
        if self._recorder is not None:
            copies = outputs.copied_numbers(output) if outputs.needs_copies else ()
            # None: it is no step; nobody looks at when it was called.
            self._recorder.put((None, 0.0, outputs, output, copies, _clock()))

    def report(self) -> Report:
        """What is known now, of all processes if there is a folder; the steps under way are not waited for."""
        if self._recorder is None or self._num_forks != under_way.num_forks:
            return Group(1).report()  # that no step is known
        self._share()
        self._judge_news()
        return self._group.report()

    def trace(self) -> Trace:
        """What each process computed and waited in each step, as far as it is known here.

        Raises:
          ValueError: if there are no steps yet.
        """
        self.report()  # hands out what this process has measured since the last time
        return joined_trace(self._exchange.all_rows())

    def close(self) -> None:
        """Ends the record; process 0 then writes the trace of all to `NAME.csv` in the folder.

        It waits a few seconds at most for the last steps of the others. The step can still be called, unrecorded.
        """
        was_over, self._is_over = self._is_over, True
        if was_over or self._recorder is None or self._num_forks != under_way.num_forks:
            return
        atexit.unregister(self.close)
        self._recorder.stop(CLOSE_SECONDS)
        self._periodic.stop(CLOSE_SECONDS)
        self._periodic.attempt(self._finish)

    def _begin(self) -> Recorder:
        """The recorder; the first call looks up which process this is, and starts the threads. Threads may call it."""
        with _beginning:
            if self._recorder is None:
                self._start()
            assert self._recorder is not None
            return self._recorder

    def _start(self) -> None:
        """What `_begin` does the first time."""
        self._worker, num_workers = _process_index_and_count() if self._exchange.is_shared else (0, 1)
        self._exchange.open(self._worker)
        self._group, self._lock = Group(num_workers), threading.Lock()
        self._recorder = Recorder(waits=self._waits)
        self._periodic = Periodic(self._share_and_judge, self._every)
        atexit.register(self.close)

    def _share_and_judge(self) -> None:
        """Writes the new rows; in process 0 also reads and judges those of all."""
        self._share()
        self._is_interval_over = True
        if self._worker == 0:
            self._judge_news()

    def _finish(self) -> None:
        """At the end: gives the last rows to the exchange; process 0 waits for those of the others, and ends it.

        The exchange writes the trace of all when it ends.
        """
        self._share()
        if self._worker == 0:
            self._wait_for_last_news()
            self._exchange.close()

    def _share(self) -> None:
        """Gives the new rows to the exchange, and those that it could not take before."""
        assert self._recorder is not None
        with self._lock:
            rows = self._recorder.rows()  # float64[rows, 6]; with the worker in front [rows, 7]
            new_rows = np.column_stack([np.full(len(rows), self._worker), rows])
            self._unsent = np.concatenate([self._unsent, new_rows])[-MAX_ROWS:]
            if len(self._unsent):
                self._exchange.append(self._unsent)
                self._unsent = empty_rows()

    def _judge_news(self) -> None:
        """Judges the rows that have come since the last time, and tells the changes.

        If an interval of `every` seconds is over, who has had no rows in it was unheard once more. Calls may come
        oftener.
        """
        with self._lock:
            news = self._exchange.news()
            changes = self._group.add(news, ends_interval=self._is_interval_over)
            self._is_interval_over = False
        if self._tell is not None and self._worker == 0:
            for change in changes:
                self._tell(change)

    def _wait_for_last_news(self) -> None:
        """Waits until all processes that are not silent have come equally far, or for some seconds.

        Nobody becomes silent meanwhile.
        """
        deadline = _clock() + CLOSE_SECONDS
        self._is_interval_over = False
        self._judge_news()
        while not self._group.is_complete() and _clock() < deadline:
            time.sleep(0.05)
            self._judge_news()


def _process_index_and_count() -> tuple[int, int]:
    """The number of this process, from 0, and how many there are."""
    place = processes.current_place()
    if place is not None:
        return place.rendezvous.process_id, place.rendezvous.num_processes
    return jax.process_index(), jax.process_count()
