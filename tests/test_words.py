"""What a config asks for and cannot have: one sentence, status 2, before anything is trained; and no traceback."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import gin
import jax
import pytest

from gcjax import cli, memory, stragglers
from gcjax.study import training
from tests import small_config

SMALL = small_config.SMALL.replace("study.target = 1.0", "study.target = 0.001")

EDITS = {
    "compare.schemes = {'BSP': @bsp()": r"small.gin line 2: its bracket is never closed. Close it",
    "sgd.learning_rate = %a\na = %b\nb = %a": r"must not need itself; here %a needs %b needs %a",
    "exponential.mean = @exponential()": r"must not need itself; here exponential needs exponential",
    "run.experiment = @run()": r"run.experiment must be an experiment, as in .*; got run itself",
    "run.experiment = @run": r"run.experiment must be an experiment, as in .*; got run itself",
    "run.experiment = 3": r"run.experiment must be an experiment, which .* got 3\.",
    "run.experiment = @bsp()": r"run.experiment must be an experiment, which takes out and progress, .* got Protocol",
    "run.experiment = @bsp": r"run.experiment must be an experiment, which takes out and progress, .* got bsp",
    "compare.schemes = {@linear_regression(): @bsp()}": r"A key in \{\} must be a text or a number; got .* Replace it",
    "include 'small.gin'": r"must not include one another in a circle; small.gin includes small.gin. Take one",
    "include 'other.gin'": r"small.gin includes other.gin includes small.gin",
    "import raises_gcjax": r"raises_gcjax must be .* imported; it ends with RuntimeError: no luck. Mend line 2 of .*",
    "import ends_gcjax": r"must not end the process; line 2 of .*ends_gcjax.py does",
    "import nowhere_gcjax": r"No module 'nowhere_gcjax' can be imported",
    "study.num_workers = 100000000000000000000": r"num_workers must fit into 64 bits.*got 100000000000000000000\.",
    "study.num_workers = 1000000000000": r"num_workers must be a whole number between 1 and 2147483647",
    "study.num_workers = 2000000000": r"schedules of 4 units of 2000000000 workers .* take at least 179 GiB",
    "study.num_units = 2000000000": r"schedules of 2000000000 units of 2 workers .* Lower num_units",
    "study.num_seeds = 2000000000": r"schedules of .* for 2000000000 seeds must fit into memory; they take",
    "study.seed = 18446744073709551616": r"study.seed must fit into 64 bits.*got 18446744073709551616",
    "study.seed = 4294967296": r"seed must be a whole number between 0 and 4294967295; got 4294967296",
    "study.seed = -1": r"seed must be a whole number between 0 and 4294967295; got -1",
    "compare.schemes = {}": r"schemes must have at least one scheme, as in \{'BSP': @bsp\(\)\}; got none",
    f"compare.schemes = {{'{'x' * 300}': @bsp()}}": r"a scheme's name must fit into a file's name; got 'xxx",
    "linear_regression.batch_size = 2000000000": r"batches of the task must fit into memory; they take at least",
    "linear_regression.num_examples = 2000000000": r"2000000000 examples of 2 features must fit into memory",
    "linear_regression.num_chunks = 10000000000": r"num_chunks must be a whole number between 1 and 8",
    "compare.timeline_seconds = 1e400": r"timeline_seconds must be above 0 and finite; got inf",
    "compare.timeline_seconds = 0.0": r"timeline_seconds must be above 0 and finite; got 0",
    "study.seconds = -1.0": r"seconds must be above 0 and finite; got -1",
    "compare.stragglers = @bsp()": r"compare.stragglers must be StragglerModel; got a Protocol",
    "compare.stragglers = @scaled()\nscaled.model = @bsp()\nscaled.factor = 2": r"scaled.model must be .* a Protocol",
    "study.num_seeds = True": r"study.num_seeds must be a whole number; got True \(bool\). Write one, as in 3\.",
    "sgd.learning_rate = True": r"number or a schedule, as @cosine_decay_schedule\(\); got True .* one, as in 0.5",
    "sgd.learning_rate = '0.1'": r"schedule, as .*; got '0.1' \(str\). Write it without quotes, as in 0.5",
    "sgd.nesterov = 1": r"sgd.nesterov must be True or False; got 1 \(int\)\.$",
    "compare.schemes = [@bsp()]": r"schemes must be dict.*; got a list. Write names in front, in \{ \}, as in \{'name'",
    "exponential.mean = @bsp()": r"exponential.mean must be .*; got a Protocol",
}


class Trained(Exception):
    """Raised where training would begin: everything before was accepted."""


@pytest.fixture
def gcjax(tmp_path, monkeypatch, capsys):
    """A run in this process without the training itself; a config may include or import what lies in its folder."""
    (tmp_path / "other.gin").write_text("include 'small.gin'\n")
    (tmp_path / "raises_gcjax.py").write_text("\nraise RuntimeError('no luck')\n")
    (tmp_path / "ends_gcjax.py").write_text("\nraise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(memory, "machine_bytes", lambda: 2**30)  # so that nothing large is allocated if a check is gone

    def train(*arguments):
        raise Trained

    monkeypatch.setattr(training, "train", train)

    def run(text, *arguments, out="out"):
        (tmp_path / "small.gin").write_bytes(text if isinstance(text, bytes) else text.encode())
        options = [word for binding in arguments for word in ("--set", binding)]
        status = cli.main(["run", "small.gin", "--no-cache", "--out", str(out), *options])
        return status, capsys.readouterr().err

    yield run
    gin.clear_config()


def with_line(line):
    """The config with a statement instead of that of the same parameter, or with one more."""
    lines = SMALL.splitlines()
    same = [i for i, old in enumerate(lines) if old.partition(" = ")[0] == line.partition(" = ")[0]]
    lines[same[0] if same else len(lines) :][:1] = []
    if same:
        lines[same[0]] = line
    else:
        lines.append(line)
    return "\n".join(lines) + "\n"


def is_refused(result):
    status, said = result
    assert status == 2, said
    assert said.startswith("gcjax: ") and "Traceback" not in said and len(said.splitlines()) <= 5, said
    return said


@pytest.mark.parametrize("line", EDITS)
def test_it_is_refused_in_words(gcjax, line):
    said = is_refused(gcjax(with_line(line)))
    assert re.search(EDITS[line], said), said


def test_what_is_right_comes_to_the_training(gcjax):
    status, said = gcjax(SMALL)
    assert status == 1 and "unexpected Trained" in said


@pytest.mark.parametrize("data", [b"# \xff\xfe\n", b"\x00 = 1\n", "﻿\u2028 \u202e = 1".encode(), b"\xc3"])
def test_a_file_that_is_no_text(gcjax, data):
    said = is_refused(gcjax(SMALL.encode() + data))
    if b"\xff" in data:
        assert f"must be text in UTF-8; its byte {len(SMALL) + 2} is 0xff. Save it as UTF-8" in said


@pytest.mark.parametrize("out", ["x" * 300, "/dev/null/out", "small.gin/out", "a\0b"])
def test_an_output_folder_that_cannot_be(gcjax, out):
    said = is_refused(gcjax(SMALL, out=out))
    assert "\0" in out or "must be one that can be written" in said


def test_a_read_only_output_folder(gcjax, tmp_path):
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    tmp_path.chmod(0o777)
    was_root = os.geteuid() == 0
    for above in (tmp_path.parent, tmp_path.parent.parent) if was_root else ():
        above.chmod(0o755)
    if was_root:
        os.seteuid(65534)  # root may write everywhere
    try:
        from gcjax.analysis import make_empty_folder

        with pytest.raises(ValueError, match=r"must be one that can be written; .*read-only cannot: Permission denied"):
            make_empty_folder(folder)
    finally:
        if was_root:
            os.seteuid(0)


@pytest.mark.parametrize("wrap", [stragglers.worker_speeds, lambda m: stragglers.scaled(m, factor=2.0)])
def test_a_wrong_model_in_python(wrap):
    with pytest.raises(ValueError, match="model must be a StragglerModel, for example .*; got 3"):
        wrap(3)
    with pytest.raises(ValueError, match="model must be a StragglerModel, for example .*; got 3"):
        stragglers.failed_count(3, count=1)


def test_what_fits_into_memory(monkeypatch):
    memory.check_fits("arrays", memory.available_bytes(), "")
    with pytest.raises(ValueError, match=r"arrays must fit into memory; they take at least .*iB, and .* Lower them"):
        memory.check_fits("arrays", memory.available_bytes() + 1, "Lower them.")
    monkeypatch.setattr(memory, "machine_bytes", lambda: 2**20)
    with pytest.raises(ValueError, match=r"they take at least 2 MiB, and there are 1 MiB"):
        memory.check_fits("arrays", 2**21, "")
    arrays = (jax.ShapeDtypeStruct((3, 5), "float32"), jax.random.key(0))
    assert memory.bytes_of_arrays(arrays) == 60


def test_a_failed_allocation_is_put_in_words(gcjax, monkeypatch):
    def train(*arguments):
        raise MemoryError("Unable to allocate 9 PiB")

    monkeypatch.setattr(training, "train", train)
    assert "more memory than there is: Unable to allocate 9 PiB. Make" in is_refused(gcjax(SMALL))


def test_what_nobody_foresaw_is_a_few_lines(gcjax, monkeypatch):
    status, said = gcjax(SMALL)
    assert (status, len(said.splitlines())) == (1, 4) and "Traceback" not in said
    assert "unexpected Trained: without a message\n  (in compare of the config)\n" in said
    assert "test_words.py line" in said and "--traceback" in said
    monkeypatch.setenv("GCJAX_TRACEBACK", "1")
    shutil.rmtree("out")  # with a figure that was drawn before the training
    status, said = gcjax(SMALL, "study.seed = -1")
    assert status == 2 and "got -1" in said and "Traceback (most" in said


def test_what_knows_none_of_our_names(gcjax):
    said = is_refused(gcjax("from __gin__ import dynamic_registration\n" + SMALL.partition("\n")[2]))
    assert "gin knows only what a config imports, and not 'bsp'. Take the line 'from __gin__" in said


def test_a_list_of_things_must_be_a_list(gcjax):
    schemes = (
        "compare.schemes = {'A': @coded()}\ncoded.code = @uncoded()\nuncoded.num_workers = 2\ncoded.stop = @first_of()"
    )
    said = is_refused(gcjax(with_line(schemes), "first_of.rules = 0"))
    assert "first_of.rules must be a list; got 0. Write [ ] around it." in said


def test_an_included_file_that_is_nowhere_is_said_once(gcjax):
    assert len(is_refused(gcjax(with_line("include 'none.gin'"))).splitlines()) <= 2


def test_ctrl_c_while_the_command_itself_is_imported(tmp_path):
    (tmp_path / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    root = Path(cli.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "gcjax", "list"], capture_output=True, text=True, timeout=100, cwd=root,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
