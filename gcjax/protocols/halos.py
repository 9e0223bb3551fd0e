"""HALoS: hierarchical asynchronous local SGD (Kim and others, ICML 2025, arXiv 2506.04531)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.async_local_sgd import async_local_sgd
from gcjax.protocols.base import LocalWork, Protocol, Schedule, own_params
from gcjax.protocols.coded_groups import network_of_members
from gcjax.protocols.delayed_nesterov import delayed_nesterov
from gcjax.protocols.groups import (
    Groups,
    GroupServers,
    check_members,
    checked_groups,
    group_arrays,
    network_of_servers,
)
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.not_served import not_served
from gcjax.protocols.schedule import Timeline
from gcjax.protocols.simulation.group_exchanges import Exchanges, with_exchanges
from gcjax.stragglers.network import Network

_not_served = not_served(
    "halos cannot be served: each group has a server with parameters and an optimizer of its own, and "
    "gcjax.parameter_server is one server. Simulate it, or serve async_local_sgd."
)


@comparable
def halos(
    *,
    groups: Groups,
    num_local_steps: int,
    num_contributions: int,
    merge_weight: float = 0.25,
    dynamic: bool = False,
    inner: optax.GradientTransformation | None = None,
    regional: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
    max_pushes: int | None = None,
) -> Protocol:
    """HALoS: servers of groups that never wait for a central one, for networks that are slow between the groups.

    A group is the workers of one region, with a server in it. Within a group it is `async_local_sgd`: a worker pushes
    what H local steps have changed, the group's server makes a step of its own optimizer with minus this change, and
    the worker goes on from the group's parameters θ_g. After K pushes the server sends what its parameters have changed
    by since it has merged last to the central server, which makes a step with minus this change, and answers with its
    parameters θ. When they arrive, the group merges: `θ_g = (1 - α) θ_g + α θ`, and counts anew. Nobody waits: pushes
    that come while the exchange is under way move θ_g at once, but are in no message (Kim et al. 2025; all of it as in
    their released code).

    A commit is that of the central server. Contributions to it are the pushes of the group, in the order in which its
    server took them, which is when they arrived: K of weight 1, and those of weight 0 that came while an exchange was
    under way. What a worker has read is the central version that its group had merged by then. Messages of workers, in
    the network of the run, are those within a group; its `servers` are the network between the servers. The defaults of
    α and of the servers' optimizers are those of the released example, of 16 workers in 4 groups with K = 32 and H = 8.

    Ours: at one moment an answer comes before pushes, and these are dealt with one after the other, in the order of
    the workers, each with all that it brings at that moment; then its worker goes on. Messages that reach the central
    server at one moment are taken in the order in which they were sent. The seconds for which a group's
    server is busy with a message are counted as latency. Steps of slower workers follow measured speeds, as in
    `async_local_sgd`, where the released code knows the speeds and rounds up.

    Args:
      groups: the workers of each group, for example `contiguous_groups(16, num_groups=4)`.
      num_local_steps: H, 1 or more; with `dynamic`, of the fastest worker.
      num_contributions: K, 1 or more, the pushes that a group accumulates.
      merge_weight: α, above 0, 1 at most.
      dynamic: whether slower workers take fewer steps, as in `async_local_sgd`.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the worker.
      regional: the optimizer of each group's server; `delayed_nesterov(3.2, momentum=0.9, num_gradients=16)` if None.
      outer: that of the central server; `delayed_nesterov(0.3, momentum=0.5, num_gradients=2)` if None.
      max_pushes: C, the most pushes of a group in a commit: K, and those that come meanwhile. If None there is room for
        all pushes of a group, which takes memory in long runs.

    Raises:
      ValueError: if the groups overlap or do not cover the workers, or a number is out of its range, or `dynamic` is no
        bool, or an optimizer is none.

    Example:
      >>> protocol = gcjax.protocols.halos(groups=((0, 1), (2,)), num_local_steps=1, num_contributions=2)
      >>> network = gcjax.stragglers.Network(servers=gcjax.stragglers.Network(0.25))  # 0.25 s between the servers
      >>> schedule = protocol(jnp.array([[1.0, 1.5, 1.0]] * 6), network)
      >>> schedule.time[:3].tolist(), schedule.worker[:3, :2].tolist()
      ([1.75, 2.25, 3.25], [[0, 1], [2, 2], [0, 0]])
    """
    groups = checked_groups(groups)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    _validate.single_number("merge_weight", merge_weight, above=True, maximum=1.0)
    _validate.boolean("dynamic", dynamic)
    _validate.optional_optimizers(inner=inner, regional=regional, outer=outer)
    if max_pushes is not None:
        hint = "A commit has num_contributions pushes at least."
        max_pushes = _validate.integer("max_pushes", max_pushes, minimum=num_contributions, hint=hint)
    members_of_group, group_of_worker = group_arrays(groups)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of asynchronous pushes to groups' servers; a commit is their exchange with the central one."""
        check_members(durations, group_of_worker.size)
        check_units(durations, num_local_steps)
        turn_steps = 1 if dynamic else num_local_steps  # at least
        pushes_of_group = durations.shape[0] // turn_steps * members_of_group.shape[1]
        exchanges = Exchanges(
            group_of_worker=group_of_worker,
            num_contributions=num_contributions,
            central=network_of_servers(network, len(groups)),
            max_pushes=max(pushes_of_group, num_contributions) if max_pushes is None else max_pushes,
        )
        return with_exchanges(_push_record(groups, num_local_steps, dynamic, durations, network), exchanges)

    return Protocol(
        schedule,
        one_version=False,
        round_units=1 if dynamic else num_local_steps,
        local=_local_work(group_of_worker, merge_weight, inner, regional, outer),
        rule=_not_served,
        specification=lambda num_workers: specifications.halos(
            num_workers,
            groups=groups,
            num_local_steps=num_local_steps,
            num_contributions=num_contributions,
            dynamic=dynamic,
        ),
        max_weight=None,  # a group's message is a sum of K changes
        has_group_servers=True,
    )


