"""What a specification of a protocol is: what its components do, what they promise each other, what is to hold.

A protocol is put together from components: workers 0, ..., W-1, and then its servers, if they take steps of their own.
Each has a program (the moves that it makes) and a guarantee (a relation that contains them, written independently); it
relies on the guarantees of the others. A program step of one component is an environment step of all others.

All functions are pure, cheap, and take a traced component, so that they can be mapped over many steps. Guarantees and
properties are about states with absolute numbers, as a run counts them, and do not change if versions or clocks are
counted from elsewhere: only `canonicalise` knows how states are kept finite.

Fields that mean the same have the same name everywhere: `clock` the units that a worker has pushed, `version` the
commits so far, `read` the version read last, `pending_units` the units that are not in a commit yet, `busy` whether a
worker is between reading and pushing.

Letters: W workers, C components, D entries of a state, n states.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import as_hashable
from gcjax.specifications.events import Event

State = Any
"""A NamedTuple of small integer arrays; each protocol has its own."""

Numbers = Any
"""An integer array of NumPy or JAX."""

Relation = Callable[[State, State, jax.Array], jax.Array]
"""`(before, after, component) -> bool[]`."""

MAX_KEYS = 2**62
"""The most keys of states: they must fit into an int64."""


def any_step(before: State, after: State, component_or_event: Any) -> jax.Array:
    """bool[], True: holds for every step, and every step is what an event shows."""
    del before, after, component_or_event
    return jnp.ones((), bool)


class Action(NamedTuple):
    """One thing that a component can do, and the event of a run that it stands for.

    Attributes:
      name: of the action.
      move: pure function `(state, component) -> (after, enabled bool[])`; `after` counts only if it is enabled.
      event: one of `KINDS` (`gcjax.specifications.events`); empty if it stands for none.
      matches: pure function `(before, after, event) -> bool[]`, whether the step is what the event shows.
      actor: pure function `(state, event) -> component`, who takes it; the worker of the event, or the server, if None.
      enabled_at: the event at which it must be allowed, where this is an earlier one than that which shows its effect.
        Then `matches` is asked at that one.
      matches_effect: pure function `(before, after, event) -> bool[]`, asked at `event` where `matches` is not.
    """

    name: str
    move: Callable[[State, jax.Array], tuple[State, jax.Array]]
    event: str = ""
    matches: Callable[[State, State, Event], jax.Array] = any_step
    actor: Callable[[State, Event], jax.Array] | None = None
    enabled_at: str = ""
    matches_effect: Callable[[State, State, Event], jax.Array] = any_step


class Role(NamedTuple):
    """What components of one sort do and promise.

    Attributes:
      actions: the program.
      frame: pure function `component -> state` of bools that broadcast to the arrays: what the component may change.
      rule: what holds for its steps besides that nothing else changes.
      takes_only_actions: whether every step that the guarantee allows leads where some action would, enabled or not. An
        environment then takes these steps; otherwise all that can be written is tried out, which needs few entries.
    """

    actions: tuple[Action, ...]
    frame: Callable[[Numbers], State]
    rule: Relation
    takes_only_actions: bool = False

    @classmethod
    def of_workers(
        cls,
        state_type: Any,
        num_workers: int,
        own: Sequence[str],
        actions: Sequence[Action],
        rule: Relation,
        shared: Sequence[str] = (),
    ) -> "Role":
        """The role of workers, each of which may change its entry of the arrays `own`, and all of `shared`."""

        def frame(worker: Numbers) -> State:
            """True for the worker's entry of the arrays in `own`, all of those in `shared`; False for all others."""
            may_change = {**dict.fromkeys(own, is_own_entry(num_workers, worker)), **dict.fromkeys(shared, True)}
            return state_type(**{name: may_change.get(name, False) for name in state_type._fields})

        return cls(tuple(actions), frame, rule)

    @classmethod
    def of_servers(cls, state_type: Any, changed: Sequence[str], actions: Sequence[Action], rule: Relation) -> "Role":
        """The role of servers, each of which may change all of the fields `changed`, and takes its actions only."""
        may_change = state_type(*(name in changed for name in state_type._fields))
        return cls(tuple(actions), lambda server: may_change, rule, takes_only_actions=True)

    def allows(self, before: State, after: State, component: jax.Array) -> jax.Array:
        """bool[]: whether a component's step is in its guarantee: its frame (true: may change) and its rule."""
        frame_and_arrays = zip(self.frame(component), before, after, strict=True)
        # Arrays that may change everywhere, or are the same object, need no comparison.
        unchanged_outside_frame = [
            jnp.all(may_change | (old == new))
            for may_change, old, new in frame_and_arrays
            if may_change is not True and old is not new
        ]
        return reduce(jnp.logical_and, unchanged_outside_frame, jnp.asarray(self.rule(before, after, component)))


