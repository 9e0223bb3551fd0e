"""Transitions as lists.

A configuration (q, s) has the number q S + s.

Letters: Q control states, S shared states, A steps, E transitions.
"""

from typing import NamedTuple

import numpy as np

from gcjax.algebra.automata.base import Automaton


class Moves(NamedTuple):
    """The transitions of an automaton as lists, ordered by control state, state, step and next control state.

    Attributes:
      offsets: int64[Q S A + 1], where the transitions of a control state, state and step begin.
      steps: int64[E].
      controls: int64[E], the control state after the step.
      configurations: int64[E], the configuration after the step.
    """

    offsets: np.ndarray
    steps: np.ndarray
    controls: np.ndarray
    configurations: np.ndarray


def moves(automaton: Automaton) -> Moves:
    """Lists the transitions."""
    space, count = automaton.space, automaton.num_controls
    flat = np.flatnonzero(automaton.transitions)
    offsets = np.searchsorted(flat, np.arange(count * space.num_states * space.num_steps + 1) * count)
    steps, controls = flat // count % space.num_steps, flat % count
    return Moves(offsets, steps, controls, controls * space.num_states + np.asarray(space.targets)[steps])


def gather(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All entries of the rows: for each entry the place of its row in `rows`, and the place of the entry itself."""
    counts = offsets[rows + 1] - offsets[rows]
    before = np.cumsum(counts) - counts
    source = np.repeat(np.arange(rows.size), counts)
    return source, np.arange(source.size) + (offsets[rows] - before)[source]
