"""Rounds: all work on the version that the round began with, until the server has enough and commits.

Left open, so that whatever the durations are is covered: who does the next unit. Units of work that are cut off by a
commit leave no trace. That a read was made is one bit: a version is the newest one or an old one; that loses nothing,
since no rule asks how old.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Relation, Role, Specification, check_num_workers, zeros
from gcjax.specifications.events import BEGIN, COMMIT, UNIT, Event


class Rounds(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      pending_units: int[W], the units of each in this round.
    """

    version: Numbers
    read: Numbers
    pending_units: Numbers


class Periods(NamedTuple):
    """As `Rounds`, of changing length; `round_units`: int[], the units of each worker in a whole round."""

    version: Numbers
    read: Numbers
    pending_units: Numbers
    round_units: Numbers


Condition = Callable[[Any], jax.Array]
"""`state -> bool[]`."""

WorkerCondition = Callable[[Any, jax.Array], jax.Array]
"""`(state, worker) -> bool[]`."""


def commits_pending_units(before: Any, after: Any, event: Event) -> jax.Array:
    """bool[]: whether a commit takes all pending units, as many as the event shows, and makes its version."""
    return (after.version == event.commit + 1) & (before.pending_units.sum(dtype=jnp.int32) == event.size)


def commits_messages_in_order(before: Any, after: Any, event: Event) -> jax.Array:
    """bool[]: as `commits_pending_units`, and no message of a worker in it is left out that it has sent before."""
    return commits_pending_units(before, after, event) & (event.num_skipped_messages == 0)


def commits_all_messages(before: Any, after: Any, event: Event) -> jax.Array:
    """bool[]: as `commits_pending_units`, and every message that has arrived is in a commit."""
    return commits_pending_units(before, after, event) & (event.num_unused_messages == 0)


def commits_all_earlier_messages(before: Any, after: Any, event: Event) -> jax.Array:
    """bool[]: as `commits_all_messages`, but for those that arrive at the very moment of the record's last commit."""
    return commits_messages_in_order(before, after, event) & ~event.leaves_out_messages


@comparable
def local_sgd(num_workers: int = 3, *, num_local_steps: int = 2) -> Specification:
    """Local SGD: a commit takes H steps of everybody, from the version that it replaces.

    A worker takes at most H steps from one version; the server commits when all have taken H (Stich 2019).

    Args:
      num_workers: W.
      num_local_steps: H.
    """
    return _averaging_rounds("local_sgd", num_workers, num_local_steps)


@comparable
def diloco(num_workers: int = 3, *, num_local_steps: int = 2, dynamic: bool = False) -> Specification:
    """DiLoCo: a commit takes H steps of everybody, from the version that it replaces.

    The waiting of local SGD; what the optimizers do is left out (Douillard et al. 2023).

    Args:
      num_workers: W.
      num_local_steps: H.
      dynamic: whether a commit takes any number of steps of a worker, from 1 to H.
    """
    return _averaging_rounds("diloco", num_workers, num_local_steps, dynamic)


def _averaging_rounds(name: str, num_workers: int, num_local_steps: int, dynamic: bool = False) -> Specification:
    """Rounds of H steps (units) of everybody, 1 to H if `dynamic`; the server commits when all have taken them."""
    check_num_workers(num_workers)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    members = partial(averaging_with_members, name, num_workers, num_local_steps, dynamic)
    return Specification.of_all_workers(num_workers, members)


def averaging_with_members(
    name: str, num_workers: int, num_local_steps: int, dynamic: bool, alive: Any
) -> Specification:
    """Rounds of H = `num_local_steps` units of each of `alive bool[W]`, of 1 to H if `dynamic`.

    What those who left had done before counts.
    """
    min_steps = 1 if dynamic else num_local_steps

    def has_enough_to_commit(state: Rounds) -> jax.Array:
        """bool[]: whether all who take part have taken their steps, and anybody has."""
        is_done = state.pending_units >= min_steps
        return (is_done | ~alive).all() & is_done.any()

    steps = f"1 to {num_local_steps}" if dynamic else f"{num_local_steps}"
    return specification_of_rounds(
        f"{name}({num_workers} workers, {steps} steps)",
        num_workers,
        max_pending_units=num_local_steps,
        has_enough_to_commit=has_enough_to_commit,
        claim=f"a commit takes {steps} steps of everybody, from the version that it replaces",
    )


