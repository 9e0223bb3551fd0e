"""`gcjax trace fit`: the best model first, then all others, and a config file that a run can include."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from gcjax import cli, stragglers
from gcjax.cli import out_files
from gcjax.cli.trace import fit_json, fit_tables


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("gcjax.cli.cached_programs.use_cache_folder", lambda: None)
    model = stragglers.markov(
        probability=0.3, persistence=0.9, slowdown=3.0, base=stragglers.weibull(scale=2.0, shape=5)
    )
    seconds = np.asarray(stragglers.sample_durations(model, jax.random.key(0), 200, 3))
    stragglers.write_trace(tmp_path / "trace.csv", seconds)
    return tmp_path / "trace.csv"


def fitted(capsys, *arguments):
    status = cli.main(["trace", "fit", *map(str, arguments)])
    return status, *capsys.readouterr()


@pytest.mark.slow
def test_the_verdict_comes_first_and_the_best_model_last(trace, capsys, tmp_path):
    status, out, _ = fitted(capsys, trace, "--out", tmp_path / "fit.gin")
    fits = stragglers.fit(trace, num_simulated_models=0)
    assert status == 0
    assert out.startswith(fits.verdict)
    assert "Fitted to the first 140 steps, ranked on the 60 after them." in out
    assert all(fit.name in out for fit in (*fits.duration_fits, *fits.pattern_fits, *fits.fits_without_likelihood))
    assert "failed_count is not fitted: nobody failed." in out and "measured" in out
    assert out.endswith(f"{fits.best.gin}\nConfig written to {tmp_path / 'fit.gin'}\n")
    assert (tmp_path / "fit.gin").read_text() == fits.gin
    assert fits.gin.splitlines()[2] == "# 0, 1, 2"


@pytest.mark.slow
def test_scripts_get_one_object(trace, capsys):
    status, out, _ = fitted(capsys, trace, "--json", "--held-out", 0.5, "--seed", 3)
    result = json.loads(out, parse_constant=pytest.fail)
    fits = stragglers.fit(trace, held_out=0.5, seed=3, num_simulated_models=0)
    assert status == 0 and (result["command"], result["files"]) == ("trace fit", [str(trace)])
    assert result["steps"] == {"fitted": 100, "held_out": 100}
    assert [fit["name"] for fit in result["times"]] == [fit.name for fit in fits.duration_fits]
    assert result["times"][0]["held_out"] == fits.best.held_out_score._asdict()
    assert result["times"][0]["gin"] == fits.best.gin
    assert result["times"][0]["simulated"]["median"] > 0 and result["times"][-1]["simulated"] is None
    assert tuple(result["measured"]) == fits.measured_statistics._fields
    best = result["times"][0]
    assert result["draws"] == 20 and best["smallest"]["slowdown"] < best["simulated"]["slowdown"]
    assert best["simulated"]["slowdown"] < best["largest"]["slowdown"] and result["times"][-1]["largest"] is None
    assert result["others"][0]["model"]["factory"] == "constant"
    page = (Path(__file__).parents[2] / "docs" / "running" / "scripts.md").read_text()
    for fields in (result, result["steps"], result["measured"], best, best["held_out"]):
        assert [name for name in fields if f"`{name}`" not in page] == []


def test_what_lies_outside_of_the_simulations_has_a_mark():
    seconds = np.random.default_rng(0).exponential(size=(40, 3))
    fits = stragglers.fit(seconds, num_simulated_models=0)
    measured = fits.measured_statistics
    low, high = measured._replace(slowdown=0.5 * measured.slowdown), measured._replace(slowdown=0.6 * measured.slowdown)
    best = fits.best._replace(simulated_statistics=low, simulated_range=(low, high))
    fits = fits._replace(duration_fits=(best, *fits.duration_fits[1:]))
    verdict, caution, *_ = fit_tables.printed_parts(fits)
    assert (
        verdict.plain == fits.verdict and caution.plain == f"Caution: {fits.caution}" and "understate" in str(caution)
    )
    cells = fit_tables._simulated_cells(best, measured)
    assert [cell for cell in cells if cell.endswith("*")] == [f"{low[-1]:.3g} [{low[-1]:.3g}, {high[-1]:.3g}]*"]
    result = fit_json.fits_json(fits)
    assert result["times"][0]["outside"] == ["slowdown"] and result["times"][1]["outside"] == []
    assert result["caution"] == fits.caution


def test_what_cannot_be_fitted_is_said(trace, capsys, tmp_path):
    status, _, err = fitted(capsys, tmp_path / "nowhere.csv")
    assert status == 2 and err.startswith(f"gcjax: There is no file {tmp_path / 'nowhere.csv'}.")
    status, _, err = fitted(capsys, trace, "--held-out", 1.5)
    assert status == 2 and "held_out must be above 0 and at most 1; got 1.5" in err
    status, _, err = fitted(capsys, trace, "--columns", "worker=host,step=unit,compute=seconds")
    assert status == 2 and "has no column 'host'" in err


def test_a_folder_that_is_not_there_is_said_before_anything_is_fitted(trace, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("gcjax.stragglers.fit", lambda *arguments, **options: pytest.fail("fitted"))
    status, _, err = fitted(capsys, trace, "--out", tmp_path / "none" / "fit.gin")
    assert status == 2 and "--out must be a file in a folder that exists" in err
    status, _, err = fitted(capsys, trace, "--out", tmp_path)
    assert status == 2 and "--out must be a file; " in err


def test_a_file_with_content_is_not_overwritten(trace, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("gcjax.stragglers.fit", lambda *arguments, **options: pytest.fail("fitted"))
    content = trace.read_text()
    status, _, err = fitted(capsys, trace, "--out", trace)
    assert status == 2 and f"--out must be a new file or an empty one; {trace} has content." in err
    assert trace.read_text() == content


def test_what_stands_for_a_device_may_have_content(trace):
    with trace.open() as stream:
        out_files.check_new_file("--out", f"/dev/fd/{stream.fileno()}")


@pytest.mark.slow
def test_a_config_file_that_cannot_be_written_is_said(trace, capsys, tmp_path):
    (tmp_path / "fit.gin").symlink_to(tmp_path / "fit.gin")  # of itself
    status, _, err = fitted(capsys, trace, "--out", tmp_path / "fit.gin")
    assert status == 2 and "--out must be a file that can be written" in err


def test_times_that_no_simulation_can_have_are_refused(tmp_path, capsys):
    stragglers.write_trace(tmp_path / "t.csv", np.full((40, 2), 1e300))
    status, _, err = fitted(capsys, tmp_path / "t.csv")
    assert status == 2 and "or 1e-12 to 1e+12 s" in err and "got 1e+300 to 1e+300 s" in err


def test_steps_that_have_no_row_are_said():
    trace = stragglers.traces.base.trace_of_array(np.random.default_rng(0).exponential(size=(40, 3)))
    trace = trace._replace(reading=trace.reading._replace(num_missing_steps=1))
    fits = stragglers.fit(trace, num_simulated_models=0)
    texts = [str(part) for part in fit_tables.printed_parts(fits)]
    assert "Without a row, between the first and the last step: 1 number; steps count as consecutive." in texts
    assert fit_json.fits_json(fits)["missing_steps"] == 1
    texts = [str(part) for part in fit_tables.printed_parts(fits._replace(num_missing_steps=0))]
    assert not any("consecutive" in text for text in texts)
