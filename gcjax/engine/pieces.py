"""Runs in pieces: between two of them there is a checkpoint, or a word of how far the run is.

A program that reports from within could not be kept on disk, and has to come back to the host for it; pieces can.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from gcjax import interrupts, saved_progress
from gcjax.engine.checkpoint import Checkpoints

_T = TypeVar("_T")
_NUM_SHORT_PIECES = 100  # of a run, more or less


def advance_in_pieces(
    advance: Callable[[_T, int], _T],
    training: _T,
    num_evals: int,
    *,
    checkpoints: Checkpoints | None,
    identity: str,
    report: Callable[[_T], None] | None,
) -> _T:
    """Trains on from the newest checkpoint, or else from `training`, to the end, and returns what it has come to.

    Killed at any moment, it has lost what came after the last checkpoint, and called again it ends with the same bits.
    In `gcjax run`, SIGINT and SIGTERM let it save one more between two pieces, and then end the process: see
    `gcjax.interrupts.grace_period`. With several processes all of them save if one gets the signal.

    Args:
      advance: `(training, num_evals) -> training`, goes on until so many evaluations have been made; may donate.
      training: the beginning, a pytree of arrays; restored arrays go where these are.
      num_evals: the evaluations of the whole run, the first one not counted.
      checkpoints: where they are, and after how many evaluations there is one; none if None.
      identity: of the checkpoints, see `gcjax.engine.identity`.
      report: called with what has been trained so far after each piece, some hundred times in all; nothing if None.

    Raises:
      ValueError: if the checkpoints are of another run, or all are damaged.
    """
    if checkpoints is None:
        return _advance_without_checkpoints(advance, training, num_evals, report)
    with interrupts.grace_period(interrupts.saving_seconds()):
        progress = saved_progress.SavedProgress(checkpoints.label, num_evals, checkpoints.on_disk)
        # The step of a checkpoint is the number of evaluations done by then.
        evals_done, training = checkpoints.restore(training, identity) or (0, training)
        progress.record_checkpoint(evals_done)
        wants_short_pieces = report is not None or bool(interrupts.saving_seconds())
        try:
            for piece_end in _piece_ends(
                evals_done, num_evals, checkpoints.every, adds_short_pieces=wants_short_pieces
            ):
                training = advance(training, piece_end)
                if report is not None:
                    report(jax.block_until_ready(training))
                any_process_stops = stop_requested(training)
                if any_process_stops or piece_end == num_evals or piece_end % checkpoints.every == 0:
                    progress.record_checkpoint(piece_end)
                    checkpoints.save(piece_end, training, identity)
                if any_process_stops and interrupts.stop_requested():  # this one; the others are ended when it ends
                    break
        finally:
            checkpoints.wait()  # also for what an error has left: its folder may be opened again
        if interrupts.stop_requested():
            progress.record_stop()
    return training


def _advance_without_checkpoints(
    advance: Callable[[_T, int], _T], training: _T, num_evals: int, report: Callable[[_T], None] | None
) -> _T:
    """What `advance_in_pieces` does without checkpoints: trains `training` to the end, and reports after each piece."""
    for piece_end in _piece_ends(
        evals_done=0, num_evals=num_evals, evals_per_checkpoint=num_evals, adds_short_pieces=report is not None
    ):
        training = advance(training, piece_end)
        if report is not None:
            report(jax.block_until_ready(training))
    return training


def stop_requested(training: Any) -> bool:
    """Whether SIGINT or SIGTERM has come, to any of the processes, once the arrays of `training` are computed.

    With several processes it is a collective if the command saves after a signal, so all must call it.
    """
    if not interrupts.saving_seconds():
        return False
    jax.block_until_ready(training)  # dispatch is asynchronous, and the host must not run ahead
    if jax.process_count() == 1:
        return interrupts.stop_requested()
    from jax.experimental import multihost_utils

    own_request = np.array(interrupts.stop_requested())
    requests_of_processes = multihost_utils.process_allgather(own_request)
    return bool(np.any(requests_of_processes))


def _piece_ends(evals_done: int, num_evals: int, evals_per_checkpoint: int, *, adds_short_pieces: bool) -> list[int]:
    """The numbers, above `evals_done`, of the evaluations at which pieces end.

    These are those with a checkpoint, the last one, and `_NUM_SHORT_PIECES` more if asked. `evals_per_checkpoint` is 0
    where a run has no evaluations.
    """
    at_checkpoints = range(evals_per_checkpoint, num_evals, max(1, evals_per_checkpoint))
    piece_ends = {num_evals, *at_checkpoints}
    if adds_short_pieces:
        short_piece = max(1, num_evals // _NUM_SHORT_PIECES)
        piece_ends.update(range(0, num_evals, short_piece))
    return sorted(piece_end for piece_end in piece_ends if piece_end > evals_done)
