"""All traces of at most so many steps, numbered.

A word is a sequence of steps, a trace a start and a word. Words are the nodes of a tree with A children each, numbered
level by level: the empty word is 0, word w followed by step a is `A * w + 1 + a`. The words of k steps are therefore
one slice, in the order of an array of shape `(A,) * k`.

Letters: S states, A steps, n the most steps of a trace, N words of at most n steps.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gcjax import _validate
from gcjax.algebra.steps import Space

NUM_STATUSES = 3
"""Terminated, incomplete, aborted."""

LIMIT_BITS = 2**23
"""The largest command: 3 statuses x S states x N words."""


@dataclasses.dataclass(frozen=True)
class Model:
    """The bounded model: all traces of a space up to a length. Hashable, so that it can be static under `jit`.

    Attributes:
      space: the states and steps.
      max_steps: n, the most steps of a trace.

    Raises:
      ValueError: if a command of this size is above `LIMIT_BITS`; the message says what would fit.
    """

    space: Space
    max_steps: int

    def __post_init__(self) -> None:
        """Checks the size, before any array of it is made."""
        _validate.integer("max_steps", self.max_steps, minimum=1)
        states, steps = self.space.num_states, self.space.num_steps
        bits = NUM_STATUSES * states * count_words(steps, self.max_steps)
        if bits > LIMIT_BITS:
            raise ValueError(
                f"A command must have at most {LIMIT_BITS} bits; {states} states, {steps} steps and traces of "
                f"max_steps={self.max_steps} make {size_text(bits)}. "
                + max_steps_advice(lambda n: NUM_STATUSES * states * count_words(steps, n) <= LIMIT_BITS)
            )

    @property
    def num_words(self) -> int:
        """N."""
        return count_words(self.space.num_steps, self.max_steps)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (3, S, N) of a command's array: statuses, states, words."""
        return NUM_STATUSES, self.space.num_states, self.num_words

    @property
    def levels(self) -> list[slice]:
        """For each length k, the numbers of the words of k steps."""
        first_words = [_first_word(self.space.num_steps, length) for length in range(self.max_steps + 2)]
        return [slice(begin, end) for begin, end in itertools.pairwise(first_words)]

    def word(self, steps: Sequence[int]) -> int:
        """The number of the word that consists of these steps."""
        return functools.reduce(lambda word, step: self.space.num_steps * word + 1 + step, steps, 0)

    def steps(self, word: int) -> tuple[int, ...]:
        """The steps of a word, from its number: word w followed by step a has the number A w + 1 + a, of A steps."""
        empty_word = 0
        steps: list[int] = []
        while word != empty_word:
            word, last_step = divmod(word - 1, self.space.num_steps)
            steps.insert(0, last_step)
        return tuple(steps)


class Words(NamedTuple):
    """Tables over all words.

    Attributes:
      prefix: int32[n + 1, N], the first j steps of each word; the word itself if it is shorter.
      suffix: int32[n + 1, N], what comes after these.
      end: int32[S, N], the state in which a trace ends that starts in s.
    """

    prefix: np.ndarray
    suffix: np.ndarray
    end: np.ndarray


@functools.lru_cache(maxsize=16)
def words(model: Model) -> Words:
    """The tables of a model: the prefixes and suffixes of all its words, and the states in which their traces end.

    int32[n + 1, N] twice, of the first j = 0, ..., n steps of each of the N words, and int32[S, N], by the start.
    """
    num_steps, max_steps = model.space.num_steps, model.max_steps  # A, the different steps; n, the length
    prefix = np.concatenate([_prefixes(num_steps, k, max_steps) for k in range(max_steps + 1)], axis=1)
    suffix = np.concatenate([_suffixes(num_steps, k, max_steps) for k in range(max_steps + 1)], axis=1)
    last_step = (np.arange(model.num_words) - 1) % num_steps  # word w followed by step a has the number A w + 1 + a
    end_state = np.broadcast_to(np.asarray(model.space.targets)[last_step], model.shape[1:]).copy()
    empty_word, start_states = 0, np.arange(model.space.num_states)
    end_state[:, empty_word] = start_states  # it has no last step
    return Words(prefix.astype(np.int32), suffix.astype(np.int32), end_state.astype(np.int32))


def count_words(num_steps: int, max_length: int) -> int:
    """How many words of at most `max_length` steps there are, with `num_steps` different steps: a geometric sum."""
    return (num_steps ** (max_length + 1) - 1) // (num_steps - 1) if num_steps > 1 else max_length + 1


def _first_word(num_steps: int, length: int) -> int:
    """The number of the first word of so many steps: all shorter words have the numbers below."""
    return count_words(num_steps, length - 1)


def size_text(number: int) -> str:
    """A number as text; above 2**63 only how large it is at least."""
    return str(number) if number < 2**63 else f"more than 2**{number.bit_length() - 1}"


def max_steps_advice(fits: Callable[[int], bool]) -> str:
    """A sentence with the largest max_steps for which `fits(max_steps)` holds."""
    max_steps = 0
    while fits(max_steps + 1):
        max_steps += 1
    return f"max_steps={max_steps} would fit." if max_steps else "No trace of one step would fit: take fewer states."


def _prefixes(num_steps: int, length: int, max_steps: int) -> np.ndarray:
    """int[n + 1, A^k]: the number of the prefix of j = 0, ..., n steps of each of the words of k = `length` steps.

    A = `num_steps` different steps there are, and n = `max_steps` is the most steps of a word. In row j > k stands the
    number of the whole word. Among the words of its length a word is a number with its steps as digits in base A; the
    words of j steps begin at `_first_word(num_steps, j)`.
    """
    steps_as_digits = np.arange(num_steps**length)
    prefix_lengths = np.minimum(np.arange(max_steps + 1), length).tolist()  # of each row
    return np.stack(
        [
            _first_word(num_steps, prefix_length) + steps_as_digits // num_steps ** (length - prefix_length)
            for prefix_length in prefix_lengths
        ]
    )


def _suffixes(num_steps: int, length: int, max_steps: int) -> np.ndarray:
    """int[n + 1, A^k]: of each word of k = `length` steps, the number of what follows its first j = 0, ..., n steps.

    A = `num_steps` different steps there are, and n = `max_steps` is the most steps of a word. In row j >= k nothing
    follows: the empty word, 0. Numbers have the steps as digits in base A, and come after those of all shorter words.
    """
    steps_as_digits = np.arange(num_steps**length)
    prefix_lengths = np.minimum(np.arange(max_steps + 1), length)  # of each row
    suffix_lengths = (length - prefix_lengths).tolist()
    return np.stack(
        [
            _first_word(num_steps, suffix_length) + steps_as_digits % num_steps**suffix_length
            for suffix_length in suffix_lengths
        ]
    )
