"""What a run goes on with must be a run of the same arguments, and is part of the identity of its checkpoints."""

import jax
import jax.numpy as jnp
import optax
import pytest

from gcjax import engine, protocols, tasks
from tests.engine.test_run import KEY, PROTOCOLS, SGD, W, durations, regression


def run(protocol=None, optimizer=SGD, durations=None, rng_key=KEY, task=None, **more):
    protocol = PROTOCOLS["asp"] if protocol is None else protocol
    seconds = DURATIONS if durations is None else durations
    return engine.run(task or regression(), protocol, optimizer, seconds, rng_key=rng_key, eval_every=5, **more)


DURATIONS, WIDER = durations(), tasks.linear_regression(num_chunks=W, num_examples=60, num_features=5)
OTHER = {
    "optimizer": ({"optimizer": optax.adam(0.1)}, "same task, protocol, optimizer.*its state.opt_state is"),
    "parameters": ({"task": WIDER}, r"its state.params is float32\[4\], that of .* is float32\[5\]"),
    "workers": ({"durations": DURATIONS[:, :-1]}, "same protocol and durations"),
    "units": ({"durations": DURATIONS[:-1]}, "same protocol and durations"),
    "owners of parameters": ({"protocol": protocols.local_sgd(num_local_steps=2)}, "same protocol and durations"),
    "contributions": ({"protocol": PROTOCOLS["bsp"]}, "same protocol and durations"),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_run_with_other_arguments_does_not_go_on(name):
    begun = run(resume=engine.Resume(num_evals=1))
    other, message = OTHER[name]
    with pytest.raises(ValueError, match=message):
        run(**other, resume=begun)
    run(resume=begun)  # it was not donated


def test_a_run_with_other_metrics_does_not_go_on():
    begun = run(resume=engine.Resume(num_evals=1))
    task = regression()
    fewer = task._replace(metrics=lambda params, data: {"norm": (params**2).sum()})
    with pytest.raises(ValueError, match=r"its trajectory.metrics is .*suboptimality.* is \{'norm'"):
        run(task=fewer, resume=begun)


@pytest.mark.parametrize("wrong", [None, "run"], ids=["no schedule", "no run"])
def test_a_run_needs_its_schedule(wrong):
    begun = run(resume=engine.Resume(num_evals=1))
    with pytest.raises(ValueError, match="a Run with its schedule"):
        run(resume=engine.Resume(run=begun.unscheduled if wrong is None else wrong))


def test_checkpoints_of_a_resumed_run_are_bound_to_it(tmp_path):
    """Both are of three evaluations, with the same key; one began with other parameters."""
    begun = [run(params=params, resume=engine.Resume(num_evals=1)) for params in (None, jnp.ones(4))]

    def go_on(number, num_evals):
        with engine.Checkpoints(tmp_path) as checkpoints:
            copy = jax.tree.map(jnp.array, begun[number])
            return run(resume=engine.Resume(copy, num_evals, checkpoints))

    go_on(0, num_evals=2)
    with pytest.raises(ValueError, match="resumed_run"):
        go_on(1, num_evals=3)
    again, whole = go_on(0, num_evals=None), run()
    assert (again.params == whole.params).all()
