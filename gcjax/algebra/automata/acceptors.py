"""What a specification still allows after a trace: the set of control states that its runs may be in.

A set has a number; the search in `inclusion` handles numbers only. A deterministic specification is in one control
state at a time, and its sets need not be built.

Letters: Q control states of the specification, S shared states, A steps.
"""

from typing import Protocol

import numpy as np

from gcjax.algebra.automata.base import MAX_ENTRIES, Automaton
from gcjax.algebra.automata.moves import moves

NOTHING, UNKNOWN = -1, -2


class Acceptor(Protocol):
    """Sets of control states, by number; NOTHING is the empty set.

    Attributes:
      initial: int64[S], the set in which it is before the first step.
    """

    initial: np.ndarray

    @property
    def num_sets(self) -> int:
        """How many sets there are so far."""
        ...

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """int64[entries], the sets after a step from sets and states."""
        ...

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[entries], whether a set may terminate in a state."""
        ...

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[entries], whether a set may abort in a state."""
        ...

    def proper_subsets(self, sets: np.ndarray) -> np.ndarray | None:
        """bool[entries, sets], whether each set is smaller than and within the one asked for; None if none ever is."""
        ...


class Observer:
    """The control states of a deterministic specification."""

    def __init__(self, automaton: Automaton):
        """A set is the one control state in it."""
        self._automaton = automaton
        self.initial = automaton.initial.argmax(axis=0)
        self.num_sets = automaton.num_controls

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """int64[N], the control state after a step from each control state and state; NOTHING if there is none."""
        followers = self._automaton.transitions[sets, states, steps]  # bool[N, Q], at most one each
        return np.where(followers.any(axis=1), followers.argmax(axis=1), NOTHING)

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[N], whether each control state may terminate in each state."""
        return self._automaton.terminating[sets, states]

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[N], whether each control state may abort in each state."""
        return self._automaton.aborting[sets, states]

    def proper_subsets(self, sets: np.ndarray) -> None:
        """None: no set of one control state is a proper subset of another."""


class Subsets:
    """The sets that a specification can be in, built when they are asked for; each is a row of 64-bit words."""

    def __init__(self, automaton: Automaton):
        """Starts with the sets of initial control states.

        `_next` is int64[sets, S A]: the set after a set and a row (a state and step: s A + a), or UNKNOWN until asked.
        `_words` is uint64[sets, Q / 64]: the members of each set, one bit each; `_numbers` has the number of a set
        by the bytes of these. `_terminating` and `_aborting` are such sets too, one for each state.
        """
        self._moves, self._space, self._num_controls = moves(automaton), automaton.space, automaton.num_controls
        self._terminating, self._aborting = _packed_words(automaton.terminating.T), _packed_words(automaton.aborting.T)
        self._numbers: dict[bytes, int] = {}
        self._words = np.zeros((0, self._terminating.shape[1]), np.uint64)
        self._next = np.zeros((0, automaton.space.num_states * automaton.space.num_steps), np.int64)
        self.initial = self._set_numbers(automaton.initial.T)

    @property
    def num_sets(self) -> int:
        """M, the sets there are so far."""
        return len(self._numbers)

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """int64[N], the sets after a step from each set and state; built where they are asked for the first time."""
        rows = states * self._space.num_steps + steps
        unknown = np.flatnonzero(self._next[sets, rows] == UNKNOWN)
        if unknown.size:
            _, first_places = np.unique(sets[unknown] * self._next.shape[1] + rows[unknown], return_index=True)
            distinct = unknown[first_places]  # each pair of set and row once
            next_sets = self._set_numbers(self._followers(sets[distinct], rows[distinct]))
            self._next[sets[distinct], rows[distinct]] = next_sets
        return self._next[sets, rows]

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[N], whether a control state of each set may terminate in each state."""
        return (self._words[sets] & self._terminating[states]).any(axis=1)

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[N], whether a control state of each set may abort in each state."""
        return (self._words[sets] & self._aborting[states]).any(axis=1)

    def proper_subsets(self, sets: np.ndarray) -> np.ndarray:
        """bool[N, M], whether each of the M sets is smaller than and within the one asked for; as bits of `_words`."""
        all_words = self._words[: self.num_sets]
        is_subset = np.ones((sets.size, len(all_words)), bool)
        for asked_word, word in zip(self._words[sets].T, all_words.T, strict=True):
            is_subset &= (word[None] & ~asked_word[:, None]) == 0
        is_subset[np.arange(sets.size), sets] = False  # a set is no proper subset of itself
        return is_subset

    def _followers(self, sets: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """bool[entries, Q], the control states after a state and step (together: a row) from any in the sets."""
        entry, control = np.nonzero(_unpacked_words(self._words[sets], self._num_controls))  # all members of all sets
        num_rows = self._next.shape[1]  # S A
        member, transition = self._moves.from_rows(control * num_rows + rows[entry])
        followers = np.zeros((sets.size, self._num_controls), bool)
        followers[entry[member], self._moves.controls[transition]] = True
        return followers

    def _set_numbers(self, members: np.ndarray) -> np.ndarray:
        """int64[entries], the numbers of sets bool[entries, Q]; new ones get the next number."""
        words = _packed_words(members)
        keys = [set_words.tobytes() for set_words in words]
        numbers = np.asarray([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)
        self._grow(self.num_sets)
        self._words[numbers] = words
        return np.where(members.any(axis=1), numbers, NOTHING)

    def _grow(self, num_sets: int) -> None:
        """Makes room for at least so many sets in the tables `_words` and `_next`, which have a row for each set."""
        num_rows = len(self._words)
        if num_sets <= num_rows:
            return
        max_sets = MAX_ENTRIES // self._next.shape[1]
        if num_sets > max_sets:
            raise ValueError(
                f"refinement by subsets must meet at most {max_sets} sets of the specification's {self._num_controls} "
                f"control states over {self._space.num_states} states and {self._space.num_steps} steps; got more. "
                "Make the specification deterministic (rely, guarantee, specification and their conjunctions are)."
            )
        # At least doubled, so that the tables are copied seldom.
        num_new = max(num_sets, min(2 * num_rows, max_sets)) - num_rows
        self._words = np.concatenate([self._words, np.zeros((num_new, self._words.shape[1]), np.uint64)])
        self._next = np.concatenate([self._next, np.full((num_new, self._next.shape[1]), UNKNOWN)])


def _packed_words(members: np.ndarray) -> np.ndarray:
    """uint64[N, Q / 64], the rows of bool[N, Q] as 64-bit words, filled up with zeros."""
    num_zeros = -members.shape[1] % 64
    return np.ascontiguousarray(np.packbits(np.pad(members, ((0, 0), (0, num_zeros))), axis=1)).view(np.uint64)


def _unpacked_words(words: np.ndarray, count: int) -> np.ndarray:
    """bool[entries, count], the first `count` booleans of each row of 64-bit words; the opposite of `_packed_words`."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=count).astype(bool)
