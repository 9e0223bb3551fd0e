"""What a compiled program sends between devices, read from its HLO."""

import math
import re
from typing import Any

_BITS = {"pred": 8, "bf16": 16}  # others end in their number of bits: f32, s8, u64, ...
_COLLECTIVE_NAMES = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute"
_COLLECTIVE = re.compile(rf"= (?P<type>\(?[^=]*?\)?) (?P<name>{_COLLECTIVE_NAMES})(?P<start>-start)?\(")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")
_NUM_DEVICES = re.compile(r"\b(?:replica_count|num_partitions)=([0-9]+)")
_ALL_DEVICES = "replica_groups={}"
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
    lines = compiled.as_text().splitlines()
    # The first line is that of the module; it names replicas and partitions, where there are any.
    num_devices = math.prod(int(count) for count in _NUM_DEVICES.findall(lines[0]))
    for line in lines:
        line_without_comments = re.sub(r"/\*.*?\*/", "", line)
        match = _COLLECTIVE.search(line_without_comments)
        if match:
            collective, result_bytes = match["name"], _bytes_of_type(_type_of_result(match))
            if collective == "collective-permute":
                num_bytes = result_bytes
            else:
                group_size = _group_size(line_without_comments, num_devices)
                num_bytes = _bytes_of_collective(collective, result_bytes, group_size)
            sent_bytes[collective] = sent_bytes.get(collective, 0.0) + num_bytes
    return sent_bytes


def _bytes_of_collective(collective: str, result_bytes: float, group_size: int) -> float:
    """The bytes that each device of a group sends for a collective, not a permutation, whose result has `result_bytes`.

    It counts as the bandwidth-optimal algorithms send.
    """
    share_of_others = (group_size - 1) / group_size  # a device keeps its own part
    # An all-reduce sends twice, to sum and to gather; the input of a reduce-scatter is larger than its result.
    results_sent = {"all-reduce": 2, "reduce-scatter": group_size}.get(collective, 1)
    return result_bytes * share_of_others * results_sent


def _type_of_result(match: re.Match[str]) -> str:
    """The type of what a collective gives, as HLO writes it; of one that starts the second of (operand, result, ...).

    An all-reduce that starts has the type of its result alone.
    """
    if not match["start"] or match["name"] == "all-reduce" or not match["type"].startswith("("):
        return match["type"]
    depth, types = 0, [""]  # `types`: of the tuple's members
    for character in match["type"][1:-1]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            types.append("")
        else:
            types[-1] += character
    _, result_type, *_ = types
    return result_type


def _bytes_of_type(hlo_type: str) -> float:
    """The bytes of an array, or of a tuple of arrays, of a type as HLO writes it, for example `(f32[4,2], s8[])`."""
    num_bytes = 0.0
    for dtype, shape in _ARRAY.findall(hlo_type):
        # The number in a type's name is that of its bits, but for those in `_BITS`; without one it is a byte.
        bits_of_number = _BITS.get(dtype) or int(re.sub(r"[a-z]", "", dtype) or 8)
        num_numbers = math.prod(int(size) for size in shape.split(",") if size)
        num_bytes += num_numbers * bits_of_number / 8
    return num_bytes


def _group_size(line: str, num_devices: int) -> int:
    """The number of devices in a group of the collective in this line of HLO; there are `num_devices` in all.

    HLO writes the groups as lists of devices, as the shape [groups, devices] of an array, or as axes of a mesh; one
    group of all devices may be no list at all.
    """
    if _ALL_DEVICES in line:
        return num_devices
    if match := _GROUP_LISTS.search(line):
        devices_of_first_group = match[1].split(",")
        return len(devices_of_first_group)
    if match := _GROUP_SHAPE.search(line):
        groups_by_devices = match[1].split(",")
        return int(groups_by_devices[-1])
    if match := _GROUP_MESH_AXES.search(line):
        mesh_axes, group_axes = match[1].split(","), match[2].split(",")  # "'x'=2" each, and "'x'" each
        size_of_axis = dict(axis_and_size.replace("'", "").split("=") for axis_and_size in mesh_axes)
        return math.prod(int(size_of_axis[axis.strip().strip("'")]) for axis in group_axes)
    raise ValueError(f"a collective does not say which devices take part: {line.strip()[:200]}")
