"""What a config may give for a parameter with an annotation."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gcjax.config.arguments import accepts


@pytest.mark.parametrize(
    "annotation, good, bad",
    [
        (float | Sequence[float], [1, 0.5, [1.0, 2], (3,)], ["x", "", "12", ["x"], None, True]),
        (Sequence[str], [["a"], ("a", "b"), "ab"], [[1], 1]),
        (list[str], [["a"], ("a",)], ["ab"]),
        (tuple[int, ...], [(1, 2), [1]], ["12", (1.5,)]),
        (Mapping[str, int], [{"a": 1}], [{"a": "b"}, {1: 1}, "ab"]),
        (Any, ["x", 1], []),
    ],
)
def test_a_text_is_no_sequence_of_numbers(annotation, good, bad):
    assert [accepts(annotation, value) for value in good] == [True] * len(good)
    assert [accepts(annotation, value) for value in bad] == [False] * len(bad)
