"""Local work by its definition: all versions in a list, one gradient after the other, nothing of the engine.

The task is linear regression, so that gradients and optimizers can be written out.
"""

from collections.abc import Callable
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
    mix: Callable | None = (
        None  # no server: `(schedule, commit, contributions) -> (workers, matrix)`, who averages with whom
    )
    table: bool = False  # the server keeps all gradients of a round, worker by worker
    meanwhile: bool = False  # others average with a worker while it computes
    regions: "Regions | None" = None  # each group has a server of its own
    send: tuple[float, ...] = ()  # seconds of their messages
    stream: tuple | None = None  # one fragment after the other: H, τ, α, and which numbers are in each fragment


class Regions(NamedTuple):
    """Servers of groups: the group of each worker, their optimizer, K, α, and the seconds of answers to each."""

    owner: tuple[int, ...]
    optimizer: Sgd | DelayedNesterov
    num_pushes: int
    share: float
    receive: tuple[float, ...]


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
    if rule.regions is not None:
        return _with_regions(schedule, rule, optimizer, batches, x)
    if rule.stream is not None:
        return _streamed(schedule, rule, optimizer, batches, x)
    if rule.table:
        return _with_table(schedule, optimizer, batches, x)
    if rule.mix is not None:
        return _mixed(schedule, rule, optimizer, batches, x)
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


def _mixed(schedule, rule, optimizer, batches, x):
    """A run without a server: a gradient at what its worker began with, over its weight; then the average."""
    num_workers = schedule.start.shape[1]
    own, begun, states = [x] * num_workers, [x] * num_workers, [optimizer.start(x)] * num_workers
    weight, losses = [1.0] * num_workers, []
    for e in np.flatnonzero(np.isfinite(schedule.time)):
        rows = [row for (row,) in _contributions(schedule, e, together=False)]
        before, found = list(own), []
        for w, unit, *_ in rows:
            begin = begun[w] if rule.meanwhile else own[w]
            loss, gradient = loss_and_gradient(begin / weight[w], batches, w, unit)
            end, states[w] = optimizer.step(begin, gradient, states[w])
            own[w] = own[w] + (end - begin)
            found.append(loss)
        steps = [after - x for after, x in zip(own, before, strict=True)]
        workers, matrix = rule.mix(schedule, e, rows)
        mixing = before if rule.meanwhile else list(own)
        averages = [sum(matrix[k][j] * mixing[v] for j, v in enumerate(workers)) for k in range(len(workers))]
        weights = [sum(matrix[k][j] * weight[v] for j, v in enumerate(workers)) for k in range(len(workers))]
        for k, v in enumerate(workers):
            own[v], weight[v] = averages[k] + (steps[v] if rule.meanwhile else 0), weights[k]
        for w, *_ in rows:
            begun[w] = own[w]
        losses.append(sum(found) / len(found))
    return Result(sum(own) / num_workers, losses, dict(enumerate(own)))


def _streamed(schedule, rule, optimizer, batches, x):
    """A run in which all push one fragment every H/P steps, and merge what came of it τ steps later."""
    num_steps, overlap, local_share, fragments = rule.stream
    inner = optimizer if rule.inner == "run" else rule.inner
    num_workers, length = schedule.start.shape[1], num_steps // len(fragments)
    own, states = [x.copy() for _ in range(num_workers)], [inner.start(x)] * num_workers
    server, outer_states = x.copy(), [rule.outer.start(x[part]) for part in fragments]
    sent, losses, window = [], [], []
    for t in range(length * int(np.isfinite(schedule.time).sum())):
        merged, offset = divmod(t - overlap, length)
        if offset == 0 and merged > 0:
            part = fragments[(merged - 1) % len(fragments)]
            for w in range(num_workers):
                own[w][part] = local_share * own[w][part] + (1 - local_share) * sent[merged - 1]
        for w in range(num_workers):
            loss, gradient = loss_and_gradient(own[w], batches, w, t)
            own[w], states[w] = inner.step(own[w], gradient, states[w])
            window.append(loss)
        if (t + 1) % length == 0:
            number = len(sent) % len(fragments)
            part = fragments[number]
            outer_gradient = sum(server[part] - own[w][part] for w in range(num_workers)) / num_workers
            server[part], outer_states[number] = rule.outer.step(server[part], outer_gradient, outer_states[number])
            sent.append(server[part].copy())
            losses.append(sum(window) / len(window))
            window = []
    return Result(server, losses, dict(enumerate(own)))


