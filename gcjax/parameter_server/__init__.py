"""A parameter server: any protocol that has a rule, on the real clock, with workers that come and go."""

from gcjax.parameter_server.calibration import Calibration, calibration, fitted_links, measured_absences
from gcjax.parameter_server.launch import Processes, WorkerError, is_restarted, local_run, processes, workers
from gcjax.parameter_server.limits import Limits
from gcjax.parameter_server.live_run import LiveRun, load_run
from gcjax.parameter_server.online_check import ViolationError
from gcjax.parameter_server.prediction import predicted_schedule, predicted_times, sampled_durations, time_errors
from gcjax.parameter_server.round_parts import RoundParts, round_parts
from gcjax.parameter_server.security import Security
from gcjax.parameter_server.server import Server
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.transport import Disconnected, Refused
from gcjax.parameter_server.worker import Report, work
from gcjax.protocols.conformance.memberships import Membership

__all__ = [
    "Calibration",
    "Disconnected",
    "Limits",
    "LiveRun",
    "Membership",
    "Processes",
    "Refused",
    "Report",
    "RoundParts",
    "Security",
    "Server",
    "Setup",
    "ViolationError",
    "WorkerError",
    "calibration",
    "fitted_links",
    "is_restarted",
    "load_run",
    "local_run",
    "measured_absences",
    "predicted_schedule",
    "predicted_times",
    "processes",
    "round_parts",
    "sampled_durations",
    "time_errors",
    "work",
    "workers",
]
