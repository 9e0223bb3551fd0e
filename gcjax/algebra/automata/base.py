"""Finite automata over program and environment steps: commands whose traces may be of any length.

A configuration is a control state and the shared state. A run starts in an initial configuration and takes steps; its
trace is the states and steps it goes through. Every run is an incomplete trace, a run that ends in a terminating
configuration is a terminated one, and a run that ends in an aborting one may go on in any way: what an automaton does
after it may abort is not looked at.

Letters: Q control states, S shared states, A steps.
"""

from typing import NamedTuple

import numpy as np

from gcjax.algebra.steps import Space

MAX_ENTRIES = 2**28
"""The most entries an array of transitions may have, one byte each."""


class Automaton(NamedTuple):
    """A finite automaton over a space. Make it by the constructors and operators, or by `automaton`, which checks it.

    Written with operators as `gcjax.algebra.command.Command`: `c >> d` is `sequence`, `c & d` is `weak_conjunction`,
    `c | d` is `choice`, and `c >= d` says that d refines c. `refines` also gives the counterexample.

    Attributes:
      space: the states and steps.
      transitions: bool[Q, S, A, Q], whether control state q in shared state s may take step a to control state q'.
      initial: bool[Q, S], the configurations in which a run may start; at least one for every shared state.
      terminating: bool[Q, S].
      aborting: bool[Q, S].
    """

    space: Space
    transitions: np.ndarray
    initial: np.ndarray
    terminating: np.ndarray
    aborting: np.ndarray

    @property
    def num_controls(self) -> int:
        """Q."""
        return int(self.transitions.shape[0])

    def __rshift__(self, other: "Automaton") -> "Automaton":
        """First this, then the other."""
        from gcjax.algebra.automata.operators import sequence  # they are built on this class

        return sequence(self, other)

    def __or__(self, other: "Automaton") -> "Automaton":
        """This or the other."""
        from gcjax.algebra.automata.operators import choice

        return choice(self, other)

    def __and__(self, other: "Automaton") -> "Automaton":
        """Weak conjunction, not `meet`."""
        from gcjax.algebra.automata.products import weak_conjunction

        return weak_conjunction(self, other)

    def __ge__(self, other: object) -> bool:
        """Whether the other refines this."""
        from gcjax.algebra.automata.inclusion import refines

        return bool(refines(self, other)) if isinstance(other, Automaton) else NotImplemented

    def __le__(self, other: object) -> bool:
        """Whether this refines the other."""
        return other >= self if isinstance(other, Automaton) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Whether both have the same traces."""
        return isinstance(other, Automaton) and self <= other and other <= self

    def __ne__(self, other: object) -> bool:
        """The opposite of `==`; a tuple has its own."""
        return not self == other

    @property
    def deterministic(self) -> bool:
        """Whether a trace has at most one run: such an automaton can observe another one step by step.

        That is: one initial control state for each state, and one control state at most after each step.
        """
        if self.num_controls == 1:
            return True
        starts_of_state = self.initial.sum(axis=0)  # int[S], of bool[Q, S]: control states, shared states
        if starts_of_state.max() > 1:
            return False
        # [Q, S, A], the last by step; uint16: sums of booleans along an axis of Q, which may be above 255.
        next_controls_of_step = self.transitions.sum(axis=-1, dtype=np.uint16)
        return bool(next_controls_of_step.max() <= 1)


def automaton(
    space: Space, transitions: np.ndarray, initial: np.ndarray, terminating: np.ndarray, aborting: np.ndarray
) -> Automaton:
    """An automaton from its arrays (see `Automaton`).

    Raises:
      ValueError: if the shapes do not fit the space or each other, the arrays are not boolean, or a state has no
        initial control state.
    """
    shape = np.shape(transitions)
    num_controls = shape[0] if shape else 0
    configurations = (num_controls, space.num_states)
    if num_controls < 1 or shape != (*configurations, space.num_steps, num_controls):
        raise ValueError(
            f"transitions must be bool[Q, {space.num_states}, {space.num_steps}, Q] in a space of "
            f"{space.num_states} states and {space.num_steps} steps, with Q >= 1; got shape {shape}."
        )
    check_size(space, num_controls)
    for name, value in (("initial", initial), ("terminating", terminating), ("aborting", aborting)):
        if np.shape(value) != configurations:
            raise ValueError(
                f"{name} must be bool{list(configurations)}, as the transitions are; got shape {np.shape(value)}."
            )
    arrays = [np.asarray(value) for value in (transitions, initial, terminating, aborting)]
    if any(array.dtype != np.bool_ for array in arrays):
        raise ValueError(f"an automaton's arrays must be boolean; got {', '.join(str(a.dtype) for a in arrays)}.")
    has_initial = np.any(initial, axis=0)
    missing_states = np.flatnonzero(~has_initial)
    if missing_states.size:
        raise ValueError(
            f"every state must have an initial control state; got none for {missing_states.size} states, state "
            f"{missing_states[0]} first. Where it can do nothing, give it one without transitions."
        )
    return Automaton(space, *arrays)


def check_size(space: Space, num_controls: int) -> None:
    """Raises `ValueError` if the transitions bool[Q, S, A, Q] of so many control states Q would not fit."""
    states_times_steps = space.num_states * space.num_steps
    entries = num_controls**2 * states_times_steps
    if entries > MAX_ENTRIES:
        max_controls = int((MAX_ENTRIES // states_times_steps) ** 0.5)
        advice = (
            f"{max_controls} control states fit"
            if max_controls
            else f"no automaton over {space.num_states} states fits"
        )
        raise ValueError(
            f"an automaton must have at most {MAX_ENTRIES} possible transitions (Q²·S·A); got {entries} for "
            f"{num_controls} control states, {space.num_states} states and {space.num_steps} steps: {advice}."
        )


def check_same_space(left: Automaton, right: Automaton) -> None:
    """Raises `ValueError` if two automata are over different spaces."""
    if left.space != right.space:
        sizes = [f"{a.space.num_states} states and {a.space.num_steps} steps" for a in (left, right)]
        raise ValueError(
            f"both automata must be over the same space; got {sizes[0]}, and {sizes[1]}. Make both from one space."
        )


def check_states(space: Space, name: str, value: np.ndarray) -> np.ndarray:
    """A set of states as bool[S], or `ValueError`."""
    return _boolean_array(space, name, value, "S")


def check_relation(space: Space, name: str, value: np.ndarray) -> np.ndarray:
    """A relation on states as bool[S, S], or `ValueError`."""
    return _boolean_array(space, name, value, "S, S")


def check_steps(space: Space, name: str, value: np.ndarray) -> np.ndarray:
    """Which steps each state allows as bool[S, A], or `ValueError`."""
    return _boolean_array(space, name, value, "S, A")


def _boolean_array(space: Space, name: str, value: np.ndarray, axis_letters: str) -> np.ndarray:
    """The value as a boolean array whose axes are these letters, "S, A" for example, or `ValueError`."""
    size_of_letter = {"S": space.num_states, "A": space.num_steps}
    shape = tuple(size_of_letter[letter] for letter in axis_letters.split(", "))
    array = np.array(value)  # a copy, as the caller may change what is given
    if array.shape != shape or array.dtype != np.bool_:
        raise ValueError(
            f"{name} must be bool[{axis_letters}] with S = {space.num_states} states and A = {space.num_steps} steps, "
            f"those of the space; got {array.dtype} of shape {array.shape}."
        )
    return array
