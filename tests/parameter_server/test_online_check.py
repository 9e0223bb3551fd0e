"""The check while a run goes on: it holds the same events in the same order as the check of the whole record."""

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gcjax import codes, parameter_server, protocols
from gcjax.codes import assignments
from gcjax.parameter_server import ViolationError, online_check
from gcjax.parameter_server.recovery import FOLDER
from gcjax.parameter_server.saved_log import FILE_NAME
from gcjax.parameter_server.setups import Setup
from gcjax.protocols.conformance.events import events
from gcjax.protocols.conformance.memberships import events_with_members
from gcjax.protocols.conformance.trace_validation import Validation, kinds_of
from gcjax.specifications import with_members
from gcjax.specifications.events import COMMIT, KINDS, Event
from tests.parameter_server.driven import Driven
from tests.parameter_server.runs import NUM_WORKERS, live_run, setup
from tests.parameter_server.test_chaos import EVENTS
from tests.protocols.test_rules import PROTOCOLS

FIELDS = {
    **{f"event.{name}": lambda trace, name=name: getattr(trace.event, name) for name in Event._fields},
    **{
        name: lambda trace, name=name: getattr(trace, name)
        for name in ("time", "is_premature", "recorded_unit", "is_absent")
    },
}
MANY = [(kind, worker) for kind in ["push"] * 9 + ["leave", "push", "join"] for worker in (0, 1, 0, 2, 0, 3)]


def held(name, changes, patch, **limits):
    """The traces that a run holds against its specification, one after the other, and what the run returns."""
    traces, replay = [], Validation.replay

    def noting(validation, trace):
        traces.append(trace)
        return replay(validation, trace)

    patch.setattr(Validation, "replay", noting)
    patch.setattr(online_check, "MAX_COMMITS", 2)
    run = Driven(name, patch, check=True, min_workers=NUM_WORKERS, **limits)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for kind, worker in changes:
        getattr(run, kind)(worker)
    result = run.end()
    patch.setattr(Validation, "replay", replay)
    return traces, result


def assert_same_events(name, traces, run):
    """What was held is all that the record shows, up to the end of the promise."""
    specification = PROTOCOLS[name].specification(NUM_WORKERS)
    if specification.members is None:
        whole = events(run.schedule, kinds_of(specification))
        if "does not say" in run.check_text:
            change = online_check._first_change(run.memberships).time
            assert all(trace.time.max(initial=0) < change for trace in traces)
            whole = _first_events(whole, sum(trace.time.size for trace in traces))
    else:
        whole = events_with_members(run.schedule, kinds_of(with_members(specification)), run.memberships)
    num_events = whole.time.size
    assert sum(trace.time.size for trace in traces) == num_events
    several = (whole.event.kind == KINDS.index(COMMIT)) & (whole.event.size > 1)  # whose unit nobody looks at
    for field, of in FIELDS.items():
        if (expected := of(whole)) is not None:
            rows = ~several if field.endswith("unit") else slice(None)
            parts = np.concatenate([np.empty(0), *map(of, traces)])
            np.testing.assert_array_equal(parts[rows], expected[rows], err_msg=field)


def _first_events(trace, count):
    """The first events of a trace."""
    return jax.tree.map(lambda x: x[:count] if np.ndim(x) else x, trace)


QUICK = ("ssp",)
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in sorted(PROTOCOLS)]


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_the_events_of_the_whole_record(name, monkeypatch):
    with jax.enable_x64(True):
        traces, run = held(name, MANY, monkeypatch)
        assert_same_events(name, traces, run)
    assert len(traces) > 2 and "keep to" in run.check_text


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_it_holds_the_same_events_whatever_happens(name):
    @settings(max_examples=4, suppress_health_check=list(HealthCheck))
    @given(EVENTS)
    def holds(changes):
        with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
            assert_same_events(name, *held(name, changes, patch))

    holds()


def test_a_protocol_without_a_specification_is_refused():
    protocol = PROTOCOLS["asp"].replace(specification=None)
    with pytest.raises(ValueError, match=r"check=True .* this protocol has none. Use check=False"):
        parameter_server.Server(setup(protocol), parameter_server.Limits(1), check=True)


@pytest.mark.slow
def test_where_nothing_is_promised_if_workers_leave_it_says_up_to_when_it_has_looked(monkeypatch):
    changes = [*[("push", w) for w in (0, 1, 2, 3)] * 8, ("leave", 1), *[("push", w) for w in (0, 2, 3)] * 4]
    with jax.enable_x64(True):
        _, run = held("psp", changes, monkeypatch)
    assert "all that was committed before worker 1 left at" in run.check_text
    assert "does not say what it promises" in run.check_text and run.check_seconds > 0


@pytest.mark.slow
def test_a_violation_ends_the_run_and_the_folder_stays(monkeypatch, tmp_path):
    monkeypatch.setattr(Setup, "rule", lambda setup: protocols.ssp(staleness=3).rule(NUM_WORKERS))
    with pytest.raises(ViolationError, match=r"worker \d: .* is not a step that the worker guarantees") as raised:
        live_run(PROTOCOLS["ssp"], 200, checkpoints=tmp_path, check=True)
    assert raised.value.conformance.violated == "guarantee"
    log = (tmp_path / FILE_NAME).read_text()
    commits = log.count('{"commit"')
    assert 1 <= commits < 200 and (tmp_path / FOLDER / str(commits)).is_dir()


LIVE = {
    "bsp": protocols.bsp(),
    "adacomm": protocols.adacomm(num_local_steps=3, seconds=0.1, num_windows=3),
    "anytime_minibatch": protocols.anytime_minibatch(seconds=0.01),
    "coded": protocols.coded(codes.partial(assignments.cyclic(4, load=2))),
    "coded whole workers": protocols.coded(codes.cyclic_mds(4, num_stragglers=1)),
    "stsyn": protocols.stsyn(num_local_steps=2, num_waited=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIVE))
def test_a_live_run_is_checked_as_it_goes_on(name, monkeypatch):
    monkeypatch.setattr(online_check, "MAX_COMMITS", 4)
    specification = LIVE[name].specification(NUM_WORKERS)
    with jax.enable_x64(True):
        run, _ = live_run(LIVE[name], 20, check=True)
        memberships = run.memberships if specification.members is not None else None
        assert run.check_text == str(protocols.check(run.schedule, specification, memberships=memberships))


@pytest.mark.slow
def test_a_server_that_goes_on_is_checked_from_the_beginning_of_its_log(tmp_path):
    protocol = PROTOCOLS["ssp"]
    with jax.enable_x64(True):
        live_run(protocol, 8, checkpoints=tmp_path)
        run, _ = live_run(protocol, 20, checkpoints=tmp_path, check=True)
        specification = protocol.specification(NUM_WORKERS)
        assert len(run.loss) == 20 and sum("started again" in m.why for m in run.memberships) == NUM_WORKERS
        assert run.check_text == str(protocols.check(run.schedule, specification, memberships=run.memberships))
