"""Refinement between automata, by a search through pairs: a configuration, and the set that the specification is in.

Letters: Q control states, S shared states, A steps.
"""

from typing import NamedTuple

import numpy as np

from gcjax.algebra.automata.acceptors import NOTHING, Acceptor, Observer, Subsets
from gcjax.algebra.automata.base import MAX_ENTRIES, Automaton, check_same_space
from gcjax.algebra.automata.moves import moves
from gcjax.algebra.refinement import Refinement, Trace

BLOCK = 2**21
"""Pairs times sets that are compared at once."""


class _Layer(NamedTuple):
    """The pairs that traces of one length lead to.

    Attributes:
      configurations: int64[pairs].
      spec_sets: int64[pairs], the sets of control states that the specification may be in.
      parents: int64[pairs], the indices in the layer before; -1 in the first one.
      steps: int64[pairs], the steps from there; -1 in the first one.
    """

    configurations: np.ndarray
    spec_sets: np.ndarray
    parents: np.ndarray
    steps: np.ndarray

    def select(self, pairs: np.ndarray) -> "_Layer":
        """The layer with only these pairs: bool[pairs], or their indices."""
        return _Layer(*(array[pairs] for array in self))


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
    search_ = _Search(Observer(spec) if spec.deterministic else Subsets(spec), automaton)
    return Search(search_.refinement(), num_pairs=sum(layer.spec_sets.size for layer in search_.layers))


