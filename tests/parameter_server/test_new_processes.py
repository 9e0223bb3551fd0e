"""A worker that is killed and started again begins anew, and a replay knows it."""

import chex
import jax
import numpy as np
import optax
import pytest

from gcjax import engine, protocols, tasks
from gcjax.protocols.conformance.memberships import Membership
from tests.parameter_server import driven, runs
from tests.parameter_server.driven import Driven
from tests.parameter_server.runs import KEY, NUM_WORKERS
from tests.protocols.test_rules import PROTOCOLS

# With something of their own that they lose; sums of gradients of one version are not.
LOCAL = sorted(n for n, p in PROTOCOLS.items() if p.local is not None and not p.local.gradients_at_version)
QUICK = ("elastic_averaging", "worker_busy overlap")
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LOCAL]
MOMENTUM = optax.sgd(0.05, momentum=0.9)


def rounds(run, num, workers):
    for _ in range(num):
        for worker in workers:
            run.push(worker)


def killed_twice(name, monkeypatch):
    """Worker 2 is killed and started again, and once more before it has pushed; worker 1 is silent for a while."""
    run = Driven(name, monkeypatch)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    rounds(run, 3, range(NUM_WORKERS))
    run.kill(2)
    rounds(run, 2, (0, 1, 3))
    run.join(2)
    rounds(run, 2, range(NUM_WORKERS))
    run.silence(1)
    rounds(run, 2, (0, 3, 2))
    run.kill(2)
    rounds(run, 2, (0, 3))
    run.join(2)
    run.leave(2)  # this process has pushed nothing
    rounds(run, 1, (0, 3))
    run.join(2)
    rounds(run, 2, range(NUM_WORKERS))
    return run.end()


@pytest.mark.slow
@pytest.mark.slow("elastic_averaging")
@pytest.mark.parametrize("name", CASES)
def test_a_replay_knows_that_a_process_is_another_one(name, monkeypatch):
    monkeypatch.setattr(runs, "OPTIMIZER", MOMENTUM)
    with jax.enable_x64(True):
        run = killed_twice(name, monkeypatch)
        assert driven.problems(name, run) == {}
        changes = [(m.change, m.anew) for m in run.memberships if m.worker == 2]
        others = [m.anew for m in run.memberships if m.worker != 2]
        assert changes.count(("came back", True)) == 3 and not any(others)
        one = runs.setup(PROTOCOLS[name])
        without = engine.replay(one.task, one.protocol, MOMENTUM, run.schedule, rng_key=KEY)
    theirs, ours = (np.asarray(jax.tree.leaves(one.params)[0]) for one in (without, run))
    assert np.abs(theirs - ours).max() > 1e-6


def test_a_process_begins_anew_with_its_first_unit():
    task, protocol = tasks.linear_regression(num_chunks=2), protocols.local_sgd(num_local_steps=2)
    schedule = protocol(jax.numpy.ones((8, 2)))
    changes = [Membership(time, 1, "came back", anew=True) for time in (3.0, 4.0)]  # both before the third round
    none, again = (
        engine.replay(task, protocol, MOMENTUM, schedule, rng_key=KEY, memberships=members, num_commits=3)
        for members in ((), changes)
    )
    own, own_again = (jax.tree.leaves(run.state.local.opt_state) for run in (none, again))
    chex.assert_trees_all_equal(*(run.info.loss[:2] for run in (none, again)))
    chex.assert_trees_all_equal([x[0] for x in own], [x[0] for x in own_again])
    assert (own[0][1] != own_again[0][1]).any() and again.state.local.new_processes is None
