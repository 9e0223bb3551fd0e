"""What all schemes and conditions of a study share."""

import dataclasses
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from gcjax import _validate, analysis, engine
from gcjax.compression import Compression
from gcjax.engine.wrong_messages import WrongSenders
from gcjax.tasks import Task

PARTS_OF_SCHEMES = ("optimizers", "compressions", "wrong_senders")
"""Fields of a study that some schemes have one of their own in."""
_MAX_COUNT = 2**31 - 1  # of a count that JAX computes with


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """What all schemes and conditions of a study share.

    Attributes:
      task: what is trained.
      optimizer: on the server, the same for all schemes.
      optimizers: scheme -> its own optimizer, instead of `optimizer`.
      compressions: scheme -> the compression of its messages; the messages of the others are whole.
      wrong_senders: scheme -> its workers that send wrong messages, where it has a code; in the others nobody does.
      num_workers: W.
      num_units: T, the units of work sampled for each worker. A scheme ends when a worker has used them up.
      num_seeds: S; each has its own durations, initial parameters and batches, the latter two in all conditions.
      seed: of all randomness.
      target: the value of the metric to reach; None where the study asks for no such time.
      metric: one of the task's metrics.
      higher_is_better: whether the metric is to rise to the target; by default that of accuracies is, by their name.
      seconds: virtual time at which all schemes end, above 0; each at the end of its sampled units if None.
      num_evals: evaluations of a run.
      mesh: the devices that every run is spread over, as in `gcjax.engine.run`, for example `@mesh()`; one device if
        None, and then all seeds go through one XLA program. With several processes there must be one.
      checkpoint_every: evaluations from one checkpoint to the next.
      checkpoints_kept: the checkpoints kept of a run.

    Raises:
      ValueError: if a number is out of its range, the target cannot be reached, or several processes have no mesh.
    """

    task: Task
    optimizer: optax.GradientTransformation
    optimizers: dict[str, optax.GradientTransformation] | None = None
    compressions: dict[str, Compression] | None = None
    wrong_senders: dict[str, WrongSenders] | None = None
    num_workers: int
    num_units: int
    num_seeds: int = 5
    seed: int = 0
    target: float | None = None
    metric: str = "accuracy"
    higher_is_better: bool | None = None
    seconds: float | None = None
    num_evals: int = 100
    mesh: Mesh | engine.MeshOptions | None = None
    checkpoint_every: int = 25
    checkpoints_kept: int = 2

    def __post_init__(self) -> None:
        """Checks the numbers, the target and the mesh; see the class for what is raised."""
        for name in ("num_seeds", "num_units", "num_workers"):
            _validate.integer(name, getattr(self, name), minimum=1, maximum=_MAX_COUNT)
        _validate.integer("num_evals", self.num_evals, minimum=1)
        if self.seconds is not None:
            _validate.single_number("seconds", self.seconds, above=True, finite=True)
        if self.target is not None:
            _validate.single_number("target", self.target, minimum=-math.inf)
            self.goal  # noqa: B018  (raises if it cannot be reached)
        if self.mesh is None and jax.process_count() > 1:
            raise ValueError(
                "With several processes a study needs a mesh of all their devices; there are "
                f"{jax.process_count()} processes and no mesh. Bind study.mesh = @mesh()."
            )

    @property
    def goal(self) -> analysis.Target:
        """The metric and the value that it is to reach.

        Raises:
          ValueError: if there is no target, or the task has no such metric, or the metric cannot have this value.
        """
        if self.target is None:
            raise ValueError(
                f"target must be the value that {self.metric} is to reach; got None. Bind study.target, as in "
                "'study.target = 0.9'."
            )
        return analysis.target(
            self.metric, self.target, metric_names(self.task), higher_is_better=self.higher_is_better
        )

    def optimizer_of(self, scheme: str) -> optax.GradientTransformation:
        """The optimizer of a scheme: its own, or the one that all others share."""
        return (self.optimizers or {}).get(scheme, self.optimizer)

    def compression_of(self, scheme: str) -> Compression | None:
        """The compression of a scheme's messages; None for none."""
        return (self.compressions or {}).get(scheme)

    def wrong_senders_of(self, scheme: str) -> WrongSenders | None:
        """The workers that send wrong messages in a scheme; None for none."""
        return (self.wrong_senders or {}).get(scheme)

    def of_schemes(self, names: Collection[str]) -> "Study":
        """The study with only those of its optimizers, compressions and wrong senders that these schemes have."""
        own_parts: dict[str, Any] = {
            kind: {name: part for name, part in (getattr(self, kind) or {}).items() if name in names}
            for kind in PARTS_OF_SCHEMES
        }
        return dataclasses.replace(self, **own_parts)

    def checkpoints(self, out: Path, *names: str) -> engine.Checkpoints:
        """Where the checkpoints of one run go, in the folder `out` that the study writes.

        Args:
          out: the folder of the study.
          *names: of the scheme, and of the seed where each has its own run.
        """
        folder = (out / analysis.CHECKPOINTS).joinpath(*map(analysis.file_name, names))
        label = ", seed ".join(names)
        return engine.Checkpoints(folder, every=self.checkpoint_every, keep=self.checkpoints_kept, label=label)

    def facts(self) -> dict[str, Any]:
        """The fields of the study that `run.json` says."""
        names = ("seed", "num_seeds", "num_workers", "num_units", "target", "metric")
        return {name: getattr(self, name) for name in names}


def metric_names(task: Task) -> list[str]:
    """The names of the metrics of a task; only shapes are computed."""
    return list(jax.eval_shape(task.metrics, jax.eval_shape(task.init, jax.random.key(0)), task.data))
