"""Descriptions: who is slow is named, figures are those of plain loops, and nobody is named where nobody is slow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gcjax import stragglers
from gcjax.stragglers import Reading, Trace

NAN, INF = np.nan, np.inf


def trace(compute, communication=None, *, steps=None, names=None):
    compute = np.asarray(compute, float)
    num_steps, num_workers = compute.shape
    reading = Reading("test", compute.size, 0, 0, 0, (), ())
    steps = np.arange(num_steps) if steps is None else np.asarray(steps)
    names = tuple(map(str, range(num_workers))) if names is None else names
    return Trace(compute, communication, steps, names, False, reading)


def quiet(num_steps=100, num_workers=8, *, noise=0.001, seed=0):
    return np.random.default_rng(seed).lognormal(0, noise, (num_steps, num_workers))


def described(compute, *args, **kwargs):
    return stragglers.describe(trace(compute, *args, **kwargs))


def test_a_worker_that_is_slow_from_the_start_is_persistent():
    description = described(quiet() * np.where(np.arange(8) == 5, 1.5, 1.0), names=tuple("abcdefgh"))
    verdict = description.verdict
    assert (verdict.severity, verdict.kind, verdict.workers) == ("critical", "persistent", (5,))
    assert verdict.cost == pytest.approx(1 / 3, abs=0.02) and verdict.cost == verdict.cost_of_computing
    assert description.sentence.startswith("Critical: worker f (1.5 times the median, from its first step on) is pers")
    assert description.slowdown.slowest == (5,) and description.slowdown.share_of_slowest > 0.9
    assert description.decomposition.spell_share > 0.9 and description.changes == ()


def test_of_several_spells_that_which_lasts_is_named():
    seconds = quiet(300)
    seconds[50:120, 5] *= 2
    seconds[250:, 5] *= 2
    assert "since step 250, the last of 2 spells) is persistently slow" in described(seconds).sentence


def test_a_worker_that_becomes_slow_is_named_with_its_step():
    """What it costs is over the steps in which it is slow."""
    seconds = quiet()
    seconds[70:, 2] *= 2
    description = described(seconds, steps=10 * np.arange(100) + 5)
    assert description.verdict.workers == (2,) and description.verdict.cost == pytest.approx(0.5, abs=0.03)
    assert "(2 times the median, since step 705) is persistently slow" in description.sentence
    assert description.sentence.endswith("of the iteration while it lasts.")
    change = description.changes[0]
    assert (change.worker, change.step) == (2, 705)
    assert (change.ratio_before, change.ratio_after) == pytest.approx((1, 2), rel=0.03)


def test_a_spell_that_ended_is_passing():
    seconds = quiet(200)
    seconds[50:150, 2] *= 1.9
    seconds[50:149, 3] *= 1.5
    description = described(seconds)
    assert (description.verdict.kind, description.verdict.workers) == ("persistent", (2,))
    assert "from step 50 to step 149) was slow for half of the steps or more; this costs" in description.sentence
    seconds[125:150, 2] /= 1.9
    description = described(seconds)
    assert (description.verdict.kind, description.verdict.workers) == ("passing", (2, 3))
    assert description.decomposition.spell_share > 0.8  # spells count there whether they end or not
    assert "from step 50 to step 124) and 3 (1.5 times" in description.sentence
    assert "were slow together, which passed" in description.sentence


@pytest.mark.parametrize("gone", [np.nan, np.inf], ids=["left", "failed"])
def test_who_was_slow_and_left_long_ago_is_not_slow_now(gone):
    seconds = quiet(1000)
    seconds[:50, 5] *= 1.5
    seconds[50:, 5] = gone
    description = described(seconds)
    assert (description.verdict.kind, description.verdict.severity) == ("nobody", "ok")
    assert "Worker 5 (1.5 times the median, from step 0 to step 49) was slow for a while." in description.sentence
    assert described(seconds[:90]).verdict.kind == "persistent"  # it is gone for 40 steps


def test_times_that_cannot_be_added_up_are_refused():
    with pytest.raises(ValueError, match="times must be at most 1e\\+150 s; got 1e\\+308 s"):
        stragglers.describe(np.full((4, 2), 1e308))


def test_a_spell_that_costs_little_is_told_of_beside():
    seconds = quiet(1000)
    seconds[50:80, 2] *= 1.5
    description = described(seconds)
    assert description.sentence.startswith("OK: nobody is slow for long; waiting for the slowest of each step costs")
    assert description.sentence.endswith(
        "Worker 2 (1.5 times the median, from step 50 to step 79) was slow for a while."
    )
    assert description.verdict.workers == () and [spell.num_steps for spell in description.spells] == [30]


def test_a_spell_with_a_peak_says_since_when():
    seconds = quiet(300)
    seconds[:, 1] *= 1.3
    seconds[250:, 1] *= 4
    sentence = described(seconds).sentence
    assert "times the median, from its first step on, 5.2 times from step 250)" in sentence


def test_nobody_is_slow_where_nobody_is():
    description = described(quiet())
    assert (description.verdict.severity, description.verdict.kind) == ("ok", "nobody")
    assert description.verdict.workers == () and description.spells == ()
    assert description.verdict.cost == pytest.approx(1 - 1 / description.slowdown.total_ratio)


def test_false_names_of_quiet_traces_are_few():
    """Even with much noise; at the probability aimed at, more than 6 of 100 come once in 100,000."""
    named = [described(quiet(60, 16, noise=0.3, seed=seed)).spells for seed in range(100)]
    assert sum(bool(spells) for spells in named) <= 6


def test_delays_of_single_steps_are_passing():
    rng = np.random.default_rng(0)
    description = described(rng.exponential(size=(200, 8)))
    assert (description.verdict.severity, description.verdict.kind) == ("critical", "passing")
    assert description.verdict.workers == () and description.decomposition.passing_share > 0.9


def test_slowness_of_all_is_shared():
    seconds = quiet(300)
    seconds[100:200] *= 3
    description = described(seconds)
    assert (description.verdict.severity, description.verdict.kind) == ("critical", "shared")
    assert [(change.worker, change.step) for change in description.changes] == [(None, 100), (None, 200)]
    assert description.decomposition.shared_share > 0.8 and description.statistics.correlation > 0.9
    said = "but at times all are slow at once, above all from step 100 to step 199 (3 times as long as usual);"
    assert said in described(np.repeat([[1.0], [3.0], [1.0]], [100, 100, 150], axis=0) * np.ones(4)).sentence
    seconds[200:] = seconds[:100] * 0.9
    assert "above all from step 100 to step 199" in described(seconds).sentence
    seconds[:20] = np.nan  # steps without a time have no row among those that are looked at
    assert "above all from step 100 to step 199" in described(seconds).sentence


def test_of_one_worker_the_stretch_is_said_in_which_it_is_slow():
    seconds = np.ones((200, 1))
    seconds[150:] = 2.0
    description = described(seconds)
    assert description.verdict.kind == "shared"
    assert "there is one worker, and it is slow at times, above all since step 150 (2 times as" in description.sentence


def test_a_worker_without_any_time_is_named():
    seconds = quiet(60)
    seconds[:, 2] = np.nan
    assert "Without any time: worker 2." in described(seconds).reading_sentences
    assert not any("Without any" in sentence for sentence in described(quiet(60)).reading_sentences)


def test_a_warning_begins_at_a_tenth_and_a_critical_verdict_at_a_fifth():
    for ratio, severity in ((1.105, "ok"), (1.12, "warning"), (1.24, "warning"), (1.26, "critical")):
        seconds = np.ones((50, 5))
        seconds[:, 0] = ratio
        assert described(seconds).verdict.severity == severity


def test_what_is_communicated_is_part_of_the_iteration():
    """The fast ones wait; the iteration is the slowest's computing and its own communicating."""
    seconds = np.ones((50, 4))
    seconds[:, 0] = 1.5
    description = described(seconds, 3.5 - seconds)
    assert description.verdict.cost == pytest.approx(0.5 / 3.5)
    assert description.verdict.cost_of_computing == pytest.approx(0.5 / 1.5)
    assert "14.3 % of the iteration (33.3 % of its computing)" in description.sentence
    assert description.communication.median == 2.5
    assert description.communication.least_share_of_time == pytest.approx(2 / 3.5)
    assert description.communication.share_of_time == pytest.approx((3 * 2.5 + 2) / 14)


