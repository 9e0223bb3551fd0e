"""Advice on small traces of which the right answer can be computed by hand."""

import functools
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gcjax
from gcjax import protocols
from gcjax.advice import batches, evaluation, page, simulation
from gcjax.advice.advise import _default_schemes, _sample, advise
from gcjax.advice.base import APPROXIMATE, CODED, EXACT, LOCAL, STALE, Scheme
from gcjax.advice.blocks import correlated_steps, default_block_steps, drawn_block_counts, first_steps, steps_of_blocks
from gcjax.advice.coded_schemes import first_level_seconds
from gcjax.advice.schemes import NEEDS_TASK, PARTS, SAME_TIMES, default_schemes, scheme_rows
from gcjax.advice.windows import Ramp, WholeRounds, Window
from gcjax.codes import assignments, stopping

NUM_WORKERS = 4
SLOW = 1.5


@functools.cache
def few():
    return {
        "asp": protocols.asp(),
        "ssp": protocols.ssp(staleness=3),
        "k_sync": protocols.k_sync(num_contributions=3),
        "local_sgd": protocols.local_sgd(num_local_steps=4),
        "repetition": protocols.coded(gcjax.codes.fractional_repetition(NUM_WORKERS, num_stragglers=1)),
        "partial": protocols.coded(gcjax.codes.partial(assignments.cyclic(NUM_WORKERS, load=2))),
        "by speed": protocols.coded(
            gcjax.codes.heterogeneous((3, 3, 3, 2), num_chunks=11, num_stragglers=0, rng_key=jax.random.key(0))
        ),
    }


def one_slow_worker(slow=SLOW, num_steps=64):
    """float[T, W]: a second for each step, but for the last worker."""
    seconds = np.ones((num_steps, NUM_WORKERS))
    seconds[:, -1] = slow
    return seconds


@pytest.fixture(scope="module")
def slow_worker_advice():
    """The advice on a trace with one persistent slow worker."""
    return advise(one_slow_worker(), schemes=few())


def row(advice, name):
    """What is said of the scheme of a name."""
    return next(row for row in advice.schemes if row.scheme.name == name)


def test_seconds_with_one_slow_worker_are_those_of_theory(slow_worker_advice):
    expected = {
        "bsp": SLOW,
        "asp": NUM_WORKERS / (3 + 1 / SLOW),  # everybody at its own rate
        "ssp": SLOW,  # once the others are three steps ahead, they wait for it
        "k_sync": NUM_WORKERS / 3,  # three gradients a second
        "local_sgd": SLOW,
        "repetition": 2.0,  # one of each pair must do two chunks
        "partial": SLOW,  # chunk 3 is first at worker 3, after 1.5 s, and second at worker 2, after 2 s
        "by speed": NUM_WORKERS * 3 / 11,  # three of 11 chunks each, two of them for the slow worker
    }
    for name, seconds in expected.items():
        assert row(slow_worker_advice, name).seconds.value == pytest.approx(seconds, rel=2e-3), name


def test_what_is_won_back_is_the_share_of_what_stragglers_cost(slow_worker_advice):
    assert slow_worker_advice.cost.value == pytest.approx(1 / 3)
    assert slow_worker_advice.bsp_seconds.value == pytest.approx(SLOW)
    assert slow_worker_advice.median_seconds.value == pytest.approx(1.0)
    assert row(slow_worker_advice, "k_sync").won_back.value == pytest.approx(1 / 3, abs=1e-3)
    assert row(slow_worker_advice, "repetition").won_back.value == pytest.approx(-1.0, abs=1e-3)
    assert row(slow_worker_advice, "bsp").won_back.value == pytest.approx(0.0, abs=1e-6)


def test_waiting_waste_messages_and_staleness_are_those_of_theory(slow_worker_advice):
    bsp, asp, k_sync = (row(slow_worker_advice, name) for name in ("bsp", "asp", "k_sync"))
    repetition = row(slow_worker_advice, "repetition")
    assert bsp.waiting.value == pytest.approx(0.25)  # three workers wait for half a second of 1.5
    assert asp.waiting.value == pytest.approx(0.0, abs=1e-3)
    assert k_sync.wasted.value == pytest.approx(1 - 3 / (3 + 1 / SLOW))  # two thirds of a unit are cut off
    # Every round the pairs do 2 + 2 and 2 + 4/3 chunks, for 4 different ones; messages come from three workers.
    assert repetition.wasted.value == pytest.approx(1 - 4 / (6 + 4 / 3), abs=1e-5)
    assert repetition.redundant.value == pytest.approx((7 - 4) / (6 + 4 / 3), abs=1e-5)
    assert repetition.messages.value == pytest.approx(3 / 4)
    assert [x.messages.value for x in (bsp, asp)] == pytest.approx([1, 1], rel=1e-2)
    assert row(slow_worker_advice, "local_sgd").messages.value == pytest.approx(1 / 4)
    assert bsp.max_staleness == 0 and 1 < asp.mean_staleness.value < asp.max_staleness


