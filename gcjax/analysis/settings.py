"""What all schemes of a study share: drawn once, so that every scheme sees the same.

Letters: S runs, T units sampled per worker, W workers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from gcjax.stragglers import Links, Network, StragglerModel, sample_durations
from gcjax.tasks import Task


class Setting(NamedTuple):
    """S runs that every scheme makes: all seeds of one condition, or of several, one condition after the other.

    Attributes:
      task: what is trained.
      durations: float[S, T, W] seconds.
      network: the time of messages, every field [S, ...].
      params: the initial parameters, every leaf [S, ...]; made once, since that takes long to compile.
      keys: [S] JAX keys, of the batches.
      labels: column -> [S]: what tells the condition from others, and the seed.
      seconds: virtual time at which a run ends; inf for the end of the sampled units.
      num_evals: evaluations of a run.
      mesh: the devices to run on; one if None.
      axis: of the mesh, along which the workers lie.
    """

    task: Task
    durations: jax.Array
    network: Network
    params: Any
    keys: jax.Array
    labels: dict[str, np.ndarray]
    seconds: float
    num_evals: int
    mesh: Mesh | None = None
    axis: str = "workers"


def setting(
    task: Task,
    stragglers: Sequence[StragglerModel],
    networks: Sequence[Network | Links],
    *,
    num_workers: int,
    num_units: int,
    num_seeds: int,
    rng_key: jax.Array,
    labels: Mapping[str, Sequence[Any]] | None = None,
    seconds: float | None = None,
    num_evals: int = 100,
    mesh: Mesh | None = None,
    axis: str = "workers",
) -> Setting:
    """Draws durations, initial parameters and the keys of batches.

    A seed has the same parameters and batches in all conditions, and draws durations with the same key.

    Args:
      task: what is trained.
      stragglers: who is slow, in each condition.
      networks: what messages cost, in each condition.
      num_workers: W.
      num_units: T.
      num_seeds: of each condition.
      rng_key: of all of it.
      labels: column -> what is said of each condition.
      seconds: virtual time at which a run ends; at the end of the sampled units if None.
      num_evals: evaluations of a run.
      mesh: the devices to run on; one if None.
      axis: of the mesh, along which the workers lie.
    """
    number = len(stragglers)
    split = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))
    duration_keys, init_keys, keys = split(jax.random.split(rng_key, num_seeds))

    def drawn(model: StragglerModel) -> jax.Array:
        return jax.jit(jax.vmap(lambda key: sample_durations(model, key, num_units, num_workers)))(duration_keys)

    @jax.jit
    def params(keys: jax.Array) -> Any:
        return jax.tree.map(lambda x: jnp.concatenate([x] * number), jax.vmap(task.init)(keys))

    durations = jnp.concatenate([drawn(model) for model in stragglers])
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    times = [network.of(shapes) for network in networks for _ in range(num_seeds)]
    columns = {name: np.repeat(np.array(values, object), num_seeds) for name, values in (labels or {}).items()}
    return Setting(
        task,
        durations,
        jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v, durations.dtype) for v in x]), *times),
        params(init_keys),
        jnp.concatenate([keys] * number),
        {**columns, "seed": np.tile(np.arange(num_seeds), number)},
        np.inf if seconds is None else seconds,
        num_evals,
        mesh,
        axis,
    )
