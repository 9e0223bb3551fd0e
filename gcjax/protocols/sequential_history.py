"""The history of sequential gradient codes: who answers in each round, and the ends of the rounds.

The states are those of `gcjax.algebra.specifications.sequential`. A schedule says who has sent a message in a round,
and when; what follows for the jobs are the specification's own moves, so that what is checked is who was late when a
round ended, and that then every job can be decoded in time.

Letters: T units sampled per worker, W workers, R rounds, E commits, C contributions to a commit, X events.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.specifications import Specification
from gcjax.protocols.history import BLOCK, Fields, Host, on_host
from gcjax.protocols.schedule import Schedule

ANSWER, END = range(2)
LEAST = 64  # events that are replayed at once

Move = Callable[[Any, jax.Array], tuple[Any, jax.Array]]


class SequentialHistory(NamedTuple):
    """The events of a run; arrays [X].

    Attributes:
      kind: ANSWER of a worker, or END of a round.
      worker: int32, who; W for the server.
      unit: int32, the last unit of an ANSWER; the round of an END.
      time: float seconds.
      late: bool, of an END: whether a commit that comes before the next one has more in it than was answered.
      num_workers: W.
    """

    kind: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    time: np.ndarray
    late: np.ndarray
    num_workers: int

    @property
    def names(self) -> tuple[str, ...]:
        """Of the kinds."""
        return "answer", "end round"


def sequential_history(schedule: Schedule, *, round_units: int, slots: int) -> SequentialHistory:
    """The history of a run.

    Args:
      schedule: of one run.
      round_units: K, the units of a worker in a round.
      slots: the jobs that they are for.

    Raises:
      ValueError: if it is of a batch.
    """
    host = on_host(schedule)
    num_workers, count = host.start.shape[1], len(host.start) // round_units
    sent = np.isfinite(host.send_start[: count * round_units]).reshape(count, round_units, num_workers)
    answered = sent.any(axis=1)
    last = np.arange(count)[:, None] * round_units + round_units - 1 - np.argmax(sent[:, ::-1], axis=1)
    arrival = np.where(answered, host.finish[last, np.arange(num_workers)], -np.inf)
    number = int(np.argmin(np.append(answered.any(axis=1), False)))
    end = arrival[:number].max(axis=1, initial=-np.inf)
    rounds, worker = np.nonzero(answered[:number])
    kind = np.repeat([ANSWER, END], [rounds.size, number])
    unit = np.concatenate([last[rounds, worker], np.arange(number)])
    time = np.concatenate([arrival[rounds, worker], end])
    too_much = _too_much(host, answered[:number], end, round_units // slots, round_units)
    late = np.concatenate([np.zeros(rounds.size, bool), too_much])
    worker = np.concatenate([worker, np.full(number, num_workers)])
    order = np.lexsort((worker, time, kind, np.concatenate([rounds, np.arange(number)])))
    worker, unit = worker[order].astype(np.int32), unit[order].astype(np.int32)
    return SequentialHistory(kind[order], worker, unit, time[order], late[order], num_workers)


def _too_much(host: Host, answered: np.ndarray, end: np.ndarray, task: int, round_units: int) -> np.ndarray:
    """bool[R]: whether a commit after this round, and before the end of the next, has in it what was not answered.

    In each round from its own on a worker does one task for a job, of so many units.
    """
    found = np.zeros(len(end), bool)
    total = np.concatenate([np.zeros((1, answered.shape[1]), int), np.cumsum(answered, axis=0)])
    for e in np.flatnonzero(np.isfinite(host.time)):
        there = (host.worker[e] >= 0) & (host.work[e] > 0)
        done = np.bincount(host.worker[e][there], host.work[e][there], answered.shape[1])
        job = int(host.unit[e].max()) // round_units
        ended = int(np.searchsorted(end, host.time[e] * (1 + 1e-5), side="right"))
        most = task * (total[ended] - total[min(job, ended)])
        found[max(ended - 1, 0)] |= bool((done > most).any())
    return found


def sequential_blocks(found: SequentialHistory, specification: Specification) -> Iterator[tuple[slice, Fields]]:
    """The states after the events, a block of events after the other, by the moves of the specification."""
    assert specification.server is not None
    moves = specification.worker.actions[0].move, specification.server.actions[0].move
    replay = _replay(*moves, specification.num_workers)
    state, names = jax.tree.map(jnp.asarray, specification.initial), type(specification.initial)._fields
    size = max(BLOCK // sum(np.size(x) for x in specification.initial), 1)
    for begin in range(0, found.kind.size, size):
        part = slice(begin, min(begin + size, found.kind.size))
        count = part.stop - begin
        padding = max(LEAST, 1 << (count - 1).bit_length()) - count  # few sizes are compiled
        state, after = replay(state, np.pad(found.worker[part], (0, padding), constant_values=-1))
        yield part, {name: np.asarray(x)[:count] for name, x in zip(names, after, strict=True)}


@lru_cache(maxsize=32)
def _replay(answer: Move, end: Move, server: int) -> Callable[[Any, np.ndarray], tuple[Any, Any]]:
    """`(state, components) -> (state, states)`, the last one and all after the steps; component -1 does nothing."""

    def step(state: Any, component: jax.Array) -> tuple[Any, Any]:
        answered, ended = (move(state, component)[0] for move in (answer, end))

        def chosen(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
            return jnp.where(component < 0, z, jnp.where(component < server, x, y))

        after = jax.tree.map(chosen, answered, ended, state)
        return after, after

    return jax.jit(lambda state, components: jax.lax.scan(step, state, components))