def test_the_statistics_are_those_of_plain_loops():
    """A worker of two states, slow with probability 0.43, and again with 0.95, as in a published trace."""
    rng = np.random.default_rng(0)
    seconds = rng.lognormal(0, 0.05, (400, 7))
    is_slow = rng.random(7) < 0.43
    for step in range(400):
        is_slow = np.where(rng.random(7) < np.where(is_slow, 0.95, 0.04), True, False)
        seconds[step] *= np.where(is_slow, 2.5, 1.0)
    seconds[rng.random((400, 7)) < 0.05] = NAN
    slow, again, before, ratios = [], 0, 0, []
    for step, row in enumerate(seconds):
        median = sorted(row[~np.isnan(row)])
        median = (median[(len(median) - 1) // 2] + median[len(median) // 2]) / 2
        slow.append([value > 1.5 * median for value in row])
        ratios.append(max(row[~np.isnan(row)]) / median)
        for worker in range(7) if step else ():
            if slow[step - 1][worker] and not np.isnan(row[worker]):
                before, again = before + 1, again + slow[step][worker]
    statistics = described(seconds).statistics
    assert statistics.slow_probability == np.sum(slow) / (~np.isnan(seconds)).sum()
    assert statistics.slow_again_probability == again / before
    assert statistics.slowest_over_median == pytest.approx((np.quantile(ratios, 0.5), np.quantile(ratios, 0.95)))
    assert statistics.median == np.nanmedian(seconds)
    np.testing.assert_array_equal(statistics.worker_median, np.nanmedian(seconds, axis=0))
    assert statistics.tail_over_median[2] == max(ratios)


def test_the_correlation_is_the_mean_over_pairs():
    rng = np.random.default_rng(0)
    logarithms = rng.normal(size=(200, 5)) + 0.7 * rng.normal(size=(200, 1))
    correlation = np.corrcoef(logarithms.T)[np.triu_indices(5, 1)].mean()
    assert described(np.exp(logarithms)).statistics.correlation == pytest.approx(correlation)
    chain = np.zeros((4000, 9))
    for step in range(1, 4000):
        chain[step] = 0.8 * chain[step - 1] + rng.normal(size=9)
    assert described(np.exp(0.1 * chain)).statistics.serial_correlation == pytest.approx(0.8, abs=0.03)


def test_the_slowdown_is_that_of_jobs_with_other_times():
    seconds = np.random.default_rng(0).exponential(size=(60, 7))
    seconds[:, 3] *= 2
    seconds[20:40, 6] = NAN
    slowdown = described(seconds).slowdown
    median = np.nanmedian(seconds, axis=1)
    assert slowdown.total_ratio == pytest.approx(np.nanmax(seconds, axis=1).sum() / median.sum())
    for worker in range(7):
        without, alone = seconds.copy(), np.tile(median[:, None], 7)
        without[:, worker], alone[:, worker] = median, seconds[:, worker]
        assert slowdown.ratio_without_worker[worker] == pytest.approx(np.nanmax(without, axis=1).sum() / median.sum())
        assert slowdown.ratio_of_worker_alone[worker] == pytest.approx(np.nanmax(alone, axis=1).sum() / median.sum())


def test_the_slowest_three_percent_are_one_worker_at_least():
    seconds = np.ones((30, 34))
    seconds[:, [4, 9]] = 3.0
    slowdown = described(seconds).slowdown
    assert slowdown.slowest == (4, 9) and slowdown.share_of_slowest == pytest.approx(1)
    slowdown = described(seconds[:, :33]).slowdown
    assert slowdown.slowest == (4,) and slowdown.share_of_slowest == pytest.approx(0)  # the other one is as slow


def test_nobody_is_faster_than_the_median_in_what_if():
    """Of two workers the median is between them, also for the job without the slow one."""
    description = described(np.tile([1.0, 2.0], (30, 1)))
    assert (description.slowdown.total_ratio, description.slowdown.share_of_slowest) == pytest.approx((2 / 1.5, 1))
    assert description.verdict.cost == pytest.approx(0.25)


def test_the_parts_of_the_lost_time():
    """20 steps: worker 0 always takes 2, all take twice as long in 4 of them, worker 1 takes 5 once."""
    seconds = np.ones((20, 5))
    seconds[:, 0] = 2
    seconds[3:7] *= 2
    seconds[10, 1] = 5
    persistent, shared, passing, lost = described(seconds).decomposition
    assert lost == 16 * 1 + 4 * 2 + 4 * 1 + 3
    assert (persistent * lost, shared * lost, passing * lost) == pytest.approx((16 + 8, 4, 3))


def test_cells_that_are_not_there_count_nowhere():
    seconds = quiet()
    seconds[:, 1] *= 1.5
    reference = described(seconds)
    seconds = np.insert(seconds, 50, NAN, axis=0)  # a step that nobody measured
    seconds = np.append(seconds, np.full((101, 1), NAN), axis=1)  # a worker without a time
    seconds = np.append(seconds, np.full((101, 1), INF), axis=1)  # and one that failed at once
    description = described(seconds)
    assert (
        description.verdict == reference.verdict and description.slowdown.total_ratio == reference.slowdown.total_ratio
    )
    assert description.failures == ((9, 0),) and np.isnan(description.statistics.worker_median[8:]).all()
    assert description.sentence == f"{reference.sentence} Failed: worker 9 (step 0)."
    assert "Failed: worker 9 (step 0)." in description.reading_sentences


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (50, 1), (50, 4)])
def test_equal_times_cost_nothing(shape):
    description = described(np.full(shape, 2.5))
    assert (description.verdict.kind, description.verdict.cost) == ("nobody", 0)
    assert description.slowdown.total_ratio == 1 and np.isnan(description.slowdown.share_of_slowest)
    assert np.isnan(description.decomposition[:3]).all() and description.decomposition.lost_seconds == 0


