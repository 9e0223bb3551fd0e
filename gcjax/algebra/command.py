"""A command of the bounded model: the traces that it accepts, and the operators that need no step table.

A command accepts a trace as terminated, as incomplete (it can do these steps, and may be able to go on) or as aborted
(it can do them, and then anything may happen). What is accepted is closed: prefixes of any trace are incomplete, an
aborted trace is also terminated and incomplete, and so is whatever follows it, as aborted.

**Orientation.** `c >= d` says that d refines c: every trace of d is one of c. Choice is union, `abort` is the largest
command and `magic` the smallest. The papers of Hayes and others write refinement upside down, with `abort` at the
bottom and choice as meet; all laws here are turned.

Letters: S states, A steps, N words of at most n steps (see `gcjax.algebra.traces`).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.traces import Model, words

TERMINATED, INCOMPLETE, ABORTED = 0, 1, 2
STATUSES = ("terminated", "incomplete", "aborted")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Command:
    """The traces that a command accepts; a pytree, so `jit` and `vmap` take it.

    Written with operators, from the one that binds most: `c >> d` is `sequence`, `c & d` is `weak_conjunction`,
    `c | d` is `choice`; `c >= d` (d refines c) and `c == d` are Python bools, so not for use under `jit`.

    Attributes:
      traces: bool[3, S, N]: whether it accepts the trace, by status, start and word.
      model: the traces that there are.
    """

    traces: jax.Array
    model: Model = dataclasses.field(metadata={"static": True})

    @property
    def terminated(self) -> tuple[jax.Array, ...]:
        """For each length k, bool of shape `(S,) + (A,) * k`."""
        return self._by_length(TERMINATED)

    @property
    def incomplete(self) -> tuple[jax.Array, ...]:
        """For each length k, bool of shape `(S,) + (A,) * k`."""
        return self._by_length(INCOMPLETE)

    @property
    def aborted(self) -> tuple[jax.Array, ...]:
        """For each length k, bool of shape `(S,) + (A,) * k`."""
        return self._by_length(ABORTED)

    def _by_length(self, status: int) -> tuple[jax.Array, ...]:
        """The traces of one status: for each length k, bool of shape `(S,) + (A,) * k`, by start and by each step."""
        space = self.model.space
        traces_by_length = [self.traces[status, :, words_of_length] for words_of_length in self.model.levels]
        return tuple(
            traces.reshape(space.num_states, *(space.num_steps,) * length)
            for length, traces in enumerate(traces_by_length)
        )

    def __rshift__(self, other: "Command") -> "Command":
        """First this, then the other."""
        return sequence(self, other)

    def __or__(self, other: "Command") -> "Command":
        """This or the other."""
        return choice(self, other)

    def __and__(self, other: "Command") -> "Command":
        """Weak conjunction, not `meet`."""
        from gcjax.algebra.synchronise import weak_conjunction  # it is built on this class

        return weak_conjunction(self, other)

    def __ge__(self, other: "Command") -> bool:
        """Whether the other refines this."""
        return bool(includes(self, other))

    def __le__(self, other: "Command") -> bool:
        """Whether this refines the other."""
        return bool(includes(other, self))

    def __eq__(self, other: object) -> bool:
        """Whether both accept the same traces."""
        return isinstance(other, Command) and self <= other and other <= self

    __hash__ = None  # type: ignore[assignment]  # equal commands are not the same object


def same_model(*commands: Command) -> Model:
    """The model of all these commands.

    Raises:
      ValueError: if they are not of one model.
    """
    model = commands[0].model
    for other in commands[1:]:
        if other.model != model:
            raise ValueError(f"Commands must be of one model; got {_sizes_text(model)} and {_sizes_text(other.model)}.")
    return model


def _sizes_text(model: Model) -> str:
    """The sizes of a model, for a message."""
    space = model.space
    return f"{space.num_states} states, {space.num_steps} steps, traces of at most {model.max_steps}"


@jax.jit
def choice(c: Command, d: Command) -> Command:
    """What one of the two can do: union."""
    model = same_model(c, d)
    return Command(c.traces | d.traces, model)


@jax.jit
def meet(c: Command, d: Command) -> Command:
    """What both can do: intersection. Unlike `weak_conjunction` it takes away what follows one's abort."""
    model = same_model(c, d)
    return Command(c.traces & d.traces, model)


