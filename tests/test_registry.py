"""Registration from outside, and plugins, also broken ones."""

import functools
import subprocess
import sys

import pytest

import gcjax
from gcjax import cli, config, plugins, registry
from gcjax.cli import check_specification
from tests import own_scheme
from tests.docs import pages


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    with own_scheme.unloaded(monkeypatch, "some_plugin", "other_plugin"):
        yield


def lazy(*, patience: float = 2.0) -> gcjax.protocols.Protocol:
    """Waits for nobody."""
    return gcjax.protocols.asp()


def test_a_registered_function_makes_equal_objects_and_is_in_the_table():
    protocol = gcjax.register("protocol", paper="Nobody 2030")(lazy)
    assert protocol.__wrapped__ is lazy
    assert protocol(patience=3.0) == protocol(patience=3.0)
    kind = registry.kinds()["protocol"]
    assert kind.entries["lazy"] == registry.Entry(protocol, "Nobody 2030")
    assert (kind.module_of("lazy"), kind.module_of("ssp")) == (__name__, "gcjax.protocols")
    assert set(kind.entries) - kind.outside_names == set(gcjax.protocols.TABLE)
    assert "lazy" not in gcjax.protocols.TABLE


def test_everything_has_the_name_of_its_function():
    functions = [kind.entries for name, kind in registry.kinds().items() if name != "study"]  # those are classes
    assert all(entry.factory.__name__ == name for entries in functions for name, entry in entries.items())


def test_another_name_can_be_given():
    protocol = gcjax.register("protocol", name="patient")(lazy)
    assert registry.kinds()["protocol"].entries["patient"].factory is protocol


@pytest.mark.parametrize(
    ("kind", "name", "factory", "match"),
    [
        ("protocl", None, lazy, "There is no kind 'protocl' to register. Did you mean protocol"),
        (lazy, None, lazy, r'must be given a kind, as in @gcjax.register\("protocol"\); got <function lazy'),
        ("protocol", None, 3, "registered as protocol must be a function; got 3"),
        ("protocol", None, functools.partial(lazy), "must be a function; got functools.partial"),
        ("protocol", "two words", lazy, "one that Python could give; got 'two words'"),
        ("protocol", None, lambda: None, "one that Python could give; got '<lambda>'"),
        ("protocol", "ssp", lazy, r"The protocol .*lazy cannot be called 'ssp', since gcjax.protocols.ssp.ssp has"),
    ],
)
def test_what_cannot_be_registered_says_why(kind, name, factory, match):
    with pytest.raises(ValueError, match=match):
        gcjax.register(kind, name=name)(factory)
    assert not any(factory is entry.factory for kind in registry.kinds().values() for entry in kind.entries.values())


def test_a_name_of_somebody_else_outside_is_taken_and_ones_own_is_not():
    def other():
        """Another function."""

    gcjax.register("protocol", name="patient")(lazy)
    with pytest.raises(ValueError, match=r"other cannot be called 'patient', since tests.test_registry.lazy has"):
        gcjax.register("protocol", name="patient")(other)
    gcjax.register("protocol", name="patient", paper="Nobody 2030")(lazy)  # a cell that is run again
    assert registry.kinds()["protocol"].entries["patient"].paper == "Nobody 2030"


def test_a_name_that_configs_know_from_another_kind_is_taken():
    config.register_entries()
    with pytest.raises(ValueError, match=r"lazy cannot be called 'exponential', since gcjax.stragglers.exponential"):
        gcjax.register("protocol", name="exponential")(lazy)
    assert "exponential" not in registry.kinds()["protocol"].entries


def test_its_arguments_are_checked_in_configs(tmp_path):
    seen = []

    def stroll(schemes: dict[str, gcjax.protocols.Protocol], out, progress):
        seen.append(schemes)

    gcjax.register("experiment")(stroll)
    file = tmp_path / "some.gin"
    file.write_text("run.experiment = @stroll\nstroll.schemes = {'a': @patient()}\npatient.patience = 1.0\n")
    gcjax.register("protocol", name="patient")(lazy)
    config.load(file)
    config.run_loaded(tmp_path, None)
    assert isinstance(seen[0]["a"], gcjax.protocols.Protocol)
    config.load(file, ["patient.patience = 'long'"])
    with pytest.raises(ValueError, match=r"patient.patience must be a number; got 'long' \(str\)"):
        config.run_loaded(tmp_path, None)


def test_a_specification_can_be_checked():
    def always(num_workers: int = 2) -> object:
        """A copy of ours."""
        return gcjax.protocols.bsp().specification(num_workers)

    gcjax.register("specification")(always)
    assert check_specification.specification_of_arguments("always", ["--num-workers", "3"]).name.startswith("bsp")


