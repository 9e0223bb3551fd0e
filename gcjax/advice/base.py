"""The types of advice: a scheme, an estimate with its interval, and what is said of all schemes."""

from typing import NamedTuple

import numpy as np

from gcjax.protocols import Protocol

EXACT, CODED, APPROXIMATE, STALE, LOCAL = "exact", "exact coded", "approximate", "stale", "local steps"

CLASSES = {
    EXACT: "a step is the gradient of everybody's share, on the newest parameters",
    CODED: "the same gradient, from shares that are computed more than once or cut by speed",
    APPROXIMATE: "a gradient on the newest parameters that leaves out, or weighs otherwise, some shares",
    STALE: "gradients of older parameters than those that they change",
    LOCAL: "workers take steps on parameters of their own before these are merged",
}
"""What a scheme computes. A step of the first two is worth a step of BSP; of the others only the task can tell."""

CLASS_OF = {name: EXACT if name == CODED else name for name in CLASSES}
"""Schemes of one class compute the same, so that their seconds alone tell which is better."""


class Scheme(NamedTuple):
    """A scheme to be tried on a trace.

    Attributes:
      name: what it is called in tables.
      setting: its parameters, as text.
      protocol: who waits for whom, for as many workers as the trace has.
      units_per_step: into how many units of work a measured step is cut; with a code its chunks say so.
      warmup_steps: steps that are simulated before a block, so that it begins as in the middle of a run; at least the
        length of a block where gradients can be stale, as many as said here elsewhere.
    """

    name: str
    setting: str
    protocol: Protocol
    units_per_step: int = 1
    warmup_steps: int = 0

    @property
    def label(self) -> str:
        """The name with the setting."""
        return f"{self.name} ({self.setting})" if self.setting else self.name


class Estimate(NamedTuple):
    """A value on the whole trace, and what another stretch of as many steps would give if the job went on like it.

    Attributes:
      value: on the trace.
      low: the 5th percentile over bootstraps, another stretch each (`gcjax.advice.blocks.drawn_block_counts`).
      high: the 95th.
    """

    value: float
    low: float
    high: float


class SchemeAdvice(NamedTuple):
    """What a scheme would have done.

    Attributes:
      scheme: which one.
      exactness: one of `CLASSES`.
      seconds: per effective step: the time in which W shares were used.
      won_back: the share of what stragglers cost BSP; 1 is the time with everybody at the step's median.
      regret: seconds per effective step above those of the best scheme, as a share of these; paired.
      is_best: whether it has the fewest seconds on the trace.
      is_indistinguishable: whether the interval of the paired difference from the best contains 0, or begins below a
        thousandth: in another stretch it could come out the other way.
      is_fastest_of_class: whether it has the fewest seconds of its class; exact and exact coded are one class.
      is_tied_in_class: whether it cannot be told from that one.
      waiting: share of the workers' time.
      mean_staleness: commits between reading and applying, mean over contributions.
      max_staleness: the largest on the trace.
      wasted: share of the computed work that is in no step: cut off or not used, and redundant.
      redundant: the part of it that was used, but computed more than once.
      messages: gradients that a worker sends per effective step.
      seconds_to_target: of the task, a number a seed; None where no task was given or the scheme was not trained.
    """

    scheme: Scheme
    exactness: str
    seconds: Estimate
    won_back: Estimate
    regret: Estimate
    is_best: bool
    is_indistinguishable: bool
    is_fastest_of_class: bool
    is_tied_in_class: bool
    waiting: Estimate
    mean_staleness: Estimate
    max_staleness: float
    wasted: Estimate
    redundant: Estimate
    messages: Estimate
    seconds_to_target: tuple[float, ...] | None = None


class Advice(NamedTuple):
    """What each scheme would have done with a trace; printing it gives the table.

    Attributes:
      verdict: in a few sentences.
      cost: the share of BSP's time that stragglers cost.
      bsp_seconds: per step.
      median_seconds: per step, if everybody took the step's median.
      schemes: those with the fewest seconds per effective step first.
      left_out: name -> why it was not tried, or what it has the same times as.
      num_steps: T.
      num_workers: W.
      num_filled: cells without a measurement, which count as the worker's last one before.
      is_relative: whether times are only known up to a factor.
      block_steps: the length of a block.
      num_bootstraps: the other stretches of the same job that were drawn.
      gradient_bytes: of one message, if known.
      bootstraps: scheme with its setting -> float[bootstraps], its seconds per effective step on each; so are the
        slowest and the median of each step. Entry b of all is of the same blocks.
      cost_of_halves: the share of BSP's time that stragglers cost in the first half of the steps, and in the second.
      target: what was trained to, in words; empty where no task was given.
      departures: (name of the worker, number of the first step) for each without a time from there on to the end.
      num_missing_steps: numbers between the first and the last step that no row has; steps count as consecutive.
      has_communication: whether the trace has times of communicating, which count nowhere.
    """

    verdict: str
    cost: Estimate
    bsp_seconds: Estimate
    median_seconds: Estimate
    schemes: tuple[SchemeAdvice, ...]
    left_out: dict[str, str]
    num_steps: int
    num_workers: int
    num_filled: int
    is_relative: bool
    block_steps: int
    num_bootstraps: int
    gradient_bytes: float | None
    bootstraps: dict[str, np.ndarray]
    cost_of_halves: tuple[float, float]
    target: str = ""
    departures: tuple[tuple[str, int], ...] = ()
    num_missing_steps: int = 0
    has_communication: bool = False

    def __str__(self) -> str:
        """The verdict and the table, as Markdown."""
        from gcjax.advice import page

        return page.markdown(self)