@jax.jit
def sequence(c: Command, d: Command) -> Command:
    """First c, and then d from the state in which c terminates.

    Traces are bool[3, S, N], by status, start (one of S states) and word (one of N, of at most n steps).
    """
    model = same_model(c, d)
    prefixes, suffixes, end_state = words(model)  # int32[n + 1, N] twice: the first j steps of each word, the others
    middle_state = end_state[:, prefixes]  # int32[S, n + 1, N], after the first j steps
    # bool[3, S, n + 1, N]: whether c terminates after j steps, and d accepts the rest from there.
    can_split_after_prefix = c.traces[TERMINATED][:, prefixes] & d.traces[:, middle_state, suffixes]
    c_then_d = can_split_after_prefix.any(axis=2)
    # What c does by itself, without its terminated traces; those that it aborts are terminated as well.
    aborted_and_terminated = c.traces[ABORTED]
    c_before_d = c.traces.at[TERMINATED].set(aborted_and_terminated)
    return Command(c_then_d | c_before_d, model)


def closed(model: Model, traces: jax.Array) -> Command:
    """The smallest command that accepts these traces: they, all their prefixes, and whatever follows an abort.

    Args:
      model: the traces that there are.
      traces: bool[3, S, N], by status (terminated, incomplete, aborted), start and word.
    """
    aborted = _has_prefix_in(model, traces[ABORTED])
    incomplete = traces.any(axis=0) | aborted
    empty_word = 0
    incomplete = incomplete.at[:, empty_word].set(True)
    num_states, num_steps = model.space.num_states, model.space.num_steps
    # Prefixes of what is accepted: from the longest words on, each slice of words and that of words one step shorter.
    for longer_words, words_without_last_step in zip(model.levels[:0:-1], model.levels[-2::-1], strict=True):
        goes_on_with_step = incomplete[:, longer_words].reshape(num_states, -1, num_steps)
        incomplete = incomplete.at[:, words_without_last_step].set(
            incomplete[:, words_without_last_step] | goes_on_with_step.any(axis=-1)
        )
    return Command(jnp.stack([traces[TERMINATED] | aborted, incomplete, aborted]), model)


def abort_closed(model: Model, traces: jax.Array) -> Command:
    """As `closed`, for traces of which every prefix is among the incomplete ones already."""
    aborted = _has_prefix_in(model, traces[ABORTED])
    return Command(jnp.stack([traces[TERMINATED] | aborted, traces[INCOMPLETE] | aborted, aborted]), model)


def _has_prefix_in(model: Model, aborted: jax.Array) -> jax.Array:
    """bool[S, N], the traces of which a prefix is among those of `aborted`, bool[S, N]."""
    prefixes = words(model).prefix  # int32[n + 1, N]
    return aborted[:, prefixes].any(axis=1)


@jax.jit
def includes(c: Command, d: Command) -> jax.Array:
    """bool[], whether every trace of d is one of c: `c >= d`, also under `jit`."""
    same_model(c, d)
    return ~jnp.any(d.traces & ~c.traces)


@jax.jit
def equal(c: Command, d: Command) -> jax.Array:
    """bool[], whether both accept the same traces: `c == d`, also under `jit`."""
    same_model(c, d)
    return jnp.all(c.traces == d.traces)


def check_relation(model: Model, name: str, value: jax.Array | np.ndarray) -> jax.Array:
    """The value as a relation on the states of a model, a JAX array bool[S, S]; `name` is for the error.

    Raises:
      ValueError: if it is not of shape [S, S] and bool.
    """
    return _boolean_array(name, value, (model.space.num_states,) * 2, "S, S")


def check_states(model: Model, name: str, value: jax.Array | np.ndarray) -> jax.Array:
    """The value as a set of states of a model, a JAX array bool[S]; `name` is for the error.

    Raises:
      ValueError: if it is not of shape [S] and bool.
    """
    return _boolean_array(name, value, (model.space.num_states,), "S")


def _boolean_array(name: str, value: jax.Array | np.ndarray, shape: tuple[int, ...], axis_letters: str) -> jax.Array:
    """The value as a boolean JAX array of this shape, or `ValueError`; `axis_letters` is for the message."""
    array = jnp.asarray(value)
    if array.shape != shape or array.dtype != bool:
        raise ValueError(
            f"{name} must be bool[{axis_letters}] with S = {shape[0]}, the states of the model; "
            f"got {array.dtype} of shape {array.shape}."
        )
    return array
