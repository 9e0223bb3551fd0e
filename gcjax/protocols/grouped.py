"""Groups with parameter servers of their own (Basu, Saxena, Panja, Verma, HiPC 2018)."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.codes.base import GradientCode
from gcjax.codes.stopping import StoppingRule
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol
from gcjax.protocols.coded_groups import checked_coded_groups, network_of_members
from gcjax.protocols.elastic import elastic
from gcjax.protocols.groups import Groups, check_members, checked_groups, group_arrays, network_of_servers
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.not_served import not_served
from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.protocols.simulation.max_plus import bounded_staleness, commits_on_arrival
from gcjax.protocols.simulation.rules import Rule, group_rule
from gcjax.stragglers.network import Network

_not_served_with_codes = not_served(
    "grouped with a code cannot be served: a server of coded rounds stops all of its workers at once, and here "
    "each group has a server that stops its own. Use grouped(...) without a code, or coded(...) for one group."
)


MERGES = ("gradient", "change", "elastic")


@comparable
def grouped(
    *,
    groups: Groups,
    num_local_steps: int = 1,
    merge: str = "gradient",
    moving_rate: float = 0.9,
    code: GradientCode | Sequence[GradientCode] | None = None,
    stop: StoppingRule | None = None,
) -> Protocol:
    """Grouped servers: synchronous within a group, asynchronous between the groups.

    Each group has a server, which waits for all its members; after H such rounds it pushes to the central server, which
    applies the push on arrival, and reads the newest version. With D the seconds of a unit and its messages:
    `F[n, g] = F[n-1, g] + sum over H rounds of max_{w in g} D[w]` (Basu et al. 2018; the same in the hybrid of
    synchronous groups by workers' speed). One group is `bsp`, groups of one are `asp`. Members' messages share the link
    of their own group's server, if links are shared; but with absences, or servers that take time for a message
    (`Network.service`), which the event queue simulates, there is one server with one link.

    Where messages between servers take time (`Network.servers`), the push arrives so much later, and the answer reaches
    the group so much after it: `F[n, g]` grows by both, c_g. The group waits, since it has nothing to go on with. Then
    groups of one are `asp` along both ways. That the group asks at first, too, is ours, as a worker of `asp` does.

    With `code` each group makes coded rounds of its own, as in `coded`, over all N chunks: its members do their chunks
    until the stopping rule holds for the code of the group, the others are cut off, and the group's server pushes what
    it has decoded. A push is an estimate of the whole gradient; its weight is size / W, as without a code, over the N
    chunks. Round n of every group has the batches of round n of `coded`. One group is `coded`; groups of one without
    redundancy (`uncoded(1)`) have the schedule of `asp`. Not in the paper; see `gcjax.protocols.coded_groups`.

    Args:
      groups: the workers of each group, for example `contiguous_groups(16, num_groups=4)`.
      num_local_steps: H, 1 or more.
      merge: what a group pushes: "gradient", the mean gradient of its members, weighted by size / W (H = 1);
        "change", what H steps with its members' mean gradients have changed, weighted by size / W; "elastic", as
        `elastic_averaging` does, with α = moving_rate / G, but α times the distance to the central parameters that
        the group read before its H rounds: there is no exchange at the moment of the push.
      moving_rate: of the elastic merge.
      code: of a group, with as many workers, the first member first; several where groups differ, one each, all of the
        same chunks. None for no code. With one, E = G (T // K) and C = G times the size of the largest group.
      stop: when the rounds of a code stop; when its sum is decodable if None.

    Raises:
      ValueError: if the groups overlap or do not cover the workers, or gradients are to be pushed after several rounds,
        or a code has other workers or chunks, or a rule waits for an exact decode that it cannot give.
    """
    groups = checked_groups(groups)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    _validate.choice("merge", merge, MERGES)
    _validate.single_number("moving_rate", moving_rate, maximum=float(len(groups)))
    if merge == "gradient" and num_local_steps > 1:
        raise ValueError(
            f"groups that make several rounds on their own push what these changed; got merge='gradient' with "
            f"num_local_steps={num_local_steps}. Use merge='change' or merge='elastic'."
        )
    if code is not None:
        if merge != "gradient":
            raise ValueError(f"groups with a code push gradients; got merge={merge!r}. Use merge='gradient'.")
        return _coded_protocol(groups, code, stop)
    if stop is not None:
        raise ValueError(f"stop is for rounds of a code; got stop={stop!r:.100} and no code. Give the groups a code.")
    members_of_group, group_of_worker = group_arrays(groups)
    group_size = (members_of_group >= 0).sum(axis=1, keepdims=True)
    # [G, 1]: each member has its share of α, or 1/W.
    if merge == "elastic":
        weight = moving_rate / len(groups) / group_size
    else:
        weight = np.full((len(groups), 1), 1 / group_of_worker.size)
    arrays = _Groups(members_of_group, group_of_worker, weight, num_local_steps)

    def specification(num_workers: int) -> specifications.Specification:
        """The specification of these groups, which push after `num_local_steps` rounds."""
        return specifications.grouped(num_workers, groups=groups, num_local_steps=num_local_steps)

    def rule(num_workers: int) -> Rule:
        """The rule on the real clock, with one server: a commit takes a gradient of each member of one group."""
        if merge != "gradient":
            raise ValueError(
                "grouped can be served with merge='gradient': the other merges keep parameters at a server of each "
                f"group, and there is one server. Got merge={merge!r}."
            )
        if num_workers != group_of_worker.size:
            raise ValueError(
                f"the groups must cover the workers; they are of {group_of_worker.size}, got {num_workers}."
            )
        group = jnp.asarray(group_of_worker)
        return group_rule(lambda view: group, num_workers, num_contributions=members_of_group.shape[1])

    local = _local_work(merge, group_of_worker)
    return Protocol(
        lambda durations, network: _schedule(arrays, durations, network),
        round_units=num_local_steps,
        local=local,
        rule=rule,
        specification=specification,
        has_group_servers=True,
    )


def _coded_protocol(
    groups: tuple[tuple[int, ...], ...],
    code: GradientCode | Sequence[GradientCode],
    stop: StoppingRule | None,
) -> Protocol:
    """The protocol of groups with codes, one for all or one for each; `stop` is when their rounds stop."""
    coded_groups = checked_coded_groups(groups, code, stop)
    waits_for_exact_sum = coded_groups.stopping_rule.waits_for_exact_sum
    return Protocol(
        coded_groups.schedule,
        coded_groups.joint_code,
        round_units=coded_groups.joint_code.assignment.load,
        specification=coded_groups.specification if waits_for_exact_sum else None,
        rule=_not_served_with_codes,
        num_workers=coded_groups.num_workers,
        has_group_servers=True,
        waits_for_exact_sum=waits_for_exact_sum,
    )


class _Groups(NamedTuple):
    """Who is in which group, and what a group's push is.

    Attributes:
      members_of_group: int[G, members], the workers of each group; -1 where there are fewer.
      group_of_worker: int[W].
      weight: float[G, 1], the weight of a contribution.
      num_local_steps: H.
    """

    members_of_group: np.ndarray
    group_of_worker: np.ndarray
    weight: np.ndarray
    num_local_steps: int


def _schedule(groups: _Groups, durations: jax.Array, network: Network) -> Schedule:
    """Rounds within the groups, whose pushes the central server takes as those of asynchronous workers.

    A push is what one of the G groups sends after H = `num_local_steps` rounds; it is a commit on arrival. Its columns
    are the members of the group, -1 where it has fewer than the largest.
    """
    (num_units, _), num_local_steps = durations.shape, groups.num_local_steps
    check_members(durations, groups.group_of_worker.size)
    check_units(durations, num_local_steps)
    rounds = _rounds_of_groups(groups.members_of_group, durations, network)
    num_pushes = num_units // num_local_steps
    num_rounds = num_pushes * num_local_steps
    round_seconds = rounds.seconds[:num_rounds].reshape(num_pushes, num_local_steps, -1)  # [pushes, H, G]
    push_seconds = round_seconds.sum(axis=1)
    # To the central server the groups are workers, and their pushes are units.
    weight, any_staleness = 1.0, np.inf  # the weights of members follow below
    servers = network_of_servers(network, len(groups.members_of_group))
    push_timeline = bounded_staleness(push_seconds, servers, any_staleness)
    central_commits = commits_on_arrival(push_timeline, weight, any_staleness)
    group_of_commit = central_commits.worker[:, 0]  # int32[E]; -1 if there is none: what it then looks up is not used
    # The seconds from the begin of a push's first round to that of each of its rounds.
    since_first_round = jnp.pad(jnp.cumsum(round_seconds[:, :-1], axis=1), ((0, 0), (1, 0), (0, 0)))
    begin_time = push_timeline.compute_start[:, None] + since_first_round  # [pushes, H, G]
    # Who begins a push asks the central server for its parameters, which reach the group when its first round begins.
    ask_time = begin_time.at[:, 0].set(push_timeline.start)
    begin_time, ask_time = (x.reshape(-1, round_seconds.shape[2]) for x in (begin_time, ask_time))  # [rounds, G]
    # [rounds, W], from [pushes, G].
    version_read = jnp.repeat(central_commits.read, num_local_steps, axis=0)[:, groups.group_of_worker]
    return record(
        _timeline_of_units(rounds, ask_time, begin_time, groups.group_of_worker, num_units, push_timeline.horizon),
        time=central_commits.time,
        worker=jnp.where(central_commits.worker >= 0, jnp.asarray(groups.members_of_group)[group_of_commit], -1),
        unit=central_commits.unit * num_local_steps,
        work=central_commits.work * num_local_steps,
        weight=jnp.asarray(groups.weight, durations.dtype)[group_of_commit],
        read=jnp.pad(version_read, ((0, num_units - version_read.shape[0]), (0, 0)), constant_values=-1),
    )


def _local_work(merge: str, group_of_worker: np.ndarray) -> LocalWork | None:
    """The local work of `merge`, as of `grouped`: members of a group take joint steps on its parameters; or None."""

    def parameter_owners(num_workers: int) -> np.ndarray:
        """int[W]: everybody works on the parameters of its group."""
        del num_workers
        return group_of_worker

    if merge == "gradient":
        return None
    return (elastic() if merge == "elastic" else LocalWork())._replace(parameter_owners=parameter_owners)


class _Rounds(NamedTuple):
    """The rounds of the groups, each from its own begin: seconds [T, G] of a round, and [T, W] within it."""

    seconds: jax.Array
    compute_start: jax.Array
    compute_end: jax.Array
    finish: jax.Array


def _rounds_of_groups(members_of_group: np.ndarray, durations: jax.Array, network: Network) -> _Rounds:
    """The rounds of G groups, `members_of_group int[G, members]` (-1 pads), one for each unit of `durations [T, W]`."""
    num_units, num_workers = durations.shape
    member, is_member = jnp.asarray(members_of_group.clip(0)), jnp.asarray(members_of_group >= 0)

    def rounds_of_group(member: jax.Array, is_member: jax.Array) -> tuple[jax.Array, ...]:
        """The rounds of one group: [T] seconds that each takes, and [T, members] times of its units from its begin on.

        `member int32[members]` are its members where `is_member bool[members]`, otherwise padding, which takes inf, and
        for which no round waits. The times are when computing begins, when it ends, and when the message arrives.
        """
        own_network = network_of_members(network, member, num_workers)
        received = own_network.arrivals_at_workers(jnp.where(is_member, 0, jnp.inf).astype(durations.dtype))
        compute_end = received[None] + jnp.where(is_member[None], durations[:, member], jnp.inf)
        arrive = jax.vmap(own_network.arrivals_at_server)(compute_end)
        round_seconds = jnp.max(jnp.where(is_member[None], arrive, -jnp.inf), axis=1)
        return round_seconds, jnp.broadcast_to(received[None], compute_end.shape), compute_end, arrive

    round_seconds, *times = jax.vmap(rounds_of_group)(member, is_member)
    worker_of_column = jnp.where(is_member, member, num_workers).ravel()  # out of bounds: dropped

    def columns_by_worker(x: jax.Array) -> jax.Array:
        """[T, W] from [G, T, members]; `worker_of_column` is the worker of each member."""
        values_by_column = jnp.moveaxis(x, 1, 0).reshape(num_units, -1)  # [T, G * members]
        return jnp.zeros((num_units, num_workers), x.dtype).at[:, worker_of_column].set(values_by_column, mode="drop")

    return _Rounds(round_seconds.T, *(columns_by_worker(x) for x in times))


def _timeline_of_units(
    rounds: _Rounds,
    ask_time: jax.Array,
    begin_time: jax.Array,
    group_of_worker: np.ndarray,
    num_units: int,
    horizon: jax.Array,
) -> Timeline:
    """The times of all units `[T, W]`.

    Args:
      rounds: of the groups; the times in a round are seconds from its own begin.
      ask_time: float[rounds, G] seconds, when each group asks for the parameters of each round.
      begin_time: float[rounds, G] seconds, when its server has them, and the round begins.
      group_of_worker: int[W].
      num_units: T.
      horizon: float[] seconds.
    """
    start, begin_of_worker = ask_time[:, group_of_worker], begin_time[:, group_of_worker]  # [rounds, W]

    def padded_to_all_units(x: jax.Array) -> jax.Array:
        """[T, W] from [rounds, W], as each round has one unit of a worker; inf for units behind the last round."""
        return jnp.pad(x, ((0, num_units - x.shape[0]), (0, 0)), constant_values=jnp.inf)

    compute_start, compute_end, finish = (
        padded_to_all_units(begin_of_worker + x[: begin_of_worker.shape[0]])
        for x in (rounds.compute_start, rounds.compute_end, rounds.finish)
    )
    return Timeline(
        padded_to_all_units(start), compute_start, compute_end, send_start=compute_end, finish=finish, horizon=horizon
    )
