"""What the experiment on the real clock keeps of its runs: units and commits, calibrations, the verdict."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from experiments import live_records
from gcjax import analysis, protocols
from gcjax.analysis import seal
from gcjax.analysis.timelines import folder
from gcjax.parameter_server import Calibration, LiveRun


def live_run(num_units=6):
    durations = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (num_units, 3)))
    schedule = jax.device_get(protocols.asp()(durations))
    return LiveRun(None, None, schedule, np.linspace(2, 1, len(schedule.time)), (), np.zeros(3), 0)


def row(scheme, scenario, reach, promise="kept"):
    return {"scheme": scheme, "scenario": scenario, "reach": reach, "promise": promise}


def test_units_and_commits_come_back_as_a_timeline(tmp_path):
    records, run = live_records.Records(), live_run()
    for label in ("ASP, one slow", "ASP <2>"):
        records.add(label, run)
    records.write(tmp_path)
    (tmp_path / "summary.md").write_text("# Live\n\nWords.\n")
    seal.add_missing_digests(tmp_path)
    first, second = folder.activities(tmp_path)
    made = np.isfinite(run.schedule.time)
    assert (first.name, second.name, first.num_workers) == ("ASP, one slow", "ASP <2>", 3)
    assert len(first.units["unit"]) == np.isfinite(run.schedule.start).sum()
    np.testing.assert_allclose(first.contributions["time"], run.schedule.time[made])
    np.testing.assert_allclose(first.loss["value"], run.loss[made])
    page = analysis.write_html(tmp_path).read_text()
    assert "loss of the commits against time" in page and "ASP \\u003c2>" in page


def test_a_long_run_is_kept_up_to_some_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(live_records, "SECONDS", 3.0)
    records = live_records.Records()
    records.add("ASP", live_run())
    records.write(tmp_path)
    seal.add_missing_digests(tmp_path)
    (activity,) = folder.activities(tmp_path)
    assert activity.units["start"].max() < 3.0 and activity.contributions["time"].max() < 3.0


def test_calibrations_are_medians_as_json():
    records = live_records.Records()
    durations = np.array([[1.0, 2.0], [3.0, np.nan], [9.0, 4.0]])
    records.calibrate("one slow", Calibration(durations, np.array([0.1, 0.2]), np.array([0.3, 0.4]), 0.5))
    assert records.calibrations == {
        "one slow": {"unit_seconds": [3.0, 3.0], "send_seconds": [0.1, 0.2], "receive_seconds": [0.3, 0.4],
                     "service_seconds": 0.5}
    }  # fmt: skip


def test_the_verdict_has_a_sentence_for_each_scenario():
    rows = [row("ASP", "one slow", 2.0), row("BSP", "one slow", 1.5), row("ASP", "one killed", math.inf, "-"),
            row("BSP", "one killed", math.inf, "broken"), row("ASP", "nobody slow", 1.0)]  # fmt: skip
    said = live_records.verdict(rows, "0.95 accuracy")
    assert said == (
        "With one slow, BSP reached 0.95 accuracy first, after 1.50 s, before ASP (2.00 s). With one killed, no scheme "
        "reached 0.95 accuracy. With nobody slow, ASP reached 0.95 accuracy first, after 1.00 s. Each is one run, "
        "which does not tell small differences from chance. Promises are broken: BSP, one killed."
    )
    assert "kept in all 2 runs of which it is known" in live_records.verdict(rows[:3], "0.95 accuracy")
