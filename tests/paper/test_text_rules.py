"""The rules for the manuscript's text find what they are to find, and nothing else."""

import pytest

from tests.paper import text_rules


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("It takes 12 s.", ["12"]), ("It takes 3.5 s.", ["3.5"]), ("about $3$ times", ["3"]), ("$x = 0.5$", ["0.5"]),
        ("$10^2$", ["10"]), ("twelve workers", ["twelve"]), ("Fourteen workers", ["Fourteen"]),
        ("twice as fast", ["twice"]),
        ("three times as fast", ["three times"]), ("a tenfold speed", ["tenfold"]),
        ("two orders of magnitude", ["orders of magnitude"]),
        ("in H4", ["H4"]), (r"\texttt{float32}", ["float32"]), (r"\begin{equation}x = 7\end{equation}", ["7"]),
        (r"\caption{All 5 seeds}", ["5"]), (r"\% 3", ["3"]), ("a hundred workers", ["hundred"]),
        ("some dozens", ["dozens"]),
        ("$12$", ["12"]), (r"\begin{lstlisting}f(4)\end{lstlisting}", ["4"]), ("forty", ["forty"]),
        ("doubled", ["doubled"]),
    ],
)  # fmt: skip
def test_a_number_is_found(text, stated):
    assert [word.strip(".,)") for word in text_rules.numbers(text)] == stated


@pytest.mark.parametrize(
    "text",
    [
        "% 12 in a comment", r"\citep{ho2013,dean2012}", r"Table~\ref{tab:x2}", r"\label{fig:3}",
        r"\input{generated/table_2}",
        r"\includegraphics[width=0.8\textwidth]{figure_1}", r"\usepackage[margin=2.3cm]{geometry}",
        r"\documentclass[10pt]{article}",
        "$F[n-1,w]$ and $L=1$", r"\begin{equation}q_1 \wedge q_2\end{equation}", "settings H1, H2, H3",
        r"\DemoWorkers{} workers",
        "two of ten workers", "some times", r"a claim of \GroupClaimed{}\,\%", "often, sometimes, at all times", "tens",
    ],
)  # fmt: skip
def test_what_is_no_number_of_the_text_is_let_through(text):
    assert text_rules.numbers(text) == []


def test_macros_citations_labels_and_files_are_found(tmp_path):
    text = r"\DemoX{} \citep[see][]{a2013, b} \citet{c} \ref{sec:x} % \Gone{} \citep{d}" + "\n"
    assert text_rules.used_macros(text) == {"DemoX"}
    assert text_rules.keys(r"\citep{a2013, b} \citet{c} % \citep{d}", "cite[pt]?") == ["a2013", "b", "c"]
    assert text_rules.keys(text, "ref|eqref") == ["sec:x"]
    entries = "@misc{a,\n  title = {{A}: One},\n}\n\n@article{b2,\n  author = {X},\n  title = {Two}\n}\n"
    (tmp_path / "some.bib").write_text(entries)
    assert text_rules.titles(tmp_path / "some.bib") == {"a": "aone", "b2": "two"}
    (tmp_path / "here.tex").touch()
    missing = text_rules.missing_files(r"\input{here}\input{gone}\includegraphics[width=2cm]{pic}", tmp_path)
    assert [path.rpartition("/")[2] for path in missing] == ["gone.tex", "pic.pdf"]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (r"\emph{a", 1), (r"a}", 1), ("$x", 1), (r"\begin{table}", 1), (r"\end{table}", 1),
        (r"\begin{table}\begin{center}\end{table}\end{center}", 2), (r"\{ \$ \emph{a} $x$ \begin{a}\end{a}", 0),
        ("$x\n\ny$", 2), ("% {\n", 0),
    ],
)  # fmt: skip
def test_what_is_not_closed_is_found(text, problems):
    assert len(text_rules.imbalance(text)) == problems


def test_commands_and_letters_that_latex_would_stumble_over_are_found():
    assert text_rules.unknown_commands(r"\emp{a} \emph{b} \DemoX{}") == ["emp"]
    assert text_rules.bare_macros(r"\DemoX workers, \DemoY{} workers") == [r"\DemoX"]
    assert text_rules.unescaped(r"a_b & c\_d # $x_1$ \label{a_b}") == ["_b", "&", "#"]
