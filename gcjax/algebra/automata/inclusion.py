"""Refinement between automata, by a search through pairs: a configuration, and the set that the specification is in.

Letters: Q control states, S shared states, A steps, M sets of control states of the specification, N pairs.
"""

from typing import NamedTuple

import numpy as np

from gcjax.algebra.automata.acceptors import NOTHING, Acceptor, Observer, Subsets
from gcjax.algebra.automata.base import MAX_ENTRIES, Automaton, check_same_space
from gcjax.algebra.automata.moves import moves
from gcjax.algebra.refinement import Refinement, Trace

BLOCK = 2**21


class _Layer(NamedTuple):
    """The pairs that traces of one length lead to.

    Attributes:
      configurations: int64[N].
      sets: int64[N].
      parents: int64[N], the places in the layer before.
      steps: int64[N], the steps from there.
    """

    configurations: np.ndarray
    sets: np.ndarray
    parents: np.ndarray
    steps: np.ndarray

    def take(self, kept: np.ndarray) -> "_Layer":
        return _Layer(*(array[kept] for array in self))


class Search(NamedTuple):
    """What a search found.

    Attributes:
      refinement: whether the automaton refines the specification, or a shortest counterexample.
      num_pairs: the pairs that it went through.
    """

    refinement: Refinement
    num_pairs: int


def refines(spec: Automaton, automaton: Automaton) -> Refinement:
    """Whether every trace of an automaton is one of the specification, `spec >= automaton`.

    Breadth first, so that the counterexample is a shortest one. What follows an abort of the specification is not
    looked at, nor is a pair whose configuration was met with fewer control states of the specification (De Wulf,
    Doyen, Henzinger, Raskin, "Antichains", CAV 2006). Against a deterministic specification this is plain
    reachability, in time proportional to configurations × transitions.

    Raises:
      ValueError: if the two are over different spaces, or there are too many pairs to remember.
    """
    return search(spec, automaton).refinement


def search(spec: Automaton, automaton: Automaton) -> Search:
    """As `refines`, and says how many pairs there were."""
    check_same_space(spec, automaton)
    run = _Search(Observer(spec) if spec.deterministic else Subsets(spec), automaton)
    return Search(run.refinement(), sum(layer.sets.size for layer in run.layers))


class _Search:
    def __init__(self, spec: Acceptor, automaton: Automaton):
        self._spec, self._automaton, self._moves = spec, automaton, moves(automaton)
        self._states = automaton.space.num_states
        self._seen = np.zeros((automaton.initial.size, 0), bool)
        self.layers: list[_Layer] = []

    def refinement(self) -> Refinement:
        start = np.flatnonzero(self._automaton.initial)
        nowhere = np.full(start.size, -1)
        layer = self._fresh(_Layer(start, self._spec.initial[start % self._states], nowhere, nowhere))
        while layer.configurations.size:
            self.layers.append(layer)
            for status, broken in self._ends(layer).items():
                if broken.any():
                    return self._counterexample(int(broken.argmax()), status)
            after = self._after(layer)
            if (after.sets == NOTHING).any():
                self.layers.append(after)
                return self._counterexample(int((after.sets == NOTHING).argmax()), "incomplete")
            layer = self._fresh(after)
        return Refinement(None)

    def _ends(self, layer: _Layer) -> dict[str, np.ndarray]:
        """By status, at which pairs there is a trace that the specification does not have."""
        at = layer.configurations
        allowed = self._spec.terminating(layer.sets, at % self._states)
        return {
            "aborted": self._automaton.aborting.ravel()[at],
            "terminated": self._automaton.terminating.ravel()[at] & ~allowed,
        }

    def _after(self, layer: _Layer) -> _Layer:
        """All pairs one step further."""
        source, taken = self._moves.from_configurations(layer.configurations)
        steps = self._moves.steps[taken]
        sets = self._spec.after(layer.sets[source], layer.configurations[source] % self._states, steps)
        return _Layer(self._moves.configurations[taken], sets, source, steps)

    def _fresh(self, layer: _Layer) -> _Layer:
        """The pairs that must be looked at, each once."""
        layer = layer.take(~self._spec.aborting(layer.sets, layer.configurations % self._states))
        self._grow()
        layer = layer.take(~self._seen[layer.configurations, layer.sets])
        _, first = np.unique(layer.configurations * self._seen.shape[1] + layer.sets, return_index=True)
        layer = layer.take(first)
        self._seen[layer.configurations, layer.sets] = True
        return layer.take(~self._covered(layer))

    def _covered(self, layer: _Layer) -> np.ndarray:
        """bool[N], whether the configuration was met with fewer control states of the specification."""
        covered = np.zeros(layer.sets.size, bool)
        for block in np.array_split(np.arange(layer.sets.size), 1 + layer.sets.size * self._spec.num_sets // BLOCK):
            sets, place = np.unique(layer.sets[block], return_inverse=True)
            smaller = self._spec.proper_subsets(sets)
            if smaller is None:
                break
            seen = self._seen[layer.configurations[block], : smaller.shape[1]]
            covered[block] = (seen & smaller[place]).any(axis=1)
        return covered

    def _grow(self) -> None:
        """Makes room to mark pairs with all sets that there are by now."""
        rows, room = self._seen.shape
        if self._spec.num_sets <= room:
            return
        most = MAX_ENTRIES // rows
        if self._spec.num_sets > most:
            raise ValueError(
                f"refinement must meet at most {MAX_ENTRIES} pairs; got {self._spec.num_sets} sets of control states "
                f"of the specification for {rows} configurations: at most {most} sets fit."
            )
        more = max(self._spec.num_sets, min(2 * room, most)) - room
        self._seen = np.concatenate([self._seen, np.zeros((rows, more), bool)], axis=1)

    def _counterexample(self, place: int, status: str) -> Refinement:
        """The trace that leads to a place of the last layer."""
        steps: list[int] = []
        for layer in reversed(self.layers[1:]):
            steps.append(int(layer.steps[place]))
            place = int(layer.parents[place])
        start = int(self.layers[0].configurations[place]) % self._states
        return Refinement(Trace(self._automaton.space, start, tuple(reversed(steps)), status))
