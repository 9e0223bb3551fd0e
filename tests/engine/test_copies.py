"""Loops of runs that copy no array of all workers: a message costs as much with a thousand workers as with ten."""

import re

import jax
import jax.numpy as jnp
import optax
import pytest

from gcjax import engine, protocols, stragglers, tasks
from gcjax.engine import local_work
from tests.codes.helpers import KEY

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="the names of operations are those of XLA's CPU compiler"
)

W, D = 6, 37  # workers, parameters; no other arrays have these shapes
PROTOCOLS = {
    "ad_psgd": protocols.ad_psgd(rng_key=KEY),
    "elastic_averaging": protocols.elastic_averaging(num_local_steps=2),
    "d_psgd": protocols.d_psgd(),
    "hop": protocols.hop(),
    "halos": protocols.halos(
        groups=protocols.contiguous_groups(W, num_groups=2), num_local_steps=2, num_contributions=2, max_pushes=4
    ),
}


def copies_in_loops(function, *arguments):
    """The copies of arrays [W, D] in what XLA compiles for a function, but for those outside of its loops."""
    lines = jax.jit(function).lower(*arguments).compile().as_text().splitlines()
    computation = ""
    for line in lines:
        if header := re.match(r"^(ENTRY )?%?([\w.\-]+) .*\{$", line):
            computation = header[1] or header[2]
        if re.search(rf"= f\d+\[{W},{D}\]\S* copy\(", line) and not computation.startswith("ENTRY"):
            yield line.strip()


def test_a_copy_is_seen():
    def every_second_row_after_the_other(rows):
        def add(i, rows):
            first = rows[i]
            return rows.at[i + 1].set(first + rows.sum(axis=0)).at[i].set(rows[i + 1])

        return jax.lax.fori_loop(0, W - 1, add, rows)

    assert list(copies_in_loops(every_second_row_after_the_other, jnp.ones((W, D))))


@pytest.mark.slow("d_psgd", "elastic_averaging", "halos", "hop")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_of_runs(name, monkeypatch):
    # What workers that have no step in a commit keep is copied only then, in a loop of one turn or none.
    monkeypatch.setattr(local_work, "run_if", lambda flag, step, state: state)
    task = tasks.linear_regression(W, num_features=D, batch_size=2)

    def params(durations):
        return engine.run(task, PROTOCOLS[name], optax.sgd(0.1), durations, rng_key=KEY, eval_every=3).params

    durations = stragglers.sample_durations(stragglers.exponential(), KEY, 8, W)
    assert not list(copies_in_loops(params, durations))
