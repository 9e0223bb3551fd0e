"""The README's Python blocks run, one after the other, in one session."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_code_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 4
    session = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), session)
    assert capsys.readouterr().out.startswith("True")
    assert session["runs"].trajectory.metrics["accuracy"].shape[0] == 4
    assert float(session["run"].trajectory.metrics["accuracy"][-1]) > 0.8


def test_figures_and_files_it_names_exist():
    text = README.read_text()
    for path in re.findall(r"\]\((docs/[^)]+)\)|`((?:gcjax|tests|configs)/[\w/.]+)`", text):
        assert (README.parent / (path[0] or path[1])).exists(), path