def _local_work(
    group_of_worker: np.ndarray,
    merge_weight: float,
    inner: optax.GradientTransformation | None,
    regional: optax.GradientTransformation | None,
    outer: optax.GradientTransformation | None,
) -> LocalWork:
    """The local work of workers whose groups, `group_of_worker int32[W]`, have servers; others as of `halos`."""
    servers = GroupServers(
        group_of_worker=tuple(group_of_worker.tolist()),
        optimizer=delayed_nesterov(3.2, momentum=0.9, num_gradients=16) if regional is None else regional,
        merge_weight=float(merge_weight),
    )
    server_optimizer = delayed_nesterov(0.3, momentum=0.5, num_gradients=2) if outer is None else outer
    return LocalWork(optimizer=inner, server_optimizer=server_optimizer, pull=own_params, servers=servers)


def _push_record(
    groups: tuple[tuple[int, ...], ...], num_local_steps: int, dynamic: bool, durations: jax.Array, network: Network
) -> Schedule:
    """The record in which each push to a group's server is a commit of one contribution.

    As nobody waits for anybody, all groups are simulated at once, unless the members of each share a link. What a
    server takes for a message (`service`) counts as upload.
    """
    in_groups = async_local_sgd(num_local_steps=num_local_steps, dynamic=dynamic)
    if network.service is not None:
        network = network._replace(upload=network.upload + network.service, service=None)
    if network.server is None:
        return in_groups.schedule(durations, network)
    if dynamic:
        raise ValueError(
            "with dynamic=True the fastest worker of all groups sets the steps, so that groups cannot be simulated one "
            "by one, as they are where the members of a group share a link. Leave out the server's link, or dynamic."
        )
    num_workers = durations.shape[1]
    records = [
        in_groups.schedule(
            durations[:, np.asarray(group)], network_of_members(network, jnp.asarray(group), num_workers)
        )
        for group in groups
    ]
    return _joined_record(records, groups)


def _joined_record(records: list[Schedule], groups: tuple[tuple[int, ...], ...]) -> Schedule:
    """The record of all pushes, from those of the groups, by time and then by group; the earliest horizon ends all.

    In the record of a group, worker j is the j-th of `groups`, and commits are [pushes of the group, 1].
    """
    horizon = jnp.stack([of_group.horizon for of_group in records]).min()
    worker = jnp.concatenate(
        [
            jnp.where(x.worker >= 0, jnp.asarray(group, jnp.int32)[x.worker], -1)
            for x, group in zip(records, groups, strict=True)
        ]
    )
    fields = {name: jnp.concatenate([getattr(x, name) for x in records]) for name in ("time", "unit", "work", "weight")}
    time = jnp.where(fields["time"] <= horizon, fields["time"], jnp.inf)
    order = jnp.argsort(time, stable=True)  # of all pushes; those of one time group by group, inf last
    of_all = {"worker": worker, **fields, "time": time}
    column_of_worker = np.argsort(np.concatenate([np.asarray(group) for group in groups]))
    by_worker = {
        name: jnp.concatenate([getattr(x, name) for x in records], axis=1)[:, column_of_worker]
        for name in (*Timeline._fields[:-1], "read")
    }
    return Schedule(**{name: x[order] for name, x in of_all.items()}, **by_worker, horizon=horizon)
