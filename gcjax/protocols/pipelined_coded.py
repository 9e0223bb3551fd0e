"""Pipelined gradient coding (Su, Li 2026, arXiv 2607.20739).

Letters: W workers, N chunks, K chunks a worker holds, T units sampled per worker, R rounds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax import _validate, specifications
from gcjax.codes.base import GradientCode
from gcjax.codes.stopping import StoppingRule, decodable, fastest
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, own_params
from gcjax.protocols.coded import check_code_and_rule, check_durations, decodable_progress
from gcjax.protocols.not_served import not_served
from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.stragglers.network import Network

_not_served = not_served(
    "pipelined_coded cannot be served: a message is made of gradients of several versions, and a late worker goes on "
    "with versions that have been replaced; a worker of the server has the newest version only, and keeps no gradient. "
    "Use coded(...), whose messages are of one version."
)


@comparable
def pipelined_coded(code: GradientCode, *, wait_for: int | None = None) -> Protocol:
    """Pipelined gradient coding (PGC): one chunk a round, and messages with the last gradients on all K chunks.

    A worker takes its K chunks in turn, one in each round, and keeps the last gradient on each. Its message of round r
    is what the code makes of the K that it has, of the versions r - K + 1 to r; commit r decodes the messages of round
    r that have arrived, divided by N. So a round takes the time of one chunk instead of K, no gradient is more than
    K - 1 commits old, and where the code decodes, each chunk is in the estimate once. Nobody is cut off. Who is late
    goes on with the next round, also where that is over by then: its gradients are in its next message that is in time,
    unless they are of versions before the last K.

    From the paper's abstract and its released code: one chunk a worker and step, for fractional repetition and cyclic
    repetition; a first pass through all chunks; messages of the last gradients; waiting for the first W - s messages;
    late workers that leave out no step. There, messages of cyclic repetition are plain sums, and the server weighs all
    alike, W / ((W - s) K): `pipelined_coded(one_step(cyclic(W, load=s + 1)), wait_for=W - s)`. With `wait_for=None` it
    is ours to commit as soon as the messages decode, and to take any code of L = M = 1 whose workers have equally
    many chunks. The gradients of the first pass are the first commit's; in the released code the first chunk is
    computed twice before it.

    Units 0 to K - 1 of a worker are its first round, unit K - 1 + r is round r; E = T - K + 1, C = K W. In the schedule
    a gradient stands in the first commit that its worker's message is in time for; `run.info.staleness` is of these.
    What each worker keeps is `run.state.local.params`, every leaf [W, K, ...]. Where the server's link is shared, the
    messages of one round share it. It is simulated only: a worker of the parameter server keeps no gradients.

    Args:
      code: makes the messages; one unit of work is one chunk.
      wait_for: commit when so many messages of the round have arrived; if None, as soon as they decode exactly.

    Raises:
      ValueError: if the code has other than one block and one message, or workers with different loads, or weights that
        the messages decide, or is to decode exactly and cannot; if there are fewer than `wait_for` workers, or fewer
        than K units.

    Example:
      >>> code = gcjax.codes.fractional_repetition(2, num_stragglers=1)  # both have both chunks
      >>> durations = jnp.array([[1.0, 1.0], [1.0, 1.0], [1.0, 9.0], [1.0, 1.0]])  # [T, W] seconds
      >>> schedule = gcjax.protocols.pipelined_coded(code)(durations)
      >>> schedule.time.tolist()  # two chunks first, then one a round
      [2.0, 3.0, 4.0]
    """
    stopping_rule = decodable() if wait_for is None else fastest(wait_for)
    _check_code(code, stopping_rule, wait_for)
    num_chunks, (num_workers, load) = code.assignment.num_chunks, code.assignment.chunks.shape

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of R rounds, each a commit; column `i * W + w` of commit e ends with unit e + i of worker w.

        The message of round e is of the K = `load` units e, ..., e + K - 1, the last gradients on a worker's K chunks.
        """
        check_durations(durations, num_workers, load)
        rounds = _rounds(code, stopping_rule, durations, network)
        num_rounds, num_units = rounds.commit_time.size, durations.shape[0]
        first_unit = jnp.arange(num_rounds, dtype=jnp.int32)[:, None, None]  # in the messages of a round, [R, 1, 1]
        last_unit = first_unit + jnp.arange(load, dtype=jnp.int32)[None, :, None]  # of each contribution, [R, K, 1]
        # What a message has of the first pass, up to unit K - 1, is one contribution, as it is of one version.
        unit = jnp.where(last_unit == load - 1, first_unit, last_unit)
        is_contribution = _is_new(rounds.is_in_time, load) & (last_unit >= load - 1)  # [R, K, W]
        worker = jnp.where(is_contribution, jnp.arange(num_workers, dtype=jnp.int32)[None, None], -1)

        def by_column(values: jax.Array) -> jax.Array:
            """[R, K W], from values [R, K, W] or [R, K, 1] of the K units of each message; `worker` is [R, K, W]."""
            return jnp.broadcast_to(values, worker.shape).reshape(num_rounds, load * num_workers)

        version = (jnp.arange(num_units, dtype=jnp.int32) - (load - 1)).clip(0)  # int32[T]: the round of each unit
        return record(
            _timeline(rounds, durations, load),
            time=rounds.commit_time,
            worker=by_column(worker),
            unit=by_column(unit),
            work=by_column(last_unit - unit + 1),
            weight=1.0 / num_chunks,
            read=version[:, None],
        )

    def specification(num_workers: int) -> specifications.Specification:
        """The specification: messages of the round that decode, or so many of them."""
        return specifications.pipelined_coded(
            num_workers, load=load, wait_for=wait_for, decodable=None if wait_for else decodable_progress(code)
        )

    return Protocol(
        schedule,
        one_version=False,
        max_staleness=lambda _: load - 1,
        local=LocalWork(
            optimizer=optax.sgd(1.0), server_optimizer=None, pull=own_params, gradients_at_version=True,
            max_contributions=load, message_code=code,
        ),
        max_weight=max(1.0, num_workers / num_chunks),
        specification=specification,
        rule=_not_served,
        num_workers=num_workers,
        waits_for_exact_sum=stopping_rule.waits_for_exact_sum,
    )  # fmt: skip


