"""Progressive grouping (Basu, Saxena, Panja, Verma, HiPC 2018): the fewest groups that are fast enough."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.groups import checked_order, group_arrays
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View, group_rule
from gcjax.specifications.groups import consecutive_groups
from gcjax.stragglers.network import Network, check_own_links


class Trial(NamedTuple):
    """How far the search for the number of groups is.

    Attributes:
      group: int32[W], the group of each worker, a number of the table of groups.
      level: int32[], there are 2**level groups in the present trial.
      begin_time: float[] seconds, when the trial began.
      num_units: int32[], the units that were committed in it.
      is_chosen: bool[], whether the search has ended.
    """

    group: jax.Array
    level: jax.Array
    begin_time: jax.Array
    num_units: jax.Array
    is_chosen: jax.Array


@comparable
def progressive_groups(
    *,
    num_rounds: int = 10,
    factor: float = 1.2,
    no_delay: float | None = None,
    order: Sequence[int] | None = None,
) -> Protocol:
    """Progressive grouping: tries 1, 2, 4, ... groups, and keeps the least number that is fast enough.

    Synchronous within a group, asynchronous between groups, as in `grouped`. A number of groups is tried until the
    workers have done `num_rounds * W` units with it; it is kept if this took at most `factor * num_rounds * no_delay`
    seconds, and otherwise each group is halved, when it has committed next. With W groups everybody is alone (Basu et
    al. 2018). Messages between servers (`Network.servers`) take as long for all groups, and a worker alone has a server
    of its own, too; a trial ends with a commit of the central server.

    Args:
      num_rounds: the length of a trial, 1 or more.
      factor: how much longer than without delays it may take, 1 or more.
      no_delay: seconds that a round takes when nobody is delayed; if None, the median of the sampled units and the mean
        time of a worker's messages.
      order: of the workers; neighbours stay together longest. By their numbers if None.

    Raises:
      ValueError: if a number is out of its range, or the order is not one of all workers.
    """
    num_rounds = _validate.integer("num_rounds", num_rounds, minimum=1)
    _validate.single_number("factor", factor, minimum=1.0)
    if no_delay is not None:
        _validate.single_number("no_delay", no_delay, above=True, finite=True)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of trials with 1, 2, 4, ... groups; the first of at most `max_seconds` seconds is kept."""
        num_workers = durations.shape[1]
        group_by_level = jnp.asarray(_group_by_level(num_workers, order))
        whole_way = network if network.servers is None else _with_way_between_servers(network, network.servers)
        max_seconds = factor * num_rounds * (_median_round(durations, whole_way) if no_delay is None else no_delay)
        rule = _trial_rule(group_by_level, num_rounds, max_seconds)
        trials = event_schedule(rule, durations, whole_way)
        return trials if network.servers is None else _arriving_at_groups(trials, network)

    def rule(num_workers: int) -> Rule:
        """The rule on the real clock, where nobody knows the median of what is still to come."""
        if no_delay is None:
            raise ValueError(
                "progressive_groups needs no_delay, the seconds of a round in which nobody is slow, where durations "
                "are not known before the run; got None. Measure a round, or take them from a calibration."
            )
        group_by_level = jnp.asarray(_group_by_level(num_workers, order))
        max_seconds = factor * num_rounds * no_delay
        return _trial_rule(group_by_level, num_rounds, max_seconds)

    def specification(num_workers: int) -> specifications.Specification:
        """The specification, for groups of neighbours in this order of the workers."""
        return specifications.progressive_groups(num_workers, order=order)

    return Protocol(schedule, padded=True, specification=specification, rule=rule, has_group_servers=True)


def _group_by_level(num_workers: int, order: Sequence[int] | None) -> np.ndarray:
    """int32[levels, W]: the group of each worker with 1, 2, 4, ..., W groups, with numbers of its own at each level.

    Groups are of neighbours in the `order` of the workers, that of their numbers if None.
    """
    order = checked_order(order, num_workers)
    group_by_level: list[np.ndarray] = []
    num_groups = 1
    while True:
        _, group_of_worker = group_arrays(consecutive_groups(order, min(num_groups, num_workers)))
        first_number = len(group_by_level) * num_workers  # no level has more than W groups
        group_by_level.append(group_of_worker + first_number)
        if num_groups >= num_workers:
            return np.stack(group_by_level).astype(np.int32)
        num_groups *= 2


