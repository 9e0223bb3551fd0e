"""What all schemes of a study are given: drawn once, so that every scheme sees the same.

Letters: S seeds, T units sampled per worker, W workers.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import compiler_options, config
from gcjax.analysis.store import Columns
from gcjax.stragglers import Absences, Links, Network, RandomAbsences, StragglerModel, sample_durations
from gcjax.study.base import Study


class Condition(NamedTuple):
    """What is outside of a scheme's power.

    Attributes:
      stragglers: who is slow.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous by default.
      absences: when workers are away, or how it is drawn for each seed; never if None.
    """

    stragglers: StragglerModel
    network: Network | Links = Network()
    absences: Absences | RandomAbsences | None = None


class Inputs(NamedTuple):
    """What all runs are given: the S seeds of each condition, one condition after the other; named as in `engine.run`.

    Attributes:
      durations: float[runs, T, W] seconds.
      network: the time of messages, every field [runs, ...].
      params: the initial parameters, every leaf [runs, ...]; made once, since that takes long to compile.
      rng_key: [runs] JAX keys, of the batches.
      absences: when workers are away, every field [runs, W, absences]; None if nobody ever is.
    """

    durations: jax.Array
    network: Network
    params: Any
    rng_key: jax.Array
    absences: Absences | None = None


def labels(study: Study, conditions: Iterable[str]) -> Columns:
    """The `condition` and the `seed` of each run, [runs]: all seeds of the first condition, then of the next."""
    condition_names = list(conditions)
    return {
        "condition": np.repeat(np.array(condition_names, object), study.num_seeds),
        "seed": np.tile(np.arange(study.num_seeds), len(condition_names)),
    }


def draw(study: Study, conditions: Mapping[str, Condition]) -> Inputs:
    """Draws durations, initial parameters and the keys of batches for all runs, condition by condition, seed by seed.

    A seed has the same parameters and batches in all conditions, and draws durations with the same key.

    Args:
      study: what the conditions share.
      conditions: name -> condition.
    """
    num_conditions = len(conditions)
    seed_keys = jax.random.split(config.key(seed=study.seed), study.num_seeds)  # [S], as the three of each
    duration_keys, init_keys, batch_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(seed_keys)

    def durations_under(model: StragglerModel) -> jax.Array:
        """float[S, T, W] seconds, drawn from a straggler model for each seed."""
        sample = jax.vmap(lambda key: sample_durations(model, key, study.num_units, study.num_workers))
        return jax.jit(sample)(duration_keys)

    # The random numbers of a network take XLA longest, and are drawn once.
    @partial(jax.jit, compiler_options=compiler_options.small_operations())
    def initial_params(keys: jax.Array) -> Any:
        """The initial parameters of all runs, every leaf [runs, ...], from one key a seed."""
        params_of_seeds = jax.vmap(study.task.init)(keys)
        return jax.tree.map(lambda leaf: jnp.concatenate([leaf] * num_conditions), params_of_seeds)

    durations = jnp.concatenate([durations_under(condition.stragglers) for condition in conditions.values()])

    def stack_runs(*times_of_runs: Any) -> jax.Array:
        """float[runs, ...]: one field of the networks of all runs, from a number or an array for each run."""
        return jnp.stack([jnp.asarray(times, durations.dtype) for times in times_of_runs])

    param_shapes = jax.eval_shape(study.task.init, jax.random.key(0))
    networks = {name: condition.network.network_for(param_shapes) for name, condition in conditions.items()}
    same_networks = _with_same_entries(networks, study.num_workers)
    networks_of_runs = [network for network in same_networks for _ in range(study.num_seeds)]
    return Inputs(
        durations=durations,
        network=jax.tree.map(stack_runs, *networks_of_runs),
        params=initial_params(init_keys),
        rng_key=jnp.concatenate([batch_keys] * num_conditions),
        absences=_draw_absences(study, conditions, seed_keys),
    )


def _with_same_entries(networks: Mapping[str, Network], num_workers: int) -> list[Network]:
    """The networks of all conditions (name -> network) so that they can be stacked: with entries of the same shapes.

    An entry is one a worker if it is in any of them. If one has a network of group servers, the others have an
    instantaneous one.

    Raises:
      ValueError: if one has an entry, such as a shared link, that another has not.
    """
    has_servers = any(network.servers is not None for network in networks.values())
    valid_networks = {name: network.validated(num_workers) for name, network in networks.items()}
    if has_servers:
        valid_networks = {
            name: network if network.servers is not None else network._replace(servers=Network())
            for name, network in valid_networks.items()
        }
    (first_name, first_network), *other_networks = valid_networks.items()
    for name, network in other_networks:
        if missing_entries := _missing_in_one(first_network, network):
            raise ValueError(
                f"the networks of conditions must have the same entries; of '{first_name}' and '{name}' only one has "
                f"{' and '.join(missing_entries)}. Give the other one an entry of 0 s, or compare them in studies "
                "of their own."
            )

    structure = jax.tree.structure(first_network)
    times_of_entries = zip(*map(jax.tree.leaves, valid_networks.values()), strict=True)  # of all networks, each
    leaves = [np.broadcast_arrays(*map(np.asarray, times)) for times in times_of_entries]
    return [jax.tree.unflatten(structure, times) for times in zip(*leaves, strict=True)]


def _missing_in_one(network: Network, other: Network) -> list[str]:
    """The names of the entries that one of two networks has, and the other has not."""
    return [name for name in Network._fields if (getattr(network, name) is None) != (getattr(other, name) is None)]


def absence_key(seed_key: jax.Array) -> jax.Array:
    """The key by which a seed draws its absences; its first three splits are those of `draw`."""
    return jax.random.fold_in(seed_key, 3)


def _draw_absences(study: Study, conditions: Mapping[str, Condition], seed_keys: jax.Array) -> Absences | None:
    """The absences of all runs, every field [runs, W, absences]; None if no condition has any."""
    if all(condition.absences is None for condition in conditions.values()):
        return None
    absence_keys, num_workers = jax.vmap(absence_key)(seed_keys), study.num_workers  # [S] keys
    no_times = jnp.zeros((num_workers, 0))  # of no absence
    no_absences = Absences(no_times, no_times)
    absences_of_conditions = [
        jax.vmap(partial((condition.absences or no_absences).sample, num_workers=num_workers))(absence_keys)
        for condition in conditions.values()
    ]
    # Every field float[S, W, absences], in each condition with as many absences of a worker as it has at most.
    most_absences = max(absences.leave.shape[-1] for absences in absences_of_conditions)

    def concatenate_padded(*times_of_conditions: jax.Array) -> jax.Array:
        """float[runs, W, absences]: the times float[S, W, absences] of all conditions, padded with inf, for none."""
        padded_times = [
            jnp.pad(times, [(0, 0), (0, 0), (0, most_absences - times.shape[-1])], constant_values=jnp.inf)
            for times in times_of_conditions
        ]
        return jnp.concatenate(padded_times)

    return jax.tree.map(concatenate_padded, *absences_of_conditions)
