"""Config files and bindings at random: a command succeeds, or ends with status 2 and at most five lines."""

import contextlib
import io
import os
import tempfile
import textwrap
from pathlib import Path

import gin
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from gcjax import cli, memory, register
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.study import training
from gcjax.tasks import Task
from tests.test_words import EDITS, SMALL, with_line

LOOKED = """run.experiment = @looks
looks.schemes = {'SSP': @ssp(), 'CRC': @crc/coded()}
looks.task = @linear_regression()
looks.stragglers = @scaled()
looks.network = @constant_network()
looks.number = %rate
rate = 0.1
workers = 4
ssp.staleness = 3
crc/coded.code = @cyclic_repetition()
crc/coded.stop = @first_of()
first_of.rules = [@decodable(), @deadline()]
deadline.seconds = 3
cyclic_repetition.num_workers = %workers
cyclic_repetition.num_stragglers = 1
cyclic_repetition.rng_key = @key()
key.seed = 0
scaled.model = @exponential()
scaled.factor = (1.0, 2.0)
linear_regression.num_chunks = 2
linear_regression.num_examples = 8
linear_regression.num_features = 2
constant_network.latency = 0.1
"""


@register("experiment")
def looks(
    schemes: dict[str, Protocol],
    task: Task,
    *,
    stragglers: StragglerModel,
    network: Network | Links,
    number: float,
    count: int = 1,
    note: str | None = None,
    out,
    progress,
):
    """An experiment that is given everything and does nothing."""


class Trained(BaseException):
    """Raised where training would begin: all before it was accepted."""


