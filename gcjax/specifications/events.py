"""What happens in a run, as actions of specifications stand for it.

A record of a run becomes a list of events (`gcjax.protocols.events`); a specification says of each of its actions
which event it stands for, and what the event shows of the step.
"""

from typing import Any, NamedTuple

BEGIN = "begin"
"""A worker begins the work of a push: it asks for the parameters, or goes on with those it has."""
STEP = "step"
"""A unit has been computed that is in a commit."""
UNIT = "unit"
"""A unit has arrived that is in a commit."""
SEND = "send"
"""A worker begins to send a message; where parameters are exchanged, it receives them first."""
MESSAGE = "message"
"""A message has arrived, whether it is in a commit or not."""
COMMIT = "commit"
"""The server commits."""
LEAVE = "leave"
"""A worker takes part no longer; the turn that it is in is lost."""
JOIN = "join"
"""A worker takes part from now on, for the first time or again."""
KINDS = (BEGIN, STEP, UNIT, SEND, MESSAGE, COMMIT, LEAVE, JOIN)


class Event(NamedTuple):
    """One event, or arrays [events] of several.

    Attributes:
      kind: int32, its number in `KINDS`; -1 if it is none.
      worker: int32, who; of a COMMIT, the lowest worker in it.
      unit: int32, the unit that arrives, the first one that is begun, the one that the message is sent with; of a
        COMMIT, the first unit of the newest contribution.
      commit: int32, the commit itself; the one that the unit or the message is in, -1 if none.
      version: int32, the version that the worker has read, with which it begins or which it sends.
      size: int32, of a COMMIT: how many units are in it; of a BEGIN: how many workers are in the one its unit is in; of
        a MESSAGE: how many units up to its own, one after the other, are in the commit that this is in, or, where units
        are only counted, have not been cut off.
      group: int32, the lowest worker in the commit that the event's unit is in; -1 if none.
      max_units_in_next_commit: int32, of a COMMIT: the most units of one worker in the commit after it; -1 if it is the
        last one.
      num_unused_messages: int32, of a COMMIT, or of a UNIT that is alone in its commit: the messages that have arrived
        since the commit before and are in no commit.
      num_unused_at_end: int32, those of them that arrive at the very moment of the record's last commit, and carry no
        unit that is in a commit: they may be for the next one, which the record does not have any more.
      num_skipped_messages: int32, of a COMMIT: the messages in no commit that its workers have sent before theirs in
        it, and after those in the commits before.
      waited: bool, of a BEGIN: whether the worker's last message had arrived before.
      column: int32, of a BEGIN: the column of the contribution that its unit is in; of a COMMIT: the first column in
        use in the next commit, -1 if there is none.
    """

    kind: Any
    worker: Any
    unit: Any
    commit: Any
    version: Any
    size: Any
    group: Any
    max_units_in_next_commit: Any
    num_unused_messages: Any
    num_unused_at_end: Any
    num_skipped_messages: Any
    waited: Any
    column: Any

    @property
    def is_last_commit(self) -> Any:
        """bool: of a COMMIT, whether the record has none after it."""
        return self.max_units_in_next_commit < 0

    @property
    def leaves_out_messages(self) -> Any:
        """bool: whether a message is in no commit that has arrived before the record's last one, or before this one."""
        return self.num_unused_messages > self.num_unused_at_end
