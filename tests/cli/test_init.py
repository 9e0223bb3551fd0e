"""`gcjax init`: configs to start from, each with what it needs, and nothing overwritten."""

import subprocess
import sys
from pathlib import Path

import pytest

from gcjax import cli
from gcjax.cli import shipped

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gcjax(capsys):
    def run(*arguments):
        status = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def copied(folder):
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_the_quickstart_is_copied_alone(gcjax, tmp_path):
    status, out, _ = gcjax("init", tmp_path / "a b")
    assert status == 0 and copied(tmp_path / "a b") == {"configs/quickstart.gin"}
    original = ROOT / "configs" / "quickstart.gin"
    assert (tmp_path / "a b" / "configs" / "quickstart.gin").read_bytes() == original.read_bytes()
    assert out.endswith(f"Next: cd '{tmp_path / 'a b'}' && gcjax run configs/quickstart.gin\n")


def test_a_config_comes_with_what_it_includes_and_the_source_of_its_experiment(gcjax, tmp_path):
    assert gcjax("init", tmp_path, "--config", "worker_busy/digits")[0] == 0
    assert copied(tmp_path) == {
        "LICENSE", "configs/worker_busy/base.gin", "configs/worker_busy/digits.gin", "experiments/__init__.py",
        "experiments/worker_busy.py",
    }  # fmt: skip
    assert gcjax("init", tmp_path, "--config", "live")[0] == 0  # what both need is there already
    assert {"experiments/finished_rows.py", "experiments/pause_process.py"} <= copied(tmp_path)
    assert not [name for name in copied(tmp_path) if ".part-" in name]


@pytest.mark.slow
def test_every_config_can_be_loaded_where_it_was_copied_to(gcjax, tmp_path):
    load_copies(gcjax, tmp_path, list(shipped.configs()))


@pytest.mark.slow
def test_a_config_can_be_loaded_where_it_was_copied_to(gcjax, tmp_path):
    load_copies(gcjax, tmp_path, ["worker_busy/digits"])


def load_copies(gcjax, tmp_path, names):
    """Loads configs, each in a folder of its own, where the repository cannot be imported from."""
    for name in names:
        assert gcjax("init", tmp_path / name, "--config", name)[0] == 0
    script = (
        "import os, sys\nfrom gcjax import config\nconfig.register_entries()\n"
        f"sys.path[:] = [path for path in sys.path if os.path.realpath(path or '.') != {str(ROOT)!r}]\n"
        "for name in sys.argv[2:]:\n"
        "    if os.fork() == 0:  # with nothing imported by the one before\n"
        "        os.chdir(os.path.join(sys.argv[1], name))\n"
        "        config.load(f'configs/{name}.gin')\n"
        "        origins = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'experiments']\n"
        "        assert all(origin.startswith(os.getcwd()) for origin in origins), origins\n"
        "        sys.exit()\n"
        "    assert os.wait()[1] == 0, name\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_nothing_is_overwritten(gcjax, tmp_path):
    (tmp_path / "configs").mkdir()
    mine = tmp_path / "configs" / "protocols.gin"
    mine.write_text("mine")
    status, out, err = gcjax("init", tmp_path, "--config", "protocols")
    assert (status, out) == (2, "")
    assert "are not overwritten" in err and "configs/protocols.gin" in err
    assert copied(tmp_path) == {"configs/protocols.gin"} and mine.read_text() == "mine"


def test_a_folder_where_a_file_goes_is_not_overwritten(gcjax, tmp_path):
    (tmp_path / "configs" / "quickstart.gin").mkdir(parents=True)
    assert gcjax("init", tmp_path)[0] == 2


def test_the_list_names_all_but_those_to_include(gcjax):
    status, out, _ = gcjax("init", "--list")
    assert status == 0
    assert all(name in out and shipped.summary(file) for name, file in shipped.configs().items())
    assert "quickstart" in shipped.configs() and "grouped/delays" in shipped.configs()
    assert "worker_busy/base" not in shipped.configs()
    assert "two kinds of workers." in out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["x", "--config", "protocls"], "no config 'protocls' to begin with. Did you mean protocols or"),
        ([], "either a DIR to write or --list"),
        (["x", "--list"], "either a DIR to write or --list"),
        (["/dev/null/x"], "DIR must be one that can be written; /dev/null/x cannot"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(gcjax, arguments, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = gcjax("init", *arguments)
    assert (status, out) == (2, "") and match in err and copied(tmp_path) == set()
