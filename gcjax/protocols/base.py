"""The types of synchronisation: a protocol turns durations into a schedule.

Letters: T units sampled per worker, W workers, E commits (server updates), C contributions to a commit.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from gcjax import _checks
from gcjax.codes.base import GradientCode
from gcjax.stragglers.network import Network


class Schedule(NamedTuple):
    """What happens when, independent of any gradient.

    Commit e happens at `time[e]` and uses, for each contribution c, unit `unit[e, c]` of worker `worker[e, c]`,
    computed on the parameters of commit `version[e, c]` (version v = the parameters after v commits). Commits that
    lie beyond the horizon, or that never happen, come last, with time inf and -1 everywhere. The horizon is the time
    at which the first worker would start a unit that was not sampled.

    Attributes:
      time: float[E] seconds, increasing; inf for commits that are not used.
      worker: int32[E, C], -1 pads.
      unit: int32[E, C], the unit of work; the first one of the round where a contribution has several.
      version: int32[E, C]. Staleness is `e - version`.
      work: int32[E, C], the chunks or local steps in the contribution.
      weight: float[E, C], the factor of the contribution in the commit.
      start: float[T, W] seconds, when a unit begins: it asks for the parameters; inf if it never does.
      compute_start: float[T, W], when the parameters have arrived and computing begins.
      compute_end: float[T, W], when computing ends, or is cut off.
      send_start: float[T, W], when sending begins; inf if nothing is sent.
      finish: float[T, W], when the contribution has arrived; inf if it never does.
    """

    time: jax.Array
    worker: jax.Array
    unit: jax.Array
    version: jax.Array
    work: jax.Array
    weight: jax.Array
    start: jax.Array
    compute_start: jax.Array
    compute_end: jax.Array
    send_start: jax.Array
    finish: jax.Array


class Protocol(NamedTuple):
    """Who waits for whom.

    Calling a protocol with `durations float[T, W]` (seconds; inf is a failed worker) and optionally a `Network`
    checks them and returns the schedule.

    Attributes:
      schedule: pure function `(durations, network) -> Schedule`.
      code: the gradient code whose rounds the commits are; None where a contribution is a plain gradient.
      one_version: whether all contributions to a commit read the same version.
      max_staleness: pure function `num_workers -> int`, the largest staleness that the protocol allows; None if it
        sets no bound.
      round_units: the units of each worker in a round; 1 where a unit is a round or there are none.
    """

    schedule: Callable[[jax.Array, Network], Schedule]
    code: GradientCode | None = None
    one_version: bool = True
    max_staleness: Callable[[int], int] | None = None
    round_units: int = 1

    def __call__(self, durations: jax.Array, network: Network | None = None) -> Schedule:
        """Computes the schedule of these durations; the network defaults to an instantaneous one."""
        network = Network() if network is None else network.checked()
        return self.schedule(_checks.durations(durations), network)