def frc(num_chunks=NUM_WORKERS):
    """Pairs of workers with the same chunks."""
    return gcjax.codes.fixed_code(
        gcjax.codes.Assignment(np.arange(num_chunks).reshape(2, -1).repeat(2, axis=0).astype(np.int32), num_chunks),
        np.ones((NUM_WORKERS, num_chunks // 2)),
        completion=lambda arrivals: jnp.maximum(arrivals[:2].min(), arrivals[2:].min()),
    )


def test_a_pipelined_commit_counts_all_that_it_applies():
    """Each second a commit of three messages with both chunks of a pair; the slow worker's are always late."""
    schemes = {
        "decodable": protocols.pipelined_coded(frc()),
        "three": protocols.pipelined_coded(frc(), wait_for=3),
        "one chunk each": protocols.pipelined_coded(frc(num_chunks=2)),  # units of two seconds, and of three
    }
    advice = advise(one_slow_worker(), schemes=schemes)
    for name in ("decodable", "three"):
        scheme = row(advice, name)
        assert scheme.seconds.value == pytest.approx(1.0, rel=2e-3), name
        assert scheme.mean_staleness.value == pytest.approx(0.5, abs=1e-6) and scheme.max_staleness == 1
        assert scheme.wasted.value == pytest.approx(1 - 3 / (3 + 1 / SLOW), abs=2e-3)  # never in any commit
        assert scheme.redundant.value == pytest.approx(0, abs=1e-6)
        assert scheme.messages.value == pytest.approx((3 + 1 / SLOW) / 4, rel=1e-2)
        assert scheme.exactness == STALE
    one = row(advice, "one chunk each")
    assert one.seconds.value == pytest.approx(2.0, rel=2e-3) and one.max_staleness == 0
    assert one.redundant.value == pytest.approx((3 - 2) / (3 + 1 / SLOW), abs=2e-3)
    assert one.wasted.value == pytest.approx(1 - 2 / (3 + 1 / SLOW), abs=2e-3)


def test_a_pipelined_commit_of_few_messages_has_only_their_chunks():
    """The first message of four is that of the same worker each time, with two of four chunks."""
    seconds = np.tile([1.0, 1.2, 1.4, 1.6], (64, 1))
    scheme = row(advise(seconds, schemes={"one": protocols.pipelined_coded(frc(), wait_for=1)}), "one")
    assert scheme.seconds.value == pytest.approx(2.0, rel=2e-3)
    assert scheme.mean_staleness.value == pytest.approx(0.5, abs=1e-6)


def test_schemes_are_told_by_what_they_compute(slow_worker_advice):
    classes = {"bsp": EXACT, "asp": STALE, "ssp": STALE, "k_sync": APPROXIMATE, "local_sgd": LOCAL, "partial": CODED}
    assert {name: row(slow_worker_advice, name).exactness for name in classes} == classes


def test_the_verdict_names_the_best_of_each_class_and_what_needs_a_task(slow_worker_advice):
    first, same, other = slow_worker_advice.verdict.split("\n")
    assert first == "Stragglers cost 33 % [33, 33] of BSP's time."
    assert same.startswith("With the same gradient: by speed wins back 82 % [82, 82]")
    assert "asp 82 % [82, 82] (stale)" in other and "k_sync 33 % [33, 33] (approximate)" in other
    assert "needs your task" in other and "ssp" not in other


def test_the_verdict_names_who_cannot_be_told_from_the_best_of_a_class():
    schemes = {"asp": protocols.asp(), "of one": protocols.k_batch_async(num_contributions=1)}
    advice = advise(np.tile([1.0, 1.0, 1.0, 3.0], (64, 1)), schemes=schemes)
    first, second = (row.scheme.label for row in advice.schemes if row.exactness == STALE)
    assert f"With other gradients: {first} 9" in advice.verdict
    assert f"(stale; indistinguishable from it: {second})" in advice.verdict


def test_schemes_are_sorted_and_the_best_are_told_from_the_rest(slow_worker_advice):
    seconds = [row.seconds.value for row in slow_worker_advice.schemes]
    assert seconds == sorted(seconds)
    best, *others = slow_worker_advice.schemes
    assert best.is_best and not any(row.is_best for row in others)
    assert {row.scheme.name for row in slow_worker_advice.schemes if row.is_indistinguishable} == {"asp", "by speed"}


def test_where_nobody_is_slow_there_is_nothing_to_win_back():
    seconds = 1 + 0.005 * np.random.default_rng(0).random((64, NUM_WORKERS))
    advice = advise(seconds, schemes={"asp": protocols.asp()})
    assert advice.verdict.startswith("Nothing to win back: stragglers cost 0.2 % [0.1, 0.2] of BSP's time")


def test_where_a_trace_is_too_short_it_cannot_tell():
    seconds = np.ones((64, NUM_WORKERS))
    seconds[40, 1] = 8.0  # one slow step, which many bootstraps do not draw
    advice = advise(seconds, schemes={"asp": protocols.asp()})
    assert advice.verdict.startswith("Cannot tell whether there is anything to win back: stragglers cost 9.9 % [0.0,")


def test_where_the_best_cannot_be_told_from_bsp_it_says_so():
    seconds = 1 + np.random.default_rng(4).exponential(size=(64, NUM_WORKERS)) / 4
    seconds[20:24, :2] += 4.0  # a spell of two workers, which two copies of each chunk make shorter
    advice = advise(seconds, schemes={"partial": few()["partial"]})
    assert row(advice, "partial").is_best and row(advice, "bsp").is_indistinguishable
    assert "cannot tell whether any scheme is faster than BSP; partial wins back" in advice.verdict


def test_a_step_that_passes_is_won_back_by_what_does_not_wait_for_it():
    seconds = np.ones((64, NUM_WORKERS))
    seconds[np.arange(64), np.arange(64) % NUM_WORKERS] = 2.0  # each step another worker takes two seconds
    advice = advise(seconds, schemes=few())
    assert row(advice, "asp").won_back.value == pytest.approx(0.75, abs=5e-3)  # 5/4 s a step
    assert row(advice, "ssp").won_back.value == pytest.approx(0.75, abs=5e-3)  # three steps are slack enough
    assert row(advice, "k_sync").won_back.value == pytest.approx(2 / 3, abs=1e-3)


def test_equal_schemes_are_indistinguishable():
    seconds = 1 + np.random.default_rng(1).exponential(size=(64, NUM_WORKERS))
    schemes = {"k_sync": protocols.k_sync(num_contributions=3), "backup": protocols.backup_workers(num_backup=1)}
    advice = advise(seconds, schemes=schemes)
    rows = [row(advice, name) for name in schemes]
    assert all(row.is_indistinguishable for row in rows) and not row(advice, "bsp").is_indistinguishable
    assert rows[0].seconds == rows[1].seconds


def test_blocks_of_rounds_add_up_to_the_schedule_of_the_bootstrap_itself():
    seconds = np.random.default_rng(2).gamma(2.0, size=(48, NUM_WORKERS))
    first, block_steps = first_steps(48, 8), 8
    counts = drawn_block_counts(np.random.default_rng(3), 1, len(first), 48, block_steps)[0]
    drawn = np.repeat(np.arange(len(first)), counts.astype(int))
    bootstrap = seconds[steps_of_blocks(first, 48, warmup_steps=0, block_steps=block_steps)[drawn].ravel()]  # [T, W]
    for protocol in (few()["repetition"], few()["local_sgd"]):
        scheme = Scheme("it", "", protocol)
        repeats, part = batches.units_of_measured_step(scheme, NUM_WORKERS)
        schedule = protocol(np.repeat(bootstrap * part, repeats, axis=0).astype(np.float32))
        end = np.max(schedule.time, where=np.isfinite(schedule.time), initial=0)
        sums = simulation.block_sums(scheme, seconds, first, block_steps)
        assert counts @ sums.seconds == pytest.approx(float(end), rel=1e-5)


@pytest.mark.slow
def test_blocks_behind_a_warm_up_are_as_a_long_run():
    seconds = np.random.default_rng(4).gamma(2.0, size=(400, NUM_WORKERS))
    elastic = protocols.elastic_averaging(num_local_steps=4)
    for protocol in (few()["ssp"], protocols.k_async(num_contributions=3), protocols.worker_busy(), elastic):
        schedule = protocol(np.tile(seconds, (5, 1)).astype(np.float32))
        happens = np.asarray(schedule.time <= schedule.horizon)
        work = np.where(happens[:, None], np.asarray(schedule.work).clip(0), 0).sum() / NUM_WORKERS
        long_run = float(np.asarray(schedule.time)[happens].max()) / work
        advice = advise(seconds, schemes={"it": protocol})
        assert row(advice, "it").seconds.value == pytest.approx(long_run, rel=0.01)


def test_programs_are_compiled_once_ahead_of_the_schemes():
    seconds = np.random.default_rng(8).gamma(2.0, size=(72, 5))
    compilations = []

    def note(name, seconds, **facts):
        if name.endswith("backend_compile_duration") and "_sums" in str(facts.get("fun_name")):
            compilations.append(threading.current_thread().name)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        first = advise(seconds, schemes={"asp": protocols.asp()}, num_bootstraps=20)
        assert len(compilations) == 2 and all(name.startswith("gcjax-advice") for name in compilations)
        again = advise(seconds, schemes={"asp": protocols.asp()}, num_bootstraps=20)
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert len(compilations) == 2 and str(first) == str(again)


@pytest.mark.slow
def test_what_is_wasted_is_never_less_than_nothing():
    seconds = np.random.default_rng(9).gamma(2.0, size=(64, NUM_WORKERS))
    advice = advise(seconds, schemes={"asp": protocols.asp(), "k_async": protocols.k_async(num_contributions=3)})
    assert all(0 <= row.wasted.low <= row.wasted.high < 0.05 for row in advice.schemes)


def test_the_cost_of_both_halves_is_said():
    seconds = np.ones((64, NUM_WORKERS))
    seconds[32:, 0] = 2.0
    advice = advise(seconds, schemes={})
    assert advice.cost_of_halves == (0.0, 0.5) and page.advice_json(advice)["cost_of_halves"] == [0.0, 0.5]
    assert "Stragglers cost 0.0 % in its first half, 50 % in its second." in str(advice)


@pytest.mark.slow
def test_batches_of_blocks_give_the_same_as_all_at_once(monkeypatch):
    scheme = Scheme("asp", "", protocols.asp())
    seconds = np.random.default_rng(5).gamma(2.0, size=(40, 3))
    at_once = simulation.block_sums(scheme, seconds, first_steps(40, 16), 16)
    monkeypatch.setattr(batches, "_MAX_ENTRIES", 7 * 50 * 3)  # 7 of 40 blocks, which does not divide
    in_batches = simulation.block_sums(scheme, seconds, first_steps(40, 16), 16)
    np.testing.assert_allclose(at_once, in_batches, rtol=1e-6)
    assert batches.batches_of_blocks(scheme, seconds.shape, first_steps(40, 16), 16).blocks_per_batch == 7


@pytest.mark.slow
def test_the_warmup_of_rounds_that_overlap_is_longer_than_these():
    seconds = np.random.default_rng(0).exponential(size=(256, 4)) + 0.5
    jobs = protocols.m_sgc(4, burst=1, window=12, max_slow=1)
    short, long = (advise(seconds, schemes={"m_sgc": jobs}, block_steps=steps).schemes for steps in (8, 32))
    (in_short,), (in_long,) = ([row for row in rows if row.scheme.name == "m_sgc"] for rows in (short, long))
    assert in_short.seconds.value == pytest.approx(in_long.seconds.value, rel=0.015)
    assert in_short.mean_staleness.value == pytest.approx(in_long.mean_staleness.value, rel=0.01)


@pytest.mark.slow
def test_workers_whose_steps_take_no_time_for_a_while_have_finite_seconds():
    seconds = one_slow_worker()
    seconds[10:18, 0] = 0.0
    advice = advise(seconds, schemes={"asp": protocols.asp(), "H=40": protocols.async_local_sgd(num_local_steps=40)})
    assert all(np.isfinite(value) and value > 0 for row in advice.schemes for value in row.seconds)


@pytest.mark.slow
def test_a_short_warmup_is_as_long_as_the_window_needs():
    seconds = np.random.default_rng(6).gamma(4.0, size=(64, 3))
    short, none = (Scheme("bsp", "", protocols.bsp(), warmup_steps=number) for number in (1, 0))
    assert (batches.num_warmup_steps(short, 3, 16), batches.num_warmup_steps(none, 3, 16)) == (2, 0)
    with_ramps, whole = (simulation.block_sums(scheme, seconds, first_steps(64, 16), 16) for scheme in (short, none))
    for sums in (with_ramps, whole):
        assert sums.seconds.sum() / sums.effective_steps.sum() == pytest.approx(seconds.max(axis=1).mean(), rel=1e-5)


def test_schemes_whose_schedules_would_be_too_large_are_left_out(monkeypatch):
    groups = Scheme("progressive_groups", "", protocols.progressive_groups())
    shape, blocks = (64, 1000), (np.arange(64), 16)
    with pytest.raises(ValueError, match="record of 1000 workers in a block of 16 steps .* 40 million entries, and"):
        batches.batches_of_blocks(groups, shape, *blocks)
    assert batches.batches_of_blocks(Scheme("asp", "", protocols.asp()), shape, *blocks).blocks_per_batch > 50
    monkeypatch.setattr(batches, "_MAX_ENTRIES_OF_BLOCK", 1)
    with pytest.raises(ValueError, match="scheme 'bsp': the record of 4 workers"):
        advise(one_slow_worker(), schemes={"asp": protocols.asp()})
    _, left_out = _default_schemes(one_slow_worker(), _sample(one_slow_worker(), 20, 8, 0))
    assert left_out["asp"].startswith("the record of 4 workers in a block of 8 steps")


def test_every_protocol_and_code_is_tried_or_left_out_with_a_reason():
    tried = {name for name, _, _ in scheme_rows(np.ones((16, 12)))}
    assert tried | set(SAME_TIMES) | set(NEEDS_TASK) | set(PARTS) == {*protocols.TABLE, *gcjax.codes.TABLE}
    assert len(tried) + len(SAME_TIMES) + len(NEEDS_TASK) + len(PARTS) == len(protocols.TABLE) + len(gcjax.codes.TABLE)


@pytest.mark.slow
def test_default_schemes_that_do_not_exist_for_so_many_workers_are_left_out():
    schemes, left_out = default_schemes(np.random.default_rng(6).gamma(20.0, size=(16, 12)))
    assert len({(scheme.name, scheme.setting) for scheme in schemes}) == len(schemes) == 47
    assert set(left_out) - set(SAME_TIMES) - set(NEEDS_TASK) - set(PARTS) == {"bibd"}  # there is none for 12 workers


@pytest.mark.slow
def test_codes_by_speed_wait_for_as_many_workers_as_they_need():
    seconds = np.random.default_rng(7).gamma(4.0, size=(16, 6))
    schemes, _ = default_schemes(seconds, names=("heterogeneous",))
    assert len(schemes) == 2
    for scheme in schemes:
        repeats, part = batches.units_of_measured_step(scheme, 6)
        durations = np.repeat(seconds * part, repeats, axis=0).astype(np.float32)
        waits, decodes = scheme.protocol(durations), protocols.coded(scheme.protocol.code)(durations)
        np.testing.assert_allclose(waits.time, decodes.time, rtol=1e-5)
        assert evaluation.exactness(scheme, 6, has_uneven_commits=lambda: True) == CODED


def test_a_level_decodes_when_all_but_its_stragglers_have_its_chunks():
    code = gcjax.codes.coded_multi_message(4, levels=(2, 3), rng_key=jax.random.key(0))
    finish = jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [4.0, 8.0, 12.0], [5.0, 10.0, 15.0]])
    assert (
        first_level_seconds((2, 3), code, finish) == 3.0
    )  # two workers have three chunks; a third one has two after 8 s
    slow = finish.at[1].set(jnp.array([4.0, 5.0, 20.0])).at[2].set(jnp.array([4.0, 6.0, 20.0]))
    assert (
        first_level_seconds((2, 3), code, slow) == 6.0
    )  # three workers have two chunks, before a second one has three


