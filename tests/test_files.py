"""Files get their names when they are whole."""

import pyarrow.parquet as pq
import pytest

from gcjax import files


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    file = tmp_path / "file"
    files.write_text(file, "as before")
    with pytest.raises(RuntimeError), files.atomic_write(file) as part:
        part.write_text("half")
        raise RuntimeError
    assert [path.read_text() for path in tmp_path.iterdir()] == ["as before"]


def test_nobody_sees_half_of_a_file(tmp_path):
    with files.atomic_write(tmp_path / "a.png") as part:
        part.write_text("half")
        assert not (tmp_path / "a.png").exists()
        assert part.parent == tmp_path and part.suffix == ".png"
    assert (tmp_path / "a.png").read_text() == "half"


def test_a_table(tmp_path):
    files.write_table(tmp_path / "a.parquet", {"x": [1, 2]})
    assert pq.read_table(tmp_path / "a.parquet")["x"].to_pylist() == [1, 2]
    assert len(list(tmp_path.iterdir())) == 1
