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
        """int64[n], the control state after a step from each control state and state; NOTHING if there is none.

        `sets`, `states` and `steps` are int[n]; the number of a set is that of the one control state in it.
        """
        followers = self._automaton.transitions[sets, states, steps]  # bool[n, Q], at most one each
        return np.where(followers.any(axis=1), followers.argmax(axis=1), NOTHING)

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[n], whether each control state may terminate in the state with it."""
        return self._automaton.terminating[sets, states]

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[n], whether each control state may abort in the state with it."""
        return self._automaton.aborting[sets, states]

    def proper_subsets(self, sets: np.ndarray) -> None:
        """None: no set of one control state is a proper subset of another."""


class Subsets:
    """The sets that a specification can be in, built when they are asked for; each is a row of 64-bit words."""

    def __init__(self, automaton: Automaton):
        """Starts with the sets of initial control states.

        `_next_set` is int64[sets, S A]: the set after a set and a state and step (as one number, s A + a), or UNKNOWN
        until asked. `_member_bits` is uint64[sets, Q / 64]: the members of each set, one bit each; by the bytes of
        these `_set_number_by_bytes` has the number of a set. `_terminating_bits` and `_aborting_bits` are such sets
        too, one for each state.
        """
        space = automaton.space
        self._moves, self._space, self._num_controls = moves(automaton), space, automaton.num_controls
        self._terminating_bits = _packed_bits(automaton.terminating.T)
        self._aborting_bits = _packed_bits(automaton.aborting.T)
        self._set_number_by_bytes: dict[bytes, int] = {}
        num_sets, words_per_set = 0, self._terminating_bits.shape[1]
        self._member_bits = np.zeros((num_sets, words_per_set), np.uint64)
        self._next_set = np.zeros((num_sets, space.num_states * space.num_steps), np.int64)
        self.initial = self._set_numbers(automaton.initial.T)

    @property
    def num_sets(self) -> int:
        """M, the sets there are so far."""
        return len(self._set_number_by_bytes)

    def after(self, sets: np.ndarray, states: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """int64[n], the sets after a step from each set and state; built where they are asked for the first time.

        `sets`, `states` and `steps` are int[n], their numbers; a state and a step are one number s A + a, of A steps,
        in the table `_next_set int64[sets, S A]`.
        """
        state_steps = states * self._space.num_steps + steps
        unknown = np.flatnonzero(self._next_set[sets, state_steps] == UNKNOWN)
        if unknown.size:
            set_state_steps = sets[unknown] * self._next_set.shape[1] + state_steps[unknown]
            _, first_occurrences = np.unique(set_state_steps, return_index=True)  # each is built once
            distinct = unknown[first_occurrences]
            next_sets = self._set_numbers(self._next_members(sets[distinct], state_steps[distinct]))
            self._next_set[sets[distinct], state_steps[distinct]] = next_sets
        return self._next_set[sets, state_steps]

    def terminating(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[n], whether a control state of each set may terminate in the state with it."""
        return (self._member_bits[sets] & self._terminating_bits[states]).any(axis=1)

    def aborting(self, sets: np.ndarray, states: np.ndarray) -> np.ndarray:
        """bool[n], whether a control state of each set may abort in the state with it."""
        return (self._member_bits[sets] & self._aborting_bits[states]).any(axis=1)

    def proper_subsets(self, sets: np.ndarray) -> np.ndarray:
        """bool[n, all sets], whether each set known so far is within, and smaller than, each of `sets int[n]`."""
        all_bits = self._member_bits[: self.num_sets]  # uint64[all sets, Q / 64], a bit for each control state
        is_proper_subset = np.ones((sets.size, len(all_bits)), bool)
        for asked_word, word in zip(self._member_bits[sets].T, all_bits.T, strict=True):  # 64 control states each
            members_not_asked = word[None] & ~asked_word[:, None]
            is_proper_subset &= members_not_asked == 0
        is_proper_subset[np.arange(sets.size), sets] = False  # a set is no proper subset of itself
        return is_proper_subset

    def _next_members(self, sets: np.ndarray, state_steps: np.ndarray) -> np.ndarray:
        """bool[n, Q], the control states to which a step leads from a state and any control state of a set.

        `sets`: int[n], their numbers; `state_steps`: int[n], state s and step a as one number s A + a.
        """
        row, control = np.nonzero(_unpacked_bits(self._member_bits[sets], self._num_controls))
        num_state_steps = self._next_set.shape[1]  # S A, of S states and A steps
        configuration_steps = control * num_state_steps + state_steps[row]
        index, transition = self._moves.from_configuration_steps(configuration_steps)
        next_members = np.zeros((sets.size, self._num_controls), bool)
        next_members[row[index], self._moves.next_controls[transition]] = True
        return next_members

    def _set_numbers(self, members: np.ndarray) -> np.ndarray:
        """int64[n], the numbers of sets bool[n, Q]; new ones get the next number. NOTHING for the empty set."""
        bits = _packed_bits(members)
        keys = [set_bits.tobytes() for set_bits in bits]
        numbers_of_keys = [self._set_number_by_bytes.setdefault(key, len(self._set_number_by_bytes)) for key in keys]
        numbers = np.asarray(numbers_of_keys, np.int64)
        self._make_room(self.num_sets)
        self._member_bits[numbers] = bits
        is_nonempty = members.any(axis=1)
        return np.where(is_nonempty, numbers, NOTHING)

    def _make_room(self, num_sets: int) -> None:
        """Makes room for at least so many sets in `_member_bits` and `_next_set`, which have a row for each set."""
        capacity, num_state_steps = self._next_set.shape
        if num_sets <= capacity:
            return
        max_sets = MAX_ENTRIES // num_state_steps
        if num_sets > max_sets:
            raise ValueError(
                f"refinement by subsets must meet at most {max_sets} sets of the specification's {self._num_controls} "
                f"control states over {self._space.num_states} states and {self._space.num_steps} steps; got more. "
                "Make the specification deterministic (rely, guarantee, specification and their conjunctions are)."
            )
        # At least doubled, so that the tables are copied seldom.
        num_more = max(num_sets, min(2 * capacity, max_sets)) - capacity
        words_per_set = self._member_bits.shape[1]
        self._member_bits = np.concatenate([self._member_bits, np.zeros((num_more, words_per_set), np.uint64)])
        self._next_set = np.concatenate([self._next_set, np.full((num_more, num_state_steps), UNKNOWN)])


def _packed_bits(members: np.ndarray) -> np.ndarray:
    """uint64[n, Q / 64], rounded up: the rows of bool[n, Q] as 64-bit words, filled up with zeros."""
    num_zeros = -members.shape[1] % 64
    return np.ascontiguousarray(np.packbits(np.pad(members, ((0, 0), (0, num_zeros))), axis=1)).view(np.uint64)


def _unpacked_bits(words: np.ndarray, count: int) -> np.ndarray:
    """bool[entries, count], the first `count` booleans of each row of 64-bit words; the opposite of `_packed_bits`."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=count).astype(bool)
