"""Shell completion: what the script for bash offers, and scripts for the other shells."""

import shutil
import subprocess

import pytest

from gcjax import cli, registry
from gcjax.cli import completion

pytest.importorskip("shtab", reason="shtab writes the scripts: pip install shtab")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script for each shell, as a file."""
    import contextlib
    import io

    files = {}
    for shell in completion.SHELLS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert cli.main(["completion", shell]) == 0
        files[shell] = tmp_path_factory.mktemp("completion") / f"gcjax.{shell}"
        files[shell].write_text(printed.getvalue())
    return files


@pytest.fixture
def offered(scripts, tmp_path):
    """What bash offers for the last of some words."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    for name in ("a.gin", "b.gin", "c.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "configs").mkdir()

    def complete(*words):
        script = (
            f'source {scripts["bash"]}; COMP_WORDS=(gcjax "$@"); COMP_CWORD=$#; COMP_LINE="${{COMP_WORDS[*]}}"; '
            "COMP_POINT=${#COMP_LINE}; "
            '$(complete -p gcjax | sed \'s/.*-F \\([^ ]*\\).*/\\1/\') gcjax "${@: -1}" "${COMP_WORDS[COMP_CWORD-1]}"; '
            "printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        command = ["bash", "--norc", "-c", script, "bash", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())

    return complete


def test_commands(offered):
    assert {"run", "sweep", "list", "report", "check", "init", "doctor", "completion"} <= offered("")
    assert offered("re") == {"report"}


def test_the_file_of_a_trace(offered):
    assert "describe" in offered("trace", "")
    assert {"a.gin", "c.txt", "configs"} <= offered("trace", "describe", "")
    assert {"--columns", "--scale", "--heat-map", "--json", "--traceback"} <= offered("trace", "describe", "--")
    assert offered("trace", "advise", "--fig") == {"--figure"}
    assert {"a.gin", "c.txt", "configs"} <= offered("trace", "advise", "--figure", "")


def test_options(offered):
    assert {"--set", "--out", "--resume", "--json", "--no-cache"} <= offered("run", "--")
    assert offered("run", "--jso") == {"--json"}


def test_names_of_schemes_and_specifications(offered):
    kinds = registry.kinds()
    assert offered("check", "worker_busy_") == {"worker_busy_eager", "worker_busy_pushes"}
    assert {*kinds, *kinds["protocol"].entries, *kinds["code"].entries} <= offered("list", "")
    assert offered("list", "ssp") == {"ssp", "ssp_cached"}


def test_configs(offered):
    assert {"a.gin", "b.gin"} <= offered("run", "") and "c.txt" not in offered("run", "")
    assert offered("run", "conf") == {"configs"}
    assert offered("init", "--config", "quick") == {"quickstart"}
    assert offered("completion", "z") == {"zsh"}


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_script_has_commands_options_and_names(scripts, shell):
    script = scripts[shell].read_text()
    assert all(word in script for word in ("sweep", "resume", "worker_busy_eager", "quickstart", "gin"))
    if shutil.which(shell):
        subprocess.run([shell, "-n", scripts[shell]], check=True)
