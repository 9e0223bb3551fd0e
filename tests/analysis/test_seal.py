"""A damaged file of a run is refused by its name; no wrong number comes out of it."""

import json
import random
import shutil
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest

from gcjax import analysis, cli, files
from gcjax.analysis import seal
from tests.analysis.results import results

OLD = pytest.mark.filterwarnings("ignore::gcjax.analysis.UnsealedWarning")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    files.write_text(folder / "operative.gin", "a.b = 1\n")
    analysis.save(results(), folder)
    analysis.write_report(results(), folder)
    return folder


def without_digests(folder):
    """As an earlier version wrote it."""
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({k: v for k, v in content.items() if k not in ("files", "sha256")}))


def flipped(file, bit):
    """One bit of a file is turned; returns the bytes that it had."""
    before = file.read_bytes()
    after = bytearray(before)
    after[bit // 8] ^= 1 << bit % 8
    file.write_bytes(after)
    return before


def numbers(found):
    columns = [*found.metrics.values(), *found.timeline.values()]
    return json.dumps(found.facts, sort_keys=True), [column.tolist() for column in columns]


def check_flips(folder, count):
    """As many flips of single bits, spread evenly over the files: each is refused, with the name of the file."""
    true, draw = numbers(analysis.load(folder)), random.Random(0)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 8
    for i in range(count):
        file = folder / names[i % len(names)]
        before = flipped(file, draw.randrange(8 * file.stat().st_size))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert repr(numbers(analysis.load(folder))) == repr(true)  # white space of run.json
                assert file.name == "run.json"
        except ValueError as error:
            assert f"{file} " in str(error)
        file.write_bytes(before)


def test_a_flipped_bit_of_any_file_is_refused_by_its_name(run, tmp_path):
    check_flips(shutil.copytree(run, tmp_path / "copy"), 80)


@pytest.mark.slow
def test_a_thousand_flipped_bits(run, tmp_path):
    check_flips(shutil.copytree(run, tmp_path / "copy"), 1000)


@OLD
def test_the_checksums_of_pages_are_written_and_verified(run, tmp_path):
    """Without digests, a flip of the bits of a column is noticed all the same."""
    folder = shutil.copytree(run, tmp_path / "copy")
    without_digests(folder)
    file = folder / "metrics.parquet"
    column = pq.ParquetFile(file).metadata.row_group(0).column(3)
    flipped(file, 8 * (column.data_page_offset + column.total_compressed_size // 2))
    with pytest.raises(ValueError, match=r"metrics\.parquet must be a whole Parquet file; it is damaged: .*CRC"):
        analysis.load(folder)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("operative.gin", "is missing, and run.json lists it"),
        ("timeline.parquet", "has no timeline.parquet"),
        ("loss_vs_time.png", None),
    ],
)
def test_a_file_that_is_missing(run, tmp_path, name, problem):
    folder = shutil.copytree(run, tmp_path / "copy")
    (folder / name).unlink()
    if problem is None:  # the report makes it anew
        assert analysis.load(folder).schemes == results().schemes
        return
    with pytest.raises(ValueError, match=problem):
        analysis.load(folder)


def test_a_table_must_be_in_the_list(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "copy")
    with seal.rewriting(folder, ["metrics.parquet"]), pytest.raises(ValueError, match=r"metrics.parquet has no digest"):
        analysis.load(folder)


def test_run_json_covers_itself(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "copy")
    text = (folder / "run.json").read_text()
    for old, new in (('"num_workers": 4', '"num_workers": 5'), ('"sha256"', '"rha256"'), ('"files"', '"filet"')):
        assert text.count(old) == 1
        (folder / "run.json").write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=r"run\.json has changed since it was written"):
            analysis.load(folder)
    for other, problem in (("[]", "is no JSON object"), (text[:-20], "is no JSON: ")):
        (folder / "run.json").write_text(other)
        with pytest.raises(ValueError, match=problem):
            analysis.load(folder)


def test_an_earlier_folder_is_read_with_a_warning_and_not_sealed(run, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "copy")
    without_digests(folder)
    with pytest.warns(analysis.UnsealedWarning, match="no digests"):
        loaded = analysis.load(folder)
    np.testing.assert_array_equal(loaded.metrics["time"], results().metrics["time"])
    assert cli.main(["report", str(folder)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"gcjax: warning: the folder {folder} has no digests")
    assert "files" not in json.loads((folder / "run.json").read_text())


def test_report_checks_before_it_writes_and_gives_new_digests(run, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "copy")
    before = (folder / "run.json").read_text()
    (folder / "summary.md").write_text("my notes")
    assert cli.main(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "summary.md has changed since it was written" in said and "delete it, and 'gcjax report'" in said
    assert (folder / "summary.md").read_text() == "my notes"
    (folder / "summary.md").unlink()
    (folder / "timeline.png").unlink()
    assert cli.main(["report", str(folder)]) == 0
    assert (folder / "run.json").read_text() == before and analysis.load(folder).schemes == results().schemes


def test_a_report_that_is_killed_leaves_a_folder_that_can_be_read(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "copy")
    with pytest.raises(RuntimeError), seal.rewriting(folder, ["summary.md"]):
        (folder / "summary.md").write_text("new")
        raise RuntimeError
    assert analysis.load(folder).schemes == results().schemes


def test_the_folder_of_a_study_is_sealed_as_a_whole(tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    (tmp_path / "checkpoints").mkdir()
    for name in ("summary.md", "deep/a.png", "checkpoints/old", ".lock"):
        (tmp_path / name).write_text("| a |\n| - |\n| 12 |\n")
    (tmp_path / "run.json").write_text('{"seed": 1}')
    seal.add_missing_digests(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    assert list(content["files"]) == ["deep/a.png", "summary.md"] and content["seed"] == 1
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "12" in capsys.readouterr().out
    (tmp_path / "summary.md").write_text("| a |\n| - |\n| 13 |\n")
    assert cli.main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "summary.md has changed" in said.err and said.out == ""
