"""The loops that are written for one protocol train as runs of it do: otherwise their times would say nothing."""

import chex
import jax
import pytest

from benchmarks.by_hand import OPTIMIZER, loops
from benchmarks.engine import run_params
from gcjax import stragglers, tasks


@pytest.mark.slow
@pytest.mark.parametrize("name", loops())
def test_a_loop_trains_as_a_run_does(name):
    protocol, loop = loops()[name]
    task = tasks.digits(4, batch_size=8)
    durations = stragglers.sample_durations(stragglers.exponential(), jax.random.key(1), 20, 4)
    params = run_params(task, protocol, OPTIMIZER, durations)
    chex.assert_trees_all_close(loop(task, durations)(), params, atol=2e-5)
    initial_params = task.init(jax.random.split(jax.random.key(0))[0])
    with pytest.raises(AssertionError):  # it has trained
        chex.assert_trees_all_close(params, initial_params, atol=0.01)
