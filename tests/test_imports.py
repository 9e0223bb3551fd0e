"""Nothing heavy is imported before it is used."""

import subprocess
import sys

import gcjax

HEAVY = ("jax", "numpy", "optax", "flax", "sklearn", "scipy", "networkx", "matplotlib", "pyarrow", "orbax")


def imported_by(code):
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split("\n")[-2].split())


def test_the_package_and_its_help_need_no_jax():
    modules = imported_by("import gcjax, gcjax.cli\ntry:\n    gcjax.cli.main(['--help'])\nexcept SystemExit:\n    pass")
    assert "gcjax.cli" in modules
    assert not modules & set(HEAVY)


def test_codes_and_protocols_need_no_graphs_data_or_figures():
    modules = imported_by("import gcjax\ngcjax.codes, gcjax.protocols, gcjax.engine, gcjax.tasks")
    assert "gcjax.protocols" in modules
    assert not modules & {"sklearn", "networkx", "matplotlib", "orbax"}


def test_protocols_need_no_theory():
    modules = imported_by("import gcjax.protocols")
    assert "gcjax.specifications" in modules
    assert not {name for name in modules if name.startswith("gcjax.algebra")}


def test_codes_need_nothing_but_codes():
    modules = imported_by("import gcjax.codes")
    rooms = {".".join(name.split(".")[:2]) for name in modules if name.startswith("gcjax.")}
    assert rooms <= {
        "gcjax._generators",
        "gcjax._keys",
        "gcjax._products",
        "gcjax._validate",
        "gcjax.codes",
        "gcjax.equality",
        "gcjax.memory",
        "gcjax.registry",
    }


def test_every_public_name_is_there():
    assert set(gcjax.__all__) <= set(dir(gcjax))
    assert all(getattr(gcjax, name) is not None for name in gcjax.__all__)


def test_functions_stay_functions_whatever_is_imported_before():
    modules = imported_by("import gcjax, optax\ngcjax.protocols.ssp\nassert callable(gcjax.comparable(optax.sgd))")
    assert "gcjax.equality" in modules
