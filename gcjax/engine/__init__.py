"""The engine: schedule, code, task and optimizer as one XLA program, on one device or a mesh."""

from gcjax.engine.base import Info, Run, State, Training, Trajectory
from gcjax.engine.coded import CodedInfo, coded_value_and_grad, shard_chunks
from gcjax.engine.run import check, required_ring_size, run
from gcjax.engine.traffic import bytes_sent

__all__ = [
    "CodedInfo",
    "Info",
    "Run",
    "State",
    "Training",
    "Trajectory",
    "bytes_sent",
    "check",
    "coded_value_and_grad",
    "required_ring_size",
    "run",
    "shard_chunks",
]
