"""What contributions weigh at the server."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import protocols
from gcjax.parameter_server.turn_log import TurnLog, schedule_of
from gcjax.parameter_server.updates import Contribution, Updates
from tests.parameter_server.runs import NUM_WORKERS
from tests.protocols.test_rules import PROTOCOLS


def weights(protocol, pushes):
    """Of `(worker, version, work)` in commit 3."""
    updates = Updates(protocol, optax.sgd(1.0), protocol.rule(NUM_WORKERS), NUM_WORKERS, np.zeros(2))
    contributions = [
        Contribution(worker, turn, version, work, loss=0.0, tree=np.zeros(2))
        for turn, (worker, version, work) in enumerate(pushes)
    ]
    return updates.weights(contributions, commit=3).tolist()


def test_each_push_of_a_learner_has_the_share_of_all_its_steps():
    protocol = protocols.decoupled_diloco(num_local_steps=2, min_quorum=1)
    assert weights(protocol, [(2, 1, 2), (0, 3, 2), (2, 3, 2)]) == pytest.approx([2 / 3, 1 / 3, 2 / 3])


def test_what_weighs_by_staleness_is_asked_push_by_push():
    protocol = protocols.staleness_aware(num_contributions=2)
    assert weights(protocol, [(2, 1, 1), (2, 3, 1)]) == pytest.approx([1 / 4, 1 / 2])


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_run_without_a_commit_has_a_record(name):
    schedule = schedule_of(TurnLog(NUM_WORKERS), PROTOCOLS[name].rule(NUM_WORKERS), 1.5)
    assert len(schedule.time) == 0 and schedule.horizon == 1.5


def test_a_step_is_with_the_weighted_sum_in_the_types_of_the_leaves(x64):
    protocol = protocols.staleness_aware(num_contributions=2)
    params = {"vector": jnp.zeros(2, jnp.float32), "number": jnp.zeros((), jnp.float64)}
    updates = Updates(protocol, optax.sgd(1.0), protocol.rule(NUM_WORKERS), NUM_WORKERS, params)
    trees = [{"vector": np.float32([8, 16 * k]), "number": np.asarray(4.0 * k)} for k in (1, 2)]
    for tree in trees:  # as what came in a message
        for leaf in tree.values():
            leaf.flags.writeable = False
    versions = 1, 3  # in commit 3: weights 1/4 and 1/2
    loss = updates.commit(
        [Contribution(k, 0, version, 1, loss=3.0 * k, tree=trees[k]) for k, version in enumerate(versions)], commit=3
    )
    assert updates.params["vector"].tolist() == [-6, -20] and updates.params["number"] == -5
    assert [x.dtype for x in jax.tree.leaves(updates.params)] == [jnp.float64, jnp.float32]
    assert loss == pytest.approx(2.0)


def test_the_sum_over_many_workers_is_not_formed_in_a_short_type():
    """In bfloat16, 512 pushes of one, each of weight 1/512, would add up to a half."""
    num_pushes = 512
    protocol = protocols.k_async(num_contributions=num_pushes)
    updates = Updates(protocol, optax.sgd(1.0), protocol.rule(num_pushes), num_pushes, jnp.zeros(1, jnp.bfloat16))
    tree = np.ones(1, jnp.bfloat16)
    updates.commit([Contribution(worker, 0, 0, 1, loss=0.0, tree=tree) for worker in range(num_pushes)], commit=0)
    assert updates.params.dtype == jnp.bfloat16 and updates.params.tolist() == [-1.0]
