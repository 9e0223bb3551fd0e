"""`gcjax list NAME`, and the lines for config files that it prints."""

import gin
import pytest
from rich.console import Console

import experiments.live
import experiments.published  # noqa: F401  (the lines name the one, and must not name a task of the other)
from gcjax import cli, config, registry
from gcjax.cli import gin_lines, listing_tables
from tests import own_scheme

ENTRIES = [(kind, name) for kind, table in registry.kinds().items() if table.in_configs for name in table.entries]

# What no config file can hold, or a file that is not there: the lines parse, and the factory says what it needs.
NEEDS_MORE = {"cifar10", "communication_efficient", "edges", "fashion_mnist", "mnist", "order_by_speed", "repetition"}
NEEDS_MORE |= {"read_trace", "replay", "text"}
SMALLER = {"gaussian_mixture": ["gaussian_mixture.num_examples = 640"]}  # to spare seconds


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    config.register_entries()
    with own_scheme.unloaded(monkeypatch):
        yield


@pytest.fixture
def narrow(monkeypatch, capsys):
    """The lines that a terminal of 80 columns shows."""
    monkeypatch.setattr(listing_tables, "console", lambda: Console(width=80))

    def shown(name=None):
        assert cli.main(["list", *([name] if name else [])]) == 0
        return capsys.readouterr().out.splitlines()

    return shown


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_lines_to_paste_parse_and_make_what_they_name(kind, name):
    lines = gin_lines.lines(kind, name)
    assert name in lines[lines[0].startswith("import ")]
    gin.parse_config([line.removeprefix("# ") for line in lines])  # the options, too
    gin.clear_config()
    gin.parse_config([*lines, *SMALLER.get(name, ())])
    if kind == "experiment":
        return
    factory = gin.get_configurable(f"{registry.kinds()[kind].module_of(name)}.{name}")
    if name in NEEDS_MORE:
        with pytest.raises(ValueError):
            factory()
    else:
        assert factory() is not None


def test_lines_of_an_experiment_say_what_to_bind():
    lines = gin_lines.lines("experiment", "compare")
    assert lines[0] == "run.experiment = @compare"
    assert {"compare.schemes = {'name': @asp()}", "study.task = @digits()"} <= {*lines}
    assert {"study.target = 0.9", "study.optimizer = @sgd()", "sgd.learning_rate = 0.1"} <= {*lines}
    assert not any("compare.out" in line or "compare.progress" in line for line in lines)


@pytest.mark.slow
def test_the_lines_of_a_comparison_run_as_they_are(tmp_path):
    (tmp_path / "c.gin").write_text("\n".join(gin_lines.lines("experiment", "compare")))
    assert cli.main(["run", str(tmp_path / "c.gin"), "--out", str(tmp_path / "out")]) == 0
    assert "0.9 accuracy" in (tmp_path / "out" / "summary.md").read_text()


def test_an_entry_shows_signature_docstring_paper_and_lines(narrow):
    text = "\n".join(narrow("shifted_exponential"))
    assert "shift: float | Sequence[float]," in text
    assert "mean: mean of the exponential part in seconds" in text
    assert "Paper: Lee et al. 2018" in text
    assert "  compare.stragglers = @shifted_exponential()\n  shifted_exponential.shift = 1.0\n" in text


def test_a_name_of_several_things_shows_all(narrow):
    lines = narrow("deadline")
    assert any("until_decodable" in line for line in lines)  # the kind
    assert "stopping deadline, in gcjax.codes.stopping" in lines
    lines = narrow("ssp")
    assert {"protocol ssp, in gcjax.protocols.ssp", "specification ssp, in gcjax.specifications.clocks"} <= {*lines}
    assert "  gcjax check ssp --num-workers 3 --staleness 2" in lines


def test_a_kind_shows_parameters(narrow):
    text = "\n".join(narrow("protocol"))
    assert "num_local_steps, dynamic=False, inner=None, outer=None" in text
    assert "no parameters" in text


@pytest.mark.parametrize("name", [None, *registry.kinds(), "pareto", "ssp", "batch_raptor", "compare", "adam", "text"])
def test_80_columns_are_enough(narrow, name):
    lines = narrow(name)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines if ".…" not in line)


def test_paragraphs_and_items_are_wrapped_and_nothing_is_lost():
    text = "One line\nthat goes on.\n\nArgs:\n  a: first\n    second part.\n  b: other.\n\n- a list\n- of two"
    assert list(listing_tables._rewrapped_lines(text, 22)) == [
        "One line that goes on.",
        "",
        "Args:",
        "  a: first second",
        "    part.",
        "  b: other.",
        "",
        "- a list",
        "- of two",
    ]
    for kind in registry.kinds().values():
        for entry in kind.entries.values():
            doc = entry.factory.__doc__
            assert " ".join(listing_tables._rewrapped_lines(doc, 80)).split() == doc.split()


def test_an_unknown_name_says_what_is_near(capsys):
    assert cli.main(["list", "paretto"]) == 2
    assert "There is no kind and no entry 'paretto'. Did you mean pareto" in capsys.readouterr().err


def test_a_kind_with_nothing_in_it_says_how_to_make_one(narrow, monkeypatch):
    monkeypatch.setitem(registry._outside_entries, "experiment", {})
    monkeypatch.setattr("gcjax.study.EXPERIMENTS", {})
    assert any("@gcjax.register('experiment')" in line for line in narrow("experiment"))
    assert not any(line.startswith("experiment") for line in narrow())


@pytest.mark.parametrize("name", [None, "protocol", "specification"])
def test_a_list_that_is_piped_is_as_wide_as_a_page(monkeypatch, capsys, name):
    monkeypatch.delenv("COLUMNS")
    listing_tables.run(name)
    narrow = capsys.readouterr().out
    assert 70 < max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    monkeypatch.setenv("COLUMNS", "1000")
    listing_tables.run(name)
    whole_words = set(capsys.readouterr().out.split())
    assert {word for word in narrow.split() if word[0].isalnum()} <= whole_words


def test_a_number_that_is_whole_is_proposed_as_one():
    assert "ssp.staleness = 1" in gin_lines.lines("protocol", "ssp")


def test_a_type_that_no_config_writes_is_shown_where_there_is_no_other(capsys):
    assert cli.main(["list", "partial"]) == 0
    assert "rng_key: Array | None = None" in capsys.readouterr().out
