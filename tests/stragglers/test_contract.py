"""What holds for every straggler model."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import stragglers
from gcjax.config.arguments import with_checked_arguments
from gcjax.stragglers.base import _sample_units
from gcjax.stragglers.iid import Parameter
from gcjax.testing import check_straggler_model
from tests.stragglers.models import MODELS, NUM_WORKERS

KEY = jax.random.key(0)
ALL = pytest.mark.parametrize("name", sorted(MODELS))


def sample(model, key=KEY, num_units=12):
    return stragglers.sample_durations(model, key, num_units, NUM_WORKERS)


def test_every_model_of_the_table_is_tested_here():
    assert set(MODELS) == set(stragglers.TABLE)


@pytest.mark.parametrize("name", sorted(stragglers.TABLE))
def test_factories_take_keywords_and_say_what_they_are(name):
    entry = stragglers.TABLE[name]
    assert entry.summary.endswith(".")
    kinds = [(p.name, p.kind) for p in inspect.signature(entry.factory).parameters.values()]
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for name, kind in kinds if name != "model")


@pytest.mark.slow(
    "bimodal", "bursty", "delayed", "failed_count", "failed_probability", "failed_workers", "markov", "replay"
)
@ALL
def test_the_contract(name):
    check_straggler_model(MODELS[name](1.5), num_workers=NUM_WORKERS, quick=name != "worker_speeds")


@pytest.mark.slow("failed_probability", "failed_workers", "lognormal", "pareto", "weibull")
@ALL
def test_seconds_are_float64_under_x64(name, x64):
    seconds = np.asarray(sample(MODELS[name](1.5)))
    assert seconds.dtype == np.float64
    if name not in ("bimodal", "constant", "replay"):
        finite = seconds[np.isfinite(seconds)]
        assert (finite != finite.astype(np.float32)).any()


@ALL
def test_another_key_gives_other_bits(name):
    model = MODELS[name](1.5)
    assert name in ("constant", "replay") or (sample(model) != sample(model, jax.random.key(1))).any()


@pytest.mark.slow("failed_probability", "failed_workers", "lognormal", "pareto", "shifted_exponential", "weibull")
@ALL
def test_vmap_over_a_parameter_equals_the_loop(name):
    values = jnp.array([0.75, 1.5, 2.0])
    together = jax.jit(jax.vmap(lambda x: sample(MODELS[name](x))))(values)
    alone = jnp.stack([sample(MODELS[name](x)) for x in values])
    np.testing.assert_allclose(together, alone, rtol=2e-6)


@ALL
def test_other_parameters_compile_nothing(name):
    sample(MODELS[name](1.5))
    before = _sample_units._cache_size()
    sample(MODELS[name](1.25), jax.random.key(2))
    assert _sample_units._cache_size() == before


def test_a_users_own_model_may_close_over_traced_values():
    def own(mean):
        return stragglers.StragglerModel(
            init=lambda rng_key, num_workers: jnp.zeros(num_workers),
            sample=lambda state, rng_key: (mean + state, state + 1),
        )

    means = jnp.array([1.0, 2.0])
    seconds = jax.vmap(lambda mean: sample(own(mean), num_units=3))(means)
    np.testing.assert_array_equal(seconds[1, :, 0], [2.0, 3.0, 4.0])


@pytest.mark.parametrize("name", ["bimodal", "bursty", "constant", "delayed", "exponential", "markov", "scaled"])
def test_config_files_can_give_each_worker_its_own_number(name):
    """Gin knows tuples, not arrays; what it may give is said by the annotations."""
    factory = stragglers.TABLE[name].factory
    parameters = [p for p, wanted in inspect.get_annotations(factory, eval_str=True).items() if wanted == Parameter]
    shares = {"probability", "persistence"}
    each = {p: tuple((w + 1.5) / (10 if p in shares else 1) for w in range(NUM_WORKERS)) for p in parameters}
    rest = {"model": stragglers.constant(), "window": 2, "burst": 1, "max_slow": 1}
    given = {p: x for p, x in rest.items() if p in inspect.signature(factory).parameters}
    made = with_checked_arguments(factory, name)(**given, **each)
    of_arrays = factory(**given, **{p: np.float32(x) for p, x in each.items()})
    np.testing.assert_array_equal(sample(made), sample(of_arrays))
