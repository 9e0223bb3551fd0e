"""The pages on schemes of one's own: what they show runs as a package outside of the repository."""

import os
import subprocess
import sys

import gin
import jax
import numpy as np
import pytest

from gcjax import cli, registry
from tests import own_scheme
from tests.docs import pages

SMALL = [
    "race.runners = {'bounded batches': @bounded_batches()}",
    "race.num_units = 8",
]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The folder of the pages, as the working directory."""
    own_scheme.write(tmp_path, pages.own_files())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with own_scheme.unloaded(monkeypatch, own_scheme.NAME):
        yield tmp_path


def set_all(bindings):
    return [word for binding in bindings for word in ("--set", binding)]


def test_the_pages_have_all_files(study):
    names = {str(path.relative_to(study)) for path in study.rglob("*") if path.is_file()}
    modules = ("__init__", "codes", "experiments", "protocols", "stragglers", "tasks")
    assert names == {"race.gin", *(f"my_schemes/{name}.py" for name in modules)}


def test_a_config_that_imports_the_package_runs(study, capsys):
    assert cli.main(["run", "race.gin", "--out", "out", *set_all(SMALL)]) == 0
    rows = [line.split(",") for line in (study / "out" / "race.csv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["protocol", "bounded batches"]
    assert int(rows[1][1]) > 8 and float(rows[1][2]) > 0.4
    assert "bounded batches" in capsys.readouterr().out


@pytest.mark.slow
def test_its_schedules_are_checked_though_its_parameters_have_other_names(study, capsys):
    assert cli.main(["check", "--schedule", "race.gin", *set_all(SMALL)]) == 0
    out = capsys.readouterr().out
    assert "8 units of 6 workers" in out
    rows = {line.split("│")[0].strip(): line for line in out.splitlines() if "│" in line}
    assert "keeps to it: a commit takes 3 gradients" in rows["bounded batches"]


@pytest.mark.slow
def test_the_config_of_the_pages_keeps_to_its_promises(study, capsys):
    assert cli.main(["check", "--schedule", "race.gin"]) == 0
    assert "breaks" not in capsys.readouterr().out


def test_an_entry_point_makes_it_known_without_an_import(study, capsys):
    own_scheme.install(study, my_schemes="my_schemes")
    assert cli.main(["list", "bounded_batches"]) == 0
    out = capsys.readouterr().out
    assert "bounded_batches(*, num_contributions: int, staleness: int) -> Protocol" in out
    assert "compare.schemes = {'bounded_batches': @bounded_batches()}" in out
    assert cli.main(["list", "straggler"]) == 0
    assert "base=1.0, growth=1.1, rest=0.2" in capsys.readouterr().out
    config = study / "race.gin"
    config.write_text(config.read_text().replace("import my_schemes\n", ""))
    assert cli.main(["check", "--schedule", "race.gin", *set_all(SMALL), "--set", "tiring.growth = 'fast'"]) == 2
    assert "tiring.growth must be a number; got 'fast' (str)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_commands_of_the_pages_from_another_folder(study):
    own_scheme.install(study, my_schemes="my_schemes")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(study), os.environ.get("PYTHONPATH", "")])}
    environment["PYTHONPATH"] += os.pathsep + str(pages.ROOT)
    (study / "elsewhere").mkdir()

    def gcjax(*arguments):
        command = [sys.executable, "-m", "gcjax", *arguments]
        return subprocess.run(
            command, cwd=study / "elsewhere", env=environment, capture_output=True, text=True, timeout=600
        )

    assert "bounded_batches" in gcjax("list", "protocol").stdout
    done = gcjax("check", "--schedule", "../race.gin")
    assert (done.returncode, done.stderr) == (0, "")
    done = gcjax("run", "../race.gin", "--out", "out")
    assert done.returncode == 0 and "gcjax:" not in done.stderr, done.stderr  # how far it is may be there, too
    assert done.stdout.count("\n") == 6 and "pacemaker,13," in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nnx_moons", "linen_moons"])
def test_its_tasks_learn_and_compile_once(study, name):
    import my_schemes
    import optax

    import gcjax

    task = getattr(my_schemes.tasks, name)(4)
    again = getattr(my_schemes.tasks, name)(4)
    assert task._replace(data=None) == again._replace(data=None)
    params = jax.jit(jax.vmap(task.init))(jax.random.split(jax.random.key(0), 2))
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(params))
    durations = np.ones((60, 4), np.float32)
    run = gcjax.engine.run(task, gcjax.protocols.bsp(), optax.sgd(1.0), durations, rng_key=jax.random.key(1))
    losses = run.trajectory.metrics["train_loss"]
    assert float(losses[-1]) < 0.3 < float(losses[0])


def test_its_names_reach_gin_and_are_gone_afterwards(study, monkeypatch):
    from gcjax import config

    config.load("race.gin")
    assert "tiring" in registry.kinds()["straggler"].entries
    assert registry.kinds()["straggler"].module_of("tiring") == "my_schemes.stragglers"
    assert gin.get_configurable("my_schemes.stragglers.tiring")().init(jax.random.key(0), 3)["seconds"].shape == (3,)


def test_nothing_of_it_is_left_here():
    assert "tiring" not in registry.kinds()["straggler"].entries
