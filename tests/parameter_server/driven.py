"""A server without threads: each event is dealt with before the next one, and workers compute when they are told to."""

import contextlib
import json
from functools import lru_cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import codes, parameter_server, protocols
from gcjax.codes import assignments
from gcjax.engine.gradients import unit_inputs
from gcjax.parameter_server import flight, stops, turn_log, wire
from gcjax.parameter_server.overlapping import push_message
from gcjax.parameter_server.overlapping_program import OverlappingProgram
from gcjax.parameter_server.server import _Event
from gcjax.parameter_server.wire import Message
from gcjax.parameter_server.worker_program import worker_program
from gcjax.parameter_server.worker_turns import Order
from gcjax.protocols.conformance.structure import check_structure
from gcjax.protocols.simulation.turns import FLOATS
from tests.parameter_server.runs import NUM_WORKERS, OPTIMIZER, replay, setup
from tests.protocols.test_rules import PROTOCOLS as RULES

CYCLIC = assignments.cyclic(NUM_WORKERS, load=2)
IN_BLOCKS = codes.partial(assignments.cyclic(NUM_WORKERS, load=3), num_blocks=2, rows="harmonic")
PROTOCOLS = {
    **RULES,
    "adaptive_coded": protocols.adaptive_coded(
        {"L=1": codes.partial(CYCLIC), "L=2": IN_BLOCKS},
        choose=lambda estimates: 1 - estimates.last_candidate,
    ),
    "coded": protocols.coded(codes.partial(CYCLIC)),
    "stsyn": protocols.stsyn(num_local_steps=2, num_waited=2),
    "stsyn of three": protocols.stsyn(num_local_steps=1, num_waited=3),
}
"""Those of the tests of rules, and some whose turns the server stops."""


class Connection:
    """What the server sends to a worker, in a list."""

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(Message(json.loads(json.dumps(message.header)), message.body))

    def close(self):
        pass


class Listener:
    """Nobody connects to it."""

    address, num_refused = "nowhere", 0

    def close(self):
        pass


@lru_cache
def _gradient_program(name, worker, is_x64):
    return worker_program(setup(PROTOCOLS[name]), worker)


SIZES = {"units": 160, "turns": 64, "commits": 64}


@lru_cache
def _record(name, num_contributions):
    """The program that writes down turns of the protocol."""
    rule = PROTOCOLS[name].rule(NUM_WORKERS)._replace(num_contributions=num_contributions)
    return turn_log.record_program(rule)


def padded_schedule_of(name, log, rule, end):
    """What `turn_log.schedule_of` gives, in arrays of the same sizes for all runs, so that they are compiled once."""
    dtype, num_units = jnp.result_type(float), SIZES["units"]
    turns = turn_log.turns_of(log, num_units, dtype)
    more = SIZES["turns"] - turns.first_unit.shape[0]
    fill = {"first_unit": num_units, "commit": -1, "version": -1, **dict.fromkeys(FLOATS, np.inf)}
    turns = turns._replace(
        **{
            field: np.pad(np.asarray(values), ((0, more), (0, 0)), constant_values=fill.get(field, 0))
            for field, values in turns._asdict().items()
        }
    )
    times = np.full(SIZES["commits"], np.inf, dtype)
    times[: len(log.commit_times)] = log.commit_times
    horizon = np.asarray(max([end, *log.commit_times]), dtype)
    seconds = np.asarray(turn_log.unit_seconds(log, num_units), dtype)
    return _record(name, turn_log.with_room_for_log(rule, log).num_contributions)(turns, seconds, times, horizon)


