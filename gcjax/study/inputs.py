"""What all schemes of a study are given: drawn once, so that every scheme sees the same.

Letters: S seeds, T units sampled per worker, W workers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import config
from gcjax.analysis.store import Columns
from gcjax.stragglers import Links, Network, StragglerModel, sample_durations
from gcjax.study.base import Study


class Condition(NamedTuple):
    """What is outside of a scheme's power.

    Attributes:
      stragglers: who is slow.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous by default.
    """

    stragglers: StragglerModel
    network: Network | Links = Network()


class Inputs(NamedTuple):
    """What all runs are given: the S seeds of each condition, one condition after the other; named as in `engine.run`.

    Attributes:
      durations: float[runs, T, W] seconds.
      network: the time of messages, every field [runs, ...].
      params: the initial parameters, every leaf [runs, ...]; made once, since that takes long to compile.
      rng_key: [runs] JAX keys, of the batches.
    """

    durations: jax.Array
    network: Network
    params: Any
    rng_key: jax.Array


def labels(study: Study, conditions: Iterable[str]) -> Columns:
    """The `condition` and the `seed` of each run, [runs]: all seeds of the first condition, then of the next."""
    names = list(conditions)
    return {
        "condition": np.repeat(np.array(names, object), study.num_seeds),
        "seed": np.tile(np.arange(study.num_seeds), len(names)),
    }


def draw(study: Study, conditions: Mapping[str, Condition]) -> Inputs:
    """Draws durations, initial parameters and the keys of batches.

    A seed has the same parameters and batches in all conditions, and draws durations with the same key.

    Args:
      study: what the conditions share.
      conditions: name -> condition.
    """
    num_conditions = len(conditions)
    seed_keys = jax.random.split(config.key(seed=study.seed), study.num_seeds)
    duration_keys, init_keys, batch_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(seed_keys)

    def durations_under(model: StragglerModel) -> jax.Array:
        """float[S, T, W] seconds, drawn from a straggler model for each seed."""
        sample = jax.vmap(lambda key: sample_durations(model, key, study.num_units, study.num_workers))
        return jax.jit(sample)(duration_keys)

    @jax.jit
    def initial_params(keys: jax.Array) -> Any:
        """The initial parameters of all runs, every leaf [runs, ...], from one key a seed."""
        return jax.tree.map(lambda x: jnp.concatenate([x] * num_conditions), jax.vmap(study.task.init)(keys))

    durations = jnp.concatenate([durations_under(condition.stragglers) for condition in conditions.values()])
    param_shapes = jax.eval_shape(study.task.init, jax.random.key(0))
    networks = [condition.network.of(param_shapes) for condition in conditions.values() for _ in range(study.num_seeds)]
    return Inputs(
        durations=durations,
        network=jax.tree.map(lambda *times: jnp.stack([jnp.asarray(t, durations.dtype) for t in times]), *networks),
        params=initial_params(init_keys),
        rng_key=jnp.concatenate([batch_keys] * num_conditions),
    )
