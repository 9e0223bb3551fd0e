"""Files of the user: found, verified, and missed by name."""

import gzip
import hashlib
import re

import pytest

from gcjax.tasks.files import Source, contents

SOURCE = Source(
    title="Colours",
    formats="They are lists.",
    md5={name: hashlib.md5(name.encode()).hexdigest() for name in ("red", "blue")},
    subfolders=("inside",),
    hints={"paint.tar": "Unpack paint.tar."},
)


def write(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(name.encode())


@pytest.mark.parametrize("place", [".", "inside"])
def test_whole_files_are_read(tmp_path, place):
    write(tmp_path / place, "red")
    (tmp_path / place / "blue.gz").write_bytes(gzip.compress(b"blue"))
    assert contents(SOURCE, tmp_path) == {"red": b"red", "blue": b"blue"}


def test_a_folder_may_be_relative_or_of_the_home(tmp_path, monkeypatch):
    write(tmp_path / "data", "red", "blue")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert contents(SOURCE, "~/data") == contents(SOURCE, "data") == contents(SOURCE, tmp_path / "data")


def test_missing_files_are_named(tmp_path):
    write(tmp_path, "red")
    message = f"Colours needs the files blue in {tmp_path} or {tmp_path}/inside. They are lists. gcjax downloads"
    with pytest.raises(ValueError, match=re.escape(message)):
        contents(SOURCE, tmp_path)
    (tmp_path / "paint.tar").touch()
    with pytest.raises(ValueError, match="They are lists. Unpack paint.tar. gcjax"):
        contents(SOURCE, tmp_path)
    with pytest.raises(ValueError, match="needs the files red, blue in .*/nowhere/inside. There is no such folder."):
        contents(SOURCE, tmp_path / "nowhere")


def test_a_damaged_file_is_refused_with_both_digests(tmp_path):
    write(tmp_path, "red", "blue")
    (tmp_path / "red").write_bytes(b"rad")
    found = hashlib.md5(b"rad").hexdigest()
    message = f"{tmp_path}/red is damaged.*of its 3 bytes .* must be {SOURCE.md5['red']}; got {found}"
    with pytest.raises(ValueError, match=message):
        contents(SOURCE, tmp_path)
    with pytest.raises(ValueError, match=f"must be 123; got {found}"):
        contents(SOURCE, tmp_path, {"red": "123"})
    assert contents(SOURCE, tmp_path, {"blue": SOURCE.md5["blue"].upper()})["red"] == b"rad"
    with pytest.raises(ValueError, match="checksums may name red, blue; got green"):
        contents(SOURCE, tmp_path, {"green": "123"})


@pytest.mark.parametrize("harm", [lambda raw: raw[:-9], lambda raw: raw[:20] + b"?" + raw[21:], lambda raw: b"?"])
def test_a_broken_gzip_file_is_refused(tmp_path, harm):
    write(tmp_path, "red")
    (tmp_path / "blue.gz").write_bytes(harm(gzip.compress(b"blue" * 99)))
    with pytest.raises(ValueError, match="blue.gz must be a whole gzip file; got one that"):
        contents(SOURCE, tmp_path)
