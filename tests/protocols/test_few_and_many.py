"""The event queue of many workers, which looks at one alone, has the same bits as that of few, which looks at all."""

import jax
import numpy as np
import pytest

from gcjax import compiler_options, protocols
from gcjax.protocols.simulation import turn_queue
from gcjax.stragglers import Network
from gcjax.stragglers.absences import Absences
from tests.protocols.table import CASES, random_durations, tied_durations

QUEUED = [
    "adsp",
    "async_local_sgd",
    "decoupled_diloco",
    "dssp",
    "eager_sgd",
    "elastic_averaging",
    "fedbuff",
    "k_async",
    "k_batch_async",
    "k_batch_sync",
    "k_sync",
    "progressive_groups",
    "psp",
    "rennala",
    "ringleader",
    "ringmaster",
    "ringmaster cuts off",
    "worker_busy",
    "worker_busy eager",
    "worker_busy overlap",
]
FAST = {"k_async"}
SHAPE = 10, 5
NETWORK = Network(
    np.array([0.5, 0.25, 0.0, 0.25, 1.0]), np.full(5, 0.5), np.array([0.0, 0.5, 0.25, 0.0, 1.0]), None, 0.25
)


def schedules(name, few, monkeypatch, num_seeds):
    """The schedules of durations with and without ties, alone and as one batch, where up to `few` workers are few.

    Those of many are compiled as a run does.
    """
    monkeypatch.setattr(turn_queue, "MAX_FEW_WORKERS", few)
    protocol, network = CASES[name].make(SHAPE[1]), NETWORK._replace(servers=CASES[name].servers)
    options = {} if few else compiler_options.small_operations()
    schedule = jax.jit(lambda durations: protocol.schedule(durations, network), compiler_options=options)
    drawn = [draw(n, SHAPE, 0.05 * (n == 2)) for n in range(num_seeds) for draw in (random_durations, tied_durations)]
    yield from map(schedule, drawn)
    yield jax.vmap(schedule)(np.stack(drawn))


@pytest.mark.slow(*(set(QUEUED) - FAST))
@pytest.mark.parametrize("name", QUEUED)
def test_same_bits(name, monkeypatch):
    few, many = (list(schedules(name, number, monkeypatch, num_seeds=3)) for number in (SHAPE[1], 0))
    for one, other in zip(few, many, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
def test_same_bits_where_workers_leave_and_join(monkeypatch):
    absences = Absences(
        leave=np.array([[2.0], [np.inf], [3.0], [np.inf], [1.0]]),
        join=np.array([[4.0], [np.inf], [6.0], [np.inf], [1.5]]),
    )
    durations = tied_durations(1, SHAPE)
    for name in ("k_async", "k_sync"):
        found = []
        for few in (SHAPE[1], 0):
            monkeypatch.setattr(turn_queue, "MAX_FEW_WORKERS", few)
            jax.clear_caches()
            found.append(CASES[name].make(SHAPE[1])(durations, None, absences))
        jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.slow
def test_same_bits_of_many():
    """So many that the times have several blocks."""
    durations = np.random.default_rng(0).exponential(size=(3, turn_queue.MAX_FEW_WORKERS + 1)).round(1) + 0.1
    schedule = protocols.k_async(num_contributions=40)(durations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn_queue, "MAX_FEW_WORKERS", durations.shape[1])
        jax.clear_caches()
        jax.tree.map(np.testing.assert_array_equal, schedule, protocols.k_async(num_contributions=40)(durations))
