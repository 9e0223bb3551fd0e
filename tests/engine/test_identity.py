"""What the bits of a run depend on is part of what its checkpoints are known by."""

import os
import subprocess
import sys

import jax
import pytest

from gcjax.engine import Checkpoints, identity
from gcjax.engine.identity import hardware_and_settings, run_identity
from tests.devices import devices

VARIANTS = "from gcjax.engine.identity import run_identity; print(run_identity('a'))"


def test_the_precision_of_products_is_part_of_it(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.restore(jax.numpy.zeros(3), run_identity("a"))
        checkpoints.save(1, jax.numpy.zeros(3), run_identity("a"))
    said = pytest.raises(ValueError, match=r"(?s)another run.*-default_matmul_precision = None\n\+.* = highest")
    with jax.default_matmul_precision("highest"), Checkpoints(tmp_path) as again, said:
        again.restore(jax.numpy.zeros(3), run_identity("a"))


def test_how_random_numbers_are_cut_is_part_of_it():
    before = run_identity("a")
    with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
        assert run_identity("a") != before


def test_the_device_is_part_of_it():
    device = jax.devices()[0]
    line = hardware_and_settings()[0]
    assert line.startswith(f"hardware = {device.platform}, {device.device_kind}")
    with jax.default_device(devices(4)[3]):
        assert hardware_and_settings()[0] == line  # one of the same kind


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of a CPU")
def test_a_cpu_with_other_instructions_or_cores_is_another_one(tmp_path, monkeypatch):
    assert hardware_and_settings()[0].endswith(f"{identity._size_of_thread_pool()} cores")
    file = tmp_path / "cpuinfo"
    file.write_text("processor: 0\nflags\t\t: fpu avx2 fma avx pae\n\nprocessor: 1\nflags\t\t: fpu\n")
    assert identity._vector_instructions(file) == ["avx", "avx2", "fma"]
    assert identity._vector_instructions(tmp_path / "none") == []
    here = hardware_and_settings()
    monkeypatch.setenv("NPROC", str(os.cpu_count() + 1))
    assert hardware_and_settings()[0] != here[0] and hardware_and_settings()[1:] == here[1:]


def test_flags_that_change_numbers_are_part_of_it(monkeypatch):
    changing = "--xla_cpu_enable_fast_math=true"
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count=8 {changing} --xla_dump_to=/tmp/x")
    assert hardware_and_settings()[-1] == f"XLA flags = {changing}"
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")  # devices may be others
    assert hardware_and_settings()[-1] == "XLA flags = none"


@pytest.mark.slow
def test_another_process_says_the_same():
    once, twice = (
        subprocess.run([sys.executable, "-c", VARIANTS], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert once == twice and "hardware" in once
