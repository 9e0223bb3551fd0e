"""`gcjax doctor`: what is there, what is missing, and what to do."""

import json
from importlib import metadata

import jax
import pytest

from gcjax import cli
from gcjax.cli import doctor

REQUIREMENTS = ["jax>=0.8", "numpy>=2.0", "pytest>=8; extra == 'dev'"]


@pytest.fixture
def requirements(monkeypatch):
    def are(*texts):
        monkeypatch.setattr(metadata, "requires", lambda name: list(texts))

    are(*REQUIREMENTS)
    return are


@pytest.fixture(autouse=True)
def small_cache(monkeypatch, tmp_path):
    """To count the bytes of that of all tests takes long."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))


@pytest.fixture
def examined(capsys, requirements):
    def run():
        status = cli.main(["doctor", "--json"])
        result = json.loads(capsys.readouterr().out)
        assert cli.main(["doctor"]) == status
        return status, result, capsys.readouterr().out

    return run


def test_a_machine_on_which_a_run_would_work(examined):
    status, result, text = examined()
    assert status == 0 and result["works"] is True and result["problems"] == []
    assert [package["name"] for package in result["packages"]] == ["jax", "numpy"]  # not those of extras
    assert result["packages"][0]["version"] == metadata.version("jax")
    assert (
        len(result["devices"]) == jax.device_count() and result["devices"][0]["platform"] == jax.devices()[0].platform
    )
    assert result["memory"]["host"] >= result["memory"]["arrays"] > 0
    assert result["cache"]["free"] > 0 and result["cache"]["folder"]
    assert text.endswith("A run would work.\n") and f"jax {metadata.version('jax')}" in text


def test_what_is_missing_or_too_old(examined, requirements):
    requirements("jax>=999", "nowhere_gcjax>=1", "numpy>=2.0")
    status, result, text = examined()
    assert status == 1 and result["works"] is False and result["devices"] == []
    old, missing = result["problems"]
    assert old.startswith(f"jax must be >=999; got {metadata.version('jax')}. Install it with: python")
    assert "nowhere_gcjax must be >=1; got none. Install it with" in missing and "-m pip install 'nowhere" in missing
    assert f"Problem   {old}" in text and "A run would work" not in text


def test_gcjax_itself_must_be_installed(examined, monkeypatch):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    status, result, _ = examined()
    assert status == 1 and "-m pip install 'gcjax'" in result["problems"][0]


def test_devices_that_are_not_there(examined, monkeypatch):
    def devices():
        raise RuntimeError("Unable to initialize backend 'cuda': no luck (set JAX_PLATFORMS='')")

    monkeypatch.setattr(jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    status, result, _ = examined()
    assert status == 1 and result["memory"] == {"host": None, "arrays": None}
    assert result["problems"][0].startswith(
        "JAX_PLATFORMS must name devices that are there; got 'cuda'. JAX says: Unab"
    )


def test_a_cache_that_cannot_be_written(examined, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "file" / "cache"))
    status, result, _ = examined()
    assert status == 1 and "The cache must be a folder that can be written" in result["problems"][0]


def test_the_size_of_the_cache(examined, monkeypatch, tmp_path):
    (tmp_path / "program").write_bytes(b"x" * 1234)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    status, result, _ = examined()
    assert status == 0 and result["cache"]["bytes"] == 1234


def test_the_versions_that_are_supported_are_those_of_the_package():
    names = {package["name"] for package in doctor.package_versions()}
    assert {"jax", "jaxlib", "flax", "optax", "numpy", "rich"} <= names and "pytest" not in names


def test_many_packages_are_shown_in_80_columns(capsys, requirements, monkeypatch):
    names = [f"package-{letter * (5 + number)}" for number, letter in enumerate("abcdefghijklm")]
    requirements(*names)
    monkeypatch.setattr(metadata, "version", lambda name: "1.22.333")
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first, end = (next(i for i, line in enumerate(lines) if line.startswith(head)) for head in ("Packages", "Devices"))
    shown = lines[first:end]
    assert len(shown) > 3 and all(len(line) <= 80 for line in shown) and len(shown[0]) > 50
    assert [line[:10] for line in shown] == ["Packages  "] + [" " * 10] * (len(shown) - 1)
    assert [item for line in shown for item in line[10:].rstrip(",").split(", ")] == [
        f"{name} 1.22.333" for name in names
    ]


def test_a_device_with_a_long_name_stays_on_one_line():
    assert doctor._paragraph_lines("Devices", ["x y" * 40, "z"]) == [f"Devices   {'x y' * 40},", "          z"]
    assert doctor._paragraph_lines("Devices", []) == ["Devices   none"]
