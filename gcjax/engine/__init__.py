"""The engine: schedule, code, task and optimizer as one XLA program."""

from gcjax.engine.base import Info, Run, State, Trajectory
from gcjax.engine.run import check, required_ring_size, run

__all__ = ["Info", "Run", "State", "Trajectory", "check", "required_ring_size", "run"]