class Driven:
    """A run of a protocol, event by event."""

    def __init__(self, name, monkeypatch, *, num_commits=10_000, check=False, **limits):
        monkeypatch.setattr(flight, "listen", lambda *args, **options: Listener())
        monkeypatch.setattr(turn_log, "schedule_of", partial(padded_schedule_of, name))
        self.name, self.setup = name, setup(PROTOCOLS[name])
        limits = parameter_server.Limits(num_commits, **{"min_workers": 1, "lease": 1000.0, **limits})
        self.server = parameter_server.Server(self.setup, limits, check=check)
        self.layout = self.server._commits.updates.layout
        self.connections: dict[int, Connection] = {}
        self.units: dict[int, list[int]] = {}  # the turn that each worker is in, and its units
        self.last_pushed: dict[int, int] = {}
        self.incarnations = {worker: f"first {worker}" for worker in range(NUM_WORKERS)}
        self.pushed: dict[int, list[Any]] = {worker: [] for worker in range(NUM_WORKERS)}
        is_local = PROTOCOLS[name].local is not None
        self.programs = {
            worker: worker_program(self.setup, worker)
            if is_local
            else _gradient_program(name, worker, jax.config.jax_enable_x64)
            for worker in range(NUM_WORKERS)
        }

    def deal(self, connection, message):
        self.server._events.put(_Event(connection, message))
        self.server._handle_next_event()

    def join(self, worker, last_turn=-1):
        """The worker connects, if it is not there; it says which turn it has begun last."""
        if worker in self.connections:
            return
        connection = self.connections[worker] = Connection()
        hello = {
            "kind": "hello",
            "worker": worker,
            "incarnation": self.incarnations[worker],
            "fingerprint": self.server._members.fingerprint,
            "last_turn": last_turn,
        }
        self.deal(connection, Message(hello))
        self.deal(connection, Message({"kind": "ready"}))

    def leave(self, worker):
        """The worker's connection is lost, if it has one."""
        if worker in self.connections:
            self.deal(self.connections.pop(worker), None)
            if isinstance(self.programs[worker], OverlappingProgram):
                self.programs[worker].give_up_turn()

    def kill(self, worker):
        """The worker is lost; the next that joins with its number is another process."""
        self.leave(worker)
        self.incarnations[worker] += " killed"

    def silence(self, worker):
        """Nothing is heard of the worker for longer than its lease; its connection stays."""
        server = self.server
        if worker in self.connections and server._coordinator.rule_state.alive[worker]:
            now = server._clock.now()
            server._members.note_all_heard(now)
            server._members.note_heard(worker, now - server._limits.lease)
            server._end_leases(now)

    def impatience(self, worker):
        """Whoever has been stopped and has not answered is not waited for any longer than it must be."""
        coordinator = self.server._coordinator
        if np.isfinite(coordinator._stops.answer_deadline):
            coordinator._stops._request_time = coordinator._stops._last_answer_time = -2 * stops.MIN_PATIENCE
            coordinator.handle_timers()

    def orders(self, worker):
        """The orders of the worker's connection that it has not answered."""
        connection = self.connections.get(worker)
        return [m for m in connection.sent if m.kind == "begin"] if connection else []

    def push(self, worker, is_finite=True):
        """The worker computes what it was told last, and pushes it."""
        orders = self.orders(worker)
        if not orders:
            return
        if self.setup.rule().overlaps:
            self.push_overlapping(worker, orders, is_finite)
            return
        order, connection, program = orders[-1], self.connections[worker], self.programs[worker]
        done = self.pushed[worker]
        if order.header["last_arrived_turn"] != (done[-1].header["turn"] if done else -1):
            program.give_up_turn()
        if order.header["begins_anew"]:
            program.begin_anew()
        for message in orders:  # parameters that came with an order that was cut off are not the newest ones
            connection.sent.remove(message)
        params = [m.body for m in orders if m.body is not None]
        program.begin(wire.from_bytes(params[-1], self.layout) if params else None)
        first, count = order.header["first_unit"], order.header["num_units"]
        losses = [float(program.compute(unit).loss) for unit in range(first, first + count)]
        version_params = None
        if order.header["pulls_before_push"]:
            self.deal(connection, Message({"kind": "pull", "turn": order.header["turn"]}))
            answers = [m for m in connection.sent if m.kind == "params"]
            if not answers:
                program.give_up_turn()
                return
            connection.sent.remove(answers[-1])
            version_params = wire.from_bytes(answers[-1].body, self.layout)
        body = wire.to_bytes(program.push_tree(version_params, order.header["weight"]))
        now = self.server._clock.now()
        header = {
            "kind": "push",
            "turn": order.header["turn"],
            "loss": float(np.mean(losses)),
            "is_finite": is_finite,
            "num_lost": 0,
        }
        times = {"compute_start": now, "unit_ends": [now] * count, "send_start": now}
        message = Message({**header, **times}, body)
        self.pushed[worker].append(message)
        self.deal(connection, message)

    def unit(self, worker):
        """The worker does one unit more: it reports it where turns are stopped, or is under way beside its messages."""
        program = self.programs[worker]
        if isinstance(program, OverlappingProgram):
            if worker in self.connections and program.has_job:
                job = program.job()
                assert program.finish(job, *program.gradient(job))
            return
        orders = self.orders(worker)
        if not orders:
            return
        order, done = orders[-1].header, self.units.setdefault(worker, [-1, 0])
        if done[0] != order["turn"]:
            if order["last_arrived_turn"] != self.last_pushed.get(worker, -1) or done[0] > self.last_pushed.get(
                worker, -1
            ):
                self.programs[worker].give_up_turn()  # what it pushed was dropped, or its turn was cut off
            params = orders[-1].body
            if self.setup.protocol.code is not None:
                self.programs[worker].set_row(order["code_row"])
            self.programs[worker].begin(None if params is None else wire.from_bytes(params, self.layout))
            done[:] = order["turn"], 0
        if done[1] == order["num_units"]:
            return
        loss = float(self.programs[worker].compute(order["first_unit"] + done[1]).loss)
        done[1] += 1
        now = self.server._clock.machine_time()
        header = {"kind": "unit", "turn": order["turn"], "compute_start": now, "unit_end": now, "loss": loss}
        self.deal(self.connections[worker], Message(header))

    def bad(self, worker):
        """The worker pushes what is not finite, if it has been asked for a push."""
        self.answer(worker, is_finite=False)

    def answer(self, worker, is_finite=True):
        """The worker pushes what it has done, if it has been asked for it."""
        connection = self.connections.get(worker)
        requests = [m for m in connection.sent if m.kind == "stop"] if connection else []
        done = self.units.get(worker)
        if not requests or requests[-1].header["turn"] != done[0]:
            return
        connection.sent[:] = [m for m in connection.sent if m.kind != "stop"]
        program, stop = self.programs[worker], requests[-1].header
        is_coded = self.setup.protocol.code is not None
        tree = program.coded_messages(stop["num_units"], stop["encode"]) if is_coded else program.push_tree(None, 0.0)
        body, now = wire.to_bytes(tree), self.server._clock.machine_time()
        header = {
            "kind": "push",
            "turn": done[0],
            "stop_number": requests[-1].header["stop_number"],
            "loss": 0.0,
            "is_finite": is_finite,
        }
        times = {"compute_start": now, "unit_ends": [now] * done[1], "send_start": now, "num_lost": 0}
        self.last_pushed[worker] = done[0]
        self.deal(connection, Message({**header, **times}, body))

    def push_overlapping(self, worker, orders, is_finite):
        """The worker deals with what it was told, and pushes, after a unit if none is done."""
        connection, program = self.connections[worker], self.programs[worker]
        pushes = []
        for message in orders:
            connection.sent.remove(message)
            params = None if message.body is None else wire.from_bytes(message.body, self.layout)
            pushes.append(program.begin(Order.of(message), params))
        if pushes[-1] is None:
            self.unit(worker)
            pushes.append(program.push())
        for push in filter(None, pushes):
            message = push_message(push, 0.0)
            header = {**message.header, "is_finite": is_finite}
            self.pushed[worker].append(Message(header, message.body))
            self.deal(connection, self.pushed[worker][-1])

    def repeat(self, worker, back=1):
        """The worker sends an old push again."""
        if worker in self.connections and len(self.pushed[worker]) >= back:
            self.deal(self.connections[worker], self.pushed[worker][-back])

    def end(self):
        self.server.stop()
        return self.server.run()


