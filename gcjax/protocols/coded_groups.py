"""Codes inside groups: each group makes coded rounds of its own, and commits what its code decodes.

Groups are those of `gcjax.protocols.grouped` (Basu et al. 2018), rounds those of `gcjax.protocols.coded` (Tandon et
al. 2017); to put one into the other is our own.

Letters: G groups, W workers, K chunks a worker holds at most, N chunks, T units sampled per worker.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import specifications
from gcjax.codes.alternatives import alternatives
from gcjax.codes.base import GradientCode
from gcjax.codes.stopping import StoppingRule, decodable
from gcjax.protocols.coded import (
    CodedRound,
    check_code_and_rule,
    check_durations,
    coded_round,
    decodable_progress,
)
from gcjax.protocols.groups import group_arrays, network_of_servers
from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.protocols.simulation.max_plus import bounded_staleness, commits_on_arrival
from gcjax.protocols.simulation.stopped_rounds import message_seconds, read_by_unit, stopped_rounds, units_of_rounds
from gcjax.stragglers.network import Network


class CodedGroups(NamedTuple):
    """Groups with codes of their own.

    Attributes:
      groups: the workers of each group; worker j of its code is the j-th of them.
      codes: of the groups, all of the same chunks.
      stopping_rule: when the rounds of a group stop.
      joint_code: the rows of all codes; column g C/G + j of a commit is worker j of group g.
    """

    groups: tuple[tuple[int, ...], ...]
    codes: tuple[GradientCode, ...]
    stopping_rule: StoppingRule
    joint_code: GradientCode

    @property
    def num_workers(self) -> int:
        """W."""
        return sum(map(len, self.groups))

    def schedule(self, durations: jax.Array, network: Network) -> Schedule:
        """The rounds of the G groups, each of which ends with a push to the central server, a commit on arrival.

        Of each group there is an entry of `networks`, `rounds` (arrays with a first axis [num_rounds]) and
        `round_seconds`, [num_rounds]: what a round takes, its longest message included.
        """
        num_units, load = durations.shape[0], self.joint_code.assignment.load
        check_durations(durations, self.num_workers, load)
        units = units_of_rounds(durations, load)
        networks = [network_of_members(network, jnp.asarray(group), self.num_workers) for group in self.groups]
        rounds = [
            _rounds_of_group(code, self.stopping_rule, units[:, :, np.asarray(group)], own_network, load)
            for group, code, own_network in zip(self.groups, self.codes, networks, strict=True)
        ]
        round_seconds = [
            group_rounds.stop + jax.vmap(message_seconds, (0, None))(group_rounds.message_size, own_network).max(axis=1)
            for group_rounds, own_network in zip(rounds, networks, strict=True)
        ]
        # To the central server the groups are workers, and their rounds are units.
        push_seconds = jnp.stack(round_seconds, axis=1)  # [num_rounds, G]
        weight, any_staleness = 1.0, np.inf  # the weights of members follow below
        pushes = bounded_staleness(push_seconds, network_of_servers(network, len(self.groups)), any_staleness)
        central_commits = commits_on_arrival(pushes, weight, any_staleness)
        contributor, work = self._contributions(rounds, central_commits)
        _, group_of_worker = group_arrays(self.groups)
        version_of_group = read_by_unit(central_commits.read, load, num_units)  # [T, G]
        return record(
            self._timeline(rounds, networks, pushes, num_units),
            time=central_commits.time,
            worker=contributor,
            unit=central_commits.unit * load,
            work=work,
            weight=self._weights(durations.dtype)[None],
            read=version_of_group[:, group_of_worker],
        )

    def _contributions(self, rounds: Sequence[CodedRound], central_commits: Schedule) -> tuple[jax.Array, jax.Array]:
        """The worker and the work of each contribution, int32[E, C] both, from the commits of the central server.

        The C columns are the members of each of the G groups, C/G places a group; a commit has those of one group.
        """
        members_of_group, _ = group_arrays(self.groups)
        members = jnp.asarray(members_of_group)  # int32[G, C/G], -1 pads
        is_of_group = central_commits.worker == jnp.arange(len(self.groups), dtype=jnp.int32)[None]  # [E, G]
        worker = jnp.where(is_of_group[:, :, None], members[None], -1)  # [E, G, C/G]
        # Of each group [num_rounds, members].
        progress_by_group = [group_rounds.is_done.sum(axis=1, dtype=jnp.int32) for group_rounds in rounds]
        padded_progress = [
            jnp.pad(group_progress, ((0, 0), (0, members.shape[1] - group_progress.shape[1])))
            for group_progress in progress_by_group
        ]
        # [E, G, C/G], of the round that the commit's push is; it counts where there is a worker.
        work = jnp.stack(padded_progress, axis=1)[central_commits.unit[:, 0].clip(0)]
        num_commits = worker.shape[0]
        return worker.reshape(num_commits, -1), work.reshape(num_commits, -1)

    def _weights(self, dtype: jnp.dtype) -> jax.Array:
        """float[C], of each place of a member in each of G groups: the group's share of the W workers, over N chunks.

        Places that pad a group have one, too, which no contribution uses.
        """
        members_of_group, _ = group_arrays(self.groups)
        group_sizes = (members_of_group >= 0).sum(axis=1, keepdims=True)
        weight = group_sizes / self.num_workers / self.joint_code.assignment.num_chunks
        return jnp.asarray(np.broadcast_to(weight, members_of_group.shape).ravel(), dtype)

    def _timeline(
        self, rounds: Sequence[CodedRound], networks: Sequence[Network], pushes: Timeline, num_units: int
    ) -> Timeline:
        """The times of all units, of groups whose rounds are the units of the pushes [num_rounds, G].

        A round begins when its group's server has the parameters for which it has asked at the start of the push.
        """
        timelines_of_groups = []
        for group_index, (group_rounds, own_network) in enumerate(zip(rounds, networks, strict=True)):
            timeline, _ = stopped_rounds(
                *group_rounds, own_network, num_units, begin_time=pushes.compute_start[:, group_index]
            )
            load = self.joint_code.assignment.load
            timelines_of_groups.append(_with_round_starts(pushes.start[:, group_index], timeline, load))
        worker_of_column = np.concatenate([np.asarray(group) for group in self.groups])  # [W], group by group
        column_of_worker = np.argsort(worker_of_column)
        times = [
            jnp.concatenate([getattr(of_group, name) for of_group in timelines_of_groups], axis=1)[:, column_of_worker]
            for name in Timeline._fields
            if name != "horizon"
        ]
        return Timeline._make([*times, pushes.horizon])

    def specification(self, num_workers: int) -> specifications.Specification:
        """The specification: a group pushes what its code decodes."""
        decodable_by_group = [decodable_progress(code) for code in self.codes]
        return specifications.grouped(num_workers, groups=self.groups, decodable=decodable_by_group)


def _rounds_of_group(
    code: GradientCode, stop: StoppingRule, units: jax.Array, own_network: Network, load: int
) -> CodedRound:
    """The rounds of one group, each from its begin, of `units float[num_rounds, K, members]` seconds, K = `load`.

    All arrays have the first axis of the units.
    """
    receive_seconds = own_network.arrivals_at_workers(jnp.zeros(units.shape[2:], units.dtype))
    return jax.vmap(lambda of_round: coded_round(code, stop, of_round, receive_seconds, load))(units)


def _with_round_starts(round_starts: jax.Array, timeline: Timeline, load: int) -> Timeline:
    """The times of a group's units, `[T, members]`, whose rounds start at `round_starts float[num_rounds]`.

    The first unit of each round of `load` units starts then, unless it never begins (inf).
    """
    recorded_starts = timeline.start[: round_starts.size * load : load]
    first_unit_starts = jnp.where(jnp.isfinite(recorded_starts), round_starts[:, None], recorded_starts)
    return timeline._replace(start=timeline.start.at[: round_starts.size * load : load].set(first_unit_starts))


def network_of_members(network: Network, member: jax.Array, num_workers: int) -> Network:
    """The network between the workers `member int32[members]` and their group's server.

    It is that of all W = `num_workers`, with the values of these only, and without shares of fragments.
    """

    def values_of_members(value: jax.Array | float) -> jax.Array:
        """[members], from a value of the network, which is one number or [W]."""
        return jnp.broadcast_to(jnp.asarray(value), (num_workers,))[member]

    field_names = ("latency", "upload", "download") + (() if network.server_upload is None else ("server_upload",))
    values: dict[str, Any] = {name: values_of_members(getattr(network, name)) for name in field_names}
    return network._replace(fragments=None, **values)


def checked_coded_groups(groups: tuple[tuple[int, ...], ...], code: Any, stop: StoppingRule | None) -> CodedGroups:
    """The groups with their codes; raises `ValueError` unless each has one of as many workers, and of the same chunks.

    Args:
      groups: the workers of each group.
      code: of all groups, or one for each.
      stop: when their rounds stop; `decodable()` if None.
    """
    stopping_rule = decodable() if stop is None else stop
    codes = (code,) * len(groups) if isinstance(code, GradientCode) else code
    if not isinstance(codes, Sequence) or isinstance(codes, str) or len(codes) != len(groups):
        raise ValueError(
            f"code must be one GradientCode for groups of one size, or one for each of the {len(groups)} groups; got "
            f"{code!r:.200}."
        )
    for group_index, (group, group_code) in enumerate(zip(groups, codes, strict=True)):
        check_code_and_rule(group_code, stopping_rule)
        if group_code.assignment.num_workers != len(group):
            raise ValueError(
                f"the code of a group must have as many workers as the group; group {group_index} has {len(group)}, "
                f"its code {group_code.assignment.num_workers}."
            )
    nums_chunks = sorted({group_code.assignment.num_chunks for group_code in codes})
    if len(nums_chunks) > 1:
        raise ValueError(
            "the codes of all groups must cut the data into the same chunks, since each group has all of them; got "
            f"codes of {nums_chunks} chunks."
        )
    return CodedGroups(
        groups=groups,
        codes=tuple(codes),
        stopping_rule=stopping_rule,
        joint_code=alternatives(*codes),
    )
