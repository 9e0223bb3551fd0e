"""Who waits for whom, one small class a protocol, for the event queue of `event_queue`."""

import functools
import math

import jax
import numpy as np


class Rule:
    """Asynchronous parallel; the others change what is different."""

    pulls_before_push = cancels = False

    def prepare(self, server):
        """What is to be kept in mind at first."""

    def horizon(self, server):
        """When the first worker has no unit left, as far as that is known before anything happens."""
        return math.inf

    def ready(self, server, w):
        return True

    def pulls(self, server, w):
        return server.version[w] < len(server.commits)

    def version(self, server, w):
        """What w reads when it pulls."""
        return len(server.commits)

    def accepts(self, server, w):
        """Whether the push of w that has arrived counts."""
        return True

    def commit(self, server, w):
        """The workers whose pushes are committed now that w's has arrived."""
        return [w]

    def alarm(self, server):
        """When to ask for a commit again, although nothing arrives; `commit` is then asked without a worker."""
        return math.inf

    def cut(self, server, w):
        """Where commits cancel turns: whether that of w."""
        return True

    def hopeless(self, server):
        """Whether there can be no commit any more, although somebody goes on."""
        return False

    def remember(self, server, w, committed):
        """What is to be kept in mind after a push of w."""

    def count(self, server, w, first, ready):
        return 1

    def fresh(self, server, w, first, count, ready):
        return first

    def origin(self, server, w, first, ready):
        """When the first unit of a turn begins."""
        return ready

    def sends(self, server, w, first, stop, ready):
        return stop


class OwnSteps(Rule):
    """A worker goes on with what its own last push has made, before those of others at that moment."""

    def version(self, server, w):
        return 1 + max((number for number, (_, parts) in enumerate(server.commits) if parts[0][0] == w), default=-1)


class Ssp(Rule):
    def __init__(self, staleness):
        self.staleness = staleness

    def ready(self, server, w):
        return server.clock[w] - min(server.clock) <= self.staleness


class Psp(Rule):
    def __init__(self, num_sampled, staleness, rng_key):
        self.num_sampled, self.staleness, self.rng_key = num_sampled, staleness, rng_key

    def prepare(self, server):
        self.sample = [[] for _ in server.clock]

    def ready(self, server, w):
        return all(server.clock[w] - server.clock[v] <= self.staleness for v in self.sample[w])

    def remember(self, server, w, committed):
        self.sample[w] = self.drawn(w, server.clock[w], server.num_workers)

    @functools.cache  # noqa: B019
    def drawn(self, w, clock, num_workers):
        key = jax.random.fold_in(jax.random.fold_in(self.rng_key, w), clock)
        others = [v for v in range(num_workers) if v != w]
        bits = np.asarray(jax.random.bits(key, (self.num_sampled,), np.uint32)).tolist()
        drawn = set()
        for number, last in zip(bits, range(len(others) - self.num_sampled, len(others)), strict=True):
            drawn.add(last if number % (last + 1) in drawn else number % (last + 1))
        return [others[i] for i in sorted(drawn)]


class Dssp(Rule):
    def __init__(self, lower, span):
        self.lower, self.span = lower, span

    def prepare(self, server):
        self.pushes = [[] for _ in server.clock]
        self.granted = [0] * server.num_workers
        self.free = [False] * server.num_workers

    def ready(self, server, w):
        return self.free[w] or server.clock[w] - min(server.clock) <= self.lower

    def remember(self, server, w, committed):
        self.pushes[w].append(server.now)
        ahead = server.clock[w] - min(server.clock)
        if self.granted[w] == 0 and ahead > self.lower and server.clock[w] == max(server.clock):
            self.granted[w] = self.predict(server, w, ahead)
        self.free[w] = self.granted[w] > 0
        self.granted[w] = max(self.granted[w] - 1, 0)

    def predict(self, server, fast, ahead):
        slow = server.clock.index(min(server.clock))
        if len(self.pushes[fast]) < 2 or len(self.pushes[slow]) < 2:
            return 0
        (a, b), (c, d) = self.pushes[fast][-2:], self.pushes[slow][-2:]
        waits = []
        for steps in range(min(self.span, self.lower + self.span + 1 - ahead) + 1):
            mine, k = b + steps * (b - a), 1
            while d + k * (d - c) < mine - 1e-3 * (d - c):
                k += 1
            waits.append(max(d + k * (d - c) - mine, 0))
        return next(steps for steps, wait in enumerate(waits) if wait <= min(waits) + 1e-3 * (d - c))


