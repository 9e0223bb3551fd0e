"""What the bits of a run depend on: what it is given, the hardware, and what JAX and XLA are set to."""

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np

from gcjax._cores import num_cores
from gcjax._keys import without_key_type

# What these flags change is what is written down, or how many devices there are; not what is computed.
_HARMLESS_FLAGS = (
    "--xla_dump",
    "--xla_hlo_profile",
    "--xla_force_host_platform_device_count",
    "--xla_gpu_cuda_data_dir",
)
_VECTOR_PREFIXES = ("avx", "amx", "fma", "sse4", "asimd", "sve", "f16c", "bf16")
SHORT_DIGEST = 16
"""Characters of a digest that are shown: 64 bits are enough to tell two values apart."""
_SETTINGS = ("jax_default_matmul_precision", "jax_threefry_partitionable")


def run_identity(text: str, **values: Any) -> str:
    """Text of what the bits of a run depend on, a line for each thing; adds hardware, versions, and settings of JAX.

    The number of devices is not among them: a run may go on with another one, and then agrees up to rounding.

    Args:
      text: what the caller says, for example a config.
      **values: numbers and text are shown, pytrees of arrays by a digest of their bits.
    """
    # The last word says whether JAX computes with 64 bits.
    versions = f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, {jax.dtypes.canonicalize_dtype(np.float64)}"
    lines = [f"{name} = {_text_or_digest(value)}" for name, value in sorted(values.items())]
    return "\n".join([*text.splitlines(), versions, *hardware_and_settings(), *lines])


def _text_or_digest(value: Any) -> str:
    """Numbers and text as they are; of a pytree of arrays a digest of paths, types, shapes and bits."""
    if value is None or isinstance(value, (str, int, float)):
        return str(value)
    return f"<{digest_of(value)}>"


def digest_of(tree: Any) -> str:
    """The first 16 digits of the SHA-256 of a pytree of arrays: of their paths, types, shapes and bits."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.ascontiguousarray(without_key_type(leaf))
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:SHORT_DIGEST]


def hardware_and_settings() -> list[str]:
    """The hardware and the settings, a line for each; the same in all processes of a run."""
    settings = [f"{name.removeprefix('jax_')} = {getattr(jax.config, name, None)}" for name in _SETTINGS]
    return [f"hardware = {_hardware()}", *settings, f"XLA flags = {_relevant_flags(os.environ.get('XLA_FLAGS', ''))}"]


def _hardware() -> str:
    """The device that computes, in words; of a CPU also its vector instructions and its cores.

    XLA cuts products of matrices by the number of cores, which changes the order of sums. With several processes each
    may have another CPU, so it is left out: all processes must have the same text.
    """
    device = _default_device()
    descriptions = [device.platform, device.device_kind]
    if device.platform == "gpu":
        descriptions.append(f"TF32 override {os.environ.get('NVIDIA_TF32_OVERRIDE', 'none')}")
    if device.platform == "cpu" and jax.process_count() == 1:
        descriptions += [platform.machine(), *_vector_instructions(), f"{_size_of_thread_pool()} cores"]
    return ", ".join(descriptions)


def _default_device() -> jax.Device:
    """The device on which JAX computes unless told otherwise."""
    setting = getattr(jax.config, "jax_default_device", None)  # None, a platform's name, or a device
    if isinstance(setting, jax.Device):
        return setting
    return jax.devices(setting)[0]


def _size_of_thread_pool() -> str:
    """The size of XLA's thread pool: NPROC if it is set, or else the cores that this process may use."""
    return os.environ.get("NPROC", str(num_cores()))


def _vector_instructions(file: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The vector instructions of the first CPU, sorted, as Linux lists them in `file`; none where there is no list.

    They stand behind "flags" (x86) or "Features" (ARM).
    """
    if not file.is_file():
        return []
    lines = file.read_text().splitlines()
    flags_of_cpus = [line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))]
    flags_of_first_cpu = set(flags_of_cpus[0].split()) if flags_of_cpus else set()
    return [flag for flag in sorted(flags_of_first_cpu) if flag.startswith(_VECTOR_PREFIXES)]


def _relevant_flags(text: str) -> str:
    """The flags of XLA_FLAGS (`text`) that can change numbers, sorted; those of `_HARMLESS_FLAGS` cannot."""
    return " ".join(sorted(flag for flag in text.split() if not flag.startswith(_HARMLESS_FLAGS))) or "none"
