"""The parameters at the server, and how contributions change them.

Letters: C contributions to a commit, W workers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.engine.messages import accumulation_dtype
from gcjax.engine.program import server_optimizer
from gcjax.parameter_server import wire
from gcjax.protocols.base import Protocol
from gcjax.protocols.simulation.rules import Rule


class Contribution(NamedTuple):
    """A message that waits for its commit.

    Attributes:
      worker: who sent it.
      turn: the number of the worker's turn.
      version: that it is based on.
      work: the units in it.
      loss: their mean loss.
      tree: the gradient, or what local steps have changed; NumPy arrays.
    """

    worker: int
    turn: int
    version: int
    work: int
    loss: float
    tree: Any


class Updates:
    """Parameters and optimizer state. A step is one program; of several contributions, NumPy makes the sum before it.

    They come as NumPy arrays, and a program for each sum would take longer to start than the sum itself.
    """

    def __init__(
        self, protocol: Protocol, optimizer: optax.GradientTransformation, rule: Rule, num_workers: int, params: Any
    ) -> None:
        """Begins with `params`, version 0; `rule.weight` weighs contributions: a number, or of staleness and work."""
        local = protocol.local
        self._optimizer = server_optimizer(protocol, optimizer)
        self._gradient_sign = 1.0 if local is None else -1.0  # of a change: an optimizer steps against its gradient
        self._weight, self._num_workers = rule.weight, num_workers
        self._joins_pushes_of_worker = rule.one_contribution_per_worker
        self.params = params
        self.opt_state = jax.jit(self._optimizer.init)(params)
        self.layout = wire.layout_of(params)
        self._params_bytes: np.ndarray | None = None
        self._last_weight, self._weight_on_device = 1.0, jnp.asarray(np.float64(1.0))
        self._apply = jax.jit(self._params_and_state_after_step)

    def warm_up(self) -> None:
        """Compiles what a commit takes."""
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self.params)
        jax.block_until_ready(self._apply(self.params, self.opt_state, zeros, self._weight_on_device))

    @property
    def params_bytes(self) -> np.ndarray:
        """uint8[n]: the bytes of the parameters, made once for each version."""
        if self._params_bytes is None:
            self._params_bytes = wire.as_bytes(self.params)
        return self._params_bytes

    def commit(self, contributions: Sequence[Contribution], commit: int) -> float:
        """Takes an optimizer step with the weighted sum of the contributions to commit number `commit`.

        Returns:
          The mean of their losses by their weights, 0 if these add up to 0; where changes are pushed, not gradients,
          also by their units.
        """
        weights = self.weights(contributions, commit)  # float64[C]
        contribution_sum, weight = contributions[0].tree, weights[0]
        if len(contributions) > 1:  # then NumPy weighs, and not the step
            contribution_sum = _weighted_sum([contribution.tree for contribution in contributions], weights)
            weight = np.float64(1.0)
        if weight != self._last_weight:  # else it need not be sent to the device again
            self._last_weight, self._weight_on_device = weight, jnp.asarray(weight)
        self.params, self.opt_state = self._apply(self.params, self.opt_state, contribution_sum, self._weight_on_device)
        self._params_bytes = None
        pushes_gradients = self._gradient_sign > 0
        unit_counts = [1 if pushes_gradients else contribution.work for contribution in contributions]
        losses = [contribution.loss for contribution in contributions]
        if len(losses) == 1:  # the same without arrays, which would take longer than all the rest of this function
            loss_weight = float(weights[0]) * unit_counts[0]
            return loss_weight * losses[0] / loss_weight if loss_weight else 0.0
        loss_weights = weights * unit_counts
        return float((loss_weights * np.array(losses)).sum() / loss_weights.sum()) if loss_weights.sum() else 0.0

    def weights(self, contributions: Sequence[Contribution], commit: int) -> np.ndarray:
        """float64[C]: the weight of each contribution to commit number `commit`.

        A rule is asked by staleness (commits) and work (units) of each contribution. Where all messages of a worker are
        one contribution, it is asked for all W workers, by the largest staleness and all units of a worker's messages.
        """
        if not callable(self._weight):
            return np.full(len(contributions), self._weight, np.float64)
        staleness = np.array([commit - contribution.version for contribution in contributions], np.int32)
        work = np.array([contribution.work for contribution in contributions], np.int32)
        if not self._joins_pushes_of_worker:
            return np.broadcast_to(np.asarray(self._weight(staleness, work), np.float64), work.shape)
        worker = np.array([contribution.worker for contribution in contributions])
        staleness_of_worker, work_of_worker = np.zeros((2, self._num_workers), np.int32)  # [W]; 0 without a message
        np.maximum.at(staleness_of_worker, worker, staleness)
        np.add.at(work_of_worker, worker, work)
        weight = np.asarray(self._weight(staleness_of_worker, work_of_worker), np.float64)
        return np.broadcast_to(weight, work_of_worker.shape)[worker]

    def _params_and_state_after_step(
        self, params: Any, opt_state: Any, gradient: Any, weight: jax.Array
    ) -> tuple[Any, Any]:
        """Parameters and optimizer state after a step with `weight float[]` times the gradient.

        Where changes are pushed, the gradient is minus the change: an optimizer steps against its gradient.
        """
        gradient = jax.tree.map(lambda x: (self._gradient_sign * weight).astype(x.dtype) * x, gradient)
        updates, opt_state = self._optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state


def _weighted_sum(trees: Sequence[Any], weights: np.ndarray) -> Any:
    """The sum of C trees of NumPy arrays, each times its weight in `weights float64[C]`, in the types of the arrays.

    It is formed in float32 or wider, and rounded once.
    """

    def weighted_sum_of_leaf(*leaves: np.ndarray) -> np.ndarray:
        """The weighted sum of the C arrays at one place of the trees."""
        dtype = accumulation_dtype(leaves[0].dtype)
        weighted_leaves = (
            np.asarray(weight, dtype) * np.asarray(leaf, dtype) for leaf, weight in zip(leaves, weights, strict=True)
        )
        leaf_sum = next(weighted_leaves)
        for weighted_leaf in weighted_leaves:
            leaf_sum += weighted_leaf  # in place, unless the leaf is a number
        return np.asarray(leaf_sum, leaves[0].dtype)

    return jax.tree.map(weighted_sum_of_leaf, *trees)
