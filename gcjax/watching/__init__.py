"""What `gcjax.watch` gives and takes: a record of real stragglers, of any training step.

    step = gcjax.watch(jax.jit(step), folder="runs/watch")

`WARNING`, `CRITICAL`, `WINDOW`, `LEAST_STEPS`, `LONG_STEPS` and `LEAST_SECONDS` are the rule by which a process is named.
"""

from gcjax.watching.detection import CRITICAL, LEAST_SECONDS, LEAST_STEPS, LONG_STEPS, WARNING, WINDOW, Verdict
from gcjax.watching.local import local
from gcjax.watching.reports import Report
from gcjax.watching.watch import print_report, watch
from gcjax.watching.wrapper import Watch

__all__ = [
    "CRITICAL",
    "LEAST_SECONDS",
    "LEAST_STEPS",
    "LONG_STEPS",
    "WARNING",
    "WINDOW",
    "Report",
    "Verdict",
    "Watch",
    "local",
    "print_report",
    "watch",
]