def test_blocks_are_longer_where_steps_are_slow_for_long():
    noise, series = np.random.default_rng(0).normal(size=20_000), np.zeros(20_000)
    for step in range(1, len(series)):
        series[step] = 0.8 * series[step - 1] + noise[step]
    assert correlated_steps(series) == pytest.approx((1 + 0.8) / (1 - 0.8), rel=0.15)
    assert correlated_steps(noise) == pytest.approx(1.0, abs=0.1) and correlated_steps(np.full(9, 2.0)) == 1.0
    seconds = np.ones((512, 3))
    assert default_block_steps(seconds) == 24
    seconds[:, 0] += np.repeat(np.random.default_rng(1).random(26) < 0.3, 20)[:512]  # twenty steps in a row
    assert 32 <= default_block_steps(seconds) <= 64
    seconds[256:, 0] += 1.0
    assert default_block_steps(seconds) == 64  # an eighth of the steps


def test_starts_cover_a_trace_and_overlap_in_a_short_one():
    assert [default_block_steps(np.ones((num_steps, 3))) for num_steps in (32, 63, 64, 10_000)] == [8, 8, 16, 104]
    assert first_steps(44, 16).tolist() == list(range(44))
    assert first_steps(10_000, 104).tolist() == list(range(0, 10_000, 104))
    assert first_steps(512, 24).tolist() == list(range(0, 512, 8))
    times_covered = np.bincount(steps_of_blocks(first_steps(512, 24), 512, warmup_steps=0, block_steps=24).ravel())
    assert (times_covered == 3).all()
    lengths = {1000: 128, 3900: 488, 5000: 632, 10_000: 1256, 20_000: 2504, 6400: 1601}  # the last one is prime
    assert all(len(first_steps(num_steps, block_steps)) <= 130 for num_steps, block_steps in lengths.items())
    assert steps_of_blocks(np.array([0]), 10, warmup_steps=2, block_steps=3).tolist() == [[8, 9, 0, 1, 2]]
    around = steps_of_blocks(np.array([7]), 10, warmup_steps=1, block_steps=2, cooldown_steps=2)
    assert around.tolist() == [[6, 7, 8, 9, 0]]
    assert (
        drawn_block_counts(np.random.default_rng(0), 5, 44, 44, 16).sum(axis=1).tolist() == [1.0] * 5
    )  # three blocks are few


