"""Whether one command refines another, and the shortest trace that says no."""

from typing import NamedTuple

import numpy as np

from gcjax import _validate
from gcjax.algebra.command import ABORTED, INCOMPLETE, STATUSES, TERMINATED, Command, same_model
from gcjax.algebra.steps import PROGRAM, Space


class Trace(NamedTuple):
    """One trace; its `str` is a line a step.

    Attributes:
      space: what the numbers of steps mean.
      start: the state in which it starts.
      steps: the number of each step.
      status: "terminated", "incomplete" or "aborted".
    """

    space: Space
    start: int
    steps: tuple[int, ...]
    status: str

    def __str__(self) -> str:
        """The kind of each step, the states before and after, and the status."""
        states = [self.start, *(self.space.targets[a] for a in self.steps)]
        steps_with_states = zip(self.steps, states[:-1], states[1:], strict=True)
        lines = [
            f"{number}. {_step_line(self.space, step, before, after)}"
            for number, (step, before, after) in enumerate(steps_with_states, start=1)
        ]
        return "\n".join([f"start in state {self.start}", *lines, self.status])


class Refinement(NamedTuple):
    """The answer of `refines`; true in a condition if it holds.

    Attributes:
      trace: the shortest trace of the command that the specification does not have; None if there is none.
    """

    trace: Trace | None

    def __bool__(self) -> bool:
        """Whether the command refines the specification."""
        return self.trace is None

    def __str__(self) -> str:
        """In words."""
        return "It refines." if self.trace is None else f"The specification has no such trace:\n{self.trace}"


def refines(spec: Command, command: Command) -> Refinement:
    """Whether `spec >= command`: every trace of the command is one of the specification.

    Raises:
      ValueError: if they are of different models.
    """
    model = same_model(spec, command)
    violations = np.asarray(command.traces & ~spec.traces)  # bool[3, S, N], by status, start and word
    violating_words = np.flatnonzero(violations.any(axis=(0, 1)))  # numbered by their lengths, so the shortest first
    if not violating_words.size:
        return Refinement(None)
    shortest_length = len(model.steps(int(violating_words[0])))
    words_of_length = model.levels[shortest_length]  # a slice
    shortest_violations = violations[:, :, words_of_length]
    # A trace that is not even incomplete says most; an aborted trace is terminated too, which says less.
    statuses_most_telling_first = (INCOMPLETE, ABORTED, TERMINATED)
    status = next(status for status in statuses_most_telling_first if shortest_violations[status].any())
    start, index_in_length = np.argwhere(shortest_violations[status])[0].tolist()
    steps = model.steps(words_of_length.start + index_in_length)
    return Refinement(Trace(model.space, start, steps, STATUSES[status]))


def accepts(command: Command, trace: Trace) -> bool:
    """Whether a command accepts a trace.

    Raises:
      ValueError: if it is no trace of the command's model: of another space, longer, or with a start, step or status
        that there is not.
    """
    model = command.model
    _validate.choice("the status of the trace", trace.status, STATUSES)
    _validate.integer("the start of the trace", trace.start, maximum=model.space.num_states - 1)
    for step in trace.steps:
        _validate.integer("a step of the trace", step, maximum=model.space.num_steps - 1)
    if trace.space != model.space or len(trace.steps) > model.max_steps:
        raise ValueError(
            f"a trace must be of the command's space and have at most {model.max_steps} steps, those of its model; got "
            f"{len(trace.steps)} steps. Make the model with more."
        )
    word = command.model.word(trace.steps)
    return bool(command.traces[STATUSES.index(trace.status), trace.start, word])


def _step_line(space: Space, step: int, before: int, after: int) -> str:
    """One step as a line: in a space of events its event, otherwise the states before and after it."""
    kind = "program" if space.kinds[step] == PROGRAM else "environment"
    has_events = space.internal >= 0
    if not has_events:
        return f"{kind:<11} {before} -> {after}"
    if step == space.internal:
        return f"{kind:<11} internal event"
    return f"{kind:<11} event {step}" if space.kinds[step] == PROGRAM else f"{kind:<11} step"
