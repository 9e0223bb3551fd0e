"""Loads config files, and makes everything that can be named known to gin."""

import functools
import hashlib
import inspect
import logging
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gin
import gin.config
import jax

from gcjax import _validate, registry
from gcjax.config import circular_references, duplicate_keys, errors, imports, missing_arguments, unused_bindings
from gcjax.config.arguments import GIVEN_BY_COMMAND, with_checked_arguments
from gcjax.config.config_files import existing_file
from gcjax.progress import Progress

PROCESSES = ("group", "apart")
_include_folders: list[str] = []
"""In which gin looks for what the config includes that was loaded last."""


def key(*, seed: int) -> jax.Array:
    """A JAX random key, for config files and experiments.

    Raises:
      ValueError: if the seed is no whole number of 32 bits, from 0: JAX would make the same key of several.
    """
    return jax.random.key(_validate.integer("seed", seed, maximum=2**32 - 1))


def mesh(*, axes: Sequence[str] = ("workers",), sizes: Sequence[int] = (-1,)) -> jax.sharding.Mesh:
    """A mesh of all devices, of all processes.

    Args:
      axes: the names of its axes.
      sizes: the devices along each; one of them may be -1, which takes what is left.

    Raises:
      ValueError: if the sizes do not fit the names or the number of devices.
    """
    num_devices, product_of_given_sizes = jax.device_count(), math.prod(size for size in sizes if size != -1)
    # Sizes of 0 or below are refused below.
    shape = tuple(num_devices // max(product_of_given_sizes, 1) if size == -1 else size for size in sizes)
    has_valid_sizes = len(axes) == len(sizes) and list(sizes).count(-1) <= 1
    if not has_valid_sizes or math.prod(shape) != num_devices or min(shape, default=0) < 1:
        raise ValueError(
            f"a mesh needs a size for each axis, with a product of {num_devices}, the number of devices; one may be "
            f"-1. Got the axes {list(axes)} and the sizes {list(sizes)}."
        )
    return jax.make_mesh(shape, tuple(axes))


@gin.configurable(module="gcjax", denylist=GIVEN_BY_COMMAND)
def run(experiment: Callable[..., Any], *, processes: str = "group", out: Path, progress: Progress) -> Any:
    """Runs the experiment that the config file names.

    Args:
      experiment: the function to call; bound by `run.experiment = @name`.
      processes: what several processes are: "group", one program with collectives; or "apart", if the experiment says
        itself how they talk (`gcjax.processes.apart`). The file itself must say so, not one that it includes.
      out: the folder that the experiment writes; it exists, and is empty or has checkpoints of a run to go on with.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the experiment is none, or processes are neither, or the config lacks something that it needs.
    """
    _validate.choice("run.processes", processes, PROCESSES)
    try:
        inspect.signature(experiment).bind_partial(out=out, progress=progress)
    except (TypeError, ValueError):
        raise ValueError(
            "run.experiment must be an experiment, which takes out and progress, without () behind its name, as in "
            f"'run.experiment = @compare'; got {getattr(experiment, '__name__', repr(experiment)):.200}."
        ) from None
    missing_arguments.check()
    return experiment(out=out, progress=progress)


@functools.cache
def register_entries() -> None:
    """Makes every entry of the registry, and `key` and `mesh`, known to config files; only when first called.

    Entries that are registered later, by the modules that a config imports, become known as they come.
    """
    logging.getLogger().addFilter(_is_not_missing_path_warning)
    _let_includes_be_in_plain_folders()
    for kind_name, kind in registry.own_kinds().items():
        for name, entry in kind.entries.items() if kind.in_configs else ():
            _register_in_gin(entry.factory, name, kind.module, is_experiment=kind_name == "experiment")
    _register_in_gin(key, "key", "gcjax")
    _register_in_gin(mesh, "mesh", "gcjax")
    registry.subscribe(_register_from_outside)
    registry.kinds()  # imports the plugins, which register their entries


def load(path: str | Path, bindings: Sequence[str] = ()) -> None:
    """Reads a config file and then single bindings, which win.

    Whatever was loaded before is forgotten. The working directory, and the nearest folder above the config
    file that has an `experiments` folder, go on `sys.path`, so that the file can import its experiment.

    Args:
      path: a `.gin` file, absolute or relative to the working directory.
      bindings: gin statements, e.g. `"ssp.staleness = 5"`.

    Raises:
      ValueError: if the file does not exist, or names something unknown, or cannot be read, or has a key of a dict
        twice; if something in it needs or includes itself, or there is no experiment; or if a binding has no effect on
        what the config runs.
    """
    register_entries()
    file = existing_file(Path(path))
    _extend_search_paths(file)
    gin.clear_config()
    circular_references.check_includes(f"include {str(file)!r}", *bindings)  # in which gin would never end
    with errors.errors_in_words(file=file), imports.import_errors_in_words(), duplicate_keys.no_duplicate_dict_keys():
        gin.parse_config_file(str(file))
    macros_of_file = errors.bound_macros()
    for binding in bindings:
        with errors.errors_in_words(binding), imports.import_errors_in_words(), duplicate_keys.no_duplicate_dict_keys():
            gin.parse_config(binding)
    errors.check_macros(macros_of_file)
    if not gin.config.get_bindings("gcjax.run", resolve_references=False):
        raise ValueError(
            f"{path} must say which experiment to run; it binds no run.experiment. "
            "Add a line such as 'run.experiment = @compare'."
        )
    circular_references.check_references()
    unused_bindings.check(bindings)


def run_loaded(out: Path, progress: Progress) -> Any:
    """Runs the experiment of the config that was loaded, and returns what it returns.

    Raises:
      ValueError: whatever the experiment or the factories in its config object to.
    """
    with errors.errors_in_words():
        return run(out=out, progress=progress)


def text() -> str:
    """What was loaded, as the text of a config file."""
    return gin.config_str()


def digest() -> str:
    """The SHA-256 of `text`: runs of the same config have the same one."""
    return hashlib.sha256(text().encode()).hexdigest()


def operative() -> str:
    """The parameters of all that the run has called so far, defaults included, as the text of a config file."""
    return gin.operative_config_str()


def _let_includes_be_in_plain_folders() -> None:
    """Has gin go on to its next search path where a file is not in a folder that is no package.

    It looks for what a config includes in Python's packages, too, and fails with a `TypeError` at a folder without an
    `__init__.py`.
    """

    def without_type_error(exists: Callable[[str], bool]) -> Callable[[str], bool]:
        """The function that says whether there is a file of a name; False where it fails."""

        @functools.wraps(exists)
        def exists_or_false(name: str) -> bool:
            """Whether there is a file of this name."""
            try:
                return exists(name)
            except TypeError:
                return False

        return exists_or_false

    readers = gin.config._FILE_READERS  # pairs: (name) -> opened file, (name) -> whether there is one
    readers[:] = [(read, without_type_error(exists)) for read, exists in readers]


def _is_not_missing_path_warning(record: logging.LogRecord) -> bool:
    """A filter of log records: false for gin's complaint that a file is not in one of several folders."""
    return not record.getMessage().startswith("Path not found")


def _register_in_gin(factory: Callable[..., Any], name: str, module: str, *, is_experiment: bool = False) -> None:
    """Makes a factory known to config files as `module.name`, with checks of the arguments that they give it.

    Of an experiment they may not bind what the command gives.
    """
    call = with_checked_arguments(factory, name)
    given_by_command = set(GIVEN_BY_COMMAND) & set(inspect.signature(call).parameters) if is_experiment else set()
    with gin.config.interactive_mode():  # allows it again, for a notebook's cell that is run once more
        gin.external_configurable(call, name=name, module=module, denylist=sorted(given_by_command) or None)


def _register_from_outside(kind: str, name: str, entry: registry.Entry) -> None:
    """Makes an entry that was registered from outside of gcjax known to config files, under its own module.

    Raises:
      ValueError: if something else has its name already.
    """
    if kind in registry.NOT_IN_CONFIGS:
        return
    module = entry.factory.__module__
    other_selectors = set(gin.config._REGISTRY.matching_selectors(name)) - {f"{module}.{name}"}
    if other_selectors:
        raise registry.name_taken_error(kind, name, entry, min(other_selectors))
    _register_in_gin(entry.factory, name, module, is_experiment=kind == "experiment")


def _extend_search_paths(file: Path) -> None:
    """Lets a config import modules and include files from two folders.

    They are the working directory, and the nearest folder above the config that has a folder `experiments`. For
    includes, those of the config that was loaded before count no more.
    """
    search_paths = gin.config._LOCATION_PREFIXES
    search_paths[:] = [folder for folder in search_paths if folder not in _include_folders]
    _include_folders.clear()
    experiments_parent = next((str(folder) for folder in file.parents if (folder / "experiments").is_dir()), None)
    for folder in (str(Path.cwd()), experiments_parent):
        if folder is None:
            continue
        if folder not in sys.path:
            sys.path.insert(0, folder)
        if folder not in search_paths:
            gin.add_config_file_search_path(folder)
            _include_folders.append(folder)