def always(state: State) -> jax.Array:
    """Holds in every state."""
    del state
    return jnp.ones((), bool)


def unchanged(state: State) -> State:
    """Counts everything as it is; for states that are finite by themselves."""
    return state


def unchanged_by_joining(state: State, worker: jax.Array) -> State:
    """Leaves everything as it is; where a worker may go on as it was when it left."""
    del worker
    return state


class Specification(NamedTuple):
    """A protocol as programs, guarantees and a property.

    Attributes:
      name: of the protocol and its parameters, for people.
      num_workers: W.
      initial: the first state.
      sizes: like a state; canonical entries lie in [0, size).
      worker: what workers do.
      claim: the property in a sentence.
      server: what servers do, if they take steps of their own.
      num_servers: how many there are.
      invariant: the property, of a state.
      step_property: the property, of a step.
      rely: what a component relies on; if None, that each step of the others is in the guarantee of its component.
      is_explored: whether what comes after a state is looked at; where infinitely many states cannot be told apart by a
        `canonicalise`, this keeps them finite, and the protocol's docstring says why nothing is lost.
      canonicalise: pure function `state -> state` to one of finitely many that stand for all: it counts versions and
        clocks from elsewhere, and forgets what no guarantee, program or property distinguishes.
      replay: `(state, events, rows) -> states` in numpy, arrays with an entry for each row: the states before the
        events with these numbers, `rows int[...]` in their order, up to the number of events, if the first event
        happens in this state; where they can be counted, so that long runs need not be replayed step by step.
      members: pure function `alive bool[W] -> Specification`, the same if only these workers take part; None if it is
        not said what is promised then. Its states may have more fields, the same for all `alive`.
      state_after_join: pure function `(state, worker) -> state`, what a worker's joining changes; asked of `members`.
      begins_before_commits: whether a worker that begins at the moment of a commit, with the version that it replaces,
        is taken to have begun before it, since nobody waits for commits.
      only_counts_units: whether the work of a contribution is how many units of a worker count, which need not be those
        from its `unit` on.
    """

    name: str
    num_workers: int
    initial: State
    sizes: State
    worker: Role
    claim: str
    server: Role | None = None
    num_servers: int = 0
    invariant: Callable[[State], jax.Array] = always
    step_property: Relation = any_step
    rely: Relation | None = None
    is_explored: Callable[[State], jax.Array] = always
    canonicalise: Callable[[State], State] = unchanged
    replay: Callable[[State, Event, np.ndarray], State] | None = None
    members: Callable[[Any], Any] | None = None
    state_after_join: Callable[[State, jax.Array], State] = unchanged_by_joining
    begins_before_commits: bool = False
    only_counts_units: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether both have the same states and were made from equal arguments."""
        return isinstance(other, Specification) and as_hashable(tuple(self)) == as_hashable(tuple(other))

    def __ne__(self, other: object) -> bool:
        """The opposite of `==`; a tuple has its own."""
        return not self == other

    def __hash__(self) -> int:
        """Of the contents, so that what is compiled for a specification is there for an equal one."""
        return hash(as_hashable(tuple(self)))

    @staticmethod
    def of_all_workers(num_workers: int, members: "Callable[[Any], Specification]") -> "Specification":
        """The specification if all workers take part, from its `members`, which give that of any."""
        return members(np.ones(num_workers, bool))._replace(members=members)

    @property
    def num_components(self) -> int:
        """C: the workers, and then the servers."""
        return self.num_workers + self.num_servers

    def component_name(self, component: int) -> str:
        """For example "worker 2"."""
        if component < self.num_workers:
            return f"worker {component}"
        return "server" if self.num_servers == 1 else f"server {component - self.num_workers}"

    def roles(self) -> list[tuple[Role, range]]:
        """The roles: of workers, and of servers if there are any; with the numbers of the components that have each."""
        workers = [(self.worker, range(self.num_workers))]
        if self.server is None:
            return workers
        return [*workers, (self.server, range(self.num_workers, self.num_components))]

    def guarantee(self, before: State, after: State, component: jax.Array) -> jax.Array:
        """bool[]: whether a step is one that the component promises to keep to."""
        allowed_to_worker = self.worker.allows(before, after, component)
        if self.server is None:
            return allowed_to_worker
        is_worker = component < self.num_workers
        return jnp.where(is_worker, allowed_to_worker, self.server.allows(before, after, component))


def are_equal(state: State, other: State) -> jax.Array:
    """bool[]: whether two states are equal. An array that is the same object in both is not compared."""
    is_equal = [(x == y).all() for x, y in zip(state, other, strict=True) if x is not y]
    return reduce(jnp.logical_and, is_equal, jnp.ones((), bool))


class Layout(NamedTuple):
    """States as rows of numbers, and as one number each, the key.

    Attributes:
      example: a state, for its type and the shapes of its arrays.
      sizes: int64[D].
      strides: int64[D], the weight of each entry in the key of a state.
    """

    example: State
    sizes: np.ndarray
    strides: np.ndarray

    def flatten(self, state: State) -> jax.Array:
        """int32[D], a row: the arrays of a state, flattened, one after the other."""
        return jnp.concatenate([jnp.asarray(x).astype(jnp.int32).reshape(-1) for x in state])

    def unflatten(self, row: Any) -> State:
        """The state of a row [D], in NumPy or JAX arrays as the row is one; the opposite of `flatten`."""
        ends = np.cumsum([np.size(array) for array in self.example])  # of each array in the row
        fields = zip(self.example, ends, strict=True)
        return type(self.example)(*(row[end - np.size(x) : end].reshape(np.shape(x)) for x, end in fields))

    def keys(self, rows: np.ndarray) -> np.ndarray:
        """int64[n], the key of each row, a different number for each state; -1 where an entry is out of its range."""
        is_in_range = ((rows >= 0) & (rows < self.sizes)).all(axis=1)
        return np.where(is_in_range, rows.astype(np.int64) @ self.strides, -1)


def layout(specification: Specification) -> Layout:
    """How the states of a specification are written down: as rows of their D entries, and as one number each.

    Raises:
      ValueError: if there are more states than can be numbered.
    """
    sizes_and_arrays = zip(specification.sizes, specification.initial, strict=True)
    sizes_of_arrays = [
        np.broadcast_to(np.asarray(size, np.int64), np.shape(array)).ravel() for size, array in sizes_and_arrays
    ]
    entry_sizes = np.concatenate(sizes_of_arrays)  # int64[D]: the values that each entry of a state can have
    num_keys = math.prod(entry_sizes.tolist())
    if num_keys > MAX_KEYS:
        num_digits = sum(math.log10(size) for size in entry_sizes.tolist())  # about in proportion to the workers
        max_workers = int(math.log10(MAX_KEYS) / num_digits * specification.num_workers)
        raise ValueError(
            f"the states of {specification.name} must have numbers below 2^62; {entry_sizes.size} entries with up to "
            f"{entry_sizes.max()} values make 10^{num_digits:.1f} of them. Use about {max_workers} workers, or "
            "smaller parameters."
        )
    # As digits of a number: the last entry has weight 1, each other one the product of the sizes after it.
    strides = np.concatenate([[1], np.cumprod(entry_sizes[:0:-1])])[::-1]
    return Layout(specification.initial, entry_sizes, strides.copy())


def is_own_entry(size: int, index: Numbers) -> Any:
    """bool[size], True at the index only; a NumPy array if the index is of NumPy, so that nothing is compiled."""
    return (np if isinstance(index, np.integer) else jnp).arange(size) == index


def zeros(num: int) -> np.ndarray:
    """int32[num], for a first state."""
    return np.zeros(num, np.int32)


def check_num_workers(num_workers: int) -> int:
    """The number of workers: few where all states are to be explored, any number to hold a schedule against."""
    return _validate.integer("num_workers", num_workers, minimum=1)