class FirstK(Rule):
    """The four protocols of the first K gradients."""

    def __init__(self, count, distinct, cancels):
        self.wanted, self.distinct, self.cancels = count, distinct, cancels

    def ready(self, server, w):
        return not (self.distinct and server.pending[w])

    def commit(self, server, w):
        enough = sum(map(len, server.pending)) >= self.wanted
        return [v for v in range(server.num_workers) if server.pending[v]] if enough else []


class Buffered(FirstK):
    """Any changes of so many steps each."""

    def __init__(self, count, num_steps):
        super().__init__(count, False, False)
        self.num_steps = num_steps

    def count(self, server, w, first, ready):
        return self.num_steps


class LocalSteps(Rule):
    """Nobody waits; so many steps a push."""

    def __init__(self, num_steps):
        self.num_steps = num_steps

    def count(self, server, w, first, ready):
        return self.num_steps


class Quorum(LocalSteps):
    """A commit a window after K learners have pushed; `window`: from the seconds that they took, and those of steps."""

    def __init__(self, num_steps, quorum, window):
        super().__init__(num_steps)
        self.quorum, self.window = quorum, window

    def prepare(self, server):
        self.first = {}  # of each who has pushed since the last commit: when, and the seconds of a step

    def commit(self, server, w):
        if w is not None:
            turn = server.now - server.times["start"][server.used[w] - self.num_steps][w]
            self.first.setdefault(w, (server.now, turn / self.num_steps))
        if len(self.first) < server.num_workers and server.now < self.alarm(server):
            return []
        takers = sorted(self.first)
        self.first = {}
        return takers

    def alarm(self, server):
        waited = sorted((self.first[w] for w in sorted(self.first)), key=lambda pushed: pushed[0])[: self.quorum]
        if len(waited) < self.quorum:
            return math.inf
        arrivals, steps = zip(*waited, strict=True)
        return arrivals[-1] + self.window(arrivals[-1] - arrivals[0], sum(steps) / self.quorum)

    def hopeless(self, server):
        waits_for_all = self.quorum == server.num_workers
        return waits_for_all and WorkerBusy.hopeless(self, server)


class DynamicSteps(LocalSteps):
    """Fewer steps of those who were slower than the fastest in their last turn."""

    def prepare(self, server):
        self.steps = [self.num_steps] * server.num_workers
        self.seconds = {}

    def count(self, server, w, first, ready):
        return self.steps[w]

    def remember(self, server, w, committed):
        first, last = server.used[w] - self.steps[w], server.used[w] - 1
        compute_seconds = server.times["compute_end"][last][w] - server.times["compute_start"][first][w]
        self.seconds[w] = compute_seconds / self.steps[w]
        share = min(self.seconds.values()) / self.seconds[w]
        self.steps[w] = max(1, math.floor(self.num_steps * share + 1e-3))


class DynamicRounds(DynamicSteps):
    """The same in rounds: all wait until everybody has pushed, and the fastest is that of the round."""

    def remember(self, server, w, committed):
        super().remember(server, w, committed)
        if committed:
            shares = [min(self.seconds.values()) / self.seconds[v] for v in range(server.num_workers)]
            self.steps = [max(1, math.floor(self.num_steps * share + 1e-3)) for share in shares]

    def ready(self, server, w):
        return not server.pending[w]

    def commit(self, server, w):
        return list(range(server.num_workers)) if all(server.pending) else []

    def hopeless(self, server):
        return WorkerBusy.hopeless(self, server)


class Rennala(FirstK):
    """The first gradients of the newest version; older ones are ignored."""

    def __init__(self, count):
        super().__init__(count, False, False)

    def accepts(self, server, w):
        return server.version[w] == len(server.commits)


class Ringleader(Rule):
    """Rounds in which all are in the table first, and then each worker brings a commit; who has is not asked again."""

    def prepare(self, server):
        self.owe = set()  # who has brought no commit in this round; nobody while it collects
        self.reads = set(range(server.num_workers))

    def pulls(self, server, w):
        return w in self.reads

    def commit(self, server, w):
        if not self.owe:
            takers = list(range(server.num_workers)) if all(server.pending) else []
            self.owe = set(takers)
        else:
            takers = [w] if w in self.owe else []
        self.owe -= {w}
        return takers

    def remember(self, server, w, committed):
        (self.reads.add if committed else self.reads.discard)(w)


class Ringmaster(Rule):
    """Gradients whose delay is below a threshold; the others are ignored, or cut off."""

    def __init__(self, threshold, cancels):
        self.threshold, self.cancels = threshold, cancels

    def accepts(self, server, w):
        return len(server.commits) - server.version[w] < self.threshold

    def cut(self, server, w):
        return not self.accepts(server, w)


