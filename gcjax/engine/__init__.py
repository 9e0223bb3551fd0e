"""The engine: schedule, code, task and optimizer as one XLA program, on one device or a mesh."""

from gcjax.engine import live
from gcjax.engine.base import Info, Run, State, Trajectory
from gcjax.engine.checkpoint import Checkpoints, DamagedCheckpointWarning
from gcjax.engine.coded_step import CodedInfo, coded_value_and_grad, shard_chunks
from gcjax.engine.layout import replicate
from gcjax.engine.resume import identity, in_pieces
from gcjax.engine.run import required_ring_size, run
from gcjax.engine.traffic import bytes_sent
from gcjax.engine.validation import InexactWarning, check

__all__ = [
    "Checkpoints",
    "CodedInfo",
    "DamagedCheckpointWarning",
    "InexactWarning",
    "Info",
    "Run",
    "State",
    "Trajectory",
    "bytes_sent",
    "check",
    "coded_value_and_grad",
    "identity",
    "in_pieces",
    "live",
    "replicate",
    "required_ring_size",
    "run",
    "shard_chunks",
]
