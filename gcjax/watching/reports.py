"""What is known of the processes at a moment, and who is slow; in words."""

from typing import NamedTuple

from gcjax.watching.detection import Verdict


class Report(NamedTuple):
    """What is known.

    Attributes:
      step: the last step of which all is known; -1 before the first.
      num_steps: how many are known.
      num_workers: the processes, those that have left included.
      silent: those that have not been heard of for long; the others are judged without them.
      iteration_seconds: the median of the last iterations; NaN before the first.
      slow: who is slow.
    """

    step: int
    num_steps: int
    num_workers: int
    silent: tuple[int, ...]
    iteration_seconds: float
    slow: tuple[Verdict, ...]

    def __str__(self) -> str:
        """Everything in words, one line for each process that is slow."""
        if not self.num_steps:
            return "No step is known of all processes yet."
        processes = "1 process" if self.num_workers == 1 else f"{self.num_workers} processes"
        state = f"step {self.step}, {processes}, iteration {1000 * self.iteration_seconds:.1f} ms"
        if self.silent:
            state += f", silent: {', '.join(map(str, self.silent))}"
        lines = [_sentence(verdict) for verdict in self.slow] or ["no process is slow"]
        return "\n".join(f"{state}: {line}" for line in lines)


def _sentence(verdict: Verdict) -> str:
    """Who is slow, since when, how much, persistently or not, and what it costs."""
    level = "critical" if verdict.is_critical else "warning"
    kind = "persistent" if verdict.is_persistent else "passing"
    return (
        f"process {verdict.worker} is slow since step {verdict.since} ({kind}), {1000 * verdict.seconds:.1f} ms later "
        f"than the median process; that costs {100 * verdict.cost:.0f} % of the iteration ({level})"
    )
