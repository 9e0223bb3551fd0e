"""No two processes get the same folder."""

import contextlib
import datetime
import threading

import pytest

from gcjax import cli, locks, saved_progress
from gcjax.cli import run_folders, sweep
from gcjax.cli.parser import parser
from gcjax.cli.run import _advice
from tests.cli.test_main import CONFIG


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory at a moment that does not pass."""

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datetime, "datetime", Stopped)
    return tmp_path


@pytest.fixture
def holding():
    with contextlib.ExitStack() as stack:
        yield stack


def stopped(here, *names):
    for name in names:
        (here / "runs" / name / "checkpoints").mkdir(parents=True)


def test_three_of_one_second_have_three_folders(here, holding):
    barrier, folders = threading.Barrier(3), []

    def take():
        barrier.wait()
        folders.append(run_folders.locked_new_folder(None, "a", holding).name)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(folders) == ["a-20260102-030405", "a-20260102-030405-2", "a-20260102-030405-3"]


@pytest.mark.parametrize("choose", [run_folders.locked_new_folder, run_folders.locked_resumable_or_new_folder])
def test_the_same_folder_twice_is_refused(here, holding, choose):
    choose("out", "a", holding)
    for _ in range(2):
        with pytest.raises(locks.HeldError, match="out is held by process"):
            choose("out", "a", holding)
    (here / "out" / "checkpoints").mkdir()
    with pytest.raises(locks.HeldError, match="out is held by process"):
        choose("out", "a", holding)


def test_the_folder_of_something_else_gets_no_lock(here, holding):
    (here / "photos").mkdir()
    (here / "photos" / "a.png").touch()
    for choose in (run_folders.locked_new_folder, run_folders.locked_resumable_or_new_folder):
        with pytest.raises(ValueError, match="must be new or empty"):
            choose("photos", "a", holding)
    assert [path.name for path in (here / "photos").iterdir()] == ["a.png"]


def test_a_lock_that_the_dead_have_left_is_no_content(here, holding):
    (here / "out").mkdir()
    (here / "out" / locks.LOCK_FILE).write_text("process 1 on nowhere")
    assert run_folders.locked_new_folder("out", "a", holding).name == "out"


def test_the_newest_that_nobody_writes_to_is_resumed(here, holding):
    stopped(here, "a-20260101-000000", "a-20260101-000001-2", "a-20260101-000001-10", "a-b-20260103-000000")
    order = [run_folders.locked_resumable_or_new_folder(None, "a", holding).name for _ in range(4)]
    assert order == ["a-20260101-000001-10", "a-20260101-000001-2", "a-20260101-000000", "a-20260102-030405"]
    holding.close()
    assert run_folders.locked_resumable_or_new_folder(None, "a", holding).name == order[0]


def test_one_with_a_checkpoint_is_resumed_before_newer_ones_without(here, holding):
    stopped(here, "a-20260101-000000", "a-20260101-000001", "a-20260101-000002")
    checkpoint = here / "runs" / "a-20260101-000001" / "checkpoints" / "BSP" / "7"
    checkpoint.mkdir(parents=True)
    (checkpoint / "_CHECKPOINT_METADATA").touch()
    order = [run_folders.locked_resumable_or_new_folder(None, "a", holding).name for _ in range(2)]
    assert order == ["a-20260101-000001", "a-20260101-000002"]


def test_what_was_interrupted_says_how_to_go_on(here):
    saved_progress.forget_run()  # of other tests
    options = parser().parse_args(["run", "a.gin", "--out", "out"])
    out = here / "out"
    out.mkdir()
    (out / "timeline.png").touch()
    words = {
        (is_resumable, can_begin_again): _advice(
            options, out, is_complete=False, is_resumable=is_resumable, can_begin_again=can_begin_again
        )
        for is_resumable, can_begin_again in ((True, True), (False, True), (False, False))
    }
    command = f"gcjax run a.gin --resume --out {out}"
    assert words[True, True] == f"; go on with: {command}"
    assert words[False, True] == f"; there is no checkpoint yet, so start it again with: {command}"
    assert words[False, False] == f"; there is no checkpoint to resume, so empty {out} and start it again"


@pytest.mark.parametrize("flags", [[], ["--no-cache", "--json"], ["--traceback"]])
def test_what_goes_on_has_the_flags_of_what_was_interrupted(here, flags):
    run_options = parser().parse_args(["run", "a.gin", *flags])
    run_advice = _advice(run_options, here / "out", is_complete=False, is_resumable=True, can_begin_again=True)
    sweep_options = parser().parse_args(["sweep", "a.gin", "--over", "ssp.staleness=1,2", *flags])
    given = "".join(f"{flag} " for flag in flags)
    assert run_advice.endswith(f"gcjax run a.gin {given}--resume --out {here / 'out'}")
    assert sweep._advice(sweep_options, here / "out").endswith(
        f" ssp.staleness=1,2 {given}--resume --out {here / 'out'}"
    )


def test_a_finished_one_is_not_resumed(here, holding):
    (here / "out").mkdir()
    (here / "out" / "run.json").touch()
    with pytest.raises(ValueError, match="is finished"):
        run_folders.locked_resumable_or_new_folder("out", "a", holding)
    assert not (here / "out" / locks.LOCK_FILE).exists()


@pytest.mark.parametrize("command", [["run"], ["run", "--resume"], ["sweep", "--over", "sgd.learning_rate=0.1,0.2"]])
def test_commands_do_not_write_to_a_held_folder(tmp_path, capsys, command):
    config, out = tmp_path / "small.gin", tmp_path / "out"
    config.write_text(CONFIG)
    (out / "checkpoints").mkdir(parents=True)
    with locks.lock(out):
        assert cli.main([command[0], str(config), *command[1:], "--out", str(out)]) == 2
    assert "is held by process" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["checkpoints"]
