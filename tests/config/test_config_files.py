"""What is said of a path that is no config file."""

import pytest

from gcjax import config


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a folder of configs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study" / "deep").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for name in ("fast", "slow", "deep/slower"):
        (tmp_path / "study" / f"{name}.gin").touch()
    return tmp_path


def test_a_folder_is_said_to_be_one_with_its_config_files(folder):
    files = "study/deep/slower.gin, study/fast.gin, study/slow.gin"
    with pytest.raises(ValueError, match=f"^A config must be a file; study is a folder. .* in it: {files}.$"):
        config.load("study")
    with pytest.raises(ValueError, match="empty is a folder. There is no .gin file in it.$"):
        config.load("empty")
    for i in range(30):
        (folder / "study" / f"{i}.gin").touch()
    with pytest.raises(ValueError, match="and 13 others.$"):
        config.load(folder / "study")


def test_a_misspelt_file_is_guessed(folder):
    with pytest.raises(ValueError, match=r"Did you mean study/fast.gin\? Config files nearby"):
        config.load("study/fasst.gin")
    with pytest.raises(ValueError, match=r"there is no file .*zzz.gin. Config files nearby"):
        config.load("study/zzz.gin")


@pytest.mark.parametrize(("path", "name"), [("quickstrat.gin", "quickstart"), ("configs/protocls.gin", "protocols")])
def test_a_config_that_comes_with_gcjax_is_guessed(folder, path, name):
    with pytest.raises(ValueError, match=rf"Did you mean {name}, which .* gcjax init DIR --config {name}. There is no"):
        config.load(path)
