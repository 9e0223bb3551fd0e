"""All states that can be reached, breadth first, with a shortest way to each.

Letters: N states at once, D entries of a state.
"""

import time
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from gcjax.specifications.base import Layout, Specification, State, layout
from gcjax.specifications.moves import Moves, Stepper

MAX_STATES = 1_000_000
MOST_ENTRIES = 40_000_000  # of all states that are kept, 8 bytes each
ENVIRONMENT = "environment"


class Step(NamedTuple):
    """One step of a counterexample.

    Attributes:
      component: who takes it.
      action: what it does; "environment" if it is only known to be allowed by its guarantee.
      before: the state before it.
      after: the state after it.
    """

    component: str
    action: str
    before: State
    after: State


class Exploration(NamedTuple):
    """What can be reached.

    Attributes:
      states: how many.
      transitions: the steps between them that were looked at.
      seconds: that it took, compiling included.
      failures: what went wrong first, of each sort: "guarantee" (a program step that its component does not promise),
        "property", "rely" (a guaranteed step that another component does not rely on) and "progress" (nobody can move);
        the shortest way there.
    """

    states: int
    transitions: int
    seconds: float
    failures: dict[str, tuple[Step, ...]]


def explore(
    specification: Specification, component: int | None = None, *, stepper: Stepper | None = None
) -> Exploration:
    """Explores the product of all programs, or one program in any environment that it relies on.

    Args:
      specification: of a small instance.
      component: whose program; the environment then takes every step on which it relies. None for the product.
      stepper: of the specification, if it has been made already.

    Raises:
      ValueError: if there are too many states, or one has a number that is out of its range.
    """
    began = time.perf_counter()
    search = _Search(stepper or Stepper(specification, layout(specification)), component)
    search.run()
    return Exploration(search.known.size, search.transitions, time.perf_counter() - began, search.failures)


_Taken = tuple[int, int, np.ndarray, np.ndarray]
"""A step: who, what, the row before, and the row after as counted from there."""


