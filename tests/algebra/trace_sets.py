"""The bounded model once more, by definition: a command is a Python set of (status, start, steps)."""

import itertools

import numpy as np

from gcjax.algebra.command import STATUSES
from gcjax.algebra.steps import ENVIRONMENT, PROGRAM

T, I, A = STATUSES


class TraceSets:
    """All operators on sets of traces; names are those of `gcjax.algebra.commands`."""

    def __init__(self, model):
        self.space, self.n = model.space, model.max_steps
        self.all_steps = range(self.space.num_steps)
        self.states = range(self.space.num_states)
        self.words = [w for k in range(self.n + 1) for w in itertools.product(self.all_steps, repeat=k)]

    def of(self, command):
        """The set of a command of arrays, by its public fields, without longer traces."""
        found = set()
        for status in STATUSES:
            for array in getattr(command, status)[: self.n + 1]:
                found |= {(status, int(t[0]), tuple(t[1:].tolist())) for t in np.argwhere(np.asarray(array))}
        return found

    def end(self, start, word):
        return self.space.targets[word[-1]] if word else start

    def close(self, traces):
        aborted = {(s, w + v) for x, s, w in traces if x == A for v in self.words if len(w + v) <= self.n}
        traces = traces | {(x, s, w) for s, w in aborted for x in STATUSES}
        incomplete = {(I, s, w[:k]) for _, s, w in traces for k in range(len(w) + 1)}
        return traces | incomplete | {(I, s, ()) for s in self.states}

    def magic(self):
        return self.close(set())

    def abort(self):
        return self.close({(A, s, ()) for s in self.states})

    def nil(self):
        return self.test([True] * len(self.states))

    def test(self, p):
        return self.close({(T, s, ()) for s in self.states if p[s]})

    def assertion(self, p):
        return self.close({(T if p[s] else A, s, ()) for s in self.states})

    def one_step(self, kind, r=None):
        return self.close({
            (T, s, (a,))
            for s in self.states
            for a in self.all_steps
            if self.space.kinds[a] == kind and (r is None or r[s][self.space.targets[a]])
        })  # fmt: skip

    def program_step(self, r=None):
        return self.one_step(PROGRAM, r)

    def environment_step(self, r=None):
        return self.one_step(ENVIRONMENT, r)

    def choice(self, c, d):
        return c | d

    def meet(self, c, d):
        return c & d

    def sequence(self, c, d):
        later = {}
        for status, s, v in d:
            later.setdefault(s, []).append((status, v))
        glued = {
            (status, s, u + v)
            for x, s, u in c
            if x == T
            for status, v in later.get(self.end(s, u), ())
            if len(u + v) <= self.n
        }
        return self.close(glued | {t for t in c if t[0] != T})

    def synchronise(self, both, c, d):
        makes = {(a, b): both(a, b) for a in self.all_steps for b in self.all_steps}
        alike = {}
        for status, s, v in d:
            alike.setdefault((s, len(v)), []).append((status, v))
        found = set()
        for x, s, u in c:
            for y, v in alike.get((s, len(u)), ()):
                status = x if x == y else A if {x, y} == {I, A} else None
                word = tuple(makes[pair] for pair in zip(u, v, strict=True)) if status else (None,)
                if None not in word:
                    found.add((status, s, word))
        return self.close(found)

    def interleaved(self, a, b):
        space = self.space
        if space.targets[a] != space.targets[b] or space.kinds[a] == space.kinds[b] == PROGRAM:
            return None
        return a if space.kinds[a] == PROGRAM else b

    def parallel(self, c, d):
        return self.synchronise(self.interleaved, c, d)

    def weak_conjunction(self, c, d):
        return self.synchronise(lambda a, b: a if a == b else None, c, d)

    def csp_parallel(self, c, d):
        return self.synchronise(lambda a, b: a if a == b else self.interleaved(a, b), c, d)

    def ccs_parallel(self, c, d):
        space = self.space
        return self.synchronise(
            lambda a, b: space.internal if space.complements[a] == b else self.interleaved(a, b), c, d
        )

    def fixed_point(self, function, first):
        while (following := function(first)) != first:
            first = following
        return first

    def star(self, c):
        return self.fixed_point(lambda x: self.nil() | self.sequence(c, x), self.magic())

    def omega(self, c):
        return self.fixed_point(lambda x: self.nil() | self.sequence(c, x), self.abort())

    def infinite(self, c):
        return self.fixed_point(lambda x: self.sequence(c, x), self.abort())

    def skip(self):
        return self.omega(self.environment_step())

    def chaos(self):
        return {(x, s, w) for x in (T, I) for s in self.states for w in self.words}

    def specification(self, q):
        return {(x, s, w) for x, s, w in self.chaos() if x == I or q[s][self.end(s, w)]}

    def guarantee(self, g):
        def kept(s, word):
            before = itertools.chain([s], (self.space.targets[a] for a in word))
            moves = zip(before, word, strict=False)
            return all(self.space.kinds[a] != PROGRAM or g[x][self.space.targets[a]] for x, a in moves)

        return {(x, s, w) for x, s, w in self.chaos() if kept(s, w)}

    def rely(self, r):
        def broken(s, word):
            before = itertools.chain([s], (self.space.targets[a] for a in word))
            moves = zip(before, word, strict=False)
            return any(self.space.kinds[a] == ENVIRONMENT and not r[x][self.space.targets[a]] for x, a in moves)

        return self.close(self.chaos() | {(A, s, w) for s in self.states for w in self.words if broken(s, w)})
