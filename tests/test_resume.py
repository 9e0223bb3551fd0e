"""`gcjax run --resume` after SIGKILL: the resumed run ends in the bits of an undisturbed one."""

import os
import random
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from gcjax import analysis, cli, engine
from tests.cli.test_main import CONFIG, ROOT

SETTINGS = """
study.num_units = 1000
study.num_evals = 100
study.checkpoint_every = 2
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """The command of a run that takes seconds, for a folder; compiled programs are those of all tests, to save time."""
    folder = tmp_path_factory.mktemp("resume")
    (folder / "long.gin").write_text(CONFIG.replace("study.num_units = 60\n", SETTINGS))
    environment = {**os.environ, "XLA_FLAGS": ""}

    def start(out, *more):
        arguments = [sys.executable, "-m", "gcjax", "run", folder / "long.gin", "--out", out, "--resume", *more]
        return subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return start


def finish(process):
    try:
        _, errors = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return errors.decode()


def undisturbed(command, folder, *more):
    """The folder of a run that nobody killed."""
    out = folder / "whole"
    finish(command(out, *more))
    return out


def assert_same_bits(out, other):
    for name in ("metrics.parquet", "timeline.parquet"):
        one, two = pq.read_table(out / name), pq.read_table(other / name)
        for column in one.column_names:
            np.testing.assert_array_equal(one[column].to_numpy(), two[column].to_numpy())


def newest_checkpoints(out):
    """How far each scheme has come: the steps of its last whole checkpoint, 0 without one."""
    return {f.name: max(engine.Checkpoints(f).on_disk(), default=0) for f in (out / "checkpoints").glob("*")}


def kill_after_checkpoint(process, out, seconds=0.0):
    """Kills a run so many seconds after its first checkpoint."""
    try:
        limit = time.monotonic() + 100
        while not any(newest_checkpoints(out).values()) and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(seconds)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_run_that_is_cut_off_goes_on(tmp_path, monkeypatch, capsys):
    """In this process, by an error that nobody catches."""
    (tmp_path / "short.gin").write_text(CONFIG.replace("{'ASP': @asp(), 'partial': @coded()}", "{'ASP': @asp()}"))
    run = ["run", str(tmp_path / "short.gin"), "--set", "study.checkpoint_every = 20", "--resume", "--out"]
    whole, out, save, saved = tmp_path / "whole", tmp_path / "out", engine.Checkpoints.save, []
    assert cli.main([*run, str(whole)]) == 0

    def cut(self, step, *rest):
        if len(saved) == 1:
            raise KeyboardInterrupt
        saved.append(step)
        save(self, step, *rest)

    monkeypatch.setattr(engine.Checkpoints, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        cli.main([*run, str(out)])
    assert not (out / "run.json").exists()
    monkeypatch.setattr(engine.Checkpoints, "save", lambda *given: saved.append(given[1]) or save(*given))
    assert cli.main([*run, str(out)]) == 0
    assert saved[0] == 20 and saved[1] > 20 and saved == sorted(set(saved))
    assert_same_bits(whole, out)
    assert cli.main([*run, str(out)]) == 2
    assert "is finished, so there is nothing to resume" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_run_goes_on(command, tmp_path):
    """With one scheme, to save time; that a later one goes on is in `experiments/test_compare`."""
    alone, out = ("--set", "compare.schemes = {'ASP': @asp()}"), tmp_path / "out"
    whole = undisturbed(command, tmp_path, *alone)  # first, so that no program is missing or half written later
    kill_after_checkpoint(command(out, *alone), out)
    assert newest_checkpoints(out) and not (out / "run.json").exists()
    finish(command(out, *alone))
    assert_same_bits(whole, out)
    with pytest.raises(ValueError, match="is finished, so there is nothing to resume"):
        analysis.resumable_or_new_folder(out)


@pytest.mark.slow
def test_killed_at_random_moments(command, tmp_path):
    """Half of them at any moment, half after the first checkpoint."""
    whole = undisturbed(command, tmp_path)
    moments = random.Random(0)
    begin = time.monotonic()
    finish(command(tmp_path / "timed"))
    seconds = time.monotonic() - begin
    num_moments = 4 * int(os.environ.get("GCJAX_FUZZ", "1"))
    for i in range(num_moments):
        out = tmp_path / str(i)
        process = command(out)
        if i < num_moments // 2:
            time.sleep(moments.uniform(0, seconds))
            process.kill()
            process.communicate()
        else:
            kill_after_checkpoint(process, out, moments.uniform(0, 2.0))
        before = newest_checkpoints(out)
        if any(before.values()):
            other = command(out, "--set", "sgd.learning_rate = 0.2")
            _, errors = other.communicate(timeout=200)
            assert other.returncode == 2
            assert "-sgd.learning_rate = 0.3" in errors.decode() and "+sgd.learning_rate = 0.2" in errors.decode()
        if not (out / "run.json").exists():
            finish(command(out))
        assert_same_bits(whole, out)
        print(i, before)