def test_one_step_says_nothing_of_what_stays():
    """Another worker would have been as slow by chance."""
    description = described([[1.0, 1.0, 1.0, 9.0]])
    assert (description.verdict.kind, description.verdict.workers) == ("passing", ())
    assert np.isnan(description.statistics.slow_again_probability) and description.slowdown.slowest == (3,)


def test_what_the_reader_did_is_said():
    reading = Reading("named columns", 1234, 5, 1, 90, (1,), (2,))
    compute = np.ones((10, 3))
    compute[:4, 1] = compute[8:, 2] = compute[3, 0] = NAN
    full = trace(compute, steps=np.arange(10) * 10, names=("a", "b", "c"))._replace(reading=reading, is_relative=True)
    assert stragglers.describe(full).reading_sentences == (
        "Layout: named columns, 1,234 rows.",
        "Times are known up to a factor only; the median of the file counts as one second.",
        "Replaced by a later row for the same step and worker: 5 times.",
        "Missing between the first and the last of a worker: 1 time.",
        "One step in 10 is recorded; those between have no row.",
        "Joined after the first step: worker b (step 40).",
        "Left, with their last step: worker c (step 70).",
    )
    uneven = full._replace(steps=np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 99]))
    assert (
        "Without a row, between the first and the last step: 90 numbers."
        in stragglers.describe(uneven).reading_sentences
    )


