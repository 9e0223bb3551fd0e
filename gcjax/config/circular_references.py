"""Names and files of a config that refer to one another in a circle: found before anything is called or included."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import gin.config

Node = tuple[tuple[str, ...], str]
"""A configurable by the scope in which it is called and its selector."""

T = TypeVar("T")

_INCLUDE = re.compile(r"""^\s*include\s+(?P<quote>['"])(?P<file>.*?)(?P=quote)""", re.MULTILINE)
_ROOT: Node = ((), "gcjax.run")


def check_references() -> None:
    """Checks that what `run.experiment` needs can be made at all.

    Raises:
      ValueError: if something needs itself, naming all on the way.
    """
    circle = _circle(_ROOT, _needs, {}, set())
    if circle is None:
        return
    names = [_name(node) for node in circle]
    if "run" in names:
        raise ValueError(
            "run.experiment must be an experiment, as in 'run.experiment = @compare'; got run itself. Name another one."
        )
    raise ValueError(f"What a config names must not need itself; here {' needs '.join(names)}. Change one of them.")


def check_includes(*texts: str) -> None:
    """Checks that the files which some texts of a config include do not include themselves.

    Raises:
      ValueError: if they do, naming all on the way.
    """
    for name in [name for text in texts for name in _included(text)]:
        if circle := _circle(name, lambda file: _included(_text(file)), {}, set()):
            chain = " includes ".join(map(_shown, circle))
            raise ValueError(
                f"Config files must not include one another in a circle; {chain}. Take one of these lines out."
            )


def _circle(node: T, needs: Callable[[T], Iterable[T]], path: dict[T, None], done: set[T]) -> list[T] | None:
    """The circle that is reached from a node; None if there is none."""
    if node in done:
        return None
    if node in path:
        nodes = list(path)
        return [*nodes[nodes.index(node) :], node]
    path[node] = None
    for needed in needs(node):
        if circle := _circle(needed, needs, path, done):
            return circle
    del path[node]
    done.add(node)
    return None


def _included(text: str) -> list[str]:
    """The files that a text includes, where gin finds them."""
    names = [match["file"] for match in _INCLUDE.finditer(text)]
    paths = [os.path.join(prefix, name) for name in names for prefix in gin.config._LOCATION_PREFIXES]
    return [os.path.abspath(path) for path in paths if Path(path).is_file()]


def _shown(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative


def _text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8", errors="replace")


def _needs(node: Node) -> Iterator[Node]:
    """What is called before the configurable of a node is; `run` calls its experiment afterwards."""
    scope, selector = node
    for value in gin.config._get_bindings(selector, scope_components=list(scope)).values():
        for reference in _references(value):
            if reference.evaluate or node == _ROOT:
                needed = tuple(reference.scopes) or scope, reference.configurable.selector
                yield _ROOT if needed[1] == _ROOT[1] else needed


def _references(value: Any) -> Iterator[gin.config.ConfigurableReference]:
    if isinstance(value, gin.config.ConfigurableReference):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from _references(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _references(item)


def _name(node: Node) -> str:
    scope, selector = node
    if selector == "gin.macro":
        return "%" + "/".join(scope)
    return "/".join([*scope, selector.rpartition(".")[2]])
