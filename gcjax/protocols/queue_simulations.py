"""Schedules of rules by the event queue, as functions that are equal for equal rules, so that none is compiled twice.

Letters: T units sampled per worker, W workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.stragglers.absences import Absences
from gcjax.stragglers.network import Network

ABSENCES_NEED_A_RULE = "workers can only be away under a protocol with a rule that the event queue simulates."


def _check_queue_has_all_ways(network: Network, has_group_servers: bool) -> None:
    """Raises `ValueError` if there are messages that the event queue does not simulate: those between servers."""
    if has_group_servers and network.servers is not None:
        raise ValueError(
            "messages between servers of groups take no time in the event queue, which simulates absences, and servers "
            f"that take time for a message; got servers={network.servers!r}. Leave these out, or the others."
        )


class QueueSimulation(NamedTuple):
    """The schedule of a rule by the event queue; `schedule_without_queue` if it has none. Equal for equal functions."""

    schedule_without_queue: Callable[[jax.Array, Network], Schedule]
    rule: Callable[[int], Rule]
    has_group_servers: bool

    def __call__(self, durations: jax.Array, network: Network) -> Schedule:
        """The schedule of durations `[T, W]`; `rule`: `num_workers -> Rule`, an error where the protocol has none."""
        from gcjax.protocols.simulation.event_schedule import event_schedule

        try:
            rule = self.rule(durations.shape[1])
        except ValueError:  # the rule says why it cannot be one
            return self.schedule_without_queue(durations, network)
        is_stopped_by_server = rule.stop is not None
        if is_stopped_by_server:  # the event queue does not simulate such rounds
            return self.schedule_without_queue(durations, network)
        _check_queue_has_all_ways(network, self.has_group_servers)
        return event_schedule(rule, durations, network)


class AbsenceSimulation(NamedTuple):
    """The schedule of a rule by the event queue, where workers leave and join; equal for equal functions.

    Attributes:
      rule: of so many workers.
      keeps_version: as in `event_schedule`.
      has_group_servers: as of `Protocol`.
    """

    rule: Callable[[int], Rule]
    keeps_version: bool
    has_group_servers: bool

    def __call__(self, durations: jax.Array, network: Network, absences: Absences) -> Schedule:
        """The schedule of durations `[T, W]` with absences; raises a `ValueError` where the event queue cannot."""
        from gcjax.protocols.simulation.event_schedule import event_schedule

        try:
            rule = self.rule(durations.shape[1])
        except ValueError as error:
            raise ValueError(f"{ABSENCES_NEED_A_RULE} This protocol has none: {error}") from error
        if rule.stop is not None:
            raise ValueError(
                f"{ABSENCES_NEED_A_RULE} The rounds of this protocol are stopped by the server, which it does not "
                "simulate. gcjax.parameter_server serves them; gcjax.stragglers.failed_workers are workers that never "
                "answer."
            )
        if rule.overlaps:
            raise ValueError(
                f"{ABSENCES_NEED_A_RULE} The workers of this protocol compute while they send, and what is lost "
                "then with one that leaves is not simulated. gcjax.parameter_server serves it."
            )
        _check_queue_has_all_ways(network, self.has_group_servers)
        return event_schedule(rule, durations, network, absences=absences, keeps_version=self.keeps_version)
