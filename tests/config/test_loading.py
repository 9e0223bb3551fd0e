"""Config files: what can be named, and what happens when something is wrong."""

import math
import sys

import gin
import jax
import optax
import pytest

from gcjax import config, progress, register, registry
from gcjax.config import errors
from gcjax.protocols import Protocol

SEEN: dict = {}


@register("experiment")
def toy(schemes: dict[str, Protocol], learning_rate: float, *, note: str | None = None, out, progress):
    """An experiment that only looks at what it is given."""
    SEEN.update(schemes=schemes, learning_rate=learning_rate, note=note, out=out)
    return "done"


CONFIG = """
run.experiment = @toy
toy.learning_rate = %rate
toy.schemes = {'SSP': @ssp(), 'CRC': @crc/coded()}
rate = 0.1
workers = 4
ssp.staleness = 3
coded.code = @cyclic_repetition()
crc/coded.stop = @first_of()
first_of.rules = [@decodable(), @deadline()]
deadline.seconds = 3
cyclic_repetition.num_workers = %workers
cyclic_repetition.num_stragglers = 1
cyclic_repetition.rng_key = @key()
key.seed = 0
"""


@pytest.fixture(autouse=True)
def forget():
    yield
    gin.clear_config()
    SEEN.clear()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toy.gin"
    path.write_text(CONFIG)
    return path


def run(file, *bindings):
    config.load(file, bindings)
    return config.run_loaded(file.parent, progress.silent())


def test_an_experiment_gets_what_the_file_binds(file):
    assert run(file) == "done"
    assert SEEN["learning_rate"] == 0.1
    assert SEEN["schemes"]["CRC"].code.assignment.num_workers == 4
    assert SEEN["out"] == file.parent


def test_bindings_win_over_the_file(file):
    run(file, "toy.learning_rate = 0.3", "workers = 6", "toy.note = 'six'")
    assert SEEN["learning_rate"] == 0.3
    assert SEEN["schemes"]["CRC"].code.assignment.num_workers == 6
    assert SEEN["note"] == "six"


def test_loading_forgets_what_was_loaded(file, tmp_path):
    run(file, "toy.note = 'first'")
    run(file)
    assert SEEN["note"] is None


def test_the_operative_config_repeats_the_run(file, tmp_path):
    run(file, "toy.learning_rate = 0.7")
    again = tmp_path / "operative.gin"
    again.write_text(config.operative())
    SEEN.clear()
    run(again)
    assert SEEN["learning_rate"] == 0.7
    assert set(SEEN["schemes"]) == {"SSP", "CRC"}


def test_every_entry_can_be_named(file):
    config.register_entries()
    for kind in registry.kinds().values():
        for name, entry in kind.entries.items():
            assert callable(entry.factory)
            assert entry.summary.endswith("."), name
            if kind.in_configs:
                assert gin.get_configurable(f"{kind.module_of(name)}.{name}")


def test_optax_and_keys_can_be_named(file):
    run(file)
    gin.parse_config("adam.learning_rate = @cosine_decay_schedule()\ncosine_decay_schedule.init_value = 0.1")
    gin.parse_config("cosine_decay_schedule.decay_steps = 10\nchain.args = [@adam(), @sgd()]\nsgd.learning_rate = 1")
    assert isinstance(gin.get_configurable("chain")(), optax.GradientTransformation)
    assert jax.numpy.issubdtype(gin.get_configurable("gcjax.key")().dtype, jax.dtypes.prng_key)