def test_drawn_stretches_vary_as_what_is_foretold_from_so_many_blocks():
    values = np.random.default_rng(1).normal(size=24)  # of 24 blocks
    counts = drawn_block_counts(np.random.default_rng(2), 40_000, 24, 24 * 16, 16)
    assert set(counts.sum(axis=1)) == {20.0}
    variance = (counts @ values / 20).var()
    assert variance == pytest.approx(2 * 23 / 21 * values.var(ddof=1) / 24, rel=0.03)


@pytest.mark.parametrize(
    "seconds, match",
    [
        (np.ones((31, 4)), "2 workers and 32 steps at least; got 4 workers and 31 steps"),
        (np.ones((32, 1)), "got 1 worker and 32 steps"),
        (np.where(np.arange(128).reshape(32, 4) == 33, np.inf, 1.0), "worker 1 fails at step 8"),
        (
            np.where(np.arange(4) == 2, np.nan, np.ones((32, 4))),
            "a time of every worker; worker 2 has none. .* out, or take other steps.$",
        ),
        (np.zeros((32, 4)), "the median of every step is 0 s"),
    ],
)
def test_traces_without_an_answer_are_refused(seconds, match):
    with pytest.raises(ValueError, match=match):
        advise(seconds, schemes={})


def test_schemes_for_other_workers_are_refused_by_name():
    coded = protocols.coded(gcjax.codes.fractional_repetition(6, num_stragglers=1))
    with pytest.raises(ValueError, match="scheme 'six':.*6 workers"):
        advise(np.ones((32, 4)), schemes={"six": coded})
    with pytest.raises(ValueError, match="schemes must be protocols by name"):
        advise(np.ones((32, 4)), schemes={"it": 3})


