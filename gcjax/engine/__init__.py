"""The engine: schedule, code, task and optimizer as one XLA program, on one device or a mesh."""

from gcjax.engine import live, wrong_messages
from gcjax.engine.base import Info, Run, State, Trajectory
from gcjax.engine.checkpoint import Checkpoints, DamagedCheckpointWarning
from gcjax.engine.coded_step import CodedInfo, coded_value_and_grad, shard_chunks
from gcjax.engine.layout import MeshOptions, replicate
from gcjax.engine.resume import Resume
from gcjax.engine.run import replay, run
from gcjax.engine.start import Start
from gcjax.engine.traffic import bytes_sent
from gcjax.engine.validation import InexactWarning, check
from gcjax.engine.voting_step import VotingInfo, voting_value_and_grad

__all__ = [
    "Checkpoints",
    "CodedInfo",
    "DamagedCheckpointWarning",
    "InexactWarning",
    "Info",
    "MeshOptions",
    "Resume",
    "Run",
    "Start",
    "State",
    "Trajectory",
    "VotingInfo",
    "bytes_sent",
    "check",
    "coded_value_and_grad",
    "live",
    "replay",
    "replicate",
    "run",
    "shard_chunks",
    "voting_value_and_grad",
    "wrong_messages",
]
