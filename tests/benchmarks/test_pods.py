"""What a device does in a coded step does not grow with the number of devices, but for what must."""

import subprocess

import pytest

from benchmarks import memory, pods
from tests.devices import devices


@pytest.mark.parametrize("num_blocks", [None, 1, 2])
def test_nothing_of_a_device_grows_with_the_devices_but_a_few_numbers(num_blocks):
    devices(8)
    few, many = pods.count(4, num_blocks), pods.count(8, num_blocks)
    assert many.flops <= 1.001 * few.flops
    assert many.temporary_bytes <= few.temporary_bytes + 4 * 500  # weights of each worker, and of each of its chunks
    exchanged = {None: 2, 1: 2, 2: 1.5}[num_blocks]  # of d numbers: an all-reduce, or an exchange of half and a gather
    for num_devices, counted in ((4, few), (8, many)):
        assert counted.bytes_over_4d == pytest.approx(exchanged * (num_devices - 1) / num_devices, rel=1e-3)


def test_a_prediction_is_the_computing_and_the_sending():
    pod = pods.Pod("", flops=6 * pods.MODEL_PARAMS * pods.CHUNK_TOKENS, link_bytes=4 * pods.MODEL_PARAMS)
    coded, uncoded = (pods.Count(bytes_over_4d=x, flops=0, temporary_bytes=0, compile_seconds=0) for x in (1.5, 2.0))
    assert pods.predicted_cost(pod, 3, coded, uncoded) == pytest.approx((3 + 1.5) / (1 + 2))


@pytest.mark.parametrize("measure", [pods.pods, memory.memory])
def test_processes_that_count_on_cpus_see_no_accelerator(measure, monkeypatch):
    environments = []

    def run(command, **options):
        environments.append(options["env"])
        return subprocess.CompletedProcess(command, 0, "[]")

    monkeypatch.setattr(subprocess, "run", run)
    assert measure() == [] and environments[0]["JAX_PLATFORMS"] == "cpu"
