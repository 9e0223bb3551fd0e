"""Loads config files, and makes everything that can be named known to gin."""

import functools
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
from gcjax.config import circular_references, duplicate_keys, errors, imports
from gcjax.config.arguments import with_checked_arguments
from gcjax.progress import Progress


def experiment(function: registry.Factory) -> registry.Factory:
    """Makes a function known to config files as an experiment; from Python it can be called as it is."""
    return registry.register("experiment")(function)


def key(*, seed: int) -> jax.Array:
    """A JAX random key, for config files and experiments.

    Raises:
      ValueError: if the seed has not 32 bits: JAX would make the same key of several.
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
    count, known = jax.device_count(), math.prod(size for size in sizes if size != -1)
    whole = tuple(count // max(known, 1) if size == -1 else size for size in sizes)
    if len(axes) != len(sizes) or list(sizes).count(-1) > 1 or math.prod(whole) != count or min(whole, default=0) < 1:
        raise ValueError(
            f"a mesh needs a size for each axis, with a product of {count}, the number of devices; one may be -1. "
            f"Got the axes {list(axes)} and the sizes {list(sizes)}."
        )
    return jax.make_mesh(whole, tuple(axes))


@gin.configurable(module="gcjax", denylist=("out", "progress"))
def run(experiment: Callable[..., Any], *, out: Path, progress: Progress) -> Any:
    """Runs the experiment that the config file names.

    Args:
      experiment: the function to call; bound by `run.experiment = @name`.
      out: the folder that the experiment writes; it exists and is empty.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the experiment is none.
    """
    try:
        inspect.signature(experiment).bind_partial(out=out, progress=progress)
    except (TypeError, ValueError):
        raise ValueError(
            "run.experiment must be an experiment, which takes out and progress, without () behind its name, as in "
            f"'run.experiment = @compare'; got {getattr(experiment, '__name__', repr(experiment)):.200}."
        ) from None
    return experiment(out=out, progress=progress)


@functools.cache
def register() -> None:
    """Makes every entry of the registry, and what makes keys and meshes, known to config files; once.

    Entries that are registered later, by the modules that a config imports, follow as they come.
    """
    logging.getLogger().addFilter(_not_of_search)
    for kind in registry.own_kinds().values():
        for name, entry in kind.entries.items() if kind.in_configs else ():
            _register(entry.factory, name, kind.module)
    _register(key, "key", "gcjax")
    _register(mesh, "mesh", "gcjax")
    registry.subscribe(_register_outside)
    registry.kinds()  # which imports the plugins


def load(path: str | Path, bindings: Sequence[str] = ()) -> None:
    """Reads a config file and then single bindings, which win.

    Whatever was loaded before is forgotten. The working directory, and the nearest folder above the config
    file that has an `experiments` folder, go on `sys.path`, so that the file can import its experiment.

    Args:
      path: a `.gin` file, absolute or relative to the working directory.
      bindings: gin statements, e.g. `"ssp.staleness = 5"`.

    Raises:
      ValueError: if the file does not exist, or names something unknown, or cannot be read, or has a key of a dict
        twice.
    """
    register()
    file = _existing(Path(path))
    _extend_path(file)
    gin.clear_config()
    circular_references.check_includes(*(f"include {str(file)!r}", *bindings))
    with errors.readable(file=file), imports.importable(), duplicate_keys.each_once():
        gin.parse_config_file(str(file))
    in_file = errors.bound_macros()
    for binding in bindings:
        with errors.readable(binding), imports.importable(), duplicate_keys.each_once():
            gin.parse_config(binding)
    errors.check_macros(in_file)
    if not gin.config.get_bindings("gcjax.run", resolve_references=False):
        raise ValueError(
            f"{path} must say which experiment to run; it binds no run.experiment. "
            "Add a line such as 'run.experiment = @compare'."
        )
    circular_references.check_references()


def start(out: Path, progress: Progress) -> Any:
    """Runs the experiment of the config that was loaded, and returns what it returns.

    Raises:
      ValueError: whatever the experiment or the factories in its config object to.
    """
    with errors.readable():
        return run(out=out, progress=progress)


def text() -> str:
    """What was loaded, as the text of a config file."""
    return gin.config_str()


def operative() -> str:
    """The parameters that the run used so far, defaults included, as the text of a config file."""
    return gin.operative_config_str()


def _not_of_search(record: logging.LogRecord) -> bool:
    """Whether a record says something else than that gin looked for a file in vain in one of several folders."""
    return not record.getMessage().startswith("Path not found")


def _register(factory: Callable[..., Any], name: str, module: str) -> None:
    with gin.config.interactive_mode():  # a cell that is run once more registers its functions once more
        gin.external_configurable(with_checked_arguments(factory, name), name=name, module=module)


def _register_outside(kind: str, name: str, entry: registry.Entry) -> None:
    if kind in registry.NOT_IN_CONFIGS:
        return
    module = entry.factory.__module__
    others = set(gin.config._REGISTRY.matching_selectors(name)) - {f"{module}.{name}"}
    if others:
        raise registry.name_taken(kind, name, entry, min(others))
    _register(entry.factory, name, module)


def _existing(path: Path) -> Path:
    file = path.absolute()
    if file.is_file():
        return file
    folders = [file.parent, Path.cwd(), Path.cwd() / "configs"]
    nearby = sorted({_relative(path) for folder in folders for path in folder.glob("*.gin")})
    hint = f"Config files nearby: {', '.join(nearby)}." if nearby else "There is no .gin file nearby."
    raise ValueError(f"The config file must exist; there is no file {file}. {hint}")


def _relative(file: Path) -> str:
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def _extend_path(file: Path) -> None:
    above = next((str(folder) for folder in file.parents if (folder / "experiments").is_dir()), None)
    for folder in (str(Path.cwd()), above):
        if folder is not None and folder not in sys.path:
            sys.path.insert(0, folder)
            gin.add_config_file_search_path(folder)  # for what the file includes
