"""From batches of runs to the columns that are saved.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gcjax.analysis.metrics import costs
from gcjax.analysis.store import Columns, concatenate_tables, select_rows
from gcjax.codes.base import GradientCode
from gcjax.engine.base import Trajectory
from gcjax.protocols.base import Mixing, Schedule

_PACKAGES = ("gcjax", "jax", "jaxlib", "flax", "optax", "numpy")


def metric_columns(
    scheme: str,
    trajectory: Trajectory,
    schedule: Schedule,
    durations: np.ndarray,
    *,
    labels: Columns,
    code: GradientCode | None,
    num_params: int,
    mixing: Mixing | None = None,
    num_fragments: int = 1,
    has_group_servers: bool = False,
    message_size: Any = 1.0,
) -> Columns:
    """What every run of a scheme had reached and spent at each evaluation, a row each, one run after the other.

    Args:
      scheme: its name.
      trajectory: of all runs, every field with a leading axis of runs.
      schedule: of all runs, every field with a leading axis of runs.
      durations: float[runs, T, W] seconds.
      labels: column -> [runs], what tells a run from the others, such as its `seed`.
      code: the code of the protocol, if it has one.
      num_params: d, the numbers in a full gradient.
      mixing: how the workers of the protocol average their parameters, if they do.
      num_fragments: as in `costs`.
      has_group_servers: as in `costs`.
      message_size: as in `costs`.

    Returns:
      Columns `scheme`, the labels, `commit`, `time` (virtual seconds), the task's metrics and those of `Costs`, with
      `numbers` (messages times d) for `messages`, and `server_numbers` for `server_messages`.
    """
    columns_of_runs = []
    for run in range(len(durations)):
        evaluations, run_schedule = jax.tree.map(lambda x, run=run: np.asarray(x[run]), (trajectory, schedule))
        is_padding = evaluations.commit < 0  # -1 where the run ended earlier
        moments = evaluations.time[~is_padding].astype(np.float64)
        run_costs = costs(
            run_schedule, durations[run], moments, code, mixing, num_fragments, has_group_servers, message_size
        )._asdict()
        numbers_sent = {
            numbers: run_costs.pop(messages) * num_params
            for messages, numbers in (("messages", "numbers"), ("server_messages", "server_numbers"))
        }
        label_columns = {name: np.full(moments.size, label[run], label.dtype) for name, label in labels.items()}
        metric_values = {
            "scheme": np.full(moments.size, scheme, object),
            **label_columns,
            "commit": evaluations.commit[~is_padding],
            "time": moments,
            **select_rows(evaluations.metrics, ~is_padding),
        }
        columns_of_runs.append({**metric_values, **run_costs, **numbers_sent})
    return concatenate_tables(columns_of_runs)


def timeline_columns(scheme: str, schedule: Schedule, durations: np.ndarray, timeline_seconds: float) -> Columns:
    """The units of one seed that begin within the first seconds, a row each, with their times in seconds.

    Args:
      scheme: its name.
      schedule: of one seed.
      durations: float[T, W] seconds.
      timeline_seconds: how far the timeline goes.
    """
    begins_within_timeline = np.asarray(schedule.start) < timeline_seconds  # [T, W]
    unit, worker = np.nonzero(begins_within_timeline)
    time_fields = ("start", "compute_start", "compute_end", "send_start", "finish")  # of the schedule, [T, W]
    return {
        "scheme": np.full(unit.size, scheme, object),
        "worker": worker,
        "unit": unit,
        **{name: np.asarray(getattr(schedule, name))[unit, worker] for name in time_fields},
        "failed": np.isinf(np.asarray(durations))[unit, worker],
    }


def commit_columns(scheme: str, schedule: Schedule, timeline_seconds: float) -> Columns:
    """The contributions to the commits of one seed within the first seconds, a row each.

    Args:
      scheme: its name.
      schedule: of one seed.
      timeline_seconds: how far the timeline goes.
    """
    is_early = np.asarray(schedule.time) < timeline_seconds  # [E]
    is_contribution = (np.asarray(schedule.worker) >= 0) & is_early[:, None]  # [E, C]; worker -1 pads
    commit, contribution = np.nonzero(is_contribution)
    contribution_fields = ("worker", "unit", "work", "weight", "version")  # of the schedule, [E, C]
    return {
        "scheme": np.full(commit.size, scheme, object),
        "commit": commit,
        "time": np.asarray(schedule.time, np.float64)[commit],
        **{name: np.asarray(getattr(schedule, name))[commit, contribution] for name in contribution_fields},
    }


def environment() -> dict[str, Any]:
    """What a run runs on, for its `run.json`: versions, platform, processor, devices."""
    versions = {name: version(name) for name in _PACKAGES}
    return {
        "versions": {**versions, "python": platform.python_version()},
        "platform": platform.platform(),
        "processor": _processor(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
    }


def _processor() -> str:
    """The name of the processor, or of its architecture where the system does not say more."""
    cpuinfo = Path("/proc/cpuinfo")
    cpuinfo_text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model_names = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo_text, re.MULTILINE)
    return model_names[0].strip() if model_names else platform.processor() or platform.machine()