class _Search:
    """Breadth-first search through pairs of a configuration and a set of control states of the specification.

    A configuration (q, s) has the number q S + s, as in `moves`. `_is_seen` is bool[Q S, sets]: the pairs met so far.
    """

    def __init__(self, spec: Acceptor, automaton: Automaton):
        """Nothing is searched yet: `layers` are the pairs that traces of 0, 1, 2, ... steps lead to."""
        self._spec, self._automaton, self._moves = spec, automaton, moves(automaton)
        self._is_seen = np.zeros((automaton.initial.size, 0), bool)
        self.layers: list[_Layer] = []

    def refinement(self) -> Refinement:
        """The shortest counterexample, or none; layer by layer, each the pairs that traces one step longer lead to.

        A pair is a configuration, and the set of control states in which the specification may be meanwhile.
        """
        initial = np.flatnonzero(self._automaton.initial)
        initial_sets = self._spec.initial[self._shared_states(initial)]
        no_parent = no_step = np.full(initial.size, -1)
        layer = self._unseen_pairs(
            _Layer(configurations=initial, spec_sets=initial_sets, parents=no_parent, steps=no_step)
        )
        while layer.configurations.size:
            self.layers.append(layer)
            for status, is_violation in self._violations(layer).items():
                if is_violation.any():
                    return self._counterexample(int(is_violation.argmax()), status)
            next_layer = self._next_layer(layer)
            is_forbidden = next_layer.spec_sets == NOTHING  # the specification has no such step
            if is_forbidden.any():
                self.layers.append(next_layer)
                return self._counterexample(int(is_forbidden.argmax()), "incomplete")
            layer = self._unseen_pairs(next_layer)
        return Refinement(None)

    def _shared_states(self, configurations: np.ndarray) -> np.ndarray:
        """int64[pairs], the shared states of configurations q S + s."""
        return configurations % self._automaton.space.num_states

    def _violations(self, layer_without_spec_aborts: _Layer) -> dict[str, np.ndarray]:
        """By status, bool[pairs]: at which pairs a trace may end so that the specification does not have it.

        No set in a layer may abort (`_unseen_pairs` leaves those out), so that every aborted trace is a violation.
        """
        configurations = layer_without_spec_aborts.configurations
        states = self._shared_states(configurations)
        spec_may_terminate = self._spec.terminating(layer_without_spec_aborts.spec_sets, states)
        return {
            "aborted": self._automaton.aborting.ravel()[configurations],
            "terminated": self._automaton.terminating.ravel()[configurations] & ~spec_may_terminate,
        }

    def _next_layer(self, layer: _Layer) -> _Layer:
        """All pairs one step further; `parents` are the indices in this layer that they come from."""
        parents, transitions = self._moves.from_configurations(layer.configurations)
        steps = self._moves.steps[transitions]
        spec_sets = self._spec.after(
            layer.spec_sets[parents], self._shared_states(layer.configurations[parents]), steps
        )
        next_configurations = self._moves.next_configurations[transitions]
        return _Layer(configurations=next_configurations, spec_sets=spec_sets, parents=parents, steps=steps)

    def _unseen_pairs(self, layer: _Layer) -> _Layer:
        """The pairs that must be looked at, each once: not if the specification may abort, nor if met before."""
        spec_may_abort = self._spec.aborting(layer.spec_sets, self._shared_states(layer.configurations))
        layer = layer.select(~spec_may_abort)
        self._make_room_for_sets()
        layer = layer.select(~self._is_seen[layer.configurations, layer.spec_sets])
        pair_numbers = layer.configurations * self._is_seen.shape[1] + layer.spec_sets
        _, first_occurrences = np.unique(pair_numbers, return_index=True)
        layer = layer.select(first_occurrences)
        self._is_seen[layer.configurations, layer.spec_sets] = True
        return layer.select(~self._is_covered(layer))

    def _is_covered(self, layer: _Layer) -> np.ndarray:
        """bool[pairs], whether the configuration was met with fewer control states of the specification.

        Such a pair needs no search: fewer control states allow fewer traces, so what follows the other is stricter.
        """
        is_covered = np.zeros(layer.spec_sets.size, bool)
        num_blocks = 1 + layer.spec_sets.size * self._spec.num_sets // BLOCK
        for block in np.array_split(np.arange(layer.spec_sets.size), num_blocks):
            distinct_sets, set_index = np.unique(layer.spec_sets[block], return_inverse=True)
            is_proper_subset = self._spec.proper_subsets(distinct_sets)  # bool[distinct sets, sets]
            if is_proper_subset is None:  # a deterministic specification has none
                break
            num_sets = is_proper_subset.shape[1]
            is_seen_with_set = self._is_seen[layer.configurations[block], :num_sets]  # bool[block, sets]
            is_covered[block] = (is_seen_with_set & is_proper_subset[set_index]).any(axis=1)
        return is_covered

    def _make_room_for_sets(self) -> None:
        """Makes room in `_is_seen`, which has a column for each set of the specification, for all there are by now."""
        num_configurations, capacity = self._is_seen.shape
        if self._spec.num_sets <= capacity:
            return
        max_sets = MAX_ENTRIES // num_configurations
        if self._spec.num_sets > max_sets:
            raise ValueError(
                f"refinement must meet at most {MAX_ENTRIES} pairs; got {self._spec.num_sets} sets of control states "
                f"of the specification for {num_configurations} configurations: at most {max_sets} sets fit."
            )
        # At least doubled, so that the array is copied seldom.
        num_more = max(self._spec.num_sets, min(2 * capacity, max_sets)) - capacity
        self._is_seen = np.concatenate([self._is_seen, np.zeros((num_configurations, num_more), bool)], axis=1)

    def _counterexample(self, index_in_last_layer: int, status: str) -> Refinement:
        """The trace that leads to a pair of the last layer, followed back through the layers, and this status."""
        index_in_layer = index_in_last_layer
        steps_backwards: list[int] = []
        for layer in reversed(self.layers[1:]):
            steps_backwards.append(int(layer.steps[index_in_layer]))
            index_in_layer = int(layer.parents[index_in_layer])
        start = int(self._shared_states(self.layers[0].configurations[index_in_layer]))
        return Refinement(Trace(self._automaton.space, start, tuple(reversed(steps_backwards)), status))