class _Rounds(NamedTuple):
    """What happens in the rounds, each [R, W] seconds but the last two.

    Attributes:
      start: when each worker asks for the version of the round.
      compute_start: when it has it.
      compute_end: when it has done the chunks of the round.
      arrival: when its message has arrived.
      is_in_time: bool[R, W], whether that is before the commit.
      commit_time: [R].
    """

    start: jax.Array
    compute_start: jax.Array
    compute_end: jax.Array
    arrival: jax.Array
    is_in_time: jax.Array
    commit_time: jax.Array


def _rounds(code: GradientCode, stop: StoppingRule, durations: jax.Array, network: Network) -> _Rounds:
    """The rounds of durations `[T, W]`: K units of each worker in the first one, and one in every other.

    A round begins with the commit before it; who is late begins it when its own last message has arrived.
    """
    load, num_workers = code.assignment.load, durations.shape[1]
    first_round_seconds = jnp.cumsum(durations[:load], axis=0)[-1:]  # [1, W]

    def step(state: tuple[jax.Array, jax.Array], seconds: jax.Array) -> tuple[tuple[jax.Array, jax.Array], _Rounds]:
        """One round of `seconds float[W]` of computing: the state after it, and its times.

        The state: when the round begins, float[], and when each worker's last message has arrived, float[W].
        """
        begin_time, free_time = state
        start = jnp.maximum(begin_time, free_time)
        compute_start = network.arrivals_at_workers(start)
        compute_end = compute_start + seconds
        arrival = network.arrivals_at_server(compute_end)
        # [W, K]: a message brings all chunks of its worker at once.
        arrival_of_chunks = jnp.broadcast_to(arrival[:, None], code.assignment.chunks.shape)
        commit_time = stop.time(code, arrival_of_chunks)
        is_in_time = (arrival <= commit_time) & jnp.isfinite(arrival)
        return (commit_time, arrival), _Rounds(start, compute_start, compute_end, arrival, is_in_time, commit_time)

    seconds = jnp.concatenate([first_round_seconds, durations[load:]])
    initial_state = jnp.zeros((), durations.dtype), jnp.zeros(num_workers, durations.dtype)
    return jax.lax.scan(step, initial_state, seconds)[1]


