"""What the live experiment writes; the processes themselves are tested with the runtime."""

import contextlib
import itertools

import jax
import numpy as np
import optax
import pytest

from experiments import finished_rows, live
from gcjax import cli, progress, stragglers
from gcjax.engine import live as runtime


def row(scheme, scenario, seconds):
    times = dict.fromkeys(("round_seconds", "longest_round", "all_rounds", "replayed_round"), seconds)
    counts = {"extensions": 0, "exact_rounds": 3, "num_rounds": 4}
    return {"scheme": scheme, "scenario": scenario, **times, **counts, "train_loss": 0.25, "accuracy": 0.5}


def test_report_shows_the_table_of_a_live_run(tmp_path, capsys):
    rows = [row("coded", "nobody slow", 0.2), row("coded", "one slow", 0.3)]
    live._write(tmp_path, rows, progress.silent())
    assert "| coded | one slow | 300 ms | 1.50 | 300 ms | 0.30 s | 0.3 s | 3/4 | 0.2500 | 0.500 |" in (
        (tmp_path / "summary.md").read_text()
    )
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "one slow" in capsys.readouterr().out
    shown = live.table(rows)
    assert len(shown.rows) == 2 and shown.heads == list(live.HEADS)


class Stop(Exception):
    """Ends an experiment as a signal would."""


def recorded(task, code, number):
    """A run of two rounds in which nothing was trained; `number` tells it from others."""
    workers, load = code.assignment.num_workers, code.assignment.load
    chunks = np.full((2, load, workers), 0.25 + number, np.float32)
    seconds = load * chunks[:, 0, 0].astype(float)
    progress = np.tile(code.assignment.loads, (2, 1))
    rounds = runtime.Round(seconds, np.full(2, np.inf), np.zeros(2, int), progress, np.zeros(2), np.ones(2), chunks)
    return runtime.CodedRun(task.init(jax.random.key(number)), None, rounds)


def experiment(out, monkeypatch, *, stop=None):
    """The rows, and the runs that were trained; it is stopped instead of the run with that number."""
    trained = []

    def train(task, code, optimizer, *, checkpoints, identity, **kwargs):
        name = str(checkpoints.folder.relative_to(out / "checkpoints"))
        assert f"scheme = {name.replace('/', ', ')}, 2 processes" in identity and checkpoints.every == 3
        if len(trained) == stop:
            raise Stop
        trained.append(name)
        return recorded(task, code, len(name))

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(runtime, "train", train)
    arguments = {"deadline": runtime.adaptive(), "optimizer": optax.sgd(0.1), "load": 2, "num_rounds": 2}
    try:
        rows = live.live(**arguments, checkpoint_every=3, out=out, progress=progress.silent())
    except Stop:
        rows = None
    return rows, trained


@pytest.mark.slow
def test_runs_that_are_done_are_not_repeated(tmp_path, monkeypatch):
    (tmp_path / "whole").mkdir()
    whole, names = experiment(tmp_path / "whole", monkeypatch)
    assert len(whole) == 10 and not (tmp_path / "whole" / "checkpoints").exists()
    out = tmp_path / "cut"
    out.mkdir()
    assert experiment(out, monkeypatch, stop=4) == (None, names[:4])
    assert (out / "checkpoints").is_dir() and not (out / "live.json").exists()
    damaged = out / "checkpoints" / "uncoded-one-slow.json"
    damaged.write_text(damaged.read_text().replace('"extensions": 0', '"extensions": 1'))
    rows, others = experiment(out, monkeypatch)
    assert others == [names[1], *names[4:]] and rows == whole
    assert not (out / "checkpoints").exists() and (out / "live.json").exists()
    assert stragglers.read_trace(out / "uncoded-nobody-slow.csv").compute.shape == (4, 2)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"body": {}}', '{"body": 1, "sha256": 2}'])
def test_a_row_that_is_damaged_or_of_another_config_is_not_used(tmp_path, text):
    file = tmp_path / "folder" / "row.json"
    assert finished_rows.stored_row(file, "a") is None
    finished_rows.write_row(file, {"seconds": 0.1}, "a")
    assert finished_rows.stored_row(file, "a") == {"seconds": 0.1} and finished_rows.stored_row(file, "b") is None
    file.write_text(text)
    assert finished_rows.stored_row(file, "a") is None


def test_a_resumed_worker_is_interrupted_from_its_first_round_on(monkeypatch):
    """Whatever number that round has."""
    begun = []
    scenario = live.Scenario(lambda worker, round: 1.0, lambda: contextlib.nullcontext(begun.append(True)))
    monkeypatch.setattr(jax, "process_index", lambda: live.SLOW)
    with contextlib.ExitStack() as stack:
        calls = itertools.count()
        for number in (7, 8):
            live._interrupt_after_first_round(scenario, stack, calls, number, None, None)
            assert begun == [True]
