"""Live workers simulated in one process, each with a clock of its own, and the real collectives on its devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from gcjax import codes, engine, protocols, saved_progress, stragglers, tasks
from gcjax.codes import assignments, stopping
from gcjax.engine.live import deadlines, exchange, saving, training, worker_round
from gcjax.engine.live import round_records as records
from gcjax.engine.live.chunk_work import Clock, compiled_chunk_gradient
from tests.devices import devices

KEY = jax.random.key(2)
W, K = 4, 4
NAN, INF = np.nan, np.inf
SGD = optax.sgd(0.1, momentum=0.5)


@functools.cache
def pairs(num_blocks=1):
    """Eight chunks, each on two of four workers."""
    matrix = np.arange(W)[None] - np.repeat(np.arange(W), 2)[:, None]
    assignment = assignments.order_chunks(assignments.from_matrix((matrix % W < 2).astype(int)))
    return codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)


class Time:
    """A clock that moves only when told to."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def pass_by(self, seconds):
        self.seconds += seconds

    def clock(self):
        return Clock(self.now, self.pass_by)


@functools.cache
def _programs(task, code, mesh):
    return (
        exchange.round_exchange(code, SGD, mesh),
        compiled_chunk_gradient(task, code.num_blocks),
        deadlines.compiled_completion(code),
    )


class Simulation:
    """W workers that know of each other only what they share."""

    def __init__(self, task, code, rule, speeds, max_residual=None, num_workers=W):
        self.task, self.code, self.speeds = task, code, speeds
        self.mesh = jax.sharding.Mesh(np.array(devices(num_workers)), ("workers",))
        self.between, gradient, completion = _programs(task._replace(data=None), code, self.mesh)
        residual_bound = training._residual_bound(code, rule, max_residual)
        self.times = [Time() for _ in range(num_workers)]
        init_key, self.batch_key = jax.random.split(KEY)
        self.params = task.init(init_key)
        self.workers = [
            worker_round.Worker(
                w, code, functools.partial(self.chunk, gradient, w), completion, rule, residual_bound, lambda *_: 0.0,
                self.times[w].clock(),
            )
            for w in range(num_workers)
        ]  # fmt: skip

    def chunk(self, gradient, worker, kept, params, slot, number):
        self.times[worker].pass_by(float(self.speeds(worker, number)))
        c = np.int32(self.code.assignment.chunks[worker, slot])
        return gradient(kept, params, self.task.data, self.batch_key, np.int32(slot), c, np.int32(number))

    def put(self, rows):
        return jax.device_put(rows, NamedSharding(self.mesh, PartitionSpec("workers")))

    def share(self, mine):
        rows = np.full((len(mine), self.code.assignment.load), NAN, np.float32)
        for w, seconds in enumerate(mine):
            rows[w, : len(seconds)] = seconds
        latest = max(time.seconds for time in self.times)
        for time in self.times:
            time.seconds = latest
        return jax.device_get(self.between.share_progress(self.put(rows)))

    def finish(self, parts):
        """All workers' parts of a round, in lockstep from one share to the next."""
        mine = [next(part) for part in parts]
        for _ in range(100):
            shared, ends, more = self.share(mine), [], []
            for part in parts:
                try:
                    more.append(part.send(shared))
                except StopIteration as end:
                    ends.append(end.value)
            if ends:
                assert len(ends) == len(parts), "some go on and some do not"
                return ends
            mine = more
        raise AssertionError("the round does not end")

    def run(self, num_rounds, checkpoints=None, identity="simulated"):
        so_far = saving.TrainingState(self.params, SGD.init(self.params), [])
        if checkpoints is not None:
            work = saved_progress.SavedProgress(checkpoints.label, num_rounds, checkpoints.on_disk)
            place = saving.Storage(checkpoints, identity, self.code, num_rounds, self.mesh, work)
            so_far = saving.restore(place, self.put_everywhere(so_far))
        params, opt_state, history = (*jax.device_get(so_far[:2]), so_far.history)
        kept = [training._zero_chunk_gradients(self.task, self.code, self.put_everywhere(params)) for _ in self.workers]
        for number in range(len(history), num_rounds):
            kept = jax.tree.map(lambda x: jnp.full_like(x, NAN), kept)  # what is not done must not matter
            begin = self.times[0].seconds
            ends = self.finish([
                worker_round.worker_round(worker, number, begin, history, params, kept[w])
                for w, worker in enumerate(self.workers)
            ])  # fmt: skip
            kept = [end.gradients for end in ends]
            all_kept = jax.tree.map(lambda *x: self.put(np.concatenate([np.asarray(v) for v in x])), *kept)
            params, opt_state, loss = self.between.update(params, opt_state, all_kept, ends[0].shared.progress)
            params, opt_state = jax.device_get((params, opt_state))
            history.append(records.Round(
                self.times[0].seconds - begin, ends[0].deadline, ends[0].extensions, ends[0].shared.progress,
                float(ends[0].shared.residual), float(loss), ends[0].shared.seconds.T,
            ))  # fmt: skip
            if checkpoints is not None:
                state = saving.TrainingState(*self.put_everywhere((params, opt_state)), history)
                saving.save(place, state, any_process_stops=False)
        return params, records.stack_rounds(history)

    def put_everywhere(self, tree):
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))


def engine_run(task, code, progress):
    """The engine's run for given progress int[E, W]."""
    progress = jnp.asarray(progress, jnp.int32)
    units = progress.shape[0] * code.assignment.load
    d = stragglers.sample_durations(stragglers.constant(), KEY, units, code.assignment.num_workers)
    base = protocols.coded(code, stop=stopping.all_workers())
    protocol = protocols.Protocol(
        lambda durations, network: base.schedule(durations, network)._replace(work=progress), code, lambda _: 0
    )
    return engine.run(task, protocol, SGD, d, rng_key=KEY)


def one_slow(worker, number):
    return 3.0 if worker == 1 else 1.0


def changing(worker, number):
    return 5.0 if worker == number % W else 1.0 + 0.01 * worker


def simulated(code, rule, speeds, num_rounds=6, num_workers=W, **kwargs):
    task = tasks.linear_regression(num_chunks=code.assignment.num_chunks, num_examples=40, num_features=3)
    return Simulation(task, code, rule, speeds, num_workers=num_workers, **kwargs).run(num_rounds)[1]
