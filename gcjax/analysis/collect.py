"""From batches of runs to the columns that are saved.

Letters: S seeds, T units sampled per worker, W workers.
"""

import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from gcjax.analysis.metrics import costs
from gcjax.analysis.store import Columns, select, stack
from gcjax.codes.base import GradientCode
from gcjax.engine.base import Trajectory
from gcjax.protocols.base import Schedule

_PACKAGES = ("gcjax", "jax", "jaxlib", "flax", "optax", "numpy")


def metric_columns(
    scheme: str,
    trajectory: Trajectory,
    schedule: Schedule,
    durations: np.ndarray,
    *,
    code: GradientCode | None,
    num_params: int,
) -> Columns:
    """What every seed of a scheme had reached and spent at each evaluation.

    Args:
      scheme: its name.
      trajectory: of all seeds, every field with a leading axis S.
      schedule: of all seeds, every field with a leading axis S.
      durations: float[S, T, W] seconds.
      code: the code of the protocol, if it has one.
      num_params: d, the numbers in a full gradient.
    """
    parts = []
    for seed in range(len(durations)):
        mine = jax.tree.map(lambda x, s=seed: np.asarray(x[s]), trajectory)
        used = mine.commit >= 0
        moments = mine.time[used].astype(np.float64)
        spent = costs(_seed(schedule, seed), durations[seed], moments, code)._asdict()
        numbers = spent.pop("messages") * num_params
        columns = {
            "scheme": np.full(moments.size, scheme, object),
            "seed": np.full(moments.size, seed),
            "commit": mine.commit[used],
            "time": moments,
            **select(mine.metrics, used),
        }
        parts.append({**columns, **spent, "numbers": numbers})
    return stack(parts)


def timeline_columns(scheme: str, schedule: Schedule, durations: np.ndarray, seconds: float) -> Columns:
    """The units of one seed that begin within the first seconds.

    Args:
      scheme: its name.
      schedule: of one seed.
      durations: float[T, W] seconds.
      seconds: how far the timeline goes.
    """
    unit, worker = np.nonzero(np.asarray(schedule.start) < seconds)
    names = ("start", "compute_start", "compute_end", "send_start", "finish")
    return {
        "scheme": np.full(unit.size, scheme, object),
        "worker": worker,
        "unit": unit,
        **{name: np.asarray(getattr(schedule, name))[unit, worker] for name in names},
        "failed": np.isinf(np.asarray(durations))[unit, worker],
    }


def environment() -> dict[str, Any]:
    """What the run ran on: versions, platform, device."""
    versions = {name: version(name) for name in _PACKAGES}
    return {
        "versions": {**versions, "python": platform.python_version()},
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
    }


def _seed(schedule: Schedule, seed: int) -> Schedule:
    return jax.tree.map(lambda x: x[seed], schedule)
