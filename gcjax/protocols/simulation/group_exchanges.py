"""Servers of groups that exchange with a central one, while their workers go on.

To the workers of a group its server is an asynchronous one: who waits for whom, and when pushes arrive, does not depend
on the exchanges. So these are laid over the record of the pushes.

Letters: T units sampled per worker, W workers, G groups, P pushes, E commits, C contributions to a commit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory
from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.stragglers.network import Network


class Exchanges(NamedTuple):
    """When the server of a group exchanges with the central one.

    Attributes:
      group_of_worker: int32[W].
      num_contributions: K, the pushes after which it sends what they have changed.
      central: the network between the servers, to which the groups are workers; without a shared link, nor service.
      max_pushes: C, the most pushes between two messages of a group.
    """

    group_of_worker: np.ndarray
    num_contributions: int
    central: Network
    max_pushes: int


class _Servers(NamedTuple):
    """The servers of the groups; arrays [G], or [] for one of them.

    Attributes:
      num_counted: int32, the pushes since the last merge.
      num_sent: int32, the messages to the central server.
      num_merged: int32, the answers that have been merged: as many, or one less while an exchange is under way.
      commit_time: float seconds, when the last message arrives at the central server.
      merge_time: float seconds, when its answer arrives.
      message_number: int32, the number, among its own, of the message that the last push is in; -1 before the first.
      column: int32, the number of the last push among those of its message.
    """

    num_counted: jax.Array
    num_sent: jax.Array
    num_merged: jax.Array
    commit_time: jax.Array
    merge_time: jax.Array
    message_number: jax.Array
    column: jax.Array


class _PushOutcome(NamedTuple):
    """What a server makes of each push; arrays [P].

    Attributes:
      message_number: int32, the number, among those of its group, of the message in whose commit the push is.
      column: int32, its place in that commit.
      is_sent: bool, whether what it has changed is sent.
      commit_time: float seconds, when the message arrives at the central server that is sent with it; inf if none is.
      num_merged: int32, the answers that its group has merged when its worker goes on.
    """

    message_number: jax.Array
    column: jax.Array
    is_sent: jax.Array
    commit_time: jax.Array
    num_merged: jax.Array


def with_exchanges(pushes: Schedule, exchanges: Exchanges) -> Schedule:
    """The record in which a commit is that of the central server, and takes what a group has pushed.

    The server of a group sends what K pushes have changed since it has merged, and goes on; the message arrives at the
    central server, which commits it and answers; when the answer arrives, the group merges it. Pushes that arrive
    meanwhile are in the commit that is under way if they come before it, otherwise in the next one, with the weight 0.
    At one moment an answer comes before pushes, and pushes are dealt with one after the other, each with all that it
    brings at once.

    Args:
      pushes: the record in which each push is a commit of its own, C = 1.
      exchanges: of the groups.

    Raises:
      ValueError: if there are more pushes between two messages than there is room for; under `jit` the horizon is NaN.
        If the room for all pushes of all commits does not fit into memory.
    """
    _check_room_fits(pushes, exchanges)
    group = jnp.asarray(exchanges.group_of_worker)[pushes.worker[:, 0].clip(0)]  # [P]
    outcome = _push_outcomes(pushes.time, group, exchanges)
    num_pushes, num_contributions = pushes.time.size, exchanges.num_contributions
    max_commits = max(1, num_pushes // num_contributions)  # E
    commit_time = jnp.where(outcome.commit_time <= pushes.horizon, outcome.commit_time, jnp.inf)
    commit_order = jnp.argsort(commit_time, stable=True)  # int[P]
    commit_of_message = _commit_of_message(outcome, commit_time, commit_order, group, exchanges)

    def commit_of(message_number: jax.Array) -> jax.Array:
        """int32[P]: the commit of the message with this number, int32[P], of the group of each of the P pushes.

        It is P if there is no such commit; for -1, no message, it is that of message 0.
        """
        return commit_of_message[group, message_number.clip(0)]

    happens = jnp.isfinite(pushes.time)
    commit = jnp.where(happens, commit_of(outcome.message_number), num_pushes)
    has_no_room = ((outcome.column >= exchanges.max_pushes) & (commit < max_commits)).any()
    if not _validate.is_traced(has_no_room) and bool(has_no_room):
        raise ValueError(
            "max_pushes must be the most pushes of a group between two of its messages; got "
            f"{exchanges.max_pushes}, and there are {int(jnp.where(happens, outcome.column, 0).max()) + 1}. Raise it."
        )
    commit_and_column = commit, outcome.column  # out of bounds: dropped
    shape = max_commits, exchanges.max_pushes
    timeline = Timeline(*(getattr(pushes, name) for name in Timeline._fields))
    # int32[P]: the version that the last merged answer has brought, 0 if there is none; commit e makes version e + 1.
    version = jnp.where(outcome.num_merged > 0, commit_of(outcome.num_merged - 1) + 1, 0)

    def by_commit(values: jax.Array, fill: int) -> jax.Array:
        """[E, C], from values [P] of the pushes, each at its `commit_and_column`; `fill` where there is no push."""
        return jnp.full(shape, fill, values.dtype).at[commit_and_column].set(values, mode="drop")

    return record(
        timeline._replace(horizon=jnp.where(has_no_room, jnp.nan, pushes.horizon)),
        time=commit_time[commit_order][:max_commits],
        worker=by_commit(pushes.worker[:, 0], -1),
        unit=by_commit(pushes.unit[:, 0], 0),
        work=by_commit(pushes.work[:, 0], 0),
        weight=by_commit(outcome.is_sent.astype(pushes.time.dtype), 0),
        read=_version_by_unit(pushes, jnp.where(happens, version, 0)),
    )


def _check_room_fits(pushes: Schedule, exchanges: Exchanges) -> None:
    """Raises a `ValueError` if what is recorded of the contributions to all commits does not fit into memory.

    There are at most as many as pushes over K = `num_contributions`, since each takes K pushes of a group to be sent.
    """
    num_commits = max(1, pushes.time.size // exchanges.num_contributions)
    bytes_of_push = sum(getattr(pushes, name).dtype.itemsize for name in ("worker", "unit", "work", "weight"))
    memory.check_fits(
        f"the pushes in up to {num_commits} commits with room for {exchanges.max_pushes} each",
        num_commits * exchanges.max_pushes * bytes_of_push,
        "Give max_pushes, the most pushes of a group between two of its messages: by default there is room for all.",
    )


def _push_outcomes(time: jax.Array, group: jax.Array, exchanges: Exchanges) -> _PushOutcome:
    """What the servers of G groups make of P pushes, at `time float[P]` in order, to those of `group int32[P]`.

    A time of inf is no push: it changes nothing.
    """
    num_groups = int(exchanges.group_of_worker.max()) + 1

    def seconds_by_group(value: jax.Array | float) -> jax.Array:
        """float[G] seconds: one value for all groups, or one for each."""
        return jnp.broadcast_to(jnp.asarray(value, time.dtype), (num_groups,))

    latency, upload, download = map(seconds_by_group, exchanges.central[:3])
    central = Network(latency=latency, upload=upload, download=download)
    send_seconds, receive_seconds = (seconds_by_group(x) for x in (central.send_seconds(), central.receive_seconds()))

    def after_next_push(servers: _Servers, push: tuple[jax.Array, jax.Array]) -> tuple[_Servers, _PushOutcome]:
        """The servers after a push, `(time float[], group int32[])`, and what is made of it, every field [].

        Only the server of its group changes, and none if the time is inf.
        """
        now, group = push
        server = _Servers(*(x[group] for x in servers))
        after, outcome = _after_push(
            server, now, exchanges.num_contributions, send_seconds[group], receive_seconds[group]
        )
        happens = jnp.isfinite(now)
        all_after = jax.tree.map(lambda x, y: x.at[group].set(jnp.where(happens, y, x[group])), servers, after)
        return all_after, outcome

    zeros = jnp.zeros(num_groups, jnp.int32)
    seconds = seconds_by_group(0)
    initial = _Servers(
        num_counted=zeros, num_sent=zeros, num_merged=zeros, commit_time=seconds, merge_time=seconds,
        message_number=zeros - 1, column=zeros,
    )  # fmt: skip
    return jax.lax.scan(after_next_push, initial, (time, group))[1]


def _after_push(
    server: _Servers, now: jax.Array, num_contributions: int, send_seconds: jax.Array, receive_seconds: jax.Array
) -> tuple[_Servers, _PushOutcome]:
    """A group's server after a push at `now`, and what it makes of it.

    It sends a message with the K-th push since it last merged an answer; until the answer, pushes are not sent on.

    Args:
      server: before it; every field [].
      now: float[] seconds.
      num_contributions: K.
      send_seconds: float[], of a message to the central server.
      receive_seconds: float[], of its answer.
    """
    merges = (server.num_sent > server.num_merged) & (server.merge_time <= now)
    num_merged = jnp.where(merges, server.num_sent, server.num_merged)
    is_sent = server.num_sent == num_merged  # no exchange is under way
    comes_before_commit = ~is_sent & (now < server.commit_time)
    message_number = server.num_sent - comes_before_commit.astype(jnp.int32)
    num_counted = jnp.where(merges, 0, server.num_counted) + is_sent.astype(jnp.int32)
    sends = is_sent & (num_counted == num_contributions)
    num_sent = server.num_sent + sends.astype(jnp.int32)
    commit_time = jnp.where(sends, now + send_seconds, server.commit_time)
    merge_time = jnp.where(sends, commit_time + receive_seconds, server.merge_time)
    merges_at_once = sends & (merge_time <= now)
    num_merged = jnp.where(merges_at_once, num_sent, num_merged)
    column = jnp.where(message_number == server.message_number, server.column + 1, 0)
    after = _Servers(
        num_counted=jnp.where(merges_at_once, 0, num_counted), num_sent=num_sent, num_merged=num_merged,
        commit_time=commit_time, merge_time=merge_time, message_number=message_number, column=column,
    )  # fmt: skip
    return after, _PushOutcome(message_number, column, is_sent, jnp.where(sends, commit_time, jnp.inf), num_merged)


def _commit_of_message(
    outcome: _PushOutcome, commit_time: jax.Array, commit_order: jax.Array, group: jax.Array, exchanges: Exchanges
) -> jax.Array:
    """int32[G, messages]: the commit of each message of the G groups; P, the number of pushes, if it never happens.

    Args:
      outcome: what is made of each push.
      commit_time: float[P] seconds of the commit that a push brings; inf if it brings none.
      commit_order: int[P], the pushes in the order of these times.
      group: int32[P], the group of the worker of each push.
      exchanges: of the groups.
    """
    num_pushes = group.size
    num_groups, max_messages = int(exchanges.group_of_worker.max()) + 1, num_pushes // exchanges.num_contributions + 1
    # The place of each push among all in the order of commits: the commit that it brings, if it brings one.
    commit_of_push = jnp.zeros(num_pushes, jnp.int32).at[commit_order].set(jnp.arange(num_pushes, dtype=jnp.int32))
    # Where there is no commit it is out of bounds: dropped.
    message_number = jnp.where(jnp.isfinite(commit_time), outcome.message_number, max_messages)
    no_commits = jnp.full((num_groups, max_messages), num_pushes, jnp.int32)
    return no_commits.at[group, message_number].set(commit_of_push, mode="drop")


def _version_by_unit(pushes: Schedule, version: jax.Array) -> jax.Array:
    """int32[T, W]: the version that a worker's group has merged when it begins a unit; -1 where it begins none.

    Args:
      pushes: the record of the pushes.
      version: int32[P], the version when the worker of each push goes on; it never decreases.
    """
    next_unit = pushes.unit[:, 0] + pushes.work[:, 0]  # with which the worker goes on
    # Of no push, and behind the last unit, it is out of bounds: dropped.
    entry = jnp.where(pushes.worker[:, 0] >= 0, next_unit, pushes.read.shape[0]), pushes.worker[:, 0]
    version_from_unit = jnp.zeros_like(pushes.read).at[entry].max(version.astype(jnp.int32), mode="drop")
    return jnp.where(pushes.read >= 0, jax.lax.cummax(version_from_unit, axis=0), -1)