class WorkerBusy(Rule):
    """Everybody goes on; a commit when everybody has pushed."""

    def commit(self, server, w):
        return list(range(server.num_workers)) if all(server.pending) else []

    def hopeless(self, server):
        return any(math.isinf(time) and not server.pending[w] for w, (time, _) in server.timer.items())


class Eager(Rule):
    """Every push is a commit; all read once after each push of the trigger."""

    def __init__(self, trigger=None):
        self.trigger = trigger

    def prepare(self, server):
        sums = np.sum(server.durations, axis=0).tolist()
        self.made, self.fixed = 0, sums.index(max(sums)) if self.trigger is None else self.trigger

    def pulls(self, server, w):
        return server.version[w] < self.made

    def remember(self, server, w, committed):
        if w == self.fixed:
            self.made = len(server.commits)


class _Overlap:
    """Workers never stop computing from the moment that they have received the first parameters."""

    def _ends(self, server, w):
        return server.alone(w, server.links.download) + np.cumsum([row[w] for row in server.durations])

    def horizon(self, server):
        return min(self._ends(server, w)[-1] for w in range(server.num_workers))

    def origin(self, server, w, first, ready):
        began = server.alone(w, server.links.download)
        return self._ends(server, w)[first - 1] if first else began

    def sends(self, server, w, first, stop, ready):
        return max(ready, self._ends(server, w)[first])

    def count(self, server, w, first, ready):
        if first >= server.num_units:
            return 1
        done = int((self._ends(server, w) <= self.sends(server, w, first, 0.0, ready)).sum())
        return max(done - first, 1) if np.isfinite(self._ends(server, w)[first]) else 1

    def fresh(self, server, w, first, count, ready):
        done = int((self._ends(server, w) <= ready).sum())
        return min(max(done, first), first + count)


class WorkerBusyOverlap(_Overlap, WorkerBusy):
    pass


class EagerOverlap(_Overlap, Eager):
    pass


class Partial(Rule):
    """All that is there, once the initiator of the all-reduce has come; the first to come if there is no key."""

    def __init__(self, rng_key=None):
        self.rng_key = rng_key

    def ready(self, server, w):
        return server.clock[w] <= len(server.commits)

    def commit(self, server, w):
        number = len(server.commits)
        initiator = w if self.rng_key is None else self.drawn(number, server.num_workers)
        comes = server.clock[initiator] == number + 1
        return [v for v in range(server.num_workers) if server.pending[v]] if comes else []

    @functools.cache  # noqa: B019
    def drawn(self, number, num_workers):
        return int(jax.random.permutation(jax.random.fold_in(self.rng_key, number), num_workers)[0])


class Elastic(Rule):
    pulls_before_push = True

    def __init__(self, num_steps):
        self.num_steps = num_steps

    def count(self, server, w, first, ready):
        return self.num_steps


class Adsp(Rule):
    """Commits so many times in a window, by the interval after which a worker pushes."""

    def __init__(self, seconds, least_interval, rates):
        self.seconds, self.least_interval, self.rates = seconds, least_interval, rates

    def count(self, server, w, first, ready):
        window = min(int(ready // self.seconds), len(self.rates) - 1)
        messages = server.alone(w, server.links.upload) + server.alone(w, server.links.download)
        interval = max(self.least_interval, self.seconds / self.rates[window] - messages)
        total, number = 0.0, 0
        while total < interval or number == 0:
            if first + number >= server.num_units:
                return number + 1
            total += server.durations[first + number][w]
            number += 1
        return number


class Progressive(Rule):
    """Groups that wait within; all halved after every trial that took too long."""

    def __init__(self, num_rounds, limit, order):
        self.num_rounds, self.limit, self.order = num_rounds, limit, order

    def prepare(self, server):
        self.level, self.begin, self.units, self.chosen = 0, 0.0, 0, False
        self.label = [(0, 0)] * server.num_workers

    def _halved(self, w):
        """The name of w's group at the level of the moment."""
        count = min(2**self.level, len(self.order))
        place = self.order.index(w)
        return self.level, max(g for g in range(count) if g * len(self.order) // count <= place)

    def ready(self, server, w):
        return not server.pending[w]

    def commit(self, server, w):
        self.group = [v for v in range(server.num_workers) if self.label[v] == self.label[w]]
        return self.group if all(server.pending[v] for v in self.group) else []

    def remember(self, server, w, committed):
        if not committed:
            return
        self.units += len(self.group)
        if not self.chosen and self.units >= self.num_rounds * server.num_workers:
            self.chosen = server.now - self.begin <= self.limit
            most = math.ceil(math.log2(server.num_workers))
            self.level += not self.chosen and self.level < most
            self.begin, self.units = server.now, 0
        for v in self.group:
            self.label[v] = self._halved(v)
