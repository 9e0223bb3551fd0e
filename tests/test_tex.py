"""Tables in LaTeX: lines, and letters that mean something in LaTeX."""

import shutil
import subprocess

import pytest

from gcjax import tex


def test_a_table_has_a_line_for_each_row_and_letters_are_escaped():
    table = tex.tabular("lr", ["a", "b"], [[tex.escape("k_sync & 5 %"), "1"]])
    assert r"k\_sync \& 5 \% & 1 \\" in table and table.startswith(r"\begin{tabular}{lr}")
    with pytest.raises(ValueError, match="must have 2 cells"):
        tex.tabular("lr", ["a", "b"], [["1"]])


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (r"\a{b}$#", r"\textbackslash{}a\{b\}\$\#"),
        ("x^2~<y>", r"x\textasciicircum{}2\textasciitilde{}$<$y$>$"),
        ("1 ± 2 ≤ 3", r"1 $\pm$ 2 $\leq$ 3"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_name_is_shown_as_it_is(text, escaped):
    assert tex.escape(text) == escaped


def test_a_row_is_no_argument_of_the_line_before():
    lines = tex.tabular("l", ["[a]"], [["[red]"], ["*"], ["b [c]"]]).splitlines()
    assert [line for line in lines if line.endswith(r"\\")] == [
        r"{}[a] \\", r"{}[red] \\", r"{}* \\", r"b [c] \\",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_latex_reads_it(tmp_path):
    name = tex.escape("[a] & b_c #1 50 % {x} $y$ \\z ~ ^ < > ± ≤")
    table = tex.tabular("lr", ["[head]", "n"], [[name, "1"], ["*", "2"]])
    page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + table + "\\end{document}\n"
    (tmp_path / "page.tex").write_text(page)
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "page.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