BROKEN = {
    "import torchh\n": "ModuleNotFoundError: No module named 'torchh'.?$",
    "1 / 0\n": "ZeroDivisionError: division by zero$",
    "raise SystemExit\n": "SystemExit$",
    "def\n": "SyntaxError: ",
    "import gcjax\ngcjax.register('protocol')(3)\n": "registered as protocol must be a function; got 3",
    "import gcjax\n@gcjax.register('protocol')\ndef ssp():\n    pass\n": (
        r"The protocol some_plugin.ssp cannot be called 'ssp', since gcjax.protocols.ssp.ssp has this name"
    ),
}


def test_check_says_of_a_protocol_without_a_specification_how_it_is_checked(capsys):
    gcjax.register("protocol")(lazy)
    assert cli.main(["check", "lazy"]) == 2
    assert "'lazy', only a protocol of this name. Hold its schedules" in capsys.readouterr().err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_plugin_may_name_the_extra_that_it_needs(here, capsys):
    own_scheme.write(here, {"with_extra.py": "import gcjax\n@gcjax.register('protocol')\ndef early():\n    'Early.'\n"})
    own_scheme.install(here, extra="with_extra [some_extra]")
    assert cli.main(["list", "protocol"]) == 0
    said = capsys.readouterr()
    assert not said.err and "early" in said.out


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_plugin_is_left_out_and_one_line_says_so(here, capsys, text):
    good = "import gcjax\n@gcjax.register('protocol')\ndef early():\n    'Early.'\n"
    own_scheme.write(here, {"some_plugin.py": good + text, "other_plugin.py": good.replace("early", "other")})
    own_scheme.install(here, broken="some_plugin", whole="other_plugin")
    assert cli.main(["list", "protocol"]) == 0
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("gcjax: The plugin 'broken' of the package my-schemes is left out: its module some_plugin")
    assert __import__("re").search(BROKEN[text], line), line
    assert "ssp" in said.out and "other" in said.out and "early" not in said.out
    assert cli.main(["list", "protocol"]) == 0
    assert capsys.readouterr().err == ""


def test_a_broken_plugin_removes_no_entry_of_somebody_else(here, capsys):
    """Whose module need not be one that was imported, as that of a cell or of text that was run."""
    namespace = {"__name__": "some_text"}
    exec("import gcjax\n@gcjax.register('protocol')\ndef patient():\n    'Patient.'\n", namespace)
    own_scheme.write(here, {"some_plugin.py": "1 / 0"})
    own_scheme.install(here, broken="some_plugin")
    assert "patient" in registry.kinds()["protocol"].entries
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_an_entry_point_must_name_a_module(here, capsys):
    own_scheme.install(here, broken="some_plugin:ssp")
    registry.kinds()
    assert "it must name a module, such as some_plugin; got some_plugin:ssp." in capsys.readouterr().err


def test_two_plugins_that_want_one_name(here, capsys):
    text = "import gcjax\n@gcjax.register('task')\ndef chess():\n    'Chess.'\n"
    own_scheme.write(here, {"some_plugin.py": text, "other_plugin.py": text})
    own_scheme.install(here, first="some_plugin", second="other_plugin")
    assert registry.kinds()["task"].entries["chess"].factory_name == "some_plugin.chess"
    assert "other_plugin.chess cannot be called 'chess', since some_plugin.chess has" in capsys.readouterr().err


def test_help_and_importing_load_no_plugin(here, capsys):
    own_scheme.write(here, {"some_plugin.py": "raise RuntimeError('loaded')"})
    own_scheme.install(here, broken="some_plugin")
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    assert capsys.readouterr().err == "" and plugins._problems is None


def test_the_registry_is_light():
    """What `gcjax --help` and `import gcjax` may import."""
    text = "import sys; sys.modules['gcjax'] = type(sys)('gcjax'); sys.modules['gcjax'].__path__ = [sys.argv[1]]\n"
    text += "import gcjax.registry, gcjax.plugins; assert not {'jax', 'numpy', 'gin'} & set(sys.modules)"
    folder = pages.ROOT / "gcjax"
    subprocess.run([sys.executable, "-c", text, str(folder)], check=True)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("ASP", "Did you mean asp or BSP?"), ("bspx", "Did you mean BSP or asp?"), ("qqq", "Known: BSP, asp.")],
)
def test_names_that_look_alike_in_another_case_are_named(name, sentence):
    assert registry.nearest_names_sentence(name, ["BSP", "asp"]) == sentence


@pytest.mark.parametrize("name", ["lr", "LR"])
def test_initials_stand_for_the_words_of_a_name(name):
    names = ["learning_rate", "momentum", "lrt", "left"]
    assert registry.nearest_names_sentence(name, names) == "Did you mean learning_rate?"
    assert registry.nearest_names_sentence("m", ["momentum", "nesterov"]) == "Known: momentum, nesterov."
