"""The end of a live run."""

from typing import Any, NamedTuple

import numpy as np

from gcjax.parameter_server.message_times import MessageTimes


class RunEnd(NamedTuple):
    """When a run has ended, and what of it is in no other line of the log; the fields are those of `LiveRun`.

    Attributes:
      seconds: when it has ended, by the clock of the record.
      service_seconds: float64[messages].
      measured_from: seconds by that clock, when the server began that has measured and counted.
      num_refused: calls and messages that were refused.
      num_late: pushes that came when their turn had been cut off, each counted once.
      check_text: what was held against the specification, in words.
      check_seconds: what that has taken.
      messages: when each was sent and dealt with; None if nobody has looked.
    """

    seconds: float
    service_seconds: np.ndarray
    measured_from: float = 0.0
    num_refused: int = 0
    num_late: int = 0
    check_text: str = ""
    check_seconds: float = 0.0
    messages: MessageTimes | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields, arrays as lists."""
        messages = None if self.messages is None else [values.tolist() for values in self.messages]
        return {**self._asdict(), "service_seconds": self.service_seconds.tolist(), "messages": messages}

    @staticmethod
    def of_json(fields: dict[str, Any]) -> "RunEnd":
        """The end of which `as_json` has made these fields."""
        messages = fields["messages"]
        if messages is not None:
            kind, worker, *seconds = messages
            arrays = (np.asarray(values, np.float64) for values in seconds)
            messages = MessageTimes(np.asarray(kind, str), np.asarray(worker, np.int32), *arrays)
        service_seconds = np.asarray(fields["service_seconds"], np.float64)
        return RunEnd(**{**fields, "service_seconds": service_seconds, "messages": messages})
