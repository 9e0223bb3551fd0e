"""Compiled programs on disk: nothing is compiled by the second run, and processes may share the folder."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from gcjax import cli
from gcjax.cli import cached_programs
from tests.parameters import some

# Each prints how many programs were compiled, and how many read.
BEGIN = """
import collections, jax
from gcjax import cli
from gcjax.cli import cached_programs

counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rpartition("/")[2]]))
cached_programs.use_cache_folder()
"""
END = """
print(counts["cache_misses"], counts["cache_hits"])
"""
SMALL = f"""{BEGIN}
jax.jit(lambda x: x + 1)(1.0)
{END}"""
# A run that reports its progress, as gcjax run does.
RUN = f"""{BEGIN}
import optax
from gcjax import engine, protocols, stragglers, tasks

key, shares = jax.random.key(0), []
durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), key, 8, 3)
engine.run(
    tasks.linear_regression(3, num_examples=12, num_features=2), protocols.ssp(staleness=1), optax.sgd(0.1), durations,
    rng_key=key, progress=lambda done, total: shares.append((done, total)),
)
assert shares and shares[-1][0] == shares[-1][1], shares
{END}"""


def environment(home):
    own = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    return {**{k: v for k, v in os.environ.items() if k not in own}, "XDG_CACHE_HOME": str(home)}


def start(home, script):
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and not err, err
    misses, hits = map(int, out.split())
    return misses, hits


@pytest.mark.slow
@pytest.mark.parametrize("script", some([SMALL], [RUN]), ids=["a program", "a run"])
def test_the_second_run_compiles_nothing_also_after_two_at_once(tmp_path, script):
    first = [finish(process) for process in (start(tmp_path, script), start(tmp_path, script))]
    assert max(misses for misses, _ in first) > 0
    misses, hits = finish(start(tmp_path, script))
    assert misses == 0
    assert hits == sum(first[0])


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = {}
    monkeypatch.setattr(jax.config, "update", lambda name, value: settings.update({name: value}))
    monkeypatch.setattr(cached_programs, "_given_cache_folder", lambda: None)
    return tmp_path, settings


def test_half_written_programs_are_removed(home):
    _, settings = home
    folder = cached_programs.default_cache_folder()
    folder.mkdir(parents=True)
    for name in ("whole-cache", "whole-atime", "half-cache"):
        (folder / name).write_bytes(b"x")
    assert cached_programs.use_cache_folder() == folder
    assert sorted(file.name for file in folder.glob("*-*")) == ["whole-atime", "whole-cache"]
    assert settings["jax_compilation_cache_max_size"] == cached_programs.MAX_BYTES


def test_a_folder_that_cannot_be_made_is_said_and_does_no_harm(home, capsys):
    path, settings = home
    (path / "gcjax").write_text("a file")
    assert cached_programs.use_cache_folder() is None
    assert "compiled programs are not kept" in capsys.readouterr().err
    assert not settings


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setattr(cached_programs, "_jax_setting", lambda name: "a folder")
    monkeypatch.setattr(jax.config, "update", lambda *_: pytest.fail("changed"))
    assert cached_programs.use_cache_folder() == Path("a folder")


def test_an_empty_setting_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cached_programs, "_jax_setting", lambda name: "")
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    assert cached_programs.use_cache_folder() == tmp_path / "gcjax" / "programs"


def test_check_keeps_its_programs_too(home):
    _, settings = home
    assert cli.main(["check", "ssp", "--num-workers", "2"]) == 0
    assert settings["jax_compilation_cache_dir"] == str(cached_programs.default_cache_folder())
