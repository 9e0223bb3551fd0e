"""Commands side by side: every parallel operator is one step table, lifted from steps to traces.

Traces are put together step by step, from the same start. A command that has aborted goes together with whatever the
other can do so far, and both together have aborted then. Hayes, Meinicke, Winter, Colvin, "A synchronous program
algebra", Formal Aspects of Computing 31 (2019).

Letters: S states, A steps, N words.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra import steps
from gcjax.algebra.command import ABORTED, INCOMPLETE, TERMINATED, Command, abort_closed, same_model
from gcjax.algebra.steps import StepTable
from gcjax.algebra.traces import Model, count_words, max_steps_advice, size_text

LIMIT_PAIRS = 2**24
"""The most pairs of words that a step table may put together."""


def synchronise(step_table: StepTable) -> Callable[[Command, Command], Command]:
    """The operator that puts two commands together as the table says for their steps.

    Args:
      step_table: a function of the space, see `gcjax.algebra.steps`; give the same one again for what is compiled
        to be used again.

    Raises:
      ValueError: by the operator, if the commands are of different models, or have too many pairs of traces.
    """

    @jax.jit
    def synchronised(c: Command, d: Command) -> Command:
        """The command whose words are those that `step_table` makes of a word of c and a word of d.

        Such a word is terminated if both are, and aborted if one is and the other has come as far.
        """
        model = same_model(c, d)
        c_words, d_words, joint_words = pairs(step_table, model)  # int32[pairs] each: numbers of words
        c_traces, d_traces = c.traces[:, :, c_words], d.traces[:, :, d_words]  # bool[3, S, pairs], by status and start
        terminated = c_traces[TERMINATED] & d_traces[TERMINATED]
        incomplete = c_traces[INCOMPLETE] & d_traces[INCOMPLETE]
        aborted = c_traces[ABORTED] & d_traces[INCOMPLETE] | c_traces[INCOMPLETE] & d_traces[ABORTED]
        joint_traces = jnp.stack([terminated, incomplete, aborted])  # bool[3, S, pairs]
        # Several pairs can make the same word: it is there if one of them is.
        traces_by_word = jnp.zeros(model.shape, bool).at[:, :, joint_words].max(joint_traces)
        return abort_closed(model, traces_by_word)

    return synchronised


@functools.lru_cache(maxsize=16)
def pairs(step_table: StepTable, model: Model) -> np.ndarray:
    """int32[3, pairs]: the numbers of two words that go together, of left and right, and of the word that they make.

    Raises:
      ValueError: if there are more than `LIMIT_PAIRS` of them.
    """
    joint_steps = step_table(model.space)  # int32[rows, 3], the same for steps
    num_rows = len(joint_steps)
    num_pairs = count_words(num_rows, model.max_steps)  # a pair of words is a word of rows
    if num_pairs > LIMIT_PAIRS:
        raise ValueError(
            f"At most {LIMIT_PAIRS} pairs of traces can be put together; a table of {num_rows} rows makes "
            f"{size_text(num_pairs)} for max_steps={model.max_steps}. "
            + max_steps_advice(lambda max_steps: count_words(num_rows, max_steps) <= LIMIT_PAIRS)
        )
    empty_words = np.zeros((3, 1), np.int32)
    words_by_length = [empty_words]
    for _ in range(model.max_steps):
        shorter_words = words_by_length[-1][:, :, None]  # int32[3, pairs, 1]
        last_steps = joint_steps.T[:, None, :]  # int32[3, 1, rows]
        # Word w followed by step a has the number A w + 1 + a.
        longer_words = shorter_words * model.space.num_steps + 1 + last_steps
        words_by_length.append(longer_words.reshape(3, -1).astype(np.int32))
    return np.concatenate(words_by_length, axis=1)


def parallel(c: Command, d: Command) -> Command:
    """Both over a shared memory, `c || d`: a step of one is a step of the other's environment."""
    return _parallel(c, d)


def weak_conjunction(c: Command, d: Command) -> Command:
    """What both agree to do, `c & d`, until one aborts: then anything may happen."""
    return _weak_conjunction(c, d)


def csp_parallel(c: Command, d: Command) -> Command:
    """Both side by side as in CSP: they may also take the same step at once."""
    return _csp(c, d)


def ccs_parallel(c: Command, d: Command) -> Command:
    """Both side by side as in CCS: a step and its complement may make an internal step.

    Raises:
      ValueError: if the space has no complements; see `gcjax.algebra.steps.events`.
    """
    return _ccs(c, d)


_parallel = synchronise(steps.parallel)
_weak_conjunction = synchronise(steps.conjunction)
_csp = synchronise(steps.csp)
_ccs = synchronise(steps.ccs)
