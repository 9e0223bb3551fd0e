"""Every Python block of every page runs, one page a session; what pages say of their output is what is printed.

Training takes long: in a usual run it is done once, for all pages but the long ones, and every other call is looked at
and given that result. With --slow everything trains.
"""

import inspect
import re

import jax
import matplotlib.pyplot as plt
import optax
import pytest

import gcjax
from tests import own_scheme
from tests.docs import pages
from tests.parameters import some

WITH_PYTHON = {name: page for name, page in pages.with_python().items() if name != "docs/algebra.md"}  # in test_pages
LONG = [
    "docs/notebooks/protocols.md",
    "docs/notebooks/codes.md",
    "docs/which_scheme.md",
    "docs/how_to/task.md",
    "docs/how_to/package.md",
]
MAX_LINES = 40
KEPT = {
    "README.md": r"90 % after .* steps keep to ssp\(20 workers, staleness 3\): nobody is more than 4 ahead of anybody",
    "docs/codes.md": r"equal: \[3, 3, 3, 3, 3, 3\], .*\nplanned: \[5, 5, 4, 4, 0, 0\], .* above the least loss",
    "docs/tutorial.md": r"^\(50, 20\).*\nTrue\n.* steps keep to ssp\(20 workers, staleness 3\)",
    "docs/how_to/code.md": r"^True\n0\.[1-9]",
    "docs/how_to/protocol.md": r"^All \d+ steps keep to k_batch_async\(6 workers",
    "docs/how_to/package.md": r"^True\nAll \d+ steps keep to k_batch_async\(6 workers",
    "docs/how_to/own_loop.md": r"^steps 0 to 30: loss \d.*\nsteps 30 to 60: loss \d",
    "docs/how_to/straggler_model.md": r"^\(20, 4\)",
    "docs/running/absences.md": r"^\[3 3 3 3 3 3 4 4 4\]\nAll \d+ steps keep to bsp\(4 workers.*of those who take part",
    "docs/running/live.md": r"^\d\.\d+ \d\.\d+(e-\d+)? \[1\]",
    "docs/running/parameter_server.md": r"^40 commits; All \d+ steps keep to ssp.*commits were kept, .*True\n50 rounds",
    "docs/running/traces.md": r"^\(100, 24\)",
}
"""Page -> what is printed."""

TRAINS = {"docs/codes.md", "docs/running/reports.md"}
"""Pages whose runs are short, and are made: what they print is of these."""


@pytest.fixture(scope="module")
def one_run():
    durations = gcjax.stragglers.sample_durations(gcjax.stragglers.exponential(mean=1.0), jax.random.key(0), 30, 20)
    task = gcjax.tasks.digits(num_chunks=20)
    return gcjax.engine.run(task, gcjax.protocols.asp(), optax.sgd(0.3), durations, rng_key=jax.random.key(0))


@pytest.fixture
def trained_once(monkeypatch, one_run, request):
    """No call of `engine.run` trains: its arguments are bound, its schedule is made, and `one_run` returned.

    Not for the pages in `TRAINS`.
    """
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("name") in TRAINS:
        return
    signature = inspect.signature(gcjax.engine.run)

    def run(*args, **kwargs):
        bound = signature.bind(*args, **kwargs).arguments
        if not isinstance(bound["durations"], jax.core.Tracer) and bound.get("network") is None:
            bound["protocol"](bound["durations"])
        return one_run

    monkeypatch.setattr(gcjax.engine, "run", run)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the package of the pages, as the working directory; what is registered in it is forgotten."""
    own_scheme.write(tmp_path, pages.own_files())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with own_scheme.unloaded(monkeypatch, own_scheme.NAME):
        yield tmp_path
    plt.close("all")


def run_and_compare(name, capsys):
    session = pages.run(WITH_PYTHON[name])
    printed = capsys.readouterr().out
    assert re.search(KEPT.get(name, ""), printed, flags=re.DOTALL), printed
    if name == "docs/how_to/own_loop.md":
        assert session["step"]._cache_size() == 1  # compiled once, also where a run goes on
    return session


@pytest.mark.slow(
    "docs/code_comparisons.md",
    "docs/codes.md",
    "docs/groups.md",
    "docs/how_to/code.md",
    "docs/how_to/protocol.md",
    "docs/how_to/straggler_model.md",
    "docs/protocols.md",
    "docs/running/absences.md",
    "docs/running/parameter_server.md",
    "docs/running/reports.md",
    "docs/running/seeds.md",
    "docs/running/traces.md",
    "docs/running/watch.md",
    "docs/tutorial.md",
)
@pytest.mark.parametrize("name", some([n for n in WITH_PYTHON if n not in LONG], LONG))
def test_blocks_run(name, capsys, workplace, trained_once):
    run_and_compare(name, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_blocks_run_and_train(name, capsys, workplace):
    session = run_and_compare(name, capsys)
    if name in ("README.md", "docs/tutorial.md"):
        assert float(session["run"].final("accuracy")) > 0.8
    if name == "docs/running/seeds.md":
        assert session["runs"].trajectory.metrics["accuracy"].shape[0] == 4
    if name == "docs/how_to/task.md":
        losses = session["run"].trajectory.metrics["train_loss"]
        assert float(losses[-1]) < float(losses[0])


@pytest.mark.parametrize("name", [name for name in WITH_PYTHON if "how_to" in name])
def test_examples_are_short(name):
    assert {len(block.splitlines()) for block in pages.blocks(WITH_PYTHON[name])} <= set(range(MAX_LINES + 1))


def test_pages_with_python_are_found():
    assert {"README.md", "docs/tutorial.md", "docs/notebooks/codes.md", "docs/how_to/task.md"} <= set(WITH_PYTHON)
    assert set(KEPT) <= set(WITH_PYTHON)


def test_the_files_of_the_package_are_whole():
    assert pages.own_files()["my_schemes/tasks.py"].count("@gcjax.register") == 2
    assert "pacemaker" in pages.own_files()["my_schemes/protocols.py"]
