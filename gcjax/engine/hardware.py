"""What the bits of a result depend on besides the program: the hardware, and what JAX and XLA are set to."""

import os
import platform
from pathlib import Path

import jax

# What these flags change is what is written down, or how many devices there are; not what is computed.
_HARMLESS = ("--xla_dump", "--xla_hlo_profile", "--xla_force_host_platform_device_count", "--xla_gpu_cuda_data_dir")
_VECTORS = ("avx", "amx", "fma", "sse4", "asimd", "sve", "f16c", "bf16")
_SETTINGS = ("jax_default_matmul_precision", "jax_threefry_partitionable")


def lines() -> list[str]:
    """The hardware and the settings, a line for each; the same in all processes of a run."""
    names = {name: getattr(jax.config, name, None) for name in _SETTINGS}
    settings = [f"{name.removeprefix('jax_')} = {value}" for name, value in names.items()]
    return [f"hardware = {_hardware()}", *settings, f"XLA flags = {_flags(os.environ.get('XLA_FLAGS', ''))}"]


def _hardware() -> str:
    """The first device; for a CPU also its instructions and cores, since products of matrices are cut by their number.

    With several processes, each may have a CPU of its own, and only what all of them know of is told.
    """
    device = _device()
    told = [device.platform, device.device_kind]
    if device.platform == "gpu":
        told.append(f"TF32 override {os.environ.get('NVIDIA_TF32_OVERRIDE', 'none')}")
    if device.platform == "cpu" and jax.process_count() == 1:
        told += [platform.machine(), *_vectors(), f"{_cores()} cores"]
    return ", ".join(told)


def _device() -> jax.Device:
    chosen = getattr(jax.config, "jax_default_device", None)
    if isinstance(chosen, jax.Device):
        return chosen
    return jax.devices(chosen)[0]


def _cores() -> str:
    """What the thread pool of XLA goes by."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return os.environ.get("NPROC", str(count))


def _vectors(file: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The instructions of the CPU that numbers are computed with, where the system tells them."""
    if not file.is_file():
        return []
    said = [line.partition(":")[2] for line in file.read_text().splitlines() if line.startswith(("flags", "Features"))]
    return [word for word in sorted(set(said[0].split() if said else [])) if word.startswith(_VECTORS)]


def _flags(text: str) -> str:
    """The flags that can change numbers, in a fixed order."""
    return " ".join(sorted(flag for flag in text.split() if not flag.startswith(_HARMLESS))) or "none"
