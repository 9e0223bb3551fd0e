"""Servers of groups and a central one in plain Python: messages between them are events of a queue.

`Regions` are those of HALoS, which wait for nobody; in `Synchronous` groups the members wait for the answer.
"""

import heapq
import math
from typing import NamedTuple

from tests.protocols.event_queue import Expected, Server

ANSWER, MESSAGE, PUSH = range(3)


class Region:
    """A group's server: what it has got since its last commit, and what it has of the central one."""

    def __init__(self):
        self.got, self.counted, self.waits, self.version = [], 0, False, 0


class Regions(NamedTuple):
    """Runs of HALoS; `rule` is that of its workers, `send` and `receive` are the seconds of each group's messages.

    `counted` are the pushes, `(worker, unit)`, that the last run has found to be sent.
    """

    groups_of: object
    rule: object
    num_pushes: int
    send: tuple
    receive: tuple
    counted: set

    def run(self, durations, links):
        alone = Server(self.rule(), durations, links).run()
        groups, commits, read = self.groups_of(durations.shape[1]), [], {}
        of = {w: g for g, group in enumerate(groups) for w in group}
        regions = [Region() for _ in groups]
        self.counted.clear()
        pushes = [(time, PUSH, i, part) for i, (time, (part,)) in enumerate(alone.commits)]
        queue, sent = list(pushes), 0
        heapq.heapify(queue)
        while queue and queue[0][0] <= alone.horizon:
            now, kind, _, what = heapq.heappop(queue)
            if kind == PUSH:
                w, unit, _, work = what
                region = regions[of[w]]
                region.got.append((w, unit, read.get(w, 0), work))
                if not region.waits:
                    region.counted += 1
                    self.counted.add((w, unit))
                if region.counted == self.num_pushes:
                    region.waits, region.counted, sent = True, 0, sent + 1
                    heapq.heappush(queue, (now + self.send[of[w]], MESSAGE, sent, of[w]))
                while queue and queue[0][0] <= now and queue[0][1] != PUSH:  # what it brings at this very moment
                    sent = self.between_servers(heapq.heappop(queue), regions, commits, queue, sent)
                read[w] = region.version
            else:
                sent = self.between_servers((now, kind, _, what), regions, commits, queue, sent)
        return Expected(commits, alone.horizon, alone.times)

    def between_servers(self, event, regions, commits, queue, sent):
        now, kind, _, what = event
        if kind == MESSAGE:
            commits.append((now, regions[what].got))
            regions[what].got = []
            heapq.heappush(queue, (now + self.receive[what], ANSWER, sent + 1, (what, len(commits))))
            return sent + 1
        group, version = what
        regions[group].version, regions[group].waits = version, False
        return sent

    def weight(self, num_workers, commit, parts):
        return [float((w, unit) in self.counted) for w, unit, _, _ in parts]


def regions(groups_of, rule, num_pushes, send=(0.0, 0.0), receive=(0.0, 0.0)):
    """Runs; `rule` makes the waiting rule of the workers."""
    assert math.isfinite(sum(send) + sum(receive))
    return Regions(groups_of, rule, num_pushes, send, receive, set())


class Synchronous(Server):
    """Groups, by the label of each worker in the rule: their pushes and what is answered pass their server."""

    def __init__(self, rule, durations, links, *, receive, send):
        super().__init__(rule, durations, links)
        self.receive_seconds, self.send_seconds, self.arrived = receive, send, {}

    def compute(self, w):
        """The parameters have come all the way but from the central server to the group's."""
        self.timer[w] = self.now + self.receive_seconds, lambda: Server.compute(self, w)

    def arrive(self, w):
        """At the group's server, which sends once all of its group have."""
        self.arrived[w] = self.now
        self.note_arrival(w, self.turn[w])
        group = [v for v in range(self.num_workers) if self.rule.label[v] == self.rule.label[w]]
        if all(v in self.arrived for v in group):
            self.timer[w] = self.now + self.send_seconds, lambda: self.push(group)

    def push(self, group):
        for v in group:
            turn = self.turn[v]
            super().arrive(v)
            self.note_arrival(v, turn)
            del self.arrived[v]

    def note_arrival(self, w, turn):
        self.times["finish"][turn.first + turn.count - 1][w] = self.arrived[w]
