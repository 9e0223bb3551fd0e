"""Golden runs of three workers: schedules worked out by hand, and the losses of short training runs.

`tests/golden/protocols.json` has the commits of every protocol of `tests.protocols.table`, without a network of its
workers, and the reasoning; some once more, with the time of messages between the servers of groups.
`python -m tests.test_golden` writes the losses anew; look at the difference before you commit it.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, tasks
from tests.protocols import table

FOLDER = Path(__file__).parent / "golden"
SCHEDULES = json.loads((FOLDER / "protocols.json").read_text())
# A steady worker, one that is slow once, one that is always slow.
DURATIONS = np.array([[1.0, 1.5, 3.0], [1.0, 4.0, 3.0]] + [[1.0, 1.5, 3.0]] * 6)
KEY = jax.random.key(0)
WITH_SERVERS = [name for name in table.CASES if name.endswith("servers")]
TRAINED = {
    "asp": protocols.asp(),
    "bsp": protocols.bsp(),
    "coded": protocols.coded(codes.partial(codes.assignments.cyclic(3, load=2))),
    "ssp 0": protocols.ssp(staleness=0),
    "ssp 1": protocols.ssp(staleness=1),
}


@pytest.mark.slow(
    "adaptive_coded",
    "async_local_sgd",
    "backup_workers",
    "diloco dynamic",
    "dssp",
    "elastic_averaging",
    "fedbuff",
    "grouped coded servers",
    "halos servers",
    "k_async",
    "k_batch_sync",
    "k_sync",
    "progressive_groups",
    "progressive_groups servers",
    "psp",
    "ringmaster",
)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name, x64):
    units = table.shape_of(name)[0] // len(DURATIONS)  # a code's round has several
    commits, weights = table.commits_of(table.schedule(name, np.repeat(DURATIONS, units, axis=0)))
    golden = SCHEDULES[name]["commits"]
    assert [time for time, _ in commits] == [time for time, _ in golden]
    assert [parts for _, parts in commits] == [[tuple(row[:4]) for row in rows] for _, rows in golden]
    for weight, (_, rows) in zip(weights, golden, strict=True):
        np.testing.assert_allclose(weight, [row[4] for row in rows], rtol=1e-6)


def test_every_protocol_has_a_schedule_and_a_reason():
    assert {name.split()[0] for name in SCHEDULES} == set(protocols.TABLE) <= set(SCHEDULES)
    assert {name for name in SCHEDULES if name not in protocols.TABLE} == {*WITH_SERVERS, "diloco dynamic"}
    assert all(len(entry["reasoning"]) > 20 for entry in SCHEDULES.values())


def training_losses():
    """Commit losses of the package itself, in float64."""
    losses = {}
    with jax.enable_x64(True):
        task = tasks.linear_regression(num_chunks=3, num_examples=30, num_features=3)
        for name, protocol in TRAINED.items():
            run = engine.run(task, protocol, optax.sgd(0.1), jnp.asarray(DURATIONS[:5]), rng_key=KEY)
            losses[name] = [round(float(x), 12) for x in run.info.loss if np.isfinite(x)]
    return losses


def test_losses():
    losses, golden = training_losses(), json.loads((FOLDER / "losses.json").read_text())
    assert losses.keys() == golden.keys()
    for name, values in losses.items():
        np.testing.assert_allclose(values, golden[name], rtol=1e-9)


if __name__ == "__main__":
    (FOLDER / "losses.json").write_text(json.dumps(training_losses(), indent=1) + "\n")
