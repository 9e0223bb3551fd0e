"""Local work by its definition: all versions in a list, one gradient after the other, nothing of the engine.

The task is linear regression, so that gradients and optimizers can be written out.
"""

from typing import NamedTuple

import jax
import numpy as np


class Sgd(NamedTuple):
    rate: float
    momentum: float = 0.0
    nesterov: bool = False

    def start(self, x):
        return np.zeros_like(x)

    def step(self, x, gradient, velocity):
        velocity = gradient + self.momentum * velocity
        return x - self.rate * (gradient + self.momentum * velocity if self.nesterov else velocity), velocity


class DelayedNesterov(NamedTuple):
    """Momentum of the mean of N gradients, and no momentum in between."""

    rate: float
    momentum: float
    period: int

    def start(self, x):
        return 0, np.zeros_like(x), np.zeros_like(x)

    def step(self, x, gradient, state):
        count, velocity, total = state[0] + 1, state[1], state[2] + gradient
        x = x - self.rate * gradient / self.period
        if count % self.period:
            return x, (count, velocity, total)
        velocity = self.momentum * velocity + total / self.period
        return x - self.rate * self.momentum * velocity, (count, velocity, np.zeros_like(x))


class AdamW(NamedTuple):
    rate: float
    decay: float

    def start(self, x):
        return 0, np.zeros_like(x), np.zeros_like(x)

    def step(self, x, gradient, state):
        count, first, second = state[0] + 1, 0.9 * state[1] + 0.1 * gradient, 0.999 * state[2] + 0.001 * gradient**2
        direction = first / (1 - 0.9**count) / (np.sqrt(second / (1 - 0.999**count)) + 1e-8)
        return x - self.rate * (direction + self.decay * x), (count, first, second)


class Rule(NamedTuple):
    """What the workers of a protocol do; `inner` and `outer` are the optimizers, that of the run if "run"."""

    inner: Sgd | AdamW | str = "run"
    outer: Sgd | DelayedNesterov | str | None = None  # the changes are added if None
    elastic: bool = False
    summed: bool = False  # gradients of one version are added up
    in_flight: bool = False
    begins_anew: bool = False  # after a push a worker has what it had before its steps
    owner: tuple[int, ...] | None = None  # the group of each worker


class Result(NamedTuple):
    params: np.ndarray
    losses: list[float]
    local: dict[int, np.ndarray]


def units(task, rng_key, num_workers, num_units):
    """The batches of all units, with leading axes [W, T]."""
    batch_key = jax.random.split(rng_key)[1]
    draw = jax.vmap(jax.vmap(lambda w, n: task.unit_batch(task.data, batch_key, w, n), (None, 0)), (0, None))
    return jax.tree.map(np.asarray, draw(np.arange(num_workers), np.arange(num_units)))


def loss_and_gradient(x, batches, worker, unit):
    inputs, targets, weights = (field[worker, unit] for field in batches)
    error = inputs @ x - targets
    return 0.5 * np.sum(weights * error**2), inputs.T @ (weights * error)


def trained(schedule, rule, optimizer, batches, x):
    """A run on this schedule.

    Args:
      schedule: of the protocol.
      rule: what its contributions are.
      optimizer: of the run, `Sgd` or `AdamW`.
      batches: of all units.
      x: the initial parameters.
    """
    inner = optimizer if rule.inner == "run" else rule.inner
    outer = optimizer if rule.outer == "run" else rule.outer
    versions, losses = [x], []
    local, states, read = {}, {}, {}
    server = None if outer is None else outer.start(x)
    for e in np.flatnonzero(np.isfinite(schedule.time)):
        total, loss, counted = np.zeros_like(x), 0.0, 0.0
        for pieces in _contributions(schedule, e, together=rule.owner is not None):
            me = pieces[0][0] if rule.owner is None else rule.owner[pieces[0][0]]
            _, _, version, work, _ = pieces[0]
            weight = sum(piece[4] for piece in pieces)
            before = local.get(me, versions[0])
            base, pulls = before, read.get(me) != version
            if pulls and not rule.elastic:
                base = versions[version]
            mine, states[me] = base, states.get(me, inner if rule.summed else inner.start(x))
            sum_of_gradients = np.zeros_like(x)
            for i in range(work):
                at = versions[version] if rule.summed else before if rule.in_flight and pulls and i == 0 else mine
                found = [loss_and_gradient(at, batches, piece[0], piece[1] + i) for piece in pieces]
                gradient = sum(piece[4] / weight * g for piece, (_, g) in zip(pieces, found, strict=True))
                loss += weight * sum(piece[4] / weight * f for piece, (f, _) in zip(pieces, found, strict=True))
                counted += weight
                sum_of_gradients += gradient
                if not rule.summed:
                    mine, states[me] = inner.step(mine, gradient, states[me])
            if rule.elastic:
                change = mine - versions[version]
                mine = mine - weight * change
            else:
                change = -sum_of_gradients if rule.summed else mine - base
            total = total + weight * change
            mine = base if rule.begins_anew else mine
            local[me], read[me] = mine, version
        if outer is None:
            versions.append(versions[-1] + total)
        else:
            after, server = outer.step(versions[-1], -total, server)
            versions.append(after)
        losses.append(loss / counted if counted else 0.0)
    return Result(versions[-1], losses, local)


def _contributions(schedule, e, together):
    """The contributions to a commit, (worker, unit, version, work, weight) each; those of a group are one list."""
    names = ("worker", "unit", "version", "work", "weight")
    rows = zip(*(np.asarray(getattr(schedule, name)[e]).tolist() for name in names), strict=True)
    used = [row for row in rows if row[0] >= 0]
    return [used] if together else [[row] for row in used]