def test_many_slow_workers_are_not_all_named():
    seconds = np.ones((40, 100))
    seconds[:, :20] = 2.0
    description = described(seconds)
    assert description.verdict.workers == tuple(range(20))
    assert "and 16 more are persistently slow" in description.sentence


def test_ten_thousand_workers():
    seconds = np.random.default_rng(0).lognormal(0, 0.01, (40, 10**4))
    seconds[:, 77] *= 1.5
    assert described(seconds).verdict.workers == (77,)


def test_an_array_is_a_trace():
    assert stragglers.describe(quiet()).sentence == described(quiet()).sentence


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_trace_without_times_is_refused(value):
    with pytest.raises(ValueError, match="must have a finite time; all cells are empty or failed"):
        described(np.full((3, 2), value))


TIMES = st.one_of(st.floats(0, 1e9), st.sampled_from([NAN, INF, 0.0, 1.0, 2.0, 1e-9]))


@settings(max_examples=150, deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 30), st.integers(1, 6)), elements=TIMES))
def test_any_array_is_described_or_refused(seconds):
    if not (np.isfinite(seconds) & (seconds > 0)).any():
        return
    with np.errstate(over="ignore"):
        description = described(seconds, seconds)
    shares = description.decomposition[:3]
    assert np.isnan(shares).all() or (sum(shares) == pytest.approx(1) and min(shares) >= -1e-9)
    assert description.sentence.split(":")[0] in ("OK", "Warning", "Critical")
    assert 0 <= description.verdict.cost <= 1 and not description.slowdown.total_ratio < 1 - 1e-9


