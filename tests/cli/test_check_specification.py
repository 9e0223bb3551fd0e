"""`gcjax check`: tables, exit status, errors."""

import itertools

import jax.numpy as jnp
import pytest

from gcjax import cli, codes
from gcjax.cli import check_specification


@pytest.fixture
def gcjax(capsys):
    def run(*arguments):
        status = cli.main(["check", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_what_holds_ends_with_0(gcjax):
    status, out, err = gcjax("ssp", "--num-workers", "2", "--staleness=1")
    assert (status, err) == (0, "")
    assert "ssp(2 workers, staleness 1)" in out
    assert "each of 2 workers alone │      5" in out
    assert "so the property follows" in out
    assert "counterexample" not in out


def test_what_fails_ends_with_1_and_a_counterexample(gcjax):
    status, out, _ = gcjax("worker_busy_eager", "--num-workers", "3", "--trigger", "2")
    assert status == 1
    assert "fails after 4 steps: the property does not hold" in out
    steps = [line.split("│") for line in out.splitlines() if line[:1] in "1234" and "worker" in line]
    assert [(step[1].strip(), step[2].strip()) for step in steps[-4:]] == [
        ("worker 2", "push"), ("worker 2", "pull"), ("worker 0", "push"), ("worker 0", "pull"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_coded_round_is_checked_with_a_code(gcjax):
    status, out, _ = gcjax("coded", "--num-workers", "3", "--num-stragglers", "1")
    assert status == 0
    assert "coded(3 workers, load 2)" in out


@pytest.mark.parametrize("workers", [3, *(pytest.param(w, marks=pytest.mark.slow) for w in (4, 5))])
def test_all_progress_that_a_code_can_decode_is_known(workers):
    code = codes.cyclic_mds(workers, num_stragglers=1)
    load, is_decodable = check_specification.decodable(code)
    assert load == 2
    for progress in itertools.product(range(3), repeat=workers):
        is_decoded = bool(is_decodable(jnp.array(progress)))
        # Any W - 1 whole workers decode, fewer may; what has not been computed cannot be in the sum.
        assert is_decoded >= (sum(p == 2 for p in progress) >= workers - 1)
        held = {int(c) for w, p in enumerate(progress) if p == 2 for c in code.assignment.chunks[w]}
        assert not is_decoded or len(held) == workers
    with pytest.raises(ValueError, match="at most 1048576 entries; 20 workers with 2 chunks each have 3486784401"):
        check_specification.decodable(codes.cyclic_mds(20, num_stragglers=1))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("sspp",), "Did you mean ssp"),
        (("ssp", "--stale", "2"), "ssp takes --num-workers (default 3), --staleness (default 2); got '--stale'"),
        (("coded", "--num-stragglers", "3"), "num_stragglers must be a whole number between 0 and 2; got 3"),
        (("grouped", "--groups", "9"), "groups must be a whole number between 1 and 4; got 9"),
        (("ssp", "2"), "ssp takes --num-workers"),
        (("--set", "nonsense.x = 1", "bsp"), "--set is for a config. Add --schedule CONFIG instead of the PROTOCOL"),
        (("ssp", "--num-workers"), "--num-workers needs a number"),
        (("ssp", "--num-workers", "two"), "--num-workers must be a whole number; got 'two'"),
        (("ssp", "--num-workers", "1000"), "entries with up to 4 values make 10^602.1 of them. Use about 31 workers"),
        (("ssp", "--num-workers", "1" + 30 * "0"), "num_workers must be a whole number at most 10000; got 1000"),
        (("ssp", "--staleness", "1" + 30 * "0"), "staleness must be a whole number at most 10000; got 1000"),
        (("ssp", "--num-workers", "0"), "num_workers must be a whole number at least 1; got 0"),
    ],
)
def test_bad_input_ends_with_2(gcjax, arguments, said):
    status, out, err = gcjax(*arguments)
    assert (status, out) == (2, "")
    assert said in err and "Traceback" not in err