@pytest.mark.parametrize("name", ["bsp", "median of each step"])
def test_names_that_are_always_there_are_refused(name):
    with pytest.raises(ValueError, match="different names and settings, also than those that are always there"):
        advise(one_slow_worker(), schemes={name: protocols.asp()})


def cost_of(seconds):
    sample = _sample(seconds, num_bootstraps=100, block_steps=None, seed=0)
    return evaluation.estimate(evaluation.baseline(seconds, *sample).cost)


@pytest.mark.parametrize("num_steps", [32, 48, 64])
def test_intervals_of_short_traces_hold_what_other_stretches_cost(num_steps):
    num_inside = 0
    for number in range(100):
        stretch, other = 1 + np.random.default_rng(number).exponential(0.3, (2, num_steps, 4))
        cost, other_cost = map(cost_of, (stretch, other))
        num_inside += cost.low <= other_cost.value <= cost.high
    assert num_inside >= 80  # 90 on average; with one or two blocks it was 0 to 57


def test_bootstraps_in_which_stragglers_cost_nothing_are_left_out():
    seconds = np.ones((64, 4))
    seconds[17:, 1] = 3.0
    advice = advise(seconds, schemes={"asp": protocols.asp()}, num_bootstraps=100)
    row = next(row for row in advice.schemes if row.scheme.name == "asp")
    assert 0.0 < row.won_back.low <= row.won_back.high <= 1.0
    assert "With other gradients: asp" in advice.verdict