@comparable
def adacomm(num_workers: int = 3, *, num_local_steps: int = 2) -> Specification:
    """AdaComm: the number of steps changes from round to round, and all take the same number in a round.

    The server chooses the next number, from 1 to H[0], as it commits; which one the losses make it choose is left open
    (Wang and Joshi 2019).

    Args:
      num_workers: W.
      num_local_steps: H[0].
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    return rounds_with_choice(
        f"adacomm({num_workers} workers, at most {num_local_steps} steps)",
        num_workers,
        Periods,
        choices=range(1, num_local_steps + 1),
        first_choice=num_local_steps,
        max_units_of_round=lambda state: state.round_units,
        has_enough_to_commit=lambda state: (state.pending_units == state.round_units).all(),
        claim="a commit takes the same number of steps of everybody, from the version that it replaces",
        action="commit, next",
        # Behind the last commit of a record nothing shows what was chosen.
        shows=lambda event, units: event.is_last_commit | (event.max_units_in_next_commit == units),
        max_pending_units=num_local_steps,
    )


def specification_of_rounds(
    name: str,
    num_workers: int,
    *,
    max_pending_units: int | np.ndarray,
    has_enough_to_commit: Condition,
    claim: str,
    has_room: Condition = lambda state: jnp.ones((), bool),
    further_invariant: Condition = lambda state: jnp.ones((), bool),
    goes_on_beyond_max: bool = False,
    commit_matches: Callable[[Any, Any, Event], jax.Array] = commits_all_earlier_messages,
) -> Specification:
    """A protocol of rounds, whose conditions look at a state with the fields of `Rounds`.

    Those are `version` int[], the commits so far; `read` int[W], the version that each worker has read last (-1 at
    first); and `pending_units` int[W], the units of each in this round.

    Args:
      name: of the protocol.
      num_workers: W.
      max_pending_units: int or int[W], the most units of a worker in a round.
      has_enough_to_commit: whether there is enough for a commit.
      claim: the property, in words.
      has_room: whether workers may do more units in this round.
      further_invariant: what else must hold in every state.
      goes_on_beyond_max: whether workers may do more units, which count as `max_pending_units`.
      commit_matches: `(before, after, event) -> bool[]`, whether a commit of a run, the event, can be this step.
    """
    check_num_workers(num_workers)
    max_pending_units = np.broadcast_to(np.asarray(max_pending_units, np.int32), (num_workers,))
    two_values = zeros(num_workers) + 2
    program = _Program(max_pending_units, has_enough_to_commit, has_room, further_invariant, goes_on_beyond_max)
    commit = Action("commit", program.commit, event=COMMIT, matches=commit_matches)
    return Specification(
        name,
        num_workers,
        initial=Rounds(version=np.int32(0), read=zeros(num_workers) - 1, pending_units=zeros(num_workers)),
        # Of canonical states: the version is 1, what has been read 0 or 1.
        sizes=Rounds(version=2, read=two_values, pending_units=max_pending_units + 1),
        worker=reading_workers(Rounds, num_workers, program.may_do_unit),
        claim=claim,
        server=Role.of_servers(Rounds, ("version", "pending_units"), (commit,), program.server_rule),
        num_servers=1,
        invariant=program.invariant,
        step_property=enough_at_commits(has_enough_to_commit),
        canonicalise=program.canonicalise,
    )


class _Program(NamedTuple):
    """What workers and the server do, by the arguments of `specification_of_rounds`; `max_pending_units int[W]`."""

    max_pending_units: np.ndarray
    has_enough_to_commit: Condition
    has_room: Condition
    further_invariant: Condition
    goes_on_beyond_max: bool

    def may_do_unit(self, state: Any, worker: jax.Array) -> jax.Array:
        """bool[]: whether a worker that has read the newest version may do a unit; `has_room: state -> bool[]`."""
        # Units above `max_pending_units` are counted as `max_pending_units` by `canonicalise`.
        may_do_another = self.goes_on_beyond_max | (
            state.pending_units[worker] < jnp.asarray(self.max_pending_units)[worker]
        )
        return may_do_another & self.has_room(state)

    def commit(self, state: Any, server: jax.Array) -> tuple[Any, jax.Array]:
        """The state after a commit of all work, and whether there is enough for one."""
        return after_commit(state), self.has_enough_to_commit(state)

    def server_rule(self, before: Any, after: Any, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits when there is enough."""
        return is_commit(before, after) & self.has_enough_to_commit(before)

    def invariant(self, state: Any) -> jax.Array:
        """bool[]: whether all work is on the newest version, and `further_invariant: state -> bool[]` holds."""
        return ((state.pending_units == 0) | (state.read == state.version)).all() & self.further_invariant(state)

    def canonicalise(self, state: Any) -> Any:
        """The state as `counted_from_newest`, with work up to `max_pending_units`."""
        if self.goes_on_beyond_max:
            state = state._replace(pending_units=jnp.minimum(state.pending_units, jnp.asarray(self.max_pending_units)))
        return counted_from_newest(state)


