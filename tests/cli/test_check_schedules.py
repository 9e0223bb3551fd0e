"""`gcjax check --schedule`: the schedules of a config against what the protocols promise."""

from collections.abc import Callable

import pytest

from gcjax import cli, register, specifications
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel

CONFIG = """
run.experiment = @compare
compare.schemes = {'BSP': @bsp(), 'WBSP': @worker_busy(), 'ignore': @coded()}
compare.study = @study()
study.task = @linear_regression()
compare.stragglers = @exponential()
study.optimizer = @sgd()
compare.network = @links()
study.num_workers = 3
study.num_units = 8
study.target = 0.1
linear_regression.num_chunks = 3
links.upload = 100.0
sgd.learning_rate = 0.1
coded.code = @ignore_stragglers()
coded.stop = @deadline()
deadline.seconds = 1.0
ignore_stragglers.num_workers = 3
"""


@pytest.fixture
def gcjax(tmp_path, capsys):
    file = tmp_path / "some.gin"

    def run(*arguments, text=CONFIG):
        file.write_text(text)
        status = cli.main(["check", "--schedule", str(file), *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_schemes_that_keep_their_promises_end_with_0(gcjax):
    status, out, err = gcjax()
    assert (status, err) == (0, "")
    rows = {line.split("│")[0].strip(): line for line in out.splitlines() if "│" in line}
    assert "keeps to it: nobody is more than 1 ahead of anybody" in rows["BSP"]
    assert "keeps to it" in rows["WBSP"]
    assert "promises nothing that can be checked" in rows["ignore"]


def test_one_that_does_not_ends_with_1_and_the_step(gcjax, monkeypatch):
    monkeypatch.setattr(specifications, "worker_busy_pushes", specifications.worker_busy)
    status, out, _ = gcjax("--set", "worker_busy.eager = True")
    assert status == 1
    assert "breaks its guarantee" in out
    assert "WBSP: server: commit 0 at" in out
    assert "after:  version 1" in out


@pytest.mark.slow
def test_regimes_and_networks_are_gone_through(gcjax):
    text = "import experiments.protocols\n" + CONFIG.replace("@compare", "@protocol_map")
    text = text.replace("compare.", "protocol_map.").replace("protocol_map.network = @links()\n", "")
    text = text.replace("protocol_map.stragglers = @exponential()", "protocol_map.regimes = {'often': @exponential()}")
    text += "protocol_map.networks = {'dear': @links(), 'free': @constant_network()}\n"
    status, out, err = gcjax(text=text)
    assert (status, err) == (0, "")
    assert out.count("often, dear") == out.count("often, free") == 3


def test_bad_input_ends_with_2(gcjax, capsys):
    other = "import experiments.codes\nrun.experiment = @compare_codes\n"
    status, _, err = gcjax(text=other)
    assert status == 2
    assert "must be given protocols" in err
    assert cli.main(["check"]) == 2
    assert "either a PROTOCOL or --schedule CONFIG" in capsys.readouterr().err
    assert cli.main(["check", "ssp", "--schedule", "x.gin"]) == 2


@register("experiment")
def renamed(methods: list[Protocol], *, model, workers: int, channel: Network | Links | None = None, seed=3):
    """Takes what `compare` takes, under other names, and a straggler model without an annotation."""


@register("experiment")
def single_scheme(protocol: Protocol, *, fast: StragglerModel, slow: StragglerModel, num_units: int = 7):
    """One protocol, whose code says how many workers there are."""


@register("experiment")
def without_stragglers(protocol: Protocol, *, num_workers: int, note: str | None = None):
    """Nobody is slow."""


@register("experiment")
def outer(inner: Callable, *, note: str = ""):
    """Runs another experiment."""


RENAMED = """
run.experiment = @renamed
renamed.methods = [@bsp(), @asp()]
renamed.model = @exponential()
renamed.workers = 3
"""


@pytest.mark.slow
def test_parameters_may_have_any_name(gcjax):
    status, out, err = gcjax(text=RENAMED)
    assert (status, err) == (0, "")
    assert "100 units of 3 workers" in out
    assert "methods[0]" in out and "methods[1]" in out


def test_bindings_of_a_scope_and_of_an_inner_experiment_count(gcjax):
    scoped = RENAMED.replace("run.experiment = @renamed", "run.experiment = @outer\nouter.inner = @few/renamed")
    scoped += "few/renamed.workers = 2\nfew/renamed.methods = [@ssp()]\nfew/ssp.staleness = 1\n"
    status, out, err = gcjax(text=scoped)
    assert (status, err) == (0, "")
    assert "100 units of 2 workers" in out
    assert "methods[1]" not in out


@pytest.mark.slow
def test_one_protocol_and_several_stragglers(gcjax):
    text = """
    run.experiment = @single_scheme
    single_scheme.protocol = @coded()
    coded.code = @uncoded()
    uncoded.num_workers = 4
    single_scheme.fast = @stragglers.constant()
    single_scheme.slow = @exponential()
    """
    status, out, err = gcjax(text=text)
    assert (status, err) == (0, "")
    assert "7 units of 4 workers" in out  # the default
    rows = [line for line in out.splitlines() if line.strip().startswith("protocol")]
    assert len(rows) == 2 and "fast" in rows[0] and "slow" in rows[1]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "run.experiment = @without_stragglers\nwithout_stragglers.protocol = @asp()\n",
            "a parameter that is a StragglerModel, or a dict or list of them. without_stragglers takes "
            "protocol: Protocol, num_workers: int, note: str | None.",
        ),
        (RENAMED.replace("renamed.workers = 3\n", ""), "one parameter with 'workers' in its name that is an int"),
        (RENAMED.replace("renamed.model = @exponential()\n", ""), "a parameter that is a StragglerModel"),
        (RENAMED + "renamed.channel = @links()\n", "links need a task, whose parameters are what is sent; renamed"),
        ("run.experiment = @outer\nouter.inner = @asp\n", "outer takes inner: Callable, note: str."),
    ],
)
def test_what_is_missing_is_said_with_what_there_is(gcjax, text, match):
    status, _, err = gcjax(text=text)
    assert status == 2
    assert match in err


def test_absences_are_drawn_and_checked(gcjax):
    lines = ["compare.absences = @random_absences()", "random_absences.mean_present = 2.0"]
    lines += ["random_absences.mean_away = 1.0", "random_absences.max_count = 2", "compare.schemes = {'BSP': @bsp()}"]
    lines += ["compare.schemes = {'BSP': @bsp(), 'DSSP': @dssp()}", "dssp.lower = 1", "dssp.span = 2"]
    status, out, err = gcjax(text="\n".join([*CONFIG.splitlines()[:13], *lines, "links.upload = 100.0"]))
    assert (status, err) == (0, "")
    rows = {line.split("│")[0].strip(): line for line in out.splitlines() if "│" in line}
    assert "of those who take part" in rows["BSP"]
    assert "promises nothing that can be checked" in rows["DSSP"]
