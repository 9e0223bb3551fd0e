"""What a protocol is written with: waiting rules and their event queue, rounds of local work, and the max-plus law."""

from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.max_plus import bounded_staleness, check_staleness, commits_on_arrival
from gcjax.protocols.simulation.rounds import Round, fixed_units, rounds, units_until
from gcjax.protocols.simulation.rules import (
    Rule,
    View,
    all_have_pushed,
    all_under_way,
    num_messages,
    slowest_clock,
)
from gcjax.protocols.simulation.turns import Work

__all__ = [
    "Round",
    "Rule",
    "View",
    "Work",
    "all_have_pushed",
    "all_under_way",
    "bounded_staleness",
    "check_staleness",
    "commits_on_arrival",
    "event_schedule",
    "fixed_units",
    "num_messages",
    "rounds",
    "slowest_clock",
    "units_until",
]
