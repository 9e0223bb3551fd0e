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
      rows: int64[transitions], the control state, state and step as one number, (q S + s) A + a.
      offsets: int64[Q S + 1], where the transitions of a configuration begin.
      steps: int64[transitions].
      controls: int64[transitions], the control state after the step.
      configurations: int64[transitions], the configuration after the step.
    """

    rows: np.ndarray
    offsets: np.ndarray
    steps: np.ndarray
    controls: np.ndarray
    configurations: np.ndarray

    def from_configurations(self, configurations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All transitions from them: for each its index in the argument, and its index in the lists."""
        return _ranges(self.offsets[configurations], self.offsets[configurations + 1])

    def from_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All transitions of rows: for each its index in the argument, and its index in the lists."""
        return _ranges(np.searchsorted(self.rows, rows), np.searchsorted(self.rows, rows, side="right"))


def moves(automaton: Automaton) -> Moves:
    """Lists the transitions of an automaton, bool[Q, S, A, Q]; the fields of `Moves` say what the numbers are."""
    space = automaton.space
    rows, controls = np.divmod(np.flatnonzero(automaton.transitions), automaton.num_controls)
    num_configurations = automaton.initial.size
    offsets = np.searchsorted(rows, np.arange(num_configurations + 1) * space.num_steps)  # rows of one: A in a row
    steps = rows % space.num_steps
    return Moves(
        rows=rows,
        offsets=offsets,
        steps=steps,
        controls=controls,
        configurations=controls * space.num_states + np.asarray(space.targets)[steps],
    )


def _ranges(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all numbers in the ranges [start, stop), one after the other: the index of the range, and the number."""
    lengths = stops - starts
    range_index = np.repeat(np.arange(starts.size), lengths)
    # A number is its place among all, less where its range begins among all, plus the start of the range.
    return range_index, np.arange(range_index.size) + (starts + lengths - np.cumsum(lengths))[range_index]