def read_newest(state: Any, worker: jax.Array) -> tuple[Any, jax.Array]:
    """The state in which the worker has read the newest version, and whether it had not before."""
    return state._replace(read=state.read.at[worker].set(state.version)), state.read[worker] < state.version


def has_read(before: Any, after: Any, event: Event) -> jax.Array:
    """bool[]: whether, after the step, the version that the worker has read is the one that the event shows."""
    del before
    return after.read[event.worker] == event.version


def begin_action(
    name: str,
    move: Callable[[Any, jax.Array], tuple[Any, jax.Array]],
    field: str = "busy",
    value_at_begin: int = 1,
    *,
    may_wait: bool = False,
) -> Action:
    """The action with which a worker begins, shown by what it reads; its entry of `field` is then `value_at_begin`.

    It begins at once, with the arrival of its last message, unless it `may_wait`.
    """

    def matches(before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the worker begins with the version that the event shows, and waited only if it may."""
        begins = has_read(before, after, event) & (getattr(after, field)[event.worker] == value_at_begin)
        return begins & (np.bool_(may_wait) | ~event.waited)

    return Action(name, move, BEGIN, matches)


def adds_one_unit(before: Any, after: Any, event: Event) -> jax.Array:
    """bool[]: whether the step gives the worker one unit more in `pending_units`, the units that are in no commit."""
    return after.pending_units[event.worker] == before.pending_units[event.worker] + 1


def reading_workers(
    state_type: Any,
    num_workers: int,
    may_do_unit: WorkerCondition,
    matches_read: Callable[[Any, Any, Event], jax.Array] = has_read,
) -> Role:
    """Workers that read the newest version, and do units on it while `may_do_unit(state, worker) -> bool[]` lets them.

    `matches_read(before, after, event) -> bool[]`: whether a read is the one that an event shows.
    """

    def unit(state: Any, worker: jax.Array) -> tuple[Any, jax.Array]:
        """The state with one unit more of the worker, and whether it may do it."""
        enabled = (state.read[worker] == state.version) & may_do_unit(state, worker)
        return state._replace(pending_units=state.pending_units.at[worker].add(1)), enabled

    def rule(before: Any, after: Any, worker: jax.Array) -> jax.Array:
        """bool[]: whether a step of the worker is a read of the newest version, or one unit (`pending_units`) on it."""
        num_new_units = after.pending_units[worker] - before.pending_units[worker]
        has_newest = after.read[worker] == before.version
        does_unit = (num_new_units == 1) & (after.read[worker] == before.read[worker]) & may_do_unit(before, worker)
        only_reads = num_new_units == 0
        return has_newest & (only_reads | does_unit)

    actions = Action("read", read_newest, BEGIN, matches_read), Action("unit", unit, UNIT, adds_one_unit)
    return Role.of_workers(state_type, num_workers, ("read", "pending_units"), actions, rule)


def rounds_with_choice(
    name: str,
    num_workers: int,
    state_type: Any,
    *,
    choices: range,
    first_choice: int,
    max_units_of_round: Callable[[Any], jax.Array],
    has_enough_to_commit: Condition,
    claim: str,
    action: str,
    shows: Callable[[Event, int], jax.Array],
    max_pending_units: int,
    matches_read: Callable[[Any, Any, Event], jax.Array] = has_read,
) -> Specification:
    """A protocol of rounds of several sorts: the server chooses the next one as it commits.

    Args:
      name: of the protocol.
      num_workers: W.
      state_type: of its states: `Rounds`, and behind its fields int[], the choice for this round.
      choices: what the server can choose.
      first_choice: that of the first round.
      max_units_of_round: `state -> int[]`, the most units of a worker in this round.
      has_enough_to_commit: whether there is enough for a commit.
      claim: the property, in words.
      action: what commits are called, before the choice.
      shows: `(event, choice) -> bool[]`, whether a commit of a run, the event, can have made this choice.
      max_pending_units: the most units of a worker in any round.
      matches_read: `(before, after, event) -> bool[]`, whether a read is the one that an event shows.
    """
    choice_field = state_type._fields[-1]

    def commit(choice: int) -> Action:
        """The commit with this choice for the next round."""
        return Action(
            f"{action} {choice}",
            lambda state, server: (after_commit(state, **{choice_field: choice}), has_enough_to_commit(state)),
            COMMIT,
            lambda before, after, event: commits_all_earlier_messages(before, after, event) & shows(event, choice),
        )

    def server_rule(before: Any, after: Any, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits when there is enough, and chooses what it can."""
        choice = getattr(after, choice_field)  # for the next round
        is_choice = (choice >= choices.start) & (choice < choices.stop)
        return is_commit(before, after) & is_choice & has_enough_to_commit(before)

    specification = specification_of_rounds(
        name,
        num_workers,
        max_pending_units=max_pending_units,
        has_enough_to_commit=has_enough_to_commit,
        further_invariant=lambda state: (state.pending_units <= max_units_of_round(state)).all(),
        claim=claim,
    )
    commits, changed_fields = [commit(choice) for choice in choices], ("version", "pending_units", choice_field)
    return specification._replace(
        initial=state_type(*specification.initial, np.int32(first_choice)),
        sizes=state_type(*specification.sizes, choices.stop),
        server=Role.of_servers(state_type, changed_fields, commits, server_rule),
        worker=reading_workers(
            state_type,
            num_workers,
            lambda state, worker: state.pending_units[worker] < max_units_of_round(state),
            matches_read,
        ),
    )


def after_commit(state: Any, **choices: Any) -> Any:
    """The state with the next version and nothing pending; `choices` are fields that the server sets besides."""
    return state._replace(version=state.version + 1, pending_units=jnp.zeros_like(state.pending_units), **choices)


def counted_from_newest(state: Any) -> Any:
    """The state with version 1, and what workers have read as newest (1) or older (0)."""
    read = (state.read >= state.version).astype(jnp.int32)
    return state._replace(version=jnp.ones_like(state.version), read=read)


def enough_at_commits(has_enough_to_commit: Condition) -> Relation:
    """The property of steps that there is enough before each commit."""
    return lambda before, after, component: (after.version == before.version) | has_enough_to_commit(before)


def is_commit(before: Any, after: Any) -> jax.Array:
    """bool[]: whether a step makes the next version and takes all work."""
    return (after.version == before.version + 1) & (after.pending_units == 0).all()
