"""A parameter server and its workers as an event queue in plain Python; who waits for whom is in `waiting_rules`.

Everything that happens at one moment is dealt with before anybody begins at that moment, the lowest worker first.
"""

import math
from typing import NamedTuple

TIMES = ("start", "compute_start", "compute_end", "send_start", "finish")


class Expected(NamedTuple):
    """What a reference finds: `[(time, parts)]`, parts `(worker, unit, version, work)`; the horizon, the timeline."""

    commits: list
    horizon: float
    times: dict | None = None


class Links(NamedTuple):
    """Seconds of each worker's messages, lists of W numbers; and of a message alone on the server's shared link."""

    latency: list
    upload: list
    download: list
    server: float | None = None


class Turn:
    """What a worker does from one push to the next."""

    def __init__(self, first, version, older, begin):
        self.first, self.version, self.older, self.begin = first, version, older, begin
        self.count, self.fresh = 1, first
        self.stop = self.send_start = math.inf

    def parts(self, worker):
        """(worker, unit, version, work) of what is pushed: units on the version before, and on the one just read."""
        last = self.first + self.count
        both = ((self.first, self.older, self.fresh - self.first), (self.fresh, self.version, last - self.fresh))
        return [(worker, unit, version, work) for unit, version, work in both if work > 0]


class Server:
    """One run. A rule may look at everything here.

    `commits` lists `(time, parts)`; `clock[w]` counts pushes; `pending[w]` lists those that no commit has taken yet.
    """

    def __init__(self, rule, durations, links):
        self.rule, self.durations, self.links = rule, durations.tolist(), links
        self.num_units, self.num_workers = durations.shape
        self.now, self.commits = 0.0, []
        self.clock, self.version, self.used = ([x] * self.num_workers for x in (0, -1, 0))
        self.pending = [[] for _ in range(self.num_workers)]
        self.idle = set(range(self.num_workers))
        self.turn, self.timer, self.moving = {}, {}, {}
        self.times = {name: [[math.inf] * self.num_workers for _ in durations] for name in TIMES}
        rule.prepare(self)
        self.horizon = rule.horizon(self)

    def run(self):
        while True:
            for w in sorted(w for w in self.idle if self.rule.ready(self, w)):
                self.begin(w)
            ends, alarm = self.ends(), self.rule.alarm(self)
            moment = min([*ends.values(), *(time for time, _ in self.timer.values()), alarm])
            hopeless = moment > self.now and self.rule.hopeless(self)
            if math.isinf(moment) or moment > self.horizon:
                return Expected(self.commits, self.horizon, self.times)
            if hopeless:
                return Expected(self.commits, math.inf, self.times)
            self.move(moment, ends)
            while due := [w for w, (time, _) in self.timer.items() if time <= moment]:
                self.timer.pop(min(due))[1]()
            if alarm <= self.now and any(self.pending):
                self.take(self.rule.commit(self, None))

    # A turn: receive, compute, send; or compute, receive, send where parameters are exchanged.

    def begin(self, w):
        self.idle.discard(w)
        older = max(self.version[w], 0)
        pulls = not self.rule.pulls_before_push and self.rule.pulls(self, w)
        if pulls:
            self.version[w] = self.rule.version(self, w)
        turn = Turn(self.used[w], self.version[w], older if self.clock[w] else 0, self.now)
        ready = self.now + (self.alone(w, self.links.download) if pulls else 0.0)
        if turn.first + self.rule.count(self, w, turn.first, ready) > self.num_units:
            self.horizon = min(self.horizon, self.now)
            return
        self.turn[w] = turn
        self.times["start"][turn.first][w] = min(self.now, self.rule.origin(self, w, turn.first, self.now))
        if pulls:
            self.transfer(w, self.links.download, lambda: self.compute(w))
        else:
            self.compute(w)

    def compute(self, w):
        turn = self.turn[w]
        turn.count = self.rule.count(self, w, turn.first, self.now)
        turn.fresh = self.rule.fresh(self, w, turn.first, turn.count, self.now)
        at = self.rule.origin(self, w, turn.first, self.now)
        for unit in range(turn.first, turn.first + turn.count):
            self.times["start"][unit][w] = min(self.times["start"][unit][w], at)
            self.times["compute_start"][unit][w] = at
            at += self.durations[unit][w]
            for name in ("compute_end", "finish"):
                self.times[name][unit][w] = at
        turn.stop = at
        self.timer[w] = self.rule.sends(self, w, turn.first, at, self.now), lambda: self.send(w)

    def send(self, w):
        last = self.turn[w].first + self.turn[w].count - 1
        self.turn[w].send_start = self.times["send_start"][last][w] = self.now
        self.times["finish"][last][w] = math.inf

        def up():
            self.transfer(w, self.links.upload, lambda: self.arrive(w))

        if self.rule.pulls_before_push:
            self.transfer(w, self.links.download, up)
        else:
            up()

    def arrive(self, w):
        turn = self.turn.pop(w)
        self.times["finish"][turn.first + turn.count - 1][w] = self.now
        self.used[w] = turn.first + turn.count
        self.clock[w] += 1
        self.idle.add(w)
        if self.rule.pulls_before_push:  # what is there when the parameters are asked for, but for the push itself
            asked = sum(time <= turn.send_start for time, _ in self.commits)
            turn.version = turn.older = asked
        counts = self.rule.accepts(self, w)
        if counts:
            self.pending[w].append(turn.parts(w))
        takers = self.rule.commit(self, w) if counts else []
        self.take(takers)
        self.rule.remember(self, w, bool(takers))

    def take(self, takers):
        """Commits what these workers have pushed, if there are any."""
        if not takers:
            return
        self.commits.append((self.now, [part for v in takers for parts in self.pending[v] for part in parts]))
        for v in takers:
            self.pending[v] = []
        if self.rule.cancels:
            self.cut([v for v in self.turn if self.rule.cut(self, v)])

    def cut(self, workers):
        for w in workers:
            turn = self.turn.pop(w)
            self.used[w] = turn.first + 1
            begins = self.times["compute_start"][turn.first]
            if math.isinf(begins[w]) and self.timer.get(w, (math.inf,))[0] <= self.now:
                begins[w] = self.now  # the parameters arrive at this very moment
            self.timer.pop(w, None), self.moving.pop(w, None)
            for name in TIMES[1:]:
                value = self.times[name][turn.first][w]
                late = name in ("send_start", "finish") or (name == "compute_start" and value > self.now)
                self.times[name][turn.first][w] = math.inf if late else min(value, self.now)
            self.idle.add(w)

    # Messages: a timer each; or on the shared link, in equal parts in each direction.

    def alone(self, w, link):
        return self.links.latency[w] + link[w]

    def transfer(self, w, link, then):
        if self.links.server is None:
            self.timer[w] = self.now + self.alone(w, link), then
        else:
            self.moving[w] = [link is self.links.upload, 1.0, link[w], then]

    def seconds(self, w):
        direction, _, own, _ = self.moving[w]
        return max(own, self.links.server * sum(other[0] == direction for other in self.moving.values()))

    def ends(self):
        return {w: self.now + self.moving[w][1] * self.seconds(w) for w in self.moving}

    def move(self, moment, ends):
        rate = {w: self.seconds(w) for w in self.moving}
        for w, seconds in rate.items():
            if ends[w] <= moment:
                self.timer[w] = moment + self.links.latency[w], self.moving.pop(w)[3]
            else:
                self.moving[w][1] -= (moment - self.now) / seconds
        self.now = moment
