"""`gcjax check`: tables, exit status, errors."""

import pytest

from gcjax import cli


@pytest.fixture
def gcjax(capsys):
    def run(*arguments):
        status = cli.main(["check", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_what_holds_ends_with_0(gcjax):
    status, out, err = gcjax("ssp", "--workers", "2", "--staleness=1")
    assert (status, err) == (0, "")
    assert "ssp(2 workers, staleness 1)" in out
    assert "each of 2 workers alone │      5" in out
    assert "so the property follows" in out
    assert "counterexample" not in out


def test_what_fails_ends_with_1_and_a_counterexample(gcjax):
    status, out, _ = gcjax("worker_busy_eager", "--workers", "2")
    assert status == 1
    assert "fails after 4 steps: the property does not hold" in out
    steps = [line.split("│") for line in out.splitlines() if line[:1] in "1234" and "worker" in line]
    assert [(step[1].strip(), step[2].strip()) for step in steps[-4:]] == [
        ("worker 0", "push"), ("worker 0", "pull"), ("worker 1", "push"), ("worker 1", "pull"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("sspp",), "Did you mean ssp"),
        (("ssp", "--stale", "2"), "ssp takes --workers (default 3), --staleness (default 2); got '--stale'"),
        (("ssp", "2"), "ssp takes --workers"),
        (("ssp", "--workers"), "--workers needs a number"),
        (("ssp", "--workers", "two"), "--workers must be a whole number; got 'two'"),
        (("ssp", "--workers", "0"), "workers must be a whole number between 1 and 16; got 0"),
    ],
)
def test_bad_input_ends_with_2(gcjax, arguments, said):
    status, out, err = gcjax(*arguments)
    assert (status, out) == (2, "")
    assert said in err and "Traceback" not in err
