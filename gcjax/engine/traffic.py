"""What a compiled program sends between devices, read from its HLO."""

import math
import re
from typing import Any

_BITS = {"pred": 8, "bf16": 16}  # others end in their number of bits: f32, s8, u64, ...
_COLLECTIVE_NAMES = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute"
_COLLECTIVE = re.compile(rf"= (?P<type>\(?[^=]*?\)?) (?P<name>{_COLLECTIVE_NAMES})(?:-start)?\(")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")
_GROUP_LISTS = re.compile(r"replica_groups=\{\{([0-9,]+)\}")
_GROUP_SHAPE = re.compile(r"replica_groups=\[([0-9,]+)\]<=")
_GROUP_MESH_AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\] *\{([^}]*)\}")


def bytes_sent(compiled: Any) -> dict[str, float]:
    """The bytes that each device sends, by kind of collective; nothing for kinds that do not occur.

    Counted as the bandwidth-optimal algorithms send them: with n devices in a group and x bytes a device,
    2x(n-1)/n for an all-reduce, x(n-1)/n for an all-to-all or a reduce-scatter of x, or an all-gather to x, and x for a
    permutation. A collective inside a loop counts once.

    Args:
      compiled: what `jax.jit(f).lower(...).compile()` returns.

    Source: Thakur, Rabenseifner, Gropp 2005, section 4.
    """
    sent_bytes: dict[str, float] = {}
    for line in compiled.as_text().splitlines():
        line = re.sub(r"/\*.*?\*/", "", line)
        match = _COLLECTIVE.search(line)
        if match:
            name = match["name"]
            num_bytes = _bytes_of_collective(name, _bytes_of_type(match["type"]), _group_size(line))
            sent_bytes[name] = sent_bytes.get(name, 0.0) + num_bytes
    return sent_bytes


def _bytes_of_collective(name: str, result_bytes: float, group_size: int) -> float:
    """The bytes that each device of a group sends for a collective whose result has so many bytes a device."""
    if name == "collective-permute":
        return result_bytes
    share = (group_size - 1) / group_size  # a device keeps its own part
    # An all-reduce sends twice, to sum and to gather; the input of a reduce-scatter is larger than its result.
    return result_bytes * share * {"all-reduce": 2, "reduce-scatter": group_size}.get(name, 1)


def _bytes_of_type(hlo_type: str) -> float:
    """The bytes of an array, or of a tuple of arrays, of a type as HLO writes it, for example `(f32[4,2], s8[])`."""
    num_bytes = 0.0
    for dtype, shape in _ARRAY.findall(hlo_type):
        # The number in a type's name is that of its bits, but for those in `_BITS`; without one it is a byte.
        bits = _BITS.get(dtype) or int(re.sub(r"[a-z]", "", dtype) or 8)
        num_bytes += math.prod(int(size) for size in shape.split(",") if size) * bits / 8
    return num_bytes


def _group_size(line: str) -> int:
    """The number of devices in a group of the collective in this line of HLO.

    HLO writes the groups as lists of devices, as the shape [groups, devices] of an array, or as axes of a mesh.
    """
    if match := _GROUP_LISTS.search(line):
        return len(match[1].split(","))
    if match := _GROUP_SHAPE.search(line):
        return int(match[1].split(",")[-1])
    if match := _GROUP_MESH_AXES.search(line):
        axis_sizes = dict(axis.replace("'", "").split("=") for axis in match[1].split(","))
        return math.prod(int(axis_sizes[axis.strip().strip("'")]) for axis in match[2].split(","))
    raise ValueError(f"a collective does not say which devices take part: {line.strip()[:200]}")
