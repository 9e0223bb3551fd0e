"""Long traces in lanes: stretches that follow each other in time are replayed side by side.

Where a specification says how its states are counted (`Specification.replay`), the states in which stretches begin are
known at once. All stretches of a block then go on together, a step of each at a time, so that few states are in memory.
Each must end in the state in which the next one begins. Blocks are replayed by several threads.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._cores import num_cores
from gcjax._threads import named_threads
from gcjax.specifications import Specification
from gcjax.specifications.base import are_equal
from gcjax.specifications.events import Event

STATE_ENTRIES = 1 << 13
"""The states of all lanes have about so many entries together, which is little enough for the caches."""
NUM_STEPS = 512
"""Events of a lane."""

State = Any
CheckedStep = Callable[[State, Event], tuple[State, tuple[jax.Array, jax.Array]]]
"""`(state, event) -> (the state in which the next event happens, two bool[]: what this one violates)`."""


class Lanes:
    """The program of a specification that replays a block of events in lanes.

    Attributes:
      block_size: events of a block.
    """

    def __init__(self, specification: Specification, checked_step: CheckedStep) -> None:
        """Of a specification with a `replay`; `checked_step(state, event)`: the next state, and what is violated.

        The number of lanes is a power of two, so that states of all of them have about `STATE_ENTRIES` entries.
        """
        assert specification.replay is not None
        self._replay = specification.replay
        num_entries = max(sum(np.size(x) for x in specification.initial), 1)
        self._num_lanes = 1 << max(round(np.log2(STATE_ENTRIES / num_entries)), 0)
        self.block_size = self._num_lanes * NUM_STEPS
        self._are_kept = jax.jit(jax.vmap(lambda *lane: _is_kept(checked_step, *lane)))

    def kept_blocks(self, state: State, events: Event, is_wrong: np.ndarray) -> Iterator[State]:
        """The state after each block of events that keeps to the specification, up to the first that does not.

        A block is cut into lanes; all begin at once, in states that `replay` counts, and must end in the next one's.

        Args:
          state: before the first event.
          events: whole blocks of them, and fewer than a block, which are left out.
          is_wrong: bool[events], events that are wrong in any state.
        """
        # int[lanes + 1]: the first event of each lane in the block, and the end of the block.
        states_and_results, first_rows = [], np.linspace(0, self.block_size, self._num_lanes + 1, dtype=int)
        with named_threads(num_cores(), "gcjax-check") as threads:
            for first_event in range(0, events.kind.size - self.block_size + 1, self.block_size):
                in_block = slice(first_event, first_event + self.block_size)
                if is_wrong[in_block].any():
                    break
                events_of_block = jax.tree.map(lambda x, in_block=in_block: x[in_block], events)
                states = self._replay(state, events_of_block, first_rows)  # arrays [lanes + 1, ...]
                result = threads.submit(self._is_block_kept, states, events_of_block)
                if first_event == 0 and not result.result():  # waits: else each thread would compile the program
                    return
                state = jax.tree.map(lambda x: x[-1], states)
                states_and_results.append((state, result))
            for state, result in states_and_results:
                if not result.result():
                    return
                yield state

    def _is_block_kept(self, states: State, events: Event) -> bool:
        """Whether a block of events keeps to the specification, from `states`, arrays [lanes + 1, ...].

        A lane begins in one of these states, and must end in the next one.
        """
        first_states, end_states = (jax.tree.map(lambda x, s=s: x[s], states) for s in (slice(-1), slice(1, None)))
        lanes = jax.tree.map(lambda x: x.reshape(self._num_lanes, -1), events)  # [lanes, NUM_STEPS]
        return bool(self._are_kept(first_states, end_states, lanes).all())  # bool[lanes]


def _is_kept(checked_step: CheckedStep, first_state: State, end_state: State, events: Event) -> jax.Array:
    """bool[]: whether events, arrays [steps], violate nothing from `first_state` on, and lead to `end_state`."""

    def step(carry: tuple[State, jax.Array], event: Event) -> tuple[tuple[State, jax.Array], None]:
        """The state after an event, and bool[], whether this one or one before it violates anything; collects None."""
        state, is_violated = carry
        next_state, violations = checked_step(state, event)
        return (next_state, reduce(jnp.logical_or, violations, is_violated)), None

    (state, is_violated), _ = jax.lax.scan(step, (first_state, jnp.zeros((), bool)), events)
    return ~is_violated & are_equal(state, end_state)
