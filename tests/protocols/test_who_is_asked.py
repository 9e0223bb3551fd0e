"""Rules that say that others wait for a commit: asking everybody after every message changes nothing."""

import jax
import numpy as np
import pytest

from gcjax import protocols
from gcjax.protocols.simulation import turn_queue
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.stragglers import Network
from tests.protocols.table import random_durations, tied_durations

KEY = jax.random.key(3)
WAITING = {
    "bsp": protocols.bsp(),
    "eager_sgd": protocols.eager_sgd(),
    "eager_sgd majority": protocols.eager_sgd(collective="majority", rng_key=KEY),
    "grouped": protocols.grouped(groups=[(0, 3), (1, 2, 4)]),
    "k_async": protocols.k_async(num_contributions=2),
    "k_batch_sync": protocols.k_batch_sync(num_contributions=4),
    "k_sync": protocols.k_sync(num_contributions=3),
    "progressive_groups": protocols.progressive_groups(num_rounds=1, no_delay=0.5),
}
SHAPE = 8, 5


@pytest.mark.slow("bsp", "eager_sgd", "eager_sgd majority", "grouped", "k_batch_sync", "k_sync", "progressive_groups")
@pytest.mark.parametrize("name", WAITING)
def test_asking_everybody_changes_nothing(name, monkeypatch):
    monkeypatch.setattr(turn_queue, "MAX_FEW_WORKERS", 0)
    rule = WAITING[name].rule(SHAPE[1])
    assert rule.waits_for_commit
    simulate = jax.jit(lambda rule, durations: event_schedule(rule, durations, Network()), static_argnums=0)
    for draw in (random_durations, tied_durations):
        for seed in range(3):
            durations = draw(seed, SHAPE, 0.04 * (seed == 2))
            expected = simulate(rule._replace(waits_for_commit=False), durations)
            jax.tree.map(np.testing.assert_array_equal, simulate(rule, durations), expected)


def test_who_waits_for_nobody_waits_for_no_commit():
    assert Rule().asks_after_commits
    assert not Rule(ready=lambda view: view.clock <= view.num_commits).asks_after_commits