def _is_new(is_in_time: jax.Array, load: int) -> jax.Array:
    """bool[R, K, W]: which of the K units in each message, from the oldest on, are in no message that came in time.

    Args:
      is_in_time: bool[R, W], whether each message is in time.
      load: K.
    """

    def step(last_round: jax.Array, numbered_round: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """The state, int32[W], the last round in which each worker was in time; and bool[K, W], the new units.

        `numbered_round`: the number of the round, and bool[W], who is in time. A message has K = `load` units.
        """
        round_number, in_time = numbered_round
        num_new = jnp.minimum(round_number - last_round, load)  # [W], the newest of the K units
        age = load - 1 - jnp.arange(load, dtype=jnp.int32)[:, None]  # [K, 1], 0 for the newest
        return jnp.where(in_time, round_number, last_round), in_time[None] & (age < num_new[None])

    num_rounds, num_workers = is_in_time.shape
    all_units_are_new = jnp.full(num_workers, -load, jnp.int32)  # as if the last round in time were K before round 0
    return jax.lax.scan(step, all_units_are_new, (jnp.arange(num_rounds, dtype=jnp.int32), is_in_time))[1]


def _timeline(rounds: _Rounds, durations: jax.Array, load: int) -> Timeline:
    """The times of all units [T, W], of which the first K = `load` are one round; the last of them sends its message.

    Of every other unit the times are those of its round: unit K - 1 + r is round r.
    """
    end_of_first = rounds.compute_start[:1] + jnp.cumsum(durations[:load], axis=0)  # [K, W], as the next line
    begin_of_first = jnp.concatenate([rounds.compute_start[:1], end_of_first[:-1]])
    without_message = jnp.full_like(durations[: load - 1], jnp.inf)  # [K - 1, W]
    return Timeline(
        start=jnp.concatenate([rounds.start[:1], begin_of_first[1:], rounds.start[1:]]),
        compute_start=jnp.concatenate([begin_of_first, rounds.compute_start[1:]]),
        compute_end=jnp.concatenate([end_of_first[:-1], rounds.compute_end]),
        send_start=jnp.concatenate([without_message, rounds.compute_end]),
        finish=jnp.concatenate([end_of_first[:-1], rounds.arrival]),
        horizon=rounds.commit_time[-1],
    )


def _check_code(code: GradientCode, stopping_rule: StoppingRule, wait_for: int | None) -> None:
    """Raises a `ValueError` unless messages can be made of the last gradient on each of K chunks, and be decoded."""
    check_code_and_rule(code, stopping_rule)
    if code.num_blocks > 1 or code.num_messages > 1:
        raise ValueError(
            "pipelined_coded needs a code of one block and one message a worker; this one has "
            f"L={code.num_blocks}, M={code.num_messages}. Use coded(...) for it."
        )
    loads = code.assignment.loads
    if loads.min() != loads.max():
        raise ValueError(
            "pipelined_coded needs workers with equally many chunks, one of which is computed in each round; this "
            f"code gives from {loads.min()} to {loads.max()}. Use coded(...) for it."
        )
    if code.weights_from_messages is not None or code.num_alternatives > 1:
        raise ValueError(
            "pipelined_coded needs a code whose weights follow from who has sent; those of this one follow from what "
            "was sent, or from which of its codes is used. Use coded(...) for it."
        )
    if wait_for is not None:
        hint = "No more messages arrive than there are workers."
        _validate.integer("wait_for", wait_for, minimum=1, maximum=code.assignment.num_workers, hint=hint)