def test_a_config_imports_its_experiment_from_a_folder_above_it(tmp_path):
    (tmp_path / "configs").mkdir()
    path = tmp_path / "configs" / "c.gin"
    path.write_text(CONFIG)
    (tmp_path / "experiments").mkdir()
    config.load(path)
    assert str(tmp_path) in sys.path
    sys.path.remove(str(tmp_path))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder with experiments, which is no package and not the working directory."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(gin.config, "_LOCATION_PREFIXES", [*gin.config._LOCATION_PREFIXES])
    for name in ("experiments", "configs/sub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "configs" / "base.gin").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize("is_on_path", [False, True])
def test_a_config_includes_files_of_a_folder_above_it(elsewhere, is_on_path):
    if is_on_path:  # as that of a checkout in which gcjax was installed
        sys.path.append(str(elsewhere))
    file = elsewhere / "configs" / "sub" / "c.gin"
    file.write_text("include 'configs/base.gin'\ntoy.learning_rate = 0.5\n")
    assert run(file) == "done" and SEEN["learning_rate"] == 0.5


def test_folders_of_a_config_that_was_loaded_before_count_no_more(elsewhere, tmp_path_factory):
    config.load(elsewhere / "configs" / "base.gin")
    file = tmp_path_factory.mktemp("other") / "toy.gin"
    file.write_text(CONFIG)
    with pytest.raises(ValueError, match="no 'configs/base.gin'"):
        config.load(file, ["include 'configs/base.gin'"])


def test_a_file_that_is_not_in_a_folder_above_the_config_is_said(elsewhere):
    file = elsewhere / "configs" / "sub" / "c.gin"
    file.write_text("include 'configs/bass.gin'\n")
    with pytest.raises(ValueError, match="An included config file must exist; there is no 'configs/bass.gin'"):
        run(file)


BAD_BINDINGS = {
    "toy.learning_rate = 'fast'": r"must be a number; got 'fast' \(str\). Write it without quotes, as in 0.5; 1e999",
    "toy.learning_rate = True": r"toy.learning_rate must be a number; got True \(bool\). Write one, as in 0.5\.$",
    "key.seed = True": r"key.seed must be a whole number; got True \(bool\). Write one, as in 3\.$",
    "key.seed = '3'": r"key.seed must be a whole number; got '3' \(str\). Write it without quotes and without a point",
    "sgd.lr = 0.1": r"sgd has no parameter 'lr'. Did you mean learning_rate\?",
    "toy.schemes = [@bsp()]": r"must be dict.*; got a list. Write names in front, in \{ \}, as in \{'name': value\}",
    "toy.note = 3": r"toy.note must be a text or None; got 3 \(int\). Write it in quotes, as in 'text'.",
    "toy.schemes = {'A': @asp}": r"toy.schemes\['A'\] must be Protocol; got the function asp itself",
    "toy.schemes = @asp()": r"toy.schemes must be dict",
    "ssp.staleness = 'three'": "ssp.staleness must be a number; got 'three' .* 1e999 is infinity",
    "coded.code = @cyclic_repetition": "coded.code must be GradientCode; .* Write",
    "coded.code = None": r"coded.code must be GradientCode; got None .*. Name one, as @name\(\); gcjax list shows them",
    "key.seed = 1.5": r"key.seed must be a whole number; got 1.5 \(float\). Write it .* without a point, as in 3.",
    "first_of.rules = [1]": r"first_of.rules must be StoppingRule; got 1",
    "deadline.seconds = -1": r"must be above 0; got -1",
    "ssp.stalenes = 3": r"ssp has no parameter 'stalenes'. Did you mean staleness",
    "toy.out = 'runs'": "toy.out is given by the command .*. Leave it out; gcjax run --out is the folder to write.",
    "compare.progress = None": "compare.progress is given by the command",
    "run.out = 'runs'": "run.out is given by the command",
    "sps.staleness = 3": r"Nothing is called 'sps'. Did you mean .*ssp",
    "toy.schemes = {'A': @aps()}": r"Nothing is called 'aps'. Did you mean .*asp",
    "run.experiment = @toi": r"Nothing is called 'toi'. Did you mean toy",
    "constant.value = 3": r"'constant' could be any of .*gcjax.stragglers.constant",
    "toy.learning_rate = %rat": r"%rat must be given a value.* Did you mean rate",
    "worker = 6": r"'worker = ...' sets a value that nothing uses. Did you mean workers",
    "epochs = 6": r"'epochs = ...' sets a value that nothing uses",
    "toy.learning_rate = fast": r"Cannot read 'toy.learning_rate = fast': fast is no value",
    "toy.schemes = {'A': @ssp(staleness=2)}": r"arguments have lines of their own, as in name.argument = 3",
    "toy.learning_rate =": r"Cannot read 'toy.learning_rate ='",
    "toy.learning_rate": r"Cannot read 'toy.learning_rate'",
    "import experiments.protocls": r"no experiment module 'protocls'. Did you mean protocols",
    "import my_packidge.schemes": r"No module 'my_packidge' can be imported. Install it",
    "include 'other.gin'": r"no 'other.gin'",
    "toy.schemes = {'A': @asp(), 'B': @asp(), 'A': @bsp()}": r"must have each key once; 'A' is there twice",
}


@pytest.mark.parametrize("binding", BAD_BINDINGS)
def test_bad_bindings_say_what_is_wrong(file, binding):
    with pytest.raises(ValueError, match=BAD_BINDINGS[binding]):
        run(file, binding)


def test_infinity_can_be_written_as_the_error_says(file):
    run(file, "toy.learning_rate = 1e999")
    assert SEEN["learning_rate"] == math.inf


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            "ssp.staleness",
            "ssp.staleness_bound",
            r"has no parameter 'staleness_bound'.*\n.*toy.gin line 7: ssp",
        ),
        (
            "ssp.staleness = 3",
            "",
            "missing a required argument: ssp.staleness. Add a line for each, as shown by gcjax list ssp",
        ),
        ("run.experiment = @toy", "", "must say which experiment to run"),
        ("= 3\ncoded", "= = 3\ncoded", r"Cannot read .*toy.gin line 7: ssp.staleness = = 3"),
        ("workers = 4", "worker = 4", "%workers must be given a value.* Did you mean worker"),
    ],
)
def test_bad_files_say_where(file, old, new, match):
    assert old in CONFIG
    file.write_text(CONFIG.replace(old, new))
    with pytest.raises(ValueError, match=match):
        run(file)


