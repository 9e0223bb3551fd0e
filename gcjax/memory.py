"""What would not fit into memory is refused before anything is allocated, with the figure.

What is counted are only the arrays that are made in any case, so that nothing is refused that could run.
"""

import os
from pathlib import Path
from typing import Any

import jax

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def limit() -> int:
    """Bytes that arrays can have at most: the memory of all devices, or that of the machine or container."""
    device_limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(device_limits) * jax.process_count() if all(device_limits) else _machine_bytes() * jax.process_count()


def check(what: str, num_bytes: int, advice: str) -> None:
    """Refuses what cannot fit into memory.

    Args:
      what: that is allocated, with the values that decide it, as a plural: "durations of 3 workers".
      num_bytes: that it takes at least.
      advice: what to do, as a sentence.

    Raises:
      ValueError: if these are more bytes than there are.
    """
    if num_bytes > limit():
        raise ValueError(
            f"{what} must fit into memory; they take at least {_in_units(num_bytes)}, and there are "
            f"{_in_units(limit())}. {advice}"
        )


def size(arrays: Any) -> int:
    """The bytes of a pytree of arrays, or of their shapes and dtypes; a key counts for nothing."""
    leaves = [leaf for leaf in jax.tree.leaves(arrays) if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def is_exhausted(error: Exception) -> bool:
    """Whether an error, of Python, NumPy or XLA, says that an allocation failed."""
    return isinstance(error, MemoryError) or "Out of memory" in str(error) or "RESOURCE_EXHAUSTED" in str(error)


def _machine_bytes() -> int:
    """Bytes of the machine, or of the container if it has fewer."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [Path(name).read_text().strip() for name in _CGROUP_LIMITS if Path(name).is_file()]
    return min([machine, *(int(text) for text in limits if text.isdecimal())])


def _in_units(num_bytes: int) -> str:
    power = min(max(num_bytes, 1).bit_length() // 10, 6)
    return f"{num_bytes / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"