def _with_way_between_servers(network: Network, servers: Network) -> Network:
    """The network in which workers' messages also take the way between `servers`, their group's and the central one.

    The central server gets a group's push so much after the last message of its members, and a member its answer so
    much later. That is the same as if each message took both ways, where these take as long for all groups.

    Raises:
      ValueError: if they do not, or groups share a link, or workers' messages share one, or wait for a server.
    """
    check_own_links(servers)
    shapes = [np.shape(x) for x in (servers.latency, servers.upload, servers.download)]
    if any(shapes):
        raise ValueError(
            "servers must have one value for all groups under progressive_groups, whose groups change; got shapes "
            f"{', '.join(map(str, shapes))} of latency, upload and download."
        )
    for entry in ("server", "service"):
        if getattr(network, entry) is not None:
            raise ValueError(
                "messages between servers are not simulated under progressive_groups where those of workers share a "
                f"link, or wait for a server; got servers and {entry} of the network. Leave one of them out."
            )
    return network._replace(
        upload=network.upload + servers.send_seconds(), download=network.download + servers.receive_seconds()
    )


def _arriving_at_groups(schedule: Schedule, network: Network) -> Schedule:
    """The schedule, where messages have arrived once they are at their group's server, as they are in `grouped`.

    In the one that is given they have arrived at the central server; `network` is that of the workers.
    """
    arrival = jax.vmap(network.arrivals_at_server)(schedule.send_start)
    return schedule._replace(finish=jnp.where(jnp.isfinite(schedule.finish), arrival, schedule.finish))


def _median_round(durations: jax.Array, network: Network) -> jax.Array:
    """float[] seconds: the median unit of those that end, and the mean time of a worker's messages."""
    message_seconds = jnp.mean(jnp.asarray(network.send_seconds() + network.receive_seconds()))
    median = jnp.nanmedian(jnp.where(jnp.isfinite(durations), durations, jnp.nan))
    return median + message_seconds.astype(durations.dtype)


def _trial_rule(group_by_level: jax.Array, num_rounds: int, max_seconds: jax.Array | float) -> Rule:
    """The rule of trials of `num_rounds * W` units each; the first that takes `max_seconds` at most is kept.

    `group_by_level int32[levels, W]` are the groups of the workers in each trial. A group commits when all its members
    have sent a message.
    """

    def memory(num_workers: int, dtype: jnp.dtype) -> Trial:
        """The first trial, with one group: row 0 of `group_by_level`; none is chosen yet."""
        zero = jnp.zeros((), jnp.int32)
        return Trial(
            group=group_by_level[0],
            level=zero,
            begin_time=jnp.zeros((), dtype),
            num_units=zero,
            is_chosen=jnp.zeros((), bool),
        )

    num_workers = group_by_level.shape[1]
    units_of_trial = min(num_rounds * num_workers, np.iinfo(np.int32).max)
    rule = group_rule(lambda view: view.memory.group, num_workers, num_contributions=num_workers)

    def remember(view: View, worker: jax.Array) -> Trial:
        """The trial after a message of `worker`, or its leaving; the next one if that brings the commit that ends it.

        A trial ends with the commit that makes it `units_of_trial` units or more, and is kept if it took at most
        `max_seconds`. Every group changes to the groups of the new trial (the next level of `group_by_level`) when it
        commits next.
        """
        trial: Trial = view.memory
        # bool[W], who is in the worker's group; bool[], whether the message brings a commit of it, one unit of each
        # who is there.
        is_of_group, has_commit = view.memory.group == view.memory.group[worker], rule.commits(view, worker)
        num_messages = (is_of_group & (view.num_uncommitted > 0)).sum(dtype=jnp.int32)
        num_units = trial.num_units + jnp.where(has_commit, num_messages, 0)
        has_ended = has_commit & ~trial.is_chosen & (num_units >= units_of_trial)
        is_chosen = trial.is_chosen | (has_ended & (view.now - trial.begin_time <= max_seconds))
        last_level = group_by_level.shape[0] - 1
        starts_next_trial = has_ended & ~is_chosen & (trial.level < last_level)
        level = trial.level + starts_next_trial.astype(jnp.int32)
        return Trial(
            group=jnp.where(is_of_group & has_commit, group_by_level[level], trial.group),
            level=level,
            begin_time=jnp.where(has_ended, view.now, trial.begin_time),
            num_units=jnp.where(has_ended, 0, num_units),
            is_chosen=is_chosen,
        )

    return rule._replace(memory=memory, remember=remember, remembers_commits=True)
