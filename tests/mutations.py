"""Files to which something has happened, for tests that readers refuse what they cannot read, in words."""

from hypothesis import strategies as st

KINDS = ("flip", "cut", "drop", "double", "insert", "swap")


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes of a file, changed in one to three places."""
    for _ in range(draw(st.integers(1, 3))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(1, 40))
        part, kind = data[at : at + length], draw(st.sampled_from(KINDS))
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + length :]
        elif kind == "double":
            data = data[:at] + part + data[at:]
        elif kind == "insert":
            data = data[:at] + draw(st.binary(max_size=8)) + data[at:]
        elif kind == "swap":
            data = data[:at] + data[at + length :] + part
    return data