def test_gaps_count_as_the_last_measured_step_and_are_counted():
    seconds = one_slow_worker()
    seconds[3:9, 0] = np.nan
    advice = advise(seconds, schemes={})
    assert advice.num_filled == 6 and advice.bsp_seconds.value == pytest.approx(SLOW)
    assert (
        "Without a measurement, and counted as the worker's last one: 6 cells." in str(advice)
        and advice.departures == ()
    )
    seconds[-5:, 2] = np.nan
    advice = advise(seconds, schemes={})
    first_step = len(seconds) - 5
    assert advice.departures == (("2", first_step),) and advice.num_filled == 11
    assert f" Worker 2 has no times from step {first_step} on: it counts as at its last one." in str(advice)
    assert page.advice_json(advice)["departures"] == [{"worker": "2", "step": first_step}]


def test_the_page_and_its_json_have_a_row_for_each_scheme(slow_worker_advice):
    text = str(slow_worker_advice)
    assert all(f"{row.scheme.name}" in text for row in slow_worker_advice.schemes)
    assert "| k_sync | approximate | 33 % [33, 33] | 1.333 |" in text
    fields = page.advice_json(slow_worker_advice)
    assert len(fields["schemes"]) == len(few()) + 1 and fields["cost"]["value"] == pytest.approx(1 / 3)
    assert json.loads(json.dumps(fields))["schemes"][0]["won_back"]["low"] > 0.8
    in_bytes = page.table_rows(slow_worker_advice._replace(gradient_bytes=4e6))
    assert in_bytes[-1][-1] == "3e+06 B"
    assert page.advice_json(slow_worker_advice._replace(gradient_bytes=4e6))["gradient_bytes"] == 4e6