class _Search:
    """Breadth-first search; states are numbered as they are found."""

    def __init__(self, stepper: Stepper, component: int | None):
        self.stepper, self.component = stepper, component
        self.spec, self.layout = stepper.specification, stepper.layout
        first = _row(self.layout, self.spec.canonicalise(self.spec.initial))[None]
        self.rows = [first]  # of each level, [n, D]
        self.known = self._codes(first)  # sorted
        self.came = [np.full((1, 3), -1)]  # [n, 3]: the number of the state before, who, what
        self.after = [first]  # [n, D]: as counted from the state before
        self.first = 0  # the number of the first state of the level
        self.transitions = 0
        self.failures: dict[str, tuple[Step, ...]] = {}

    def run(self) -> None:
        if not bool(self.spec.invariant(self.spec.initial)):
            self.failures["property"] = ()
        while self.rows[-1].shape[0] and "property" not in self.failures:
            self._level(self.rows[-1])

    def _level(self, rows: np.ndarray) -> None:
        """All steps from the states found last."""
        size = self.stepper.chunk
        batches: list[tuple[np.ndarray, ...]] = []
        kept, limit = (
            0,
            max(MOST_ENTRIES // (8 * self.layout.sizes.size), 1),
        )  # rows that may repeat each other, before those that do are taken out
        for i in range(0, rows.shape[0], size):
            batches.append(self._steps(rows[i : i + size], self.first + i))
            kept += batches[-1][0].shape[0]
            if kept > limit:
                batches = [self._new(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))]
                kept = batches[0][0].shape[0]
                self._check_room(self.known.size + kept)
                limit = 2 * kept + max(MOST_ENTRIES // (8 * self.layout.sizes.size), 1)
        if "property" not in self.failures:
            self._number(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))

    def _new(self, after: np.ndarray, normal: np.ndarray, came: np.ndarray) -> tuple[np.ndarray, ...]:
        """The first step to each state that is not known, in the order found; one of those that are out of range."""
        codes = self._codes(normal)
        unique, index = np.unique(codes, return_index=True)
        at = np.searchsorted(self.known, unique).clip(max=self.known.size - 1)
        first = np.sort(index[self.known[at] != unique])
        return after[first], normal[first], came[first]

    def _check_room(self, number: int) -> None:
        """Raises an error if there are more states than can be looked at and kept."""
        most = min(MAX_STATES, MOST_ENTRIES // self.layout.sizes.size)
        if number > most:
            raise ValueError(
                f"{self.spec.name} must have at most {most} states that can be reached, with {self.layout.sizes.size} "
                f"entries each; more have been found. Use fewer than {self.spec.num_workers} workers, or smaller "
                "parameters."
            )

    def _steps(self, rows: np.ndarray, first: int) -> tuple[np.ndarray, ...]:
        """The steps from some states, of which the first has this number.

        Returns:
          Where they lead: as counted from before, int32[n, D]; canonical; how they came about, int[n, 3].
        """
        if self.component is None:
            moves = self.stepper.program(rows)
            stuck = np.setdiff1d(np.arange(rows.shape[0]), moves.state)
            if stuck.size:
                self._fail("progress", self._way(first + int(stuck[0])))
        else:
            moves = self.stepper.alone(rows, self.component)
        judgement = self.stepper.judge(rows[moves.state], moves, self.component or 0)
        program = moves.action >= 0
        taken = program | judgement.relied
        self._look("guarantee", program & ~judgement.guaranteed, moves, first)
        self._look("rely", ~program & judgement.guaranteed & ~judgement.relied, moves, first)
        self._look("property", taken & ~judgement.holds, moves, first)
        self.transitions += int(taken.sum())
        came = np.stack([first + moves.state, moves.component, moves.action], axis=1)
        followed = taken & judgement.explored
        return moves.after[followed], judgement.canonical[followed], came[followed]

    def _look(self, kind: str, bad: np.ndarray, moves: Moves, first: int) -> None:
        """The first step that is bad, if there is one."""
        if kind in self.failures or not bad.any():
            return
        n = int(np.argmax(bad))
        number = first + int(moves.state[n])
        last = int(moves.component[n]), int(moves.action[n]), self._find(number)[0], moves.after[n]
        self._fail(kind, [*self._way(number), last])

    def _fail(self, kind: str, way: list[_Taken]) -> None:
        self.failures.setdefault(kind, self._told(way))

    def _number(self, after: np.ndarray, normal: np.ndarray, came: np.ndarray) -> None:
        """Adds the states that are new, in the order in which they were found."""
        codes = self._codes(normal)
        if (codes < 0).any() and self.failures:
            codes, after, normal, came = (x[codes >= 0] for x in (codes, after, normal, came))
        elif (codes < 0).any():
            bad = self.layout.unflatten(normal[codes < 0][0])
            raise ValueError(
                f"the states of {self.spec.name} must stay within {shown(self.spec.sizes)}; got {shown(bad)}. Its "
                f"sizes or its canonicalise are wrong."
            )
        unique, index = np.unique(codes, return_index=True)
        at = np.searchsorted(self.known, unique).clip(max=self.known.size - 1)
        new = np.sort(index[self.known[at] != unique])
        self.first += self.rows[-1].shape[0]
        self.rows.append(normal[new])
        self.after.append(after[new])
        self.came.append(came[new])
        self.known = np.sort(np.concatenate([self.known, codes[new]]))
        self._check_room(self.known.size)

    def _codes(self, rows: np.ndarray) -> np.ndarray:
        return self.layout.codes(rows)

    def _find(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        for rows, after, came in zip(self.rows, self.after, self.came, strict=True):
            if number < rows.shape[0]:
                return rows[number], after[number], came[number]
            number -= rows.shape[0]
        raise IndexError(number)

    def _way(self, number: int) -> list[_Taken]:
        """The steps to a state."""
        steps: list[_Taken] = []
        while True:
            _, after, (parent, who, what) = self._find(number)
            if parent < 0:
                return steps[::-1]
            steps.append((int(who), int(what), self._find(int(parent))[0], after))
            number = int(parent)

    def _told(self, way: list[_Taken]) -> tuple[Step, ...]:
        """The same with absolute numbers: programs are run again, other steps change as much as they did."""
        state, steps = _row(self.layout, self.spec.initial), []
        for who, what, before, after in way:
            if what >= 0:
                moves = self.stepper.actions[what][0].move(self.layout.unflatten(jnp.asarray(state)), jnp.asarray(who))
                following = _row(self.layout, moves[0])
            else:
                following = state + after - before
            name = self.stepper.actions[what][0].name if what >= 0 else ENVIRONMENT
            step = Step(
                self.spec.component_name(who), name, self.layout.unflatten(state), self.layout.unflatten(following)
            )
            steps.append(step)
            state = following
        return tuple(steps)


def _row(layout: Layout, state: State) -> np.ndarray:
    return np.concatenate([np.asarray(x, np.int32).reshape(-1) for x in state])


def shown(state: State) -> str:
    """A state in one line: the name of each field and its numbers."""
    return ", ".join(f"{name} {' '.join(map(str, np.ravel(x).tolist()))}" for name, x in state._asdict().items())
