"""What would not fit into memory is refused before anything is allocated, with the figure; programs are forgotten.

What is counted are only the arrays that are made in any case, so that nothing is refused that could run.
"""

import functools
import os
from pathlib import Path
from typing import Any

import jax

from gcjax._keys import is_key

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

MAX_MAPPINGS = 30_000
"""Parts of memory that a process may map before it forgets compiled programs."""


def available_bytes() -> int:
    """Bytes that arrays can have at most, over all processes: of their devices, or of their machines or containers.

    Devices such as CPUs do not tell what they have. Every process is taken to have as much as this one.
    """
    device_limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    bytes_of_process = sum(device_limits) if all(device_limits) else machine_bytes()
    return bytes_of_process * jax.process_count()


@functools.cache
def machine_bytes() -> int:
    """Bytes of memory of the machine, or the limit of the container if that is less; read once."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [Path(name).read_text().strip() for name in _CGROUP_LIMITS if Path(name).is_file()]
    return min([machine_bytes, *(int(limit) for limit in limits if limit.isdecimal())])  # "max" is no limit


def check_fits(what: str, num_bytes: int, advice: str) -> None:
    """Refuses what cannot fit into memory.

    Args:
      what: that is allocated, with the values that decide it, as a plural: "durations of 3 workers".
      num_bytes: that it takes at least.
      advice: what to do, as a sentence.

    Raises:
      ValueError: if these are more bytes than there are.
    """
    if num_bytes > available_bytes():
        raise ValueError(
            f"{what} must fit into memory; they take at least {size_text(num_bytes)}, and there are "
            f"{size_text(available_bytes())}. {advice}"
        )


def bytes_of_arrays(arrays: Any) -> int:
    """The bytes of a pytree of arrays, or of their shapes and dtypes; a key counts for nothing."""
    leaves = [leaf for leaf in jax.tree.leaves(arrays) if not is_key(leaf)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def is_exhausted(error: Exception) -> bool:
    """Whether an error, of Python, NumPy or XLA, says that an allocation failed."""
    return isinstance(error, MemoryError) or "Out of memory" in str(error) or "RESOURCE_EXHAUSTED" in str(error)


def size_text(num_bytes: int) -> str:
    """A number of bytes with three digits and a unit, from bytes to EiB."""
    power = min(max(num_bytes, 1).bit_length() // 10, 6)  # of 1024; 1 KiB has 11 bits
    return f"{num_bytes / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"


def forget_programs(max_mappings: int = MAX_MAPPINGS) -> bool:
    """Has JAX forget all compiled programs if this process maps memory in more than so many parts.

    Linux lets a process map 65 530 parts (`vm.max_map_count`), and one that needs more crashes. On a CPU the program of
    a scheme maps two to three thousand. Programs that are needed again are compiled again.

    Returns:
      Whether it has; false where the system does not tell the parts.
    """
    mappings = Path("/proc/self/maps")
    if not mappings.exists() or mappings.read_bytes().count(b"\n") <= max_mappings:
        return False
    jax.clear_caches()
    return True