@pytest.mark.slow
def test_with_a_task_the_best_of_each_class_is_trained():
    seconds = one_slow_worker(slow=3.0, num_steps=32)
    study = gcjax.study.Study(
        task=gcjax.tasks.linear_regression(num_chunks=NUM_WORKERS, num_examples=16, num_features=2),
        optimizer=optax.sgd(0.3),
        num_workers=NUM_WORKERS, num_units=40, num_seeds=1, num_evals=20, target=1e-3, metric="suboptimality",
    )  # fmt: skip
    advice = advise(seconds, schemes={"asp": protocols.asp(), "repetition": few()["repetition"]}, study=study)
    assert advice.target == "suboptimality <= 0.001"
    seconds_to_target = {row.scheme.name: row.seconds_to_target for row in advice.schemes}
    assert all(len(values) == 1 for values in seconds_to_target.values())
    assert 0 < seconds_to_target["asp"][0] < seconds_to_target["bsp"][0] < np.inf
    assert seconds_to_target["repetition"][0] == pytest.approx(
        seconds_to_target["bsp"][0] * 2 / 3
    )  # the same steps, of 2 s instead of 3 s
    assert "trained on your task" in advice.verdict and page.HEAD_OF_TIME_TO_TARGET in page.heads(advice)


@pytest.mark.parametrize("changes, match", [
    ({"num_workers": 3}, r"workers of the trace, 4; got 3\. Set study\.num_workers = 4"),
    ({"target": None}, "target must be the value that suboptimality is to reach"),
])  # fmt: skip
def test_a_study_that_does_not_fit_is_refused_before_anything_is_simulated(changes, match):
    fields = {"num_workers": 4, "num_units": 4, "target": 0.1, "metric": "suboptimality"} | changes
    task = gcjax.tasks.linear_regression(num_chunks=3, num_examples=6, num_features=2)
    with pytest.raises(ValueError, match=match):
        advise(one_slow_worker(), study=gcjax.study.Study(task=task, optimizer=optax.sgd(0.1), **fields))


def test_approximate_codes_count_the_chunks_that_they_use():
    code = gcjax.codes.ignore_stragglers(NUM_WORKERS)
    advice = advise(one_slow_worker(), schemes={"ignore": protocols.coded(code, stop=stopping.fastest(3))})
    assert row(advice, "ignore").seconds.value == pytest.approx(4 / 3, rel=1e-4)
    assert row(advice, "ignore").exactness == APPROXIMATE


@pytest.mark.slow
def test_no_scheme_uses_more_than_workers_can_compute():
    """Nothing is wasted by any of them: all have the seconds of workers who never wait, also in short blocks."""
    random = np.random.default_rng(0)
    seconds = one_slow_worker(slow=4 / 3, num_steps=48) * random.normal(1, 0.003, (48, NUM_WORKERS))
    schemes = {
        "asp": protocols.asp(),
        "first four": protocols.k_batch_async(num_contributions=4),
        "elastic": protocols.elastic_averaging(num_local_steps=4),
        "decoupled": protocols.decoupled_diloco(num_local_steps=4, min_quorum=2),
    }
    advice = advise(seconds, schemes=schemes, num_bootstraps=20, block_steps=8)
    expected = NUM_WORKERS / (1 / seconds.mean(axis=0)).sum()
    for name in schemes:
        assert row(advice, name).seconds.value == pytest.approx(expected, rel=2e-4)
        assert row(advice, name).wasted.value < 1e-3
    assert row(advice, "asp").messages.value == pytest.approx(1, rel=1e-3)
    assert row(advice, "elastic").messages.value == pytest.approx(1 / 4, rel=0.05)


def test_a_code_whose_units_are_blocks_is_refused():
    code = gcjax.codes.block_coordinate(NUM_WORKERS, redundancies=(0, 0), rng_key=jax.random.key(0))
    with pytest.raises(ValueError, match="in blocks has units that are blocks of a chunk's gradient"):
        advise(one_slow_worker(), schemes={"in blocks": protocols.coded(code)})


