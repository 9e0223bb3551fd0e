"""All states that can be reached, breadth first, with a shortest path to each.

Letters: n states or steps, N states at once, D entries of a state.
"""

import time
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.specifications.base import Specification, State, layout
from gcjax.specifications.moves import ENVIRONMENT_ACTION, Moves, Stepper

MAX_STATES = 1_000_000
MAX_ENTRIES = 40_000_000  # of all states that are kept, 8 bytes each
LEVEL_SHARE = 8  # repeated states are taken out when those of a level are more than this part of `MAX_ENTRIES`
ENVIRONMENT = "environment"
NO_STATE_BEFORE = -1


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
        the shortest path there.
    """

    states: int
    transitions: int
    seconds: float
    failures: dict[str, tuple[Step, ...]]

    @property
    def is_complete(self) -> bool:
        """Whether all states were looked at, as it ends where the property fails."""
        return "property" not in self.failures


def explore(
    specification: Specification, component: int | None = None, *, stepper: Stepper | None = None
) -> Exploration:
    """Explores the product of all programs, or one program in any environment that it relies on.

    Args:
      specification: of a small instance.
      component: whose program; the environment then takes every step on which it relies. None for the product.
      stepper: of the specification, if it has been made already.

    Raises:
      ValueError: if there are too many states, or one has a number that is out of its range, or no such component.
    """
    if component is not None:
        component = _validate.integer("component", component, maximum=specification.num_components - 1)
    start_seconds = time.perf_counter()
    search = _Search(stepper or Stepper(specification, layout(specification)), component)
    search.run()
    seconds = time.perf_counter() - start_seconds
    return Exploration(search.known_keys.size, search.transitions, seconds, search.failures)


class _PathStep(NamedTuple):
    """A step on the path to a state.

    Attributes:
      component: whose step it is.
      action: its number; -1 for a step of the environment.
      canonical_row_before: int32[D], the state before.
      row_after: int32[D], the state after, not canonical.
    """

    component: int
    action: int
    canonical_row_before: np.ndarray
    row_after: np.ndarray


class _FollowedSteps(NamedTuple):
    """Steps to states that are to be looked at next.

    Attributes:
      after: int32[n, D], the states after, not canonical.
      canonical_rows: int32[n, D], the same states, canonical.
      origins: int[n, 3], the number of the state before, the component, the number of the action.
    """

    after: np.ndarray
    canonical_rows: np.ndarray
    origins: np.ndarray


class _Search:
    """Breadth-first search; states are numbered as they are found."""

    def __init__(self, stepper: Stepper, component: int | None):
        """Knows the first state only."""
        self.stepper, self.component = stepper, component
        self.spec, self.layout = stepper.specification, stepper.layout
        first_rows = np.asarray(self.layout.flatten(self.spec.canonicalise(self.spec.initial)))[None]
        self.canonical_rows_of_level = [first_rows]  # of each level, [n, D]
        self.known_keys = self.layout.keys(first_rows)  # sorted
        # [n, 3]: the number of the state before, component, action.
        self.origins_of_level = [np.full((1, 3), NO_STATE_BEFORE)]
        self.uncanonical_rows_of_level = [first_rows]  # [n, D]: not canonical, but counted as in the state before
        self.first_state_of_level = 0  # the number of the first state of the level
        self.transitions = 0
        self.failures: dict[str, tuple[Step, ...]] = {}

    def run(self) -> None:
        """Goes on until no state is new, or the property fails."""
        if not bool(self.spec.invariant(self.spec.initial)):
            self.failures["property"] = ()  # in the first state: no step leads there
        while self.canonical_rows_of_level[-1].shape[0] and "property" not in self.failures:
            self._explore_level(self.canonical_rows_of_level[-1])

    def _explore_level(self, rows: np.ndarray) -> None:
        """Takes all steps from the states found last, int32[n, D], and adds the new states that they lead to."""
        batches: list[_FollowedSteps] = []
        # Steps that may lead to the same states, and how many may be kept before repeated ones are taken out.
        num_kept_steps, max_steps_at_first = 0, max(MAX_ENTRIES // (LEVEL_SHARE * self.layout.sizes.size), 1)
        max_kept_steps = max_steps_at_first
        for first_row in range(0, rows.shape[0], self.stepper.states_at_once):
            rows_of_batch = rows[first_row : first_row + self.stepper.states_at_once]
            batches.append(self._followed_steps(rows_of_batch, self.first_state_of_level + first_row))
            num_kept_steps += batches[-1].after.shape[0]
            if num_kept_steps > max_kept_steps:
                batches = [self._first_steps_to_new_states(_concatenated(batches))]
                num_kept_steps = batches[0].after.shape[0]
                self._check_num_states(self.known_keys.size + num_kept_steps)
                max_kept_steps = 2 * num_kept_steps + max_steps_at_first
        if "property" not in self.failures:
            self._add_new_states(_concatenated(batches))

    def _first_steps_to_new_states(self, steps: _FollowedSteps) -> _FollowedSteps:
        """The first step to each state that is not known, in the order found; one of those out of range (key -1)."""
        step_indices = self._first_indices_of_new_keys(self.layout.keys(steps.canonical_rows))
        return _FollowedSteps(*(array[step_indices] for array in steps))

    def _first_indices_of_new_keys(self, keys: np.ndarray) -> np.ndarray:
        """int[m], in order: where each key of `keys int64[n]` that is not known yet stands first."""
        distinct_keys, first_indices = np.unique(keys, return_index=True)
        return np.sort(first_indices[self._is_new(distinct_keys)])

    def _is_new(self, keys: np.ndarray) -> np.ndarray:
        """bool[n], whether each key is not known yet; one above all of them is compared with the last one."""
        positions = np.searchsorted(self.known_keys, keys).clip(max=self.known_keys.size - 1)
        return self.known_keys[positions] != keys

    def _check_num_states(self, num_states: int) -> None:
        """Raises an error if there are more states than can be looked at and kept."""
        max_states = min(MAX_STATES, MAX_ENTRIES // self.layout.sizes.size)
        if num_states > max_states:
            raise ValueError(
                f"{self.spec.name} must have at most {max_states} states that can be reached, with "
                f"{self.layout.sizes.size} entries each; more have been found. Use fewer than {self.spec.num_workers} "
                "workers, or smaller parameters."
            )

    def _followed_steps(self, rows: np.ndarray, first_state_number: int) -> _FollowedSteps:
        """The steps from some states, int32[n, D], of which the first has the number `first_state_number`."""
        if self.component is None:
            moves = self.stepper.moves_of_all(rows)
            stuck_rows = np.setdiff1d(np.arange(rows.shape[0]), moves.state)
            if stuck_rows.size:
                self._record_path_to_failure("progress", self._path(first_state_number + int(stuck_rows[0])))
        else:
            moves = self.stepper.moves_of_one(rows, self.component)
        # Without a component all steps are of programs, and it does not count who relies on them.
        judgement = self.stepper.judge(rows[moves.state], moves, self.component or 0)
        is_of_program = moves.action != ENVIRONMENT_ACTION
        is_taken = is_of_program | judgement.is_relied_on
        self._record_failure("guarantee", is_of_program & ~judgement.is_guaranteed, moves, first_state_number)
        self._record_failure(
            "rely", ~is_of_program & judgement.is_guaranteed & ~judgement.is_relied_on, moves, first_state_number
        )
        self._record_failure("property", is_taken & ~judgement.holds, moves, first_state_number)
        self.transitions += int(is_taken.sum())
        origins = np.stack([first_state_number + moves.state, moves.component, moves.action], axis=1)
        is_followed = is_taken & judgement.is_explored
        return _FollowedSteps(moves.after[is_followed], judgement.canonical_rows[is_followed], origins[is_followed])

    def _record_failure(self, kind: str, is_failure: np.ndarray, moves: Moves, first_state_number: int) -> None:
        """Records the first step for which `is_failure bool[n]` as the failure of this kind, if there is none yet.

        `first_state_number` is the number of the first of the states in which the moves begin.
        """
        if kind in self.failures or not is_failure.any():
            return
        step_index = int(np.argmax(is_failure))
        state_number = first_state_number + int(moves.state[step_index])
        canonical_row_before, _, _ = self._state_entry(state_number)
        component, action = int(moves.component[step_index]), int(moves.action[step_index])
        last_step = _PathStep(component, action, canonical_row_before, row_after=moves.after[step_index])
        self._record_path_to_failure(kind, [*self._path(state_number), last_step])

    def _record_path_to_failure(self, kind: str, path: list[_PathStep]) -> None:
        """Records a failure of this kind, if there is none yet."""
        self.failures.setdefault(kind, self._counterexample(path))

    def _add_new_states(self, steps: _FollowedSteps) -> None:
        """Adds the states that are new, in the order in which they were found.

        One that is out of range (key -1) is an error, or left out if a failure has been found, which says more.
        """
        keys = self.layout.keys(steps.canonical_rows)
        is_out_of_range = keys < 0
        if is_out_of_range.any() and self.failures:
            keys, steps = keys[~is_out_of_range], _FollowedSteps(*(array[~is_out_of_range] for array in steps))
        elif is_out_of_range.any():
            state_out_of_range = self.layout.unflatten(steps.canonical_rows[is_out_of_range][0])
            raise ValueError(
                f"the states of {self.spec.name} must stay within {shown(self.spec.sizes)}; got "
                f"{shown(state_out_of_range)}. Its sizes or its canonicalise are wrong."
            )
        step_indices = self._first_indices_of_new_keys(keys)
        self.first_state_of_level += self.canonical_rows_of_level[-1].shape[0]
        self.canonical_rows_of_level.append(steps.canonical_rows[step_indices])
        self.uncanonical_rows_of_level.append(steps.after[step_indices])
        self.origins_of_level.append(steps.origins[step_indices])
        self.known_keys = np.sort(np.concatenate([self.known_keys, keys[step_indices]]))
        self._check_num_states(self.known_keys.size)

    def _state_entry(self, state_number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of a state: its canonical row, the row not canonical, and its origin (state before, component, action)."""
        number_in_level = state_number
        for level, canonical_rows in enumerate(self.canonical_rows_of_level):
            if number_in_level < canonical_rows.shape[0]:
                uncanonical_row = self.uncanonical_rows_of_level[level][number_in_level]
                origin = self.origins_of_level[level][number_in_level]
                return canonical_rows[number_in_level], uncanonical_row, origin
            number_in_level -= canonical_rows.shape[0]
        raise IndexError(state_number)

    def _path(self, state_number: int) -> list[_PathStep]:
        """The steps from the first state to that with this number."""
        steps: list[_PathStep] = []
        while True:
            _, row_after, (state_number_before, component, action) = self._state_entry(state_number)
            if state_number_before == NO_STATE_BEFORE:
                return steps[::-1]
            canonical_row_before, _, _ = self._state_entry(int(state_number_before))
            steps.append(_PathStep(int(component), int(action), canonical_row_before, row_after))
            state_number = int(state_number_before)

    def _counterexample(self, path: list[_PathStep]) -> tuple[Step, ...]:
        """The steps of a path with numbers counted from the first state on, not canonical ones.

        Actions are taken again; steps of the environment change the entries of a state by as much as they did. Where
        `canonicalise` does more than to count from elsewhere, the numbers that these show may be others than could be.
        """
        row, steps = np.asarray(self.layout.flatten(self.spec.initial)), []
        for component, action_number, canonical_row_before, row_after in path:
            state = self.layout.unflatten(row)
            if action_number != ENVIRONMENT_ACTION:
                action, _ = self.stepper.actions[action_number]
                state_after, _ = action.move(self.layout.unflatten(jnp.asarray(row)), jnp.asarray(component))
                name, row = action.name, np.asarray(self.layout.flatten(state_after))
            else:
                name, row = ENVIRONMENT, row + (row_after - canonical_row_before)
            steps.append(Step(self.spec.component_name(component), name, state, after=self.layout.unflatten(row)))
        return tuple(steps)


def _concatenated(batches: list[_FollowedSteps]) -> _FollowedSteps:
    """The steps of all batches, one batch after the other."""
    return _FollowedSteps(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))


def shown(state: State) -> str:
    """A state in one line: the name of each field and its numbers."""
    return ", ".join(f"{name} {' '.join(map(str, np.ravel(x).tolist()))}" for name, x in state._asdict().items())
