"""Files of rows: appended to, cut off, damaged, gone on with."""

import errno
import multiprocessing
import shutil

import numpy as np
import pytest

import gcjax
from gcjax.watching.joining import joined_trace
from gcjax.watching.shared_folder import SharedFolder


def rows(worker, first, last):
    values = np.arange(first, last) / 7.0
    nan = np.full(last - first, np.nan)
    units = np.arange(first, last)
    return np.column_stack([units * 0 + worker, units, 0.01 + values, nan, values, values / 2, values * 0])


def opened(path, worker=0, name="step", start=0):
    folder = SharedFolder(path, name, start)
    folder.open(worker)
    return folder


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "folder"


def same(ours, theirs):
    np.testing.assert_allclose(ours, np.concatenate(theirs), atol=1e-7, rtol=0)


def test_each_sees_what_all_have_appended_once(path):
    first, second = opened(path, 0), opened(path, 1)
    assert first.news().shape == (0, 7)
    first.append(rows(0, 1, 5))
    second.append(rows(1, 1, 3))
    same(first.news(), [rows(0, 1, 5), rows(1, 1, 3)])
    second.append(rows(1, 3, 900))
    same(first.news(), [rows(1, 3, 900)])
    assert first.news().shape == (0, 7)
    same(second.all_rows(), [rows(0, 1, 5), rows(1, 1, 900)])


def test_the_file_of_a_process_and_that_of_all_are_traces(path):
    first, second = opened(path, 0), opened(path, 1)
    first.append(rows(0, 1, 5))
    second.append(rows(1, 1, 4))
    trace = gcjax.stragglers.read_trace(path / "step.0.0.csv")
    np.testing.assert_allclose(trace.compute[:, 0], rows(0, 1, 5)[:, 2], atol=1e-7)
    first.close()
    trace = gcjax.stragglers.read_trace(path / "step.csv")
    assert trace.workers == ("0", "1") and trace.steps.tolist() == [1, 2, 3, 4]
    assert np.isnan(trace.compute[3, 1]) and trace.reading.workers_left_early == (1,)


def test_half_a_line_is_left_for_the_next_time(path):
    folder, file = opened(path), path / "step.0.0.csv"
    folder.append(rows(0, 1, 4))
    data = file.read_bytes()
    file.write_bytes(data[:-9])
    same(folder.news(), [rows(0, 1, 3)])
    file.write_bytes(data)
    same(folder.news(), [rows(0, 3, 4)])


@pytest.mark.parametrize("last", [7, 9, 12])
def test_a_new_file_of_the_same_name_is_read_from_its_beginning(path, last):
    """The folder was removed; the new file is shorter than the old one, as long, or longer."""
    folder = opened(path)
    folder.append(rows(0, 1, 5))
    same(folder.news(), [rows(0, 1, 5)])
    shutil.rmtree(path)
    folder.append(rows(0, 5, last))
    same(folder.news(), [rows(0, 5, last)])
    folder.append(rows(0, last, 15))
    same(folder.news(), [rows(0, last, 15)])


@pytest.mark.parametrize(
    "damage", [b"\0\0\0\0\0\n", b"0,2,oops,,0.1,0.1,0.1\n", b"0,2\n", b"\xff\xfe\n", b"-1,2,1,,1,1,1\n"]
)
def test_damaged_lines_are_left_out(path, damage):
    folder = opened(path)
    folder.append(rows(0, 1, 3))
    with (path / "step.0.0.csv").open("ab") as stream:
        stream.write(damage)
    folder.append(rows(0, 3, 5))
    same(folder.news(), [rows(0, 1, 5)])


def test_a_folder_is_for_one_run(path):
    opened(path)
    with pytest.raises(ValueError, match=r"for one run and one wrapper; .*step.0.0.csv is there already. Give another"):
        opened(path)
    opened(path, name="other")


def test_a_run_that_goes_on_replaces_what_it_measures_again(path):
    opened(path).append(rows(0, 1, 100))
    other = SharedFolder(path, "step", 50)
    for last in (90, 60):  # it is cut off and goes on twice from the same checkpoint
        later = opened(path, start=50)
        later.append(rows(0, 51, last))
        same(other.news(), [rows(0, 51, last)])
    same(later.all_rows(), [rows(0, 1, 50), rows(0, 51, 60)])


