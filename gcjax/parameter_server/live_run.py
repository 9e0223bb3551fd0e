"""What a server returns, and what is read again from the folder that it has written to.

Letters: W workers, E commits.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import short_repr
from gcjax.parameter_server.commits import Commits
from gcjax.parameter_server.message_times import MessageTimes
from gcjax.parameter_server.run_end import RunEnd
from gcjax.parameter_server.setups import Setup, check_setup
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule


class LiveRun(NamedTuple):
    """What a server returns.

    Attributes:
      params: the parameters at the end.
      opt_state: of the server's optimizer.
      schedule: the record of what happened, as of a simulated run, in seconds since the first worker began.
      loss: float64[E], the training loss of each commit.
      memberships: who came and went, in order of time.
      service_seconds: float64[messages], what the server took for each push from `measured_from` on.
      num_refused: calls and messages that were refused.
      num_late: pushes that came when their turn had been cut off, each counted once; they are in no commit.
      check_text: with `Server(..., check=True)`, in words that the run kept to its promise, and up to when; else empty.
      check_seconds: what that has taken in the server's thread.
      messages: when each was sent and dealt with; None if nobody has looked.
      pulls_before_push: whether workers got the parameters between computing and sending (`Rule.pulls_before_push`).
      computes_while_sending: whether they computed while they sent and received (`Rule.overlaps`).
      measured_from: seconds of the run, from which on pushes and messages were measured and counted: 0, or of a run
        that a server went on with, when the last one did; of a loaded one that has not ended, its last event. The
        record and the losses are of the whole run.
    """

    params: Any
    opt_state: Any
    schedule: Schedule
    loss: np.ndarray
    memberships: tuple[Membership, ...]
    service_seconds: np.ndarray
    num_refused: int
    num_late: int = 0
    check_text: str = ""
    check_seconds: float = 0.0
    messages: MessageTimes | None = None
    pulls_before_push: bool = False
    computes_while_sending: bool = False
    measured_from: float = 0.0

    def __repr__(self) -> str:
        """The types and shapes of the arrays, who came and went, and the single numbers."""
        return short_repr.named_tuple_text(self)


def live_run(setup: Setup, commits: Commits, end: RunEnd) -> LiveRun:
    """The run of a setup with these commits, which has ended so."""
    log, updates, rule = commits.log, commits.updates, setup.rule()
    return LiveRun(
        params=updates.params,
        opt_state=updates.opt_state,
        schedule=jax.device_get(commits.schedule(end.seconds)),
        loss=np.asarray(log.losses),
        memberships=tuple(log.memberships),
        service_seconds=end.service_seconds,
        num_refused=end.num_refused,
        num_late=end.num_late,
        check_text=end.check_text,
        check_seconds=end.check_seconds,
        messages=end.messages,
        pulls_before_push=rule.pulls_before_push,
        computes_while_sending=rule.overlaps,
        measured_from=end.measured_from,
    )


def load_run(setup: Setup, folder: str | Path) -> LiveRun:
    """Reads the run that a server has written into a folder, `Server(..., checkpoints=FOLDER)`, without a server.

    A run that has ended is what `Server.run` has returned. One that has not, as its server was killed or is still at
    it, is read up to the last event in its log; what the log does not have before the end is empty: `service_seconds`,
    the numbers of what was refused and late, the check, and `messages`. The folder stays as it is. Its `events.jsonl`
    is enough: without the checkpoints the parameters are computed again.

    Args:
      setup: the one that the server had. Versions of gcjax and JAX may be others if they compute the same of it.
      folder: of the run.

    Raises:
      ValueError: if the folder is that of no run, or of another setup, with the differences; or its log is damaged.
    """
    check_setup(setup)
    commits = Commits(setup)
    return live_run(setup, commits, commits.load(Path(folder)))
