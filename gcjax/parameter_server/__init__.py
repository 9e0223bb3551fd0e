"""A parameter server: any protocol that has a rule, on the real clock, with workers that come and go."""

from gcjax.parameter_server.server import Limits, LiveRun, Membership, Server
from gcjax.parameter_server.setup import Setup
from gcjax.parameter_server.transport import Disconnected, Refused, Security
from gcjax.parameter_server.worker import Report, work

__all__ = [
    "Disconnected",
    "Limits",
    "LiveRun",
    "Membership",
    "Refused",
    "Report",
    "Security",
    "Server",
    "Setup",
    "work",
]
