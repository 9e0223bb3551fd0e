"""What a run needs for its next step, and what it tells a person.

Letters: E commits, V evaluations, C contributions to a commit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, short_repr
from gcjax.protocols.base import Schedule


class State(NamedTuple):
    """What the next commit needs.

    Attributes:
      commit: int32[], the commits made so far.
      params: the parameters of the latest commit.
      ring: the past versions that are still to be read, every leaf `[ring_size + 1, ...]` (see `version_ring`);
        None where every commit reads the latest version.
      opt_state: the state of the optax optimizer on the server.
      local: the parameters that workers work on, if they take steps of their own (see `gcjax.engine.local_work`).
      window: int32[], the window of a protocol that looks at the loss.
      controls: what such a protocol has chosen for each window, a pytree with one entry a window.
      compression: the states of the senders of compressed messages, every leaf `[W, ...]`; `[W·M, ...]` under a code
        with M messages a worker. None without compression, and where workers take steps of their own, whose state is
        in `local`.
    """

    commit: jax.Array
    params: Any
    ring: Any
    opt_state: Any
    local: Any = None
    window: Any = None
    controls: Any = None
    compression: Any = None


class Trajectory(NamedTuple):
    """The parameters of a run, judged at V moments: before the first commit and then every so many commits.

    Attributes:
      commit: int32[V], commits made before the evaluation; -1 where the run ended earlier.
      time: float[V] virtual seconds; inf where the run ended earlier.
      metrics: name -> float[V]; inf where the run ended earlier.
    """

    commit: jax.Array
    time: jax.Array
    metrics: dict[str, jax.Array]


class Info(NamedTuple):
    """What happened in each commit.

    Attributes:
      loss: float[E], the training loss that the commit's gradients belong to; inf for commits not made.
      residual: float[E], the distance of the decoded coefficients from the exact sum, computed from them, whatever the
        code says of itself (0 without a code).
      staleness: int32[E], the largest staleness among the commit's contributions; -1 for commits not made.
      num_commits: int32[], the commits made.
      versions_alive: int32[], the most past versions that are still to be read at any time: the ring's size must not
        be below it. 0 if every commit reads the latest version. If the protocol looks at the loss: for the commits so
        far, each version being kept until it is read last.
    """

    loss: jax.Array
    residual: jax.Array
    staleness: jax.Array
    num_commits: jax.Array
    versions_alive: jax.Array


class Run(NamedTuple):
    """A run, at its end or on its way: what `gcjax.engine.run` returns, and what it needs to go on.

    Attributes:
      state: what the next commit needs, `state.params` among it. All NaN if the ring overflowed (see
        `gcjax.engine.check`).
      info: what happened in each commit so far.
      trajectory: metrics against virtual time, so far.
      schedule: when it happens. None inside of the engine and in checkpoints, so that it is neither copied nor saved.
    """

    state: State
    info: Info
    trajectory: Trajectory
    schedule: Schedule = None  # type: ignore[assignment]  # never None in what `gcjax.engine.run` returns

    def __repr__(self) -> str:
        """The last metrics, if they are known, and the types and shapes of the arrays."""
        return short_repr.named_tuple_text(self, *self._last_metrics())

    def _last_metrics(self) -> list[str]:
        """A line with the metrics at the end; none where they have no values: in a traced run, or in one of shapes."""
        leaves = jax.tree.leaves(self.trajectory)
        if not isinstance(self.trajectory, Trajectory) or not all(map(_is_known, leaves)):
            return []
        last_values = {name: np.asarray(self.final(name)) for name in self.trajectory.metrics}
        texts = [f"{name} {_validate.shorten(value)}" for name, value in last_values.items()]
        return ["at the end: " + ", ".join(texts)]

    @property
    def unscheduled(self) -> "Run":
        """The run without its schedule: the part that changes, is donated to the next call and saved."""
        return Run(self.state, self.info, self.trajectory)

    @property
    def params(self) -> Any:
        """The parameters at the end."""
        return self.state.params

    def final(self, metric: str) -> jax.Array:
        """A metric at the last evaluation that was made: that of `params`, if the run has come to its end.

        The last entries of `trajectory.metrics` are inf where the run ended with fewer commits than were possible.

        Args:
          metric: one of the task's.

        Returns:
          float[]; [S] of a batch of S runs made by `vmap`.

        Raises:
          ValueError: if there is no such metric.
        """
        commit, metrics = self.trajectory.commit, self.trajectory.metrics
        values = metrics[_validate.choice("metric", metric, metrics)]
        num_evals_made = (commit >= 0).sum(axis=-1, keepdims=True)  # commit is -1 where no evaluation was made
        last_index = num_evals_made - 1
        return jnp.take_along_axis(values, last_index, axis=-1)[..., 0]


def _is_known(leaf: Any) -> bool:
    """Whether a leaf of a run is an array whose numbers this process has."""
    if isinstance(leaf, jax.Array) and not _validate.is_traced(leaf):
        return leaf.is_fully_addressable and not leaf.is_deleted()
    return isinstance(leaf, np.ndarray)
