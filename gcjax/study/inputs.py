"""What all schemes of a study are given: drawn once, so that every scheme sees the same.

Letters: R runs, S seeds, T units sampled per worker, W workers.
"""

from collections.abc import Mapping
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
    """R runs that every scheme makes: the S seeds of each condition, one condition after the other.

    Attributes:
      durations: float[R, T, W] seconds.
      network: the time of messages, every field [R, ...].
      params: the initial parameters, every leaf [R, ...]; made once, since that takes long to compile.
      batch_keys: [R] JAX keys.
      labels: `condition` and `seed`, [R] each.
    """

    durations: jax.Array
    network: Network
    params: Any
    batch_keys: jax.Array
    labels: Columns


def draw(study: Study, conditions: Mapping[str, Condition]) -> Inputs:
    """Draws durations, initial parameters and the keys of batches.

    A seed has the same parameters and batches in all conditions, and draws durations with the same key.

    Args:
      study: what the conditions share.
      conditions: name -> condition.
    """
    number = len(conditions)
    keys = jax.random.split(config.key(seed=study.seed), study.num_seeds)
    duration_keys, init_keys, batch_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(keys)

    def durations_under(model: StragglerModel) -> jax.Array:
        sample = jax.vmap(lambda key: sample_durations(model, key, study.num_units, study.num_workers))
        return jax.jit(sample)(duration_keys)

    @jax.jit
    def initial_params(keys: jax.Array) -> Any:
        return jax.tree.map(lambda x: jnp.concatenate([x] * number), jax.vmap(study.task.init)(keys))

    durations = jnp.concatenate([durations_under(condition.stragglers) for condition in conditions.values()])
    shapes = jax.eval_shape(study.task.init, jax.random.key(0))
    networks = [each.network.of(shapes) for each in conditions.values() for _ in range(study.num_seeds)]
    return Inputs(
        durations=durations,
        network=jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v, durations.dtype) for v in x]), *networks),
        params=initial_params(init_keys),
        batch_keys=jnp.concatenate([batch_keys] * number),
        labels={
            "condition": np.repeat(np.array(list(conditions), object), study.num_seeds),
            "seed": np.tile(np.arange(study.num_seeds), number),
        },
    )
