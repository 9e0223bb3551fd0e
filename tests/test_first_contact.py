"""What a person may meet first: each is one plain sentence and status 2, or it works."""

import errno
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gcjax import cli, files, parameter_server, stragglers
from gcjax.cli import machine_errors
from tests.parameters import some
from tests.small_config import SMALL

ROOT = Path(__file__).parent.parent


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.gin"
    path.write_text(SMALL)
    return path


@pytest.fixture
def here(capfd, monkeypatch, tmp_path):
    """A command in this process and in a folder of its own: its status, and what it wrote to stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        status = cli.main([str(argument) for argument in arguments])
        return status, *capfd.readouterr()

    return run


def gcjax(*arguments, **environment):
    command = [sys.executable, "-m", "gcjax", *map(str, arguments)]
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def is_one_sentence(error):
    return error.startswith("gcjax: ") and error.count("\n") == 1 and "Traceback" not in error


def test_make_with_a_python_that_is_too_old(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.version_info = (3, 10, 13)\nexec(sys.argv[2])\n")
    python.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={python}", "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "gcjax needs Python 3.11 or newer; set PYTHON=..." in done.stderr, done
    assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
def test_windows_line_ends_in_a_config(here, config):
    config.write_bytes(SMALL.replace("\n", "\r\n").encode())
    status, out, err = here("run", config, "--out", "out")
    assert status == 0 and "Written to out" in out, err
    assert "\r" not in Path("out", "operative.gin").read_bytes().decode()
    config.write_bytes(SMALL.replace("sgd.learning_rate", "sgd.learning_rat").replace("\n", "\r\n").encode())
    status, _, err = here("run", config, "--out", "other")
    assert status == 2 and "Did you mean learning_rate" in err and "line 10: sgd.learning_rat = 0.1" in err


@pytest.mark.parametrize("header", ["", "worker,unit,seconds,rows\n"])
def test_windows_line_ends_in_a_trace(tmp_path, header):
    seconds = np.array([[1.0, 20.0], [3.0, 40.0]])
    path = tmp_path / "trace.csv"
    if header:
        stragglers.write_trace(path, seconds)
        text = path.read_text()
    else:
        text = "0,1\n1,20\n3,40\n"  # a column a worker
    path.write_bytes(text.replace("\n", "\r\n").encode())
    np.testing.assert_array_equal(stragglers.read_trace(path).compute, seconds)


@pytest.mark.parametrize("number", some([errno.ENOSPC], [errno.EDQUOT]))
def test_a_full_disk(here, config, monkeypatch, number):
    write = files.os.replace

    def full(source, target):
        if str(target).endswith("metrics.parquet"):
            raise OSError(number, os.strerror(number), str(target))
        write(source, target)

    monkeypatch.setattr(files.os, "replace", full)
    status, _, err = here("run", config, "--out", "out")
    last_line = err.splitlines(keepends=True)[-1]
    assert status == 2 and is_one_sentence(last_line), err
    assert "no space left on the disk that the command writes to. Free some;" in last_line
    assert "--resume --out out" in last_line
    assert not Path("out", "metrics.parquet").exists() and not list(Path("out").glob(".part-*"))
    monkeypatch.undo()
    status = cli.main(["run", str(config), "--resume", "--out", str(config.parent / "out")])
    assert status == 0 and (config.parent / "out" / "metrics.parquet").is_file()


@pytest.mark.slow
def test_a_disk_that_is_full_when_a_checkpoint_is_written(config, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        done = gcjax("run", config, "--out", disk / "out")
        # Before it orbax may show callbacks of a write that has failed already.
        last_line = done.stderr.splitlines(keepends=True)[-1]
        assert done.returncode == 2 and is_one_sentence(last_line), done.stderr
        assert "no space left on the disk" in last_line
        subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        done = gcjax("run", config, "--out", disk / "out", "--resume")
        assert done.returncode == 0 and (disk / "out" / "summary.md").is_file(), done.stderr
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_behind_stdout():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "gcjax", "init", "--list"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 2 and is_one_sentence(done.stderr), done
    assert "no space left on the disk that the command writes to. Free some." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", some([["doctor"]], [["check", "ssp", "--json"], ["list"]]), ids=" ".join)
def test_a_reader_that_has_had_enough(arguments):
    """As `gcjax doctor | head -1`."""
    command = [sys.executable, "-m", "gcjax", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() == 141
    assert "Error" not in errors and "Broken pipe" not in errors


def test_what_libraries_say_of_a_full_disk():
    try:
        try:
            raise ValueError(
                "RESOURCE_EXHAUSTED: Failed to write 1041 bytes: No space left on device [os_error_code='28']"
            )
        except ValueError as error:
            raise RuntimeError("could not save") from error
    except RuntimeError as error:
        assert "no space left on the disk" in str(machine_errors.explanation(error))
    assert machine_errors.explanation(OSError(errno.EACCES, "Permission denied")) is None
    assert machine_errors.explanation(AssertionError("something else")) is None


def test_a_process_that_was_ended_is_no_unforeseen_error():
    sentence = machine_errors.explanation(parameter_server.WorkerError("worker 1: signal 9 has ended it"))
    assert sentence == "A process that the command has started ended with an error: worker 1: signal 9 has ended it"
    suffix = "\n  In call to configurable 'run' (<function run at 0x7fe730cfdd00>)"
    assert (
        machine_errors.explanation(parameter_server.WorkerError(f"worker 1: signal 9 has ended it{suffix}")) == sentence
    )


@pytest.mark.slow
@pytest.mark.parametrize("platform", some(["nonsense"], ["cuda"]))
def test_a_device_that_is_not_there(config, tmp_path, platform):
    done = gcjax("run", config, "--out", tmp_path / "out", JAX_PLATFORMS=platform)
    assert done.returncode == 2 and is_one_sentence(done.stderr), done.stderr
    assert f"JAX_PLATFORMS must name devices that are there; got '{platform}'." in done.stderr
    assert "Unset it" in done.stderr


@pytest.mark.slow
def test_a_plugin_for_a_gpu_where_there_is_none(tmp_path):
    """JAX's plugin for a GPU raises this where it finds none; JAX goes on with the CPU."""
    plugin = tmp_path / "plugins" / "jax_plugins" / "broken"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text("def initialize():\n    raise RuntimeError('Unable to load CUDA.')\n")
    path = os.pathsep.join([str(tmp_path / "plugins"), str(ROOT)])
    done = gcjax("doctor", PYTHONPATH=path)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "gcjax: JAX goes on without a device, whose plugin says: Unable to load CUDA. (JAX_P" in done.stderr
    assert "Traceback" in gcjax("doctor", PYTHONPATH=path, GCJAX_TRACEBACK="1").stderr


