"""What `gcjax.watch` gives and takes: a record of real stragglers, of any training step.

    step = gcjax.watch(jax.jit(step), folder="runs/watch")

A process is late in a step by what it computes longer than the median process (of an even number the faster of the two
in the middle); it is slow there if that is over `WARNING` of the iteration and over `LEAST_SECONDS`. What it costs is
the sum of its lateness in slow steps over the sum of the iterations, of the last `WINDOW` steps, less the same of the
median process: where all are late in turn, nobody is slow. From `WARNING` on it is named, from `CRITICAL` on as
critical, but not before `LEAST_STEPS`; as persistent if it was slow in more than half of the window, or has been named
without a break since a slow step `LONG_STEPS` before, else as passing.
"""

from gcjax.watching.detection import CRITICAL, LEAST_SECONDS, LEAST_STEPS, LONG_STEPS, WARNING, WINDOW, Verdict
from gcjax.watching.local import local
from gcjax.watching.records import record
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
    "record",
    "watch",
]