def test_a_run_from_an_earlier_checkpoint_replaces_what_later_ones_measured(path):
    for start, last in [(0, 20), (10, 40), (5, 15)]:
        for worker in (0, 1):
            opened(path, worker, start=start).append(rows(worker, start + 1, last))
    SharedFolder(path, "step", 5).close()
    expected = [*(rows(worker, 1, 5) for worker in (0, 1)), *(rows(worker, 6, 15) for worker in (0, 1))]
    same(SharedFolder(path, "step", 0).all_rows(), expected)
    assert sorted(file.name for file in path.glob("step*")) == [
        "step.0.0.csv", "step.0.1.csv", "step.10.0.replaced", "step.10.1.replaced",
        "step.5.0.csv", "step.5.1.csv", "step.csv",
    ]  # fmt: skip


def in_another_process(path, worker, start, end):
    """Opens the file and tells so, until it hears of the end."""
    folder = opened(path, worker, start=start)
    folder.append(rows(worker, start + 1, start + 4))
    end.send("open")
    end.recv()


def test_a_wrapper_whose_place_another_one_has_taken_says_so(path):
    """Their times are not mixed; what was measured before is kept."""
    *others, last = (opened(path, start=5) for _ in range(4))  # file systems give the number of a file again
    for other in others:
        with pytest.raises(ValueError, match=r"for one wrapper; another one writes .*step.5.0.csv now, .* own name"):
            other.append(rows(0, 6, 9))
    last.append(rows(0, 6, 8))
    same(last.all_rows(), [rows(0, 6, 8)])


def test_a_file_that_an_editor_has_written_anew_is_gone_on_with(path):
    folder = opened(path)
    folder.append(rows(0, 1, 3))
    (file,) = path.glob("step.*.csv")
    copy = file.with_suffix(".copy")
    copy.write_bytes(file.read_bytes())
    copy.replace(file)
    folder.append(rows(0, 3, 6))
    same(folder.all_rows(), [rows(0, 1, 6)])


def test_a_file_system_without_locks_is_said(path, monkeypatch):
    def without_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.lockf", without_locks)
    with pytest.warns(UserWarning, match="has no locks .*; see to it that no other process writes there"):
        opened(path).append(rows(0, 1, 5))


@pytest.mark.slow("12", "9")
@pytest.mark.parametrize("start", [5, 9, 12])
def test_two_processes_of_one_number_are_refused(path, start):
    """Wherever the other one has begun; what it writes stays."""
    end, other_end = (context := multiprocessing.get_context("spawn")).Pipe()
    other = context.Process(target=in_another_process, args=(path, 0, 9, other_end), daemon=True)
    other.start()
    assert end.recv() == "open"
    with pytest.raises(ValueError, match=r"as worker 0 of 'step' in .*, and another one does. Does the job"):
        opened(path, start=start)
    opened(path, 1, start=5)  # another worker, of a run that goes on from an earlier step: both live
    same(SharedFolder(path, "step", 9).news(), [rows(0, 10, 13)])
    end.send("end")
    other.join(30)
    opened(path, start=start).append(rows(0, start + 1, start + 3))
    opened(path, start=start).append(rows(0, start + 1, start + 2))  # as a cell of a notebook that is run again
    assert (SharedFolder(path, "step", 0).all_rows()[:, 1] == start + 1).any()


def test_other_files_are_left_alone(path):
    opened(path).append(rows(0, 1, 5))
    for name in ("step.old.0.csv", "step.0.0.bak.csv", "steps.0.0.csv"):
        shutil.copy(path / "step.0.0.csv", path / name)
    same(SharedFolder(path, "step", 0).all_rows(), [rows(0, 1, 5)])


def test_a_fresh_run_is_not_mixed_with_one_that_went_on(path):
    opened(path, start=5)
    with pytest.raises(ValueError, match=r"step.5.0.csv is there already. Give another"):
        opened(path)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder must be one that can be written; .*file"):
        gcjax.watch(lambda x: x, folder=tmp_path / place)
    for arguments in ({"folder": 3}, {"name": "a" * 300}, {"name": "a\0b"}):
        with pytest.raises(ValueError, match="must be"):
            gcjax.watch(lambda x: x, **arguments)


def test_a_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    step = gcjax.watch(lambda x: x, folder="~/watch")
    for x in range(4):
        step(x)
    step.close()
    assert (tmp_path / "watch" / "step.0.0.csv").exists()
    assert gcjax.watching.record("~/watch").compute.shape[1] == 1


def test_the_trace_that_is_written_has_the_numbers_of_the_processes(path):
    first, third = opened(path), opened(path, 2)
    first.append(rows(0, 1, 20))
    third.append(rows(2, 1, 20))
    first.close()
    trace = gcjax.stragglers.read_trace(path / "step.csv")
    assert trace.workers == ("0", "1", "2") and np.isnan(trace.compute[:, 1]).all()
    np.testing.assert_allclose(trace.compute[:, [0, 2]], joined_trace(first.all_rows()).compute, atol=1e-7)
