"""Atomic steps: what a step of a trace can be, and which steps two commands can take together.

A step is taken by the program or by its environment, and leads to a state. Every parallel operator of the algebra is
one table of steps that go together: Hayes, Meinicke, Winter, Colvin, "A synchronous program algebra", Formal Aspects of
Computing 31 (2019).

Letters: S states, A steps.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from gcjax import _validate

PROGRAM, ENVIRONMENT = 0, 1
NO_COMPLEMENT = -1


class Space(NamedTuple):
    """The states and the steps that traces are made of; hashable, so that it can be static under `jit`.

    Attributes:
      num_states: S.
      kinds: of each step, PROGRAM or ENVIRONMENT.
      targets: the state that each step leads to.
      complements: of each step, the one that it makes an internal step with (CCS); NO_COMPLEMENT if none.
      internal: that internal step; -1 if there is none.
    """

    num_states: int
    kinds: tuple[int, ...]
    targets: tuple[int, ...]
    complements: tuple[int, ...]
    internal: int = -1

    @property
    def num_steps(self) -> int:
        """A, the different steps that there are."""
        return len(self.kinds)


StepTable = Callable[[Space], np.ndarray]
"""`space -> int32[n, 3]`: the pairs of steps that go together, and the step that they make: left, right, both."""


def shared_memory(num_states: int) -> Space:
    """The space of programs that share a memory: a step of either kind to each state, A = 2 S.

    Step `kind * S + s` leads to state s.
    """
    num_states = _validate.integer("num_states", num_states, minimum=1)
    kinds = (PROGRAM,) * num_states + (ENVIRONMENT,) * num_states
    targets = tuple(range(num_states)) * 2
    return Space(num_states, kinds, targets, complements=(NO_COMPLEMENT,) * len(kinds))


def events(num_pairs: int) -> Space:
    """The space of event-based programs: one state, and a program step for each event.

    Step 0 is the internal event, steps 2 p + 1 and 2 p + 2 are event p and its complement, and the last step is the
    only one of the environment: an environment that names events is not associative under CCS.
    """
    num_pairs = _validate.integer("num_pairs", num_pairs, minimum=1)
    num_program_steps = 2 * num_pairs + 1
    # The internal step and the environment's have no complement.
    events_and_complements = [(2 * pair + 1, 2 * pair + 2) for pair in range(num_pairs)]
    complements_of_events = [step for event, complement in events_and_complements for step in (complement, event)]
    complements = (NO_COMPLEMENT, *complements_of_events, NO_COMPLEMENT)
    kinds = (PROGRAM,) * num_program_steps + (ENVIRONMENT,)
    only_state, internal_event = 0, 0
    return Space(1, kinds, targets=(only_state,) * len(kinds), complements=complements, internal=internal_event)


def steps_of_kind(space: Space, kind: int, step_numbers: Iterable[int] | None = None) -> np.ndarray:
    """bool[A], the steps of a kind, PROGRAM or ENVIRONMENT; if numbers are given, only those.

    Raises:
      ValueError: if a number is not that of a step of this kind.
    """
    is_of_kind = np.asarray(space.kinds) == kind
    if step_numbers is None:
        return is_of_kind
    chosen_numbers = sorted(step_numbers)
    numbers_of_kind = [str(number) for number in np.flatnonzero(is_of_kind)]
    for number in chosen_numbers:
        _validate.choice("steps", str(number), numbers_of_kind)
    return np.isin(np.arange(space.num_steps), chosen_numbers)


def parallel(space: Space) -> np.ndarray:
    """Shared memory, `||`: the program's step is a step of the other's environment; two programs never step at once."""
    return _joint_steps(space, _interleaved)


def conjunction(space: Space) -> np.ndarray:
    """Weak conjunction: both take the same step."""
    return _joint_steps(space, lambda left, right: left == right)


def csp(space: Space) -> np.ndarray:
    """As in CSP: programs step together if they take the same step, otherwise as `parallel`."""
    return _joint_steps(space, lambda left, right: _interleaved(left, right) or left == right)


def ccs(space: Space) -> np.ndarray:
    """As in CCS: a step and its complement make an internal step, otherwise as `parallel`.

    int32[n, 3], a row for each two steps that go together: the left one, the right one, the one that they make.

    Raises:
      ValueError: if the space has no complements.
    """
    if space.internal < 0:
        raise ValueError("CCS needs steps with complements: make the space by events(num_pairs=...).")
    complementary_pairs = [
        (step, complement) for step, complement in enumerate(space.complements) if complement != NO_COMPLEMENT
    ]
    internal_rows = [(step, complement, space.internal) for step, complement in complementary_pairs]
    return np.concatenate([parallel(space), np.asarray(internal_rows, np.int32)])


class _Step(NamedTuple):
    """A step of a space: PROGRAM or ENVIRONMENT, the state it leads to, and its number in the space."""

    kind: int
    target: int
    number: int


def _interleaved(left: _Step, right: _Step) -> bool:
    """Whether both lead to the same state, and at most one is of a program."""
    return left.target == right.target and ENVIRONMENT in (left.kind, right.kind)


def _joint_steps(space: Space, go_together: Callable[[_Step, _Step], bool]) -> np.ndarray:
    """int32[n, 3], the numbers of all steps (left, right) that go together, and of the step that both make.

    That is the program's step if one of the two is. Programs' steps have the smaller numbers, so it is the minimum.
    """
    kinds_and_targets = zip(space.kinds, space.targets, strict=True)
    all_steps = [_Step(kind, target, number) for number, (kind, target) in enumerate(kinds_and_targets)]
    pairs = [(left, right) for left in all_steps for right in all_steps if go_together(left, right)]
    rows = []
    for left, right in pairs:
        program_step_if_any = min(left.number, right.number)
        rows.append((left.number, right.number, program_step_if_any))
    return np.asarray(rows, np.int32)