def test_other_messages_of_jax_are_let_through():
    machine_errors.shorten_plugin_errors()
    machine_errors.shorten_plugin_errors()
    (only,) = logging.getLogger("jax._src.xla_bridge").filters
    assert only(logging.LogRecord("jax", logging.WARNING, "xla_bridge.py", 1, "An NVIDIA GPU may be present", (), None))


@pytest.mark.slow
def test_no_display_is_needed(config, tmp_path):
    environment = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "MPLBACKEND": "TkAgg"}
    done = gcjax("run", config, "--out", tmp_path / "out", **environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "loss_vs_time.png").read_bytes().startswith(b"\x89PNG")
    assert "\x1b" not in done.stdout + done.stderr  # in a file there are no colours and no bars


@pytest.mark.slow("arguments1")
@pytest.mark.parametrize(
    "arguments", some([["init", "--list"], ["list", "protocol"]], [["check", "ssp", "--num-workers", "2"]])
)
def test_nothing_is_wider_than_80_columns(arguments):
    lines = shown_on_a_terminal(arguments, columns=80)
    assert len(lines) > 5 and max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]


def shown_on_a_terminal(arguments, columns):
    """The lines that a command shows on a terminal of so many columns, without escape codes."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "XLA_FLAGS": ""}
    command = [sys.executable, "-m", "gcjax", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=follower, stderr=follower) as process:
        os.close(follower)
        shown = b""
        while chunk := _chunk(leader):
            shown += chunk
        assert process.wait(timeout=300) == 0, shown
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).splitlines()]


def _chunk(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # the other side has gone
        return b""


@pytest.mark.slow("1", "2")
@pytest.mark.parametrize("closed", [1, 2])
def test_a_command_whose_output_is_closed_before_it_begins_works(closed):
    command = f"{sys.executable} -m gcjax list --json {closed}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith("{") if closed == 2 else not done.stdout
