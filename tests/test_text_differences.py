"""In what two texts differ, for an error."""

from gcjax.text_differences import differing_lines


def test_a_difference_of_many_places_is_cut_and_says_so():
    own, other = ("\n".join(f"{name}.rate = {i}\nsame{i}" for i in range(30)) for name in "ab")
    lines = differing_lines(own, other, "here", "there")
    assert lines[:4] == ["--- here", "+++ there", "-a.rate = 0", "+b.rate = 0"]
    assert len(lines) == 21 and lines[-1] == "... and 42 more lines"
    assert differing_lines("one\nsame", "other\nsame", "here", "there")[2:] == ["-one", "+other"]