def test_the_worker_whose_passing_delays_cost_most_is_named():
    seconds = quiet()
    seconds[::10, 3] *= 5.0  # a checkpoint, say
    description = described(seconds, names=tuple("abcdefgh"))
    slowest = seconds.max(axis=1).sum()
    repaired = seconds.copy()
    repaired[:, 3] = np.median(seconds, axis=1)
    share = (slowest - repaired.max(axis=1).sum()) / (slowest - np.median(seconds, axis=1).sum())
    assert description.verdict.kind == "passing" and description.verdict.workers == ()
    assert f"; {100 * share:.3g} % of that would be gone with worker d at the median." in description.sentence


@pytest.mark.parametrize("num_workers", [2, 8])
def test_nobody_is_named_where_delays_are_everybodys(num_workers):
    seconds = np.random.default_rng(0).exponential(size=(400, num_workers))
    description = described(seconds)
    assert description.verdict.kind == "passing" and "would be gone" not in description.sentence


def test_a_step_in_which_all_are_slow_is_named():
    seconds = quiet(200)
    seconds[120] *= 30
    seconds[150, 1:] *= 30  # not worker 0
    description = described(seconds, steps=np.arange(200) + 1000)
    assert [slow.step for slow in description.slow_steps] == [1120]
    assert description.slow_steps[0].ratio == pytest.approx(30, rel=0.01)
    assert "In step 1120 (29.9 times as long as usual) even the fastest worker was slow." in description.sentence
    seconds[130:170:10] *= 5
    sentence = described(seconds).sentence
    assert "In steps 120 (29.9 times as long as usual), " in sentence and "and 2 more even the" in sentence


def test_a_step_is_slow_for_its_stretch():
    seconds = quiet(200)
    seconds[100:] *= 4  # a change of all, not a hundred slow steps
    seconds[160] *= 4
    assert [slow.step for slow in described(seconds).slow_steps] == [160]
    assert described(quiet(200)).slow_steps == () and "fastest" not in described(quiet(200)).sentence


def with_three_slow_for_a_while(num_steps=300, num_workers=12, *, starts=(60, 60, 60)):
    """Worker 3 is always slow; workers 1, 5 and 10 are for 40 steps each."""
    seconds = quiet(num_steps, num_workers, noise=0.01)
    seconds[:, 3] *= 1.5
    for worker, start in zip((1, 5, 10), starts, strict=True):
        seconds[start : start + 40, worker] *= 3 + worker / 100
    return seconds


@pytest.mark.parametrize(("starts", "together"), [((60, 60, 60), True), ((60, 110, 160), False), ((60, 65, 70), True)])
def test_a_verdict_on_persistent_workers_names_those_that_cost_as_much_for_a_while(starts, together):
    seconds = with_three_slow_for_a_while(starts=starts)
    description = stragglers.describe(seconds)
    verdict = description.verdict
    assert (verdict.kind, verdict.workers, set(verdict.other_workers)) == ("persistent", (3,), {1, 5, 10})
    median = np.median(seconds, axis=1, keepdims=True)
    without_3, without_all = seconds.copy(), seconds.copy()
    without_3[:, [3]], without_all[:, [1, 3, 5, 10]] = median, median
    saved = (without_3.max(axis=1) - without_all.max(axis=1)).sum() / seconds.max(axis=1).sum()
    np.testing.assert_allclose(verdict.other_cost, saved, rtol=1e-9)
    assert ("were slow together for a while; this costs another" in description.sentence) == together
    assert f"this costs another {100 * saved:.3g} % of all iterations." in description.sentence


def test_those_that_were_slow_for_a_while_at_little_cost_are_not_in_the_sentence():
    seconds = with_three_slow_for_a_while(3000)
    assert (
        stragglers.describe(seconds).verdict.other_workers == ()
        and "another" not in stragglers.describe(seconds).sentence
    )


def test_workers_that_were_slow_in_the_same_steps_were_so_together():
    seconds = with_three_slow_for_a_while()
    seconds[:, 3] = seconds[:, 2]
    assert "were slow together, which passed; this costs" in stragglers.describe(seconds).sentence
