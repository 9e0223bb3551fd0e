"""What a specification still allows after a trace: the set of control states that its runs may be in.

A set has a number; the search in `inclusion` handles numbers only. A deterministic specification is in one control
state at a time, and its sets need not be built.

Letters: Q control states of the specification, S shared states, A steps, M sets, N entries asked for.
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
        """M, the sets there are so far."""
        ...

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """int64[N], the sets after a step from sets and states."""
        ...

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[N], whether a set may terminate in a state."""
        ...

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[N], whether a set may abort in a state."""
        ...

    def proper_subsets(self, sets: np.ndarray) -> np.ndarray | None:
        """bool[N, M], whether each of the M sets is smaller than and within the one asked for; None if none ever is."""
        ...


class Observer:
    """The control states of a deterministic specification."""

    def __init__(self, automaton: Automaton):
        """A set is the one control state in it."""
        self._automaton = automaton
        self.initial = automaton.initial.argmax(axis=0)
        self.num_sets = automaton.num_controls

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        followers = self._automaton.transitions[sets, states, steps]
        return np.where(followers.any(axis=1), followers.argmax(axis=1), NOTHING)

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        return self._automaton.terminating[sets, states]

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        return self._automaton.aborting[sets, states]

    def proper_subsets(self, sets: np.ndarray) -> None:
        """See `Acceptor`."""


class Subsets:
    """The sets that a specification can be in, built when they are asked for; each is a row of 64-bit words."""

    def __init__(self, automaton: Automaton):
        """Starts with the sets of initial control states."""
        self._moves, self._space, self._count = moves(automaton), automaton.space, automaton.num_controls
        self._terminating, self._aborting = _packed(automaton.terminating.T), _packed(automaton.aborting.T)
        self._numbers: dict[bytes, int] = {}
        self._words = np.zeros((0, self._terminating.shape[1]), np.uint64)
        self._next = np.zeros((0, automaton.space.num_states * automaton.space.num_steps), np.int64)
        self.initial = self._numbered(automaton.initial.T)

    @property
    def num_sets(self) -> int:
        """See `Acceptor`."""
        return len(self._numbers)

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        rows = states * self._space.num_steps + steps
        missing = np.flatnonzero(self._next[sets, rows] == UNKNOWN)
        if missing.size:
            _, first = np.unique(sets[missing] * self._next.shape[1] + rows[missing], return_index=True)
            asked = missing[first]
            followers = self._numbered(self._followers(sets[asked], rows[asked]))
            self._next[sets[asked], rows[asked]] = followers
        return self._next[sets, rows]

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        return (self._words[sets] & self._terminating[states]).any(axis=1)

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        return (self._words[sets] & self._aborting[states]).any(axis=1)

    def proper_subsets(self, sets: np.ndarray) -> np.ndarray:
        """See `Acceptor`."""
        every = self._words[: self.num_sets]
        within = np.ones((sets.size, len(every)), bool)
        for asked, word in zip(self._words[sets].T, every.T, strict=True):
            within &= (word[None] & ~asked[:, None]) == 0
        within[np.arange(sets.size), sets] = False
        return within

    def _followers(self, sets: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """bool[N, Q], the control states after a state and step (together: a row) from any in the sets."""
        place, control = np.nonzero(_unpacked(self._words[sets], self._count))
        source, taken = self._moves.from_rows(control * self._next.shape[1] + rows[place])
        followers = np.zeros((sets.size, self._count), bool)
        followers[place[source], self._moves.controls[taken]] = True
        return followers

    def _numbered(self, members: np.ndarray) -> np.ndarray:
        """int64[N], the numbers of sets bool[N, Q]; new ones get the next number."""
        words = _packed(members)
        keys = [word.tobytes() for word in words]
        numbers = np.asarray([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)
        self._grow(self.num_sets)
        self._words[numbers] = words
        return np.where(members.any(axis=1), numbers, NOTHING)

    def _grow(self, num_sets: int) -> None:
        """Makes room in the tables for at least so many sets."""
        room = len(self._words)
        if num_sets <= room:
            return
        most = MAX_ENTRIES // self._next.shape[1]
        if num_sets > most:
            raise ValueError(
                f"refinement by subsets must meet at most {most} sets of the specification's {self._count} control "
                f"states over {self._space.num_states} states and {self._space.num_steps} steps; got more. "
                "Make the specification deterministic (rely, guarantee, specification and their conjunctions are)."
            )
        more = max(num_sets, min(2 * room, most)) - room
        self._words = np.concatenate([self._words, np.zeros((more, self._words.shape[1]), np.uint64)])
        self._next = np.concatenate([self._next, np.full((more, self._next.shape[1]), UNKNOWN)])


def _packed(members: np.ndarray) -> np.ndarray:
    """Rows of booleans as rows of 64-bit words."""
    space = -members.shape[1] % 64
    return np.ascontiguousarray(np.packbits(np.pad(members, ((0, 0), (0, space))), axis=1)).view(np.uint64)


def _unpacked(words: np.ndarray, count: int) -> np.ndarray:
    return np.unpackbits(words.view(np.uint8), axis=1, count=count).astype(bool)