def _with_table(schedule, optimizer, batches, x):
    """A run in which each step is with the mean of all workers' means of their gradients in this round of W commits."""
    num_workers, versions, state, losses, table = schedule.start.shape[1], [x], optimizer.start(x), [], {}
    for e in np.flatnonzero(np.isfinite(schedule.time)):
        if e % num_workers == 0:
            table = {w: [] for w in range(num_workers)}
        loss, counted = 0.0, 0.0
        for ((worker, unit, version, work, weight),) in _contributions(schedule, e, together=False):
            for i in range(work):
                found, gradient = loss_and_gradient(versions[version], batches, worker, unit + i)
                table[worker].append(gradient)
                loss, counted = loss + weight * found, counted + weight
        means = {w: sum(gradients) / len(gradients) for w, gradients in table.items()}
        after, state = optimizer.step(versions[-1], sum(means.values()) / num_workers, state)
        versions.append(after)
        losses.append(loss / counted)
    return Result(versions[-1], losses, {w: -mean for w, mean in means.items()})


class _Region:
    """The server of a group."""

    def __init__(self, optimizer, x):
        self.x, self.state = x, optimizer.start(x)
        self.fresh()

    def fresh(self):
        self.sum, self.count, self.loss, self.losses = 0.0, 0, 0.0, 0


def _with_regions(schedule, rule, optimizer, batches, x):
    """Pushes in the order of time, and the messages between servers that have come before or with them.

    Of the schedule only times are looked at: those of pushes that are in commits, and those of the commits.
    """
    given, worker_of = rule.regions, schedule.start.shape[1]
    pushes = sorted(
        (float(schedule.finish[unit + work - 1, worker]), worker, unit, work)
        for e in np.flatnonzero(np.isfinite(schedule.time))
        for ((worker, unit, _, work, _),) in _contributions(schedule, e, together=False)
    )
    regions = [_Region(given.optimizer, x) for _ in given.receive]
    begun, states = [x] * worker_of, [optimizer.start(x)] * worker_of
    server, versions, losses, answers = rule.outer.start(x), [x], [], []
    times = iter([*schedule.time[np.isfinite(schedule.time)].tolist(), np.inf])
    commit_time, sent = next(times), []

    def between_servers(now):
        nonlocal commit_time, server, versions
        while True:
            answers.sort(key=lambda answer: answer[0])
            if answers and answers[0][0] <= min(now, commit_time):
                _, group, params = answers.pop(0)
                regions[group].x = (1 - given.share) * regions[group].x + given.share * params
                regions[group].fresh()
            elif sent and commit_time <= now:
                first = min(sent, key=lambda message: message[0] + rule.send[message[1]])
                sent.remove(first)
                _, group, change, loss = first
                after, server = rule.outer.step(versions[-1], -change, server)
                versions.append(after)
                losses.append(loss)
                answers.append((commit_time + given.receive[group], group, after))
                commit_time = next(times)
            else:
                return

    for now, worker, unit, work in pushes:
        between_servers(now)
        region, mine = regions[given.owner[worker]], begun[worker]
        for i in range(work):
            found, gradient = loss_and_gradient(mine, batches, worker, unit + i)
            mine, states[worker] = optimizer.step(mine, gradient, states[worker])
            if region.count < given.num_pushes:
                region.loss, region.losses = region.loss + found, region.losses + 1
        before = region.x
        region.x, region.state = given.optimizer.step(before, begun[worker] - mine, region.state)
        if region.count < given.num_pushes:
            region.sum, region.count = region.sum + region.x - before, region.count + 1
            if region.count == given.num_pushes:
                sent.append((now, given.owner[worker], region.sum, region.loss / region.losses))
        between_servers(now)
        begun[worker] = region.x
    between_servers(np.inf if sent else -1.0)
    return Result(versions[-1], losses, dict(enumerate(begun)) if min(given.receive) else {})


def _contributions(schedule, e, together):
    """The contributions to a commit, (worker, unit, version, work, weight) each; those of a group are one list."""
    names = ("worker", "unit", "version", "work", "weight")
    rows = zip(*(np.asarray(getattr(schedule, name)[e]).tolist() for name in names), strict=True)
    used = [row for row in rows if row[0] >= 0]
    return [used] if together else [[row] for row in used]
