"""What is installed: the files of a wheel and of a source distribution, and a run from a wheel alone."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.wheel import ROOT, SHIPPED, build, tracked

pytest.importorskip("hatchling", reason="hatchling builds the wheel: pip install hatchling")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def test_a_wheel_has_the_package_and_the_configs_and_experiments_inside_of_it(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    shipped = {f"gcjax/shipped/{name}" for name in tracked(*SHIPPED)}
    assert {name for name in names if name.startswith("gcjax/shipped/")} == shipped
    assert names - shipped == tracked("gcjax")
    assert {name.split("/")[0] for name in names} == {"gcjax"}  # no other package whose name could collide


def test_nothing_is_compiled_when_it_is_installed(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert {Path(name).suffix for name in zipfile.ZipFile(wheel).namelist()} <= {
        ".py", ".gin", ".txt", ".html", ".css", ".js", "",
    }  # fmt: skip
    assert not [name for name in tracked(".") if name.endswith((".c", ".cc", ".cpp", ".pyx", ".rs", "setup.py"))]


def test_pip_refuses_a_python_that_is_too_old(wheel):
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert Parser().parsestr(archive.read(metadata).decode())["Requires-Python"] == ">=3.11"


@pytest.mark.slow
def test_a_source_distribution_has_all_that_its_wheel_and_tests_need(tmp_path):
    from hatchling.builders.sdist import SdistBuilder

    path = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("gcjax", "tests", "benchmarks", "docs", *SHIPPED)
    assert {name for name in names if name.split("/")[0] in folders} == tracked(*folders)
    top = {name for name in names if "/" not in name}
    assert {"README.md", "LICENSE", "Makefile", "pyproject.toml", "constraints.txt", "CHANGELOG.md"} <= top
    assert not [name for name in names if name.startswith((".git/", ".ci", "runs", ".venv"))]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of a fresh environment with nothing but this wheel, and the dependencies of this one beside it."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, capture_output=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")})
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]  # .pth files in them do not count
    (Path(packages) / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", wheel]
    subprocess.run(pip, check=True, capture_output=True, cwd=folder)
    return folder


@pytest.mark.slow
def test_a_wheel_alone_runs_a_config(installed):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}

    def gcjax(*arguments, cwd=installed):
        command = [installed / "venv" / "bin" / "gcjax", *map(str, arguments)]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [installed / "venv" / "bin" / "python", "-c", "import gcjax; print(gcjax.__file__)"],
        cwd=installed, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.startswith(str(installed)), where
    assert "quickstart" in gcjax("init", "--list") and "ssp" in gcjax("list", "protocol")
    gcjax("init", "work")
    small = ("study.num_units = 60", "study.num_seeds = 1", "study.seconds = None", "study.target = 0.2")
    sets = [word for binding in (*small, "compare.schemes = {'ASP': @asp()}") for word in ("--set", binding)]
    assert "ASP" in gcjax("run", "configs/quickstart.gin", *sets, "--out", "out", cwd=installed / "work")
    assert (installed / "work" / "out" / "summary.md").is_file()
    assert "holds" in gcjax("check", "ssp", "--num-workers", "2", "--staleness", "1")
    gcjax("init", "work", "--config", "transformer")
    small = ("num_steps = 2", "width = 4", "depth = 0", "code = @uncoded()", "optimizer = @sgd()")
    bindings = ["uncoded.num_workers = 2", "sgd.learning_rate = 0.1", *(f"transformer.{b}" for b in small)]
    sets = [word for binding in bindings for word in ("--set", binding)]
    assert "loss" in gcjax("run", "configs/transformer.gin", *sets, "--out", "t", cwd=installed / "work")
