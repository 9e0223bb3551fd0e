"""Golden runs: small schedules worked out by the event queue, and the losses of short training runs.

`python -m tests.test_golden` writes the files anew; look at the difference before you commit it.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, tasks
from gcjax.codes import assignments
from tests.protocols import reference

FOLDER = Path(__file__).parent / "golden"
# Three workers: a steady one, one that is slow once, one that is always slow.
DURATIONS = np.array([[1.0, 1.5, 3.0], [1.0, 4.0, 3.0], [1.0, 1.5, 3.0], [1.0, 1.5, 3.0], [1.0, 1.5, 3.0]])
KEY = jax.random.key(0)
STALENESS = {"asp": np.inf, "ssp 0": 0, "ssp 1": 1}
PROTOCOLS = {
    "asp": protocols.asp(),
    "bsp": protocols.bsp(),
    "coded": protocols.coded(codes.partial(assignments.cyclic(3, load=2))),
    "ssp 0": protocols.ssp(staleness=0),
    "ssp 1": protocols.ssp(staleness=1),
}


def expected_schedules():
    """From the plain-Python references, not from the package."""
    golden = {
        name: [[float(t), w, n, v] for t, w, n, v in reference.arrivals(DURATIONS, s)] for name, s in STALENESS.items()
    }
    golden["bsp"] = [float(t) for t in reference.rounds(DURATIONS)]
    code = PROTOCOLS["coded"].code
    rounds = reference.coded_rounds(code, DURATIONS, reference.is_decodable(code))
    return golden | {"coded": [[float(t), progress.tolist()] for t, progress in rounds]}


def training_losses():
    """Commit losses of the package itself, in float64."""
    losses = {}
    with jax.enable_x64(True):
        task = tasks.linear_regression(num_chunks=3, num_examples=30, num_features=3)
        for name, protocol in PROTOCOLS.items():
            run = engine.run(task, protocol, optax.sgd(0.1), jnp.asarray(DURATIONS), rng_key=KEY)
            losses[name] = [round(float(x), 12) for x in run.info.loss if np.isfinite(x)]
    return losses


def load(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.mark.parametrize("name", PROTOCOLS)
def test_schedules(name, x64):
    schedule = PROTOCOLS[name](jnp.asarray(DURATIONS))
    used = np.isfinite(schedule.time)
    time = np.asarray(schedule.time)[used].tolist()
    if name == "bsp":
        assert time == load("schedules")[name]
    elif name == "coded":
        assert [list(row) for row in zip(time, schedule.work.tolist(), strict=False)] == load("schedules")[name]
    else:
        columns = (np.asarray(x)[used, 0].tolist() for x in (schedule.worker, schedule.unit, schedule.version))
        assert [list(row) for row in zip(time, *columns, strict=True)] == load("schedules")[name]


def test_losses():
    losses, golden = training_losses(), load("losses")
    assert losses.keys() == golden.keys()
    for name, values in losses.items():
        np.testing.assert_allclose(values, golden[name], rtol=1e-9)


if __name__ == "__main__":
    for file, content in (("schedules", expected_schedules()), ("losses", training_losses())):
        (FOLDER / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")