@pytest.fixture(scope="module", autouse=True)
def nothing_large():
    """Nothing can be allocated that is larger than a machine of 1 GiB has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "machine_bytes", lambda: 2**30)
        yield patch
    gin.clear_config()


def outcome(data: bytes, *bindings: str) -> tuple[int, str]:
    """The status and the stderr of a run in an empty folder."""
    before, said = os.getcwd(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.gin"
        path.write_bytes(data)
        (Path(folder) / "other.gin").write_text("include 'small.gin'\n")
        words = [word for binding in bindings for word in ("--set=" + binding,)]
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                status = cli.main(["run", "small.gin", "--no-cache", "--out", "out", *words])
        except Trained:
            status = 0
        finally:
            os.chdir(before)
    return status, said.getvalue()


def check(data: bytes, *bindings: str) -> None:
    """Success, or words."""
    status, said = outcome(data, *bindings)
    lines = said.splitlines()
    shown = textwrap.shorten(said, 2000)
    assert status in (0, 2), shown
    assert "Traceback" not in said and "Nobody foresaw" not in said, shown
    if status == 2:
        assert said.startswith("gcjax: ") and len(lines) <= 5, shown


WHOLE = st.sampled_from([0, 1, 2, 3, 5, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64, 10**20, 10**400])
NUMBERS = st.one_of(
    WHOLE.map(str),
    WHOLE.map(lambda value: str(-value)),
    st.sampled_from(["0.0", "-0.0", "0.5", "1.0", "-1.5", "1e400", "-1e400", "1e308", "1e-320", "nan", "1j", "1_0"]),
)
NAMES = ["ssp", "bsp", "coded", "crc/coded", "a/b/coded", "exponential", "scaled", "key", "linear_regression", "looks"]
NAMES += ["compare", "cyclic", "first_of", "deadline", "constant_network", "run", "sgd", "adam", "gin.macro", "nobody"]
REFERENCES = st.builds(lambda name, end: f"@{name}{end}", st.sampled_from(NAMES), st.sampled_from(["", "()", "(", ")"]))
CALLS = st.one_of(st.sampled_from(NAMES).map("@{}()".format), st.sampled_from(NAMES).map("[@{}()]".format))
MACROS = st.sampled_from(["%rate", "%workers", "%a", "%b", "%a/b", "%", "%gin.REQUIRED"])
TEXTS = st.one_of(st.text(max_size=6).map(repr), st.sampled_from(["'", "None", "True", "(", "'a' 'b'", "b'x'", "..."]))
VALUES = st.recursive(
    st.one_of(NUMBERS, REFERENCES, MACROS, TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(inner, max_size=3).map(lambda items: f"({', '.join(items)})"),
        st.dictionaries(st.one_of(TEXTS, NUMBERS, REFERENCES), inner, max_size=2).map(
            lambda items: f"{{{', '.join(f'{k}: {v}' for k, v in items.items())}}}"
        ),
    ),
    max_leaves=4,
)


def targets(text: str) -> st.SearchStrategy[str]:
    """What a line may give a value to: what the config binds, some of it in scopes, and what there is not."""
    bound = [line.partition(" = ")[0] for line in text.splitlines() if " = " in line]
    more = ["looks.count", "looks.note", "exponential.mean", "coded.code", "a", "b", "a/b", "run", "x.y", "looks.out"]
    more += ["linear_regression.batch_size", "linear_regression.seed", "linear_regression.noise", "scaled.workers"]
    more += ["study.seed", "study.seconds", "compare.timeline_seconds", "study.num_evals", "compare.network"]
    more += ["study.optimizers", "study.checkpoint_every", "study.checkpoints_kept", "study.mesh"]
    scoped = st.builds(
        lambda scope, name: f"{scope}/{name}", st.sampled_from(["crc", "a", "a/b"]), st.sampled_from(bound)
    )
    return st.one_of(st.sampled_from(bound), st.sampled_from(bound + more), scoped)


def bindings(text: str) -> st.SearchStrategy[list[str]]:
    """One to three statements."""
    readable = st.one_of(NUMBERS, CALLS, VALUES)
    return st.lists(st.builds(lambda name, value: f"{name} = {value}", targets(text), readable), min_size=1, max_size=3)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> bytes:
    """A config file that something has happened to, up to three times."""
    data = text.encode()
    for _ in range(draw(st.integers(1, 3))):
        lines = data.splitlines(keepends=True) or [b""]
        i, at = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["flip", "drop", "double", "swap", "cut", "insert", "statement"]))
        if what == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif what == "drop":
            data = b"".join(lines[:i] + lines[i + 1 :])
        elif what == "double":
            data = b"".join(lines[: i + 1] + lines[i:])
        elif what == "swap":
            j = draw(st.integers(0, len(lines) - 1))
            lines[i], lines[j] = lines[j], lines[i]
            data = b"".join(lines)
        elif what == "cut":
            data = data[:at]
        elif what == "insert":
            data = data[:at] + draw(st.one_of(st.sampled_from(INSERTED), st.text(max_size=3))).encode() + data[at:]
        else:
            lines.insert(i, draw(st.sampled_from(STATEMENTS)).encode() + b"\n")
            data = b"".join(lines)
    return data


INSERTED = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "@",
    "%",
    "\\",
    "\n",
    "\t",
    "=",
    "\0",
    "\r",
    "'''",
    "\u2028",
    "[" * 300,
]
STATEMENTS = [
    "include 'small.gin'",
    "include 'other.gin'",
    "include 'none.gin'",
    "include '.'",
    "import",
    "import os.x",
]
STATEMENTS += ["import nowhere", "from os import path", "from __gin__ import dynamic_registration", "looks:", " a = 1"]
STATEMENTS += [
    "looks:\n  number = 1",
    "a.b.c.d = 1",
    "= 1",
    "a =",
    "%a = 1",
    "@a = 1",
    "a = b = 1",
    "print(1)",
    "x/ = 1",
]

FOUND = [
    ["run.experiment = {@gin.macro(): []}"],
    ["run.experiment = {%nothing: []}"],
    ["first_of.rules = 0"],
    ["run.experiment = {@linear_regression(): 'x', -4294967296: []}"],
    ["crc/coded.code = {@linear_regression(): 'x'}"],
    ["run.experiment = @crc/coded()"],
    ["cyclic_repetition.num_workers = @run()"],
    ["cyclic_repetition.num_workers = @a/run()"],
]

quick = settings(max_examples=30, suppress_health_check=list(HealthCheck))
FUZZ = int(os.environ.get("GCJAX_FUZZ", "1"))
"""Times as many examples in the slow tests; `make fuzz` takes twenty."""
long = settings(max_examples=300 * FUZZ, suppress_health_check=list(HealthCheck), derandomize=False, print_blob=True)


@pytest.mark.parametrize("line", EDITS)
def test_the_cases_that_were_found_first(line, nothing_large):
    nothing_large.setattr(training, "train", lambda *arguments: train())
    check(with_line(line).encode())


def train():
    raise Trained


@pytest.mark.parametrize("statements", FOUND)
def test_the_cases_that_were_found_at_random(statements):
    check(LOOKED.encode(), *statements)


@pytest.mark.parametrize("line", ["from __gin__ import dynamic_registration", "include 'none.gin'"])
@pytest.mark.parametrize("at", [0, 8])
def test_the_lines_that_were_found_at_random(line, at):
    lines = LOOKED.splitlines()
    check("\n".join([*lines[:at], line, *lines[at:]]).encode())


@quick
@given(bindings(LOOKED))
def test_bindings_at_random(statements):
    check(LOOKED.encode(), *statements)


@quick
@given(mutated(LOOKED))
def test_files_that_something_happened_to(data):
    check(data)


@pytest.mark.slow
@long
@given(bindings(LOOKED))
def test_many_bindings_at_random(statements):
    check(LOOKED.encode(), *statements)


@pytest.mark.slow
@long
@given(mutated(LOOKED))
def test_many_files_that_something_happened_to(data):
    check(data)


@settings(quick, max_examples=5)
@given(bindings(SMALL))
def test_a_comparison_up_to_its_training(statements):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", lambda *arguments: train())
        check(SMALL.encode(), *statements)


@pytest.mark.slow
@settings(long, max_examples=100 * FUZZ)
@given(bindings(SMALL))
def test_many_comparisons_up_to_their_training(statements):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", lambda *arguments: train())
        check(SMALL.encode(), *statements)


@pytest.mark.slow
@settings(long, max_examples=20 * FUZZ)
@given(bindings(SMALL))
def test_comparisons_with_their_training(statements):
    check(SMALL.encode(), *statements)
