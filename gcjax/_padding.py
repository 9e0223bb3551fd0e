"""Sizes of arrays that are filled up, so that few programs are compiled."""


def padded_size(count: int, minimum: int) -> int:
    """The least power of two from `count` on, and at least the minimum."""
    return max(minimum, 1 << (count - 1).bit_length())
