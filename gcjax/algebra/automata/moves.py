"""Transitions as lists.

A configuration (q, s) has the number q S + s.

Letters: Q control states, S shared states, A steps.
"""

from typing import NamedTuple

import numpy as np

from gcjax.algebra.automata.base import Automaton


class Moves(NamedTuple):
    """The transitions of an automaton as lists, ordered by control state, state, step and next control state.

    Attributes:
      configuration_steps: int64[transitions], the configuration and the step from it as one number, (q S + s) A + a.
      offsets: int64[Q S + 1], where the transitions of a configuration begin.
      steps: int64[transitions].
      next_controls: int64[transitions], the control state after the step.
      next_configurations: int64[transitions], the configuration after the step.
    """

    configuration_steps: np.ndarray
    offsets: np.ndarray
    steps: np.ndarray
    next_controls: np.ndarray
    next_configurations: np.ndarray

    def from_configurations(self, configurations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All transitions from them: for each its index in the argument, and its index in the lists."""
        return _numbers_in_ranges(self.offsets[configurations], self.offsets[configurations + 1])

    def from_configuration_steps(self, configuration_steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All transitions of pairs (q S + s) A + a: for each its index in the argument, and its index in the lists."""
        starts = np.searchsorted(self.configuration_steps, configuration_steps)
        stops = np.searchsorted(self.configuration_steps, configuration_steps, side="right")
        return _numbers_in_ranges(starts, stops)


def moves(automaton: Automaton) -> Moves:
    """Lists the transitions of an automaton, bool[Q, S, A, Q]; the fields of `Moves` say what the numbers are."""
    space = automaton.space
    # The flat index of a transition is (configuration * A + step) * Q + next control state.
    configuration_steps, next_controls = np.divmod(np.flatnonzero(automaton.transitions), automaton.num_controls)
    num_configurations = automaton.initial.size
    first_steps = np.arange(num_configurations + 1) * space.num_steps  # each configuration with step 0
    steps = configuration_steps % space.num_steps
    next_states = np.asarray(space.targets)[steps]
    return Moves(
        configuration_steps=configuration_steps,
        offsets=np.searchsorted(configuration_steps, first_steps),
        steps=steps,
        next_controls=next_controls,
        next_configurations=next_controls * space.num_states + next_states,
    )


def _numbers_in_ranges(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all numbers in the ranges [start, stop), one after the other: the index of the range, and the number."""
    lengths = stops - starts
    range_index = np.repeat(np.arange(starts.size), lengths)
    offset_in_output = np.cumsum(lengths) - lengths  # where each range begins among all numbers
    output_index = np.arange(range_index.size)
    return range_index, output_index + (starts - offset_in_output)[range_index]