def test_a_window_rises_and_falls_and_its_integral_is_its_length():
    window = Window(Ramp(jnp.float32(2), jnp.float32(3)), Ramp(jnp.float32(5), jnp.float32(7)))
    moments = jnp.array([1.0, 2.5, 3.5, 5.5, 7.0, jnp.inf])
    assert window.seconds == 3.5
    assert jax.jit(window.weight)(moments).tolist() == [0, 0.5, 1, 0.75, 0, 0]
    starts, stops = jnp.array([0.0, 0.0, 3.0, 6.0, 1.0]), jnp.array([10.0, 2.5, 4.0, 9.0, jnp.inf])
    assert jax.jit(window.weighted_seconds)(starts, stops).tolist() == [3.5, 0.125, 1, 0.25, 0]
    steps = Window(Ramp(jnp.float32(2), jnp.float32(2)), Ramp(jnp.float32(5), jnp.float32(5)))  # of no length
    assert jax.jit(steps.weight)(moments).tolist() == [0, 1, 1, 0, 0, 0]
    assert jax.jit(steps.weighted_seconds)(starts, stops).tolist() == [3, 0.5, 1, 0, 0]
    whole = WholeRounds(jnp.float32(5))
    assert jax.jit(whole.weight)(jnp.array([0.0, 1.0, 5.0, 6.0, jnp.inf])).tolist() == [1, 1, 1, 0, 0]
    assert jax.jit(whole.weighted_seconds)(jnp.array([1.0, 4.0]), jnp.array([3.0, 9.0])).tolist() == [2, 1]


def test_steps_that_take_no_time_count_as_those_that_take_hardly_any():
    seconds = np.random.default_rng(0).gamma(20, 0.05, (64, 4))
    schemes, tiny = {"K-sync": protocols.k_sync(num_contributions=3), "ASP": protocols.asp()}, 1e-4
    zeros, nearly_zeros = seconds.copy(), seconds.copy()
    for part in (np.s_[::3], np.s_[1::4, 1]):  # of all workers, and of one
        zeros[part], nearly_zeros[part] = 0, tiny
    advice, expected = (advise(trace, schemes=schemes, num_bootstraps=20) for trace in (zeros, nearly_zeros))
    assert advice.bsp_seconds.value == pytest.approx(zeros.max(axis=1).mean(), rel=1e-5)
    for row, expected_row in zip(advice.schemes, expected.schemes, strict=True):
        assert row.scheme == expected_row.scheme
        assert row.seconds.value == pytest.approx(expected_row.seconds.value, rel=1e-3)
        assert row.wasted.value == pytest.approx(expected_row.wasted.value, abs=0.005)
        assert row.won_back.value == pytest.approx(expected_row.won_back.value, abs=0.005)


def test_units_that_are_hardly_longer_than_the_rounding_of_times_are_computed_whole():
    seconds = np.random.default_rng(0).gamma(20, 0.05, (64, 4))
    seconds[::3] = 1e-6
    advice = advise(seconds, schemes={"ASP": protocols.asp()}, num_bootstraps=20)
    assert max(row.wasted.value for row in advice.schemes) < 0.01


def test_blocks_of_a_trace_whose_pace_changes_have_the_seconds_of_their_own_steps():
    """Worker 3 is always last, so SSP, which only lets others run ahead, takes as long as BSP."""
    seconds = np.ones((256, 4))
    seconds[:, 3] = np.where(np.arange(256) // 32 % 4 == 1, 6.0, 2.0)
    advice = advise(seconds, schemes={"SSP": protocols.ssp(staleness=3)}, block_steps=16)
    for row in advice.schemes:
        assert row.seconds.value == pytest.approx(seconds.max(axis=1).mean(), rel=1e-5)
    assert advice.cost.value == pytest.approx(2 / 3)


@pytest.mark.slow
def test_short_blocks_begin_as_in_the_midst_of_a_run_where_older_work_goes_on():
    seconds, rennala = np.random.default_rng(0).exponential(size=(256, 4)) + 0.5, protocols.rennala(num_contributions=4)
    schedule = jax.device_get(rennala(seconds.astype(np.float32)))
    is_commit = schedule.time <= schedule.horizon
    seconds_per_commit = schedule.time[is_commit].max() / is_commit.sum()
    advice = advise(seconds, schemes={"Rennala": rennala}, block_steps=8)
    (estimate,) = (row.seconds for row in advice.schemes if row.scheme.name == "Rennala")
    assert estimate.low < seconds_per_commit < estimate.high
    assert abs(estimate.value / seconds_per_commit - 1) < 0.04  # blocks in which all begin together have 8 % less


def test_what_of_a_trace_is_not_in_the_advice_is_said(slow_worker_advice):
    seconds = one_slow_worker()
    trace = gcjax.stragglers.traces.base.trace_of_array(seconds, communication=seconds)
    trace = trace._replace(reading=trace.reading._replace(num_missing_steps=576))
    advice = advise(trace, schemes={"asp": protocols.asp()})
    assert advice.verdict.startswith("Stragglers cost 33 % [33, 33] of BSP's time of computing.")
    notes = " ".join(page.notes(advice))
    assert "Without a row, between the first and the last step: 576 numbers; steps count as consecutive." in notes
    assert "Messages are free: times of communicating, which the trace has, count nowhere." in notes
    numbers = page.advice_json(advice)
    assert (numbers["missing_steps"], numbers["has_communication"]) == (576, True)
    notes = " ".join(page.notes(slow_worker_advice))
    assert "Messages are free." in notes and "consecutive" not in notes
