"""The configs that come with gcjax, and for each the files that it needs.

In the repository they are its folders `configs` and `experiments`. In an installation they are files inside of the
package, not packages of their own: `gcjax init` copies what a config needs to where a person can change it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gcjax
from gcjax import registry

CONFIGS, LICENCE = "configs", "LICENSE"
_PACKAGE = Path(gcjax.__file__).parent
_IMPORT = re.compile(r"^import (experiments(?:\.\w+)*)", re.MULTILINE)
_INCLUDE = re.compile(r"""^include ['"](.+?)['"]""", re.MULTILINE)


def root() -> Path:
    """The folder that `configs` and `experiments` are in: of an installation, or of the repository."""
    installed = _PACKAGE / "shipped"
    return installed if installed.is_dir() else _PACKAGE.parent


def configs() -> dict[str, Path]:
    """Name -> file of each config that can be run, by name.

    A name is the path in `configs`, without `.gin`: "quickstart", "grouped/delays". What is called `base.gin` is there
    to be included by others.
    """
    folder = root() / CONFIGS
    files = sorted(file for file in folder.rglob("*.gin") if file.stem != "base")
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def summary(config: Path) -> str:
    """The first sentence of the comment that a config begins with."""
    comment = re.match(r"(?:#.*\n)+", _shipped_text(config))
    lines = comment[0].splitlines() if comment else []
    return re.split(r"(?<=\.) ", " ".join(line.removeprefix("#").strip() for line in lines))[0]


def needed_files(name: str) -> dict[str, Path]:
    """Path below the new folder -> file to copy there, for the config of this name.

    These are the config, the configs that it includes, and if its experiment is none of gcjax itself the source of
    that, with the modules of `experiments` that it imports, and the licence.

    Raises:
      ValueError: if there is no such config.
    """
    if name not in configs():
        raise ValueError(
            f"There is no config '{name}' to begin with. {registry.nearest_names_sentence(name, configs())}"
        )
    config_paths = list(dict.fromkeys(_config_paths(f"{CONFIGS}/{name}.gin")))
    imported_modules = [module for path in config_paths for module in _IMPORT.findall(_shipped_text(root() / path))]
    source_paths = sorted({path for module in imported_modules for path in _paths_of_module_and_imports(module)})
    licence = {LICENCE: _licence_file()} if source_paths else {}
    return {**{path: root() / path for path in [*config_paths, *source_paths]}, **licence}


def _shipped_text(file: Path) -> str:
    """The text of a file that comes with gcjax."""
    return file.read_text(encoding="utf-8")


def _config_paths(path: str) -> Iterator[str]:
    """A config and those that it includes, at any depth, as paths below `root()`."""
    yield path
    for included in _INCLUDE.findall(_shipped_text(root() / path)):
        yield from _config_paths(included)


def _paths_of_module_and_imports(module: str) -> set[str]:
    """The files below `root()` that a module of `experiments` needs: its own, and those of what it imports there."""
    paths: set[str] = set()
    modules_to_visit = [module]
    while modules_to_visit:
        for path in _paths_of_module_and_packages(modules_to_visit.pop()):
            if path not in paths:
                paths.add(path)
                modules_to_visit += _imported_modules(_shipped_text(root() / path))
    return paths


def _paths_of_module_and_packages(module: str) -> list[str]:
    """The files of a module, or of a name in it, and of the packages that it is in, as paths below `root()`.

    `module` is written with points; a name in a module has no file, and adds none.
    """
    names = module.split(".")
    module_and_packages = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
    candidates = [f"{path}{ending}" for path in module_and_packages for ending in ("/__init__.py", ".py")]
    return [path for path in candidates if (root() / path).is_file()]


def _imported_modules(source: str) -> Iterator[str]:
    """What the text of a Python source imports of `experiments`: modules, and names that may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_of_experiments(alias.name))
        elif isinstance(node, ast.ImportFrom) and _is_of_experiments(node.module or ""):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_of_experiments(module: str) -> bool:
    """Whether a module is `experiments` or in it."""
    return module.split(".")[0] == "experiments"


def _licence_file() -> Path:
    """The licence of gcjax, in the repository or in what an installation says of itself."""
    from importlib import metadata

    licence_in_repository = root() / LICENCE
    if licence_in_repository.is_file():
        return licence_in_repository
    installed_licences = [path for path in metadata.files("gcjax") or () if path.name == LICENCE]
    return Path(str(installed_licences[0].locate()))