def test_python_instead_of_a_config_is_read_as_a_config(tmp_path):
    (tmp_path / "mine.py").write_text("import gcjax, jax\n")
    with pytest.raises(ValueError, match=r"Cannot read .*mine.py line 1: import gcjax, jax: Expected newline. A value"):
        config.load(tmp_path / "mine.py")


def test_a_key_of_a_dict_is_there_once_in_files_too(file, tmp_path):
    (tmp_path / "more.gin").write_text("\ntoy.schemes = {'A': @asp(),\n  'A': @bsp()}\n")
    file.write_text(CONFIG + f"include '{tmp_path / 'more.gin'}'\n")
    with pytest.raises(ValueError, match=r"'A' is there twice.*more.gin line 3: 'A': @bsp\(\)}\)"):
        config.load(file)
    file.write_text(CONFIG)
    config.load(file, ["toy.note = [{'a': 1, 'b': {'a': 2, 'c': 3}}, {'a': 1}]"])  # each of several dicts has its own


def test_a_macro_that_lost_its_user_is_no_error(file):
    run(file, "toy.learning_rate = 0.5")
    assert SEEN["learning_rate"] == 0.5


def test_a_file_that_does_not_exist_names_those_nearby(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    with pytest.raises(ValueError, match=r"tooy.gin. Did you mean toy.gin\? Config files nearby: toy.gin"):
        config.load("tooy.gin")
    with pytest.raises(ValueError, match=r"There is no .gin file nearby"):
        file.unlink()
        config.load("tooy.gin")


def test_the_kinds_of_what_a_config_or_a_command_can_name():
    assert set(registry.kinds()) == {
        "absences", "assignment", "attack", "code", "compression", "deadline", "experiment", "groups", "network",
        "optimizer", "protocol", "senders", "specification", "stopping", "straggler", "study", "task", "trace",
    }  # fmt: skip


def test_what_never_ends_inside_a_function_is_no_mistake_of_the_config():
    @gin.configurable(module="endless")
    def endless():
        return endless()

    with pytest.raises(RecursionError), errors.errors_in_words():
        endless()