def problems(name, run):
    """By name, what finds that a run is not what it must be: "structure", "promise", "replay"."""
    found, protocol = {}, PROTOCOLS[name]
    with _reported(found, "structure"):
        check_structure(run.schedule, protocol)
    specification = protocol.specification(NUM_WORKERS)
    if specification.members is not None:
        with _reported(found, "promise"):
            kept = protocols.check(run.schedule, specification, memberships=run.memberships)
            assert kept, str(kept)
    with _reported(found, "replay"):
        is_plain = protocol.local is None and protocol.code is None
        params = replay(protocol, run).params if not is_plain else plain_replay(name, run.schedule)
        chex.assert_trees_all_close(run.params, params, rtol=1e-9, atol=1e-12)
    return found


@contextlib.contextmanager
def _reported(found, name):
    """Puts an error of the block into the dict."""
    try:
        yield
    except (ValueError, AssertionError) as error:
        found[name] = str(error)[:600]


@lru_cache
def _gradient():
    """The gradient on a unit of a worker."""
    task, key = setup(PROTOCOLS["asp"]).task, setup(PROTOCOLS["asp"]).batch_key

    def gradient(params, worker, unit):
        return jax.grad(task.loss)(params, *unit_inputs(task, task.data, key, worker, unit))

    return jax.jit(gradient)


def plain_replay(name, schedule):
    """The parameters that the record leads to, commit by commit, where workers push gradients."""
    versions, one = [setup(PROTOCOLS[name]).initial_params()], setup(PROTOCOLS[name])
    state, host = OPTIMIZER.init(versions[0]), jax.device_get(schedule)
    for commit in range(int(np.isfinite(host.time).sum())):
        total = jax.tree.map(np.zeros_like, versions[0])
        for c in np.flatnonzero(host.worker[commit] >= 0):
            worker, unit, weight = (x[commit, c] for x in (host.worker, host.unit, host.weight))
            at = versions[host.version[commit, c]]
            gradient = _gradient()(at, np.int32(worker), np.int32(unit))
            total = jax.tree.map(lambda x, y, weight=weight: x + weight * np.asarray(y), total, gradient)
        updates, state = one.optimizer.update(total, state, versions[-1])
        versions.append(optax.apply_updates(versions[-1], updates))
    return versions[-1]
