"""Names and files of a config that refer to one another in a circle: found before anything is called or included."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import gin.config

from gcjax.config.config_files import relative_path

Node = tuple[tuple[str, ...], str]
"""A configurable by the scope in which it is called and its selector."""

T = TypeVar("T")

_INCLUDE = re.compile(r"""^\s*include\s+(?P<quote>['"])(?P<file>.*?)(?P=quote)""", re.MULTILINE)
RUN_NODE: Node = ((), "gcjax.run")


def check_references() -> None:
    """Checks that nothing that the loaded config binds for `run.experiment` needs itself to be made.

    Raises:
      ValueError: if something needs itself, naming all on the way.
    """
    cycle = _first_cycle(RUN_NODE, needed_nodes, path={}, nodes_on_no_cycle=set())
    if cycle is None:
        return
    names = [node_name(node) for node in cycle]
    if "run" in names:
        raise ValueError(
            "run.experiment must be an experiment, as in 'run.experiment = @compare'; got run itself. Name another one."
        )
    raise ValueError(f"What a config names must not need itself; here {' needs '.join(names)}. Change one of them.")


def check_includes(*texts: str) -> None:
    """Checks that no file that these texts of a config include, at any depth, includes itself.

    Raises:
      ValueError: if they do, naming all on the way.
    """
    for file in [file for text in texts for file in _included_files(text)]:
        if cycle := _first_cycle(
            file, lambda file: _included_files(_file_text(file)), path={}, nodes_on_no_cycle=set()
        ):
            chain = " includes ".join(relative_path(Path(file)) for file in cycle)
            raise ValueError(
                f"Config files must not include one another in a circle; {chain}. Take one of these lines out."
            )


def _first_cycle(
    node: T, successors: Callable[[T], Iterable[T]], *, path: dict[T, None], nodes_on_no_cycle: set[T]
) -> list[T] | None:
    """The first cycle that a depth-first search from a node reaches; None if there is none.

    Args:
      node: of the graph; the search goes on from here.
      successors: node -> the nodes that its edges lead to.
      path: the nodes from the start of the search to this one, in order, as the keys of a dict.
      nodes_on_no_cycle: those from which no cycle is reached; grows during the search.

    Returns:
      The nodes of the cycle, with the same node first and last.
    """
    if node in nodes_on_no_cycle:
        return None
    if node in path:
        nodes = list(path)
        return [*nodes[nodes.index(node) :], node]
    path[node] = None
    for successor in successors(node):
        if cycle := _first_cycle(successor, successors, path=path, nodes_on_no_cycle=nodes_on_no_cycle):
            return cycle
    del path[node]
    nodes_on_no_cycle.add(node)
    return None


def _included_files(config_text: str) -> list[str]:
    """The absolute paths of the files that a text of a config includes, in the folders where gin looks for them."""
    names = [match["file"] for match in _INCLUDE.finditer(config_text)]
    paths = [os.path.join(prefix, name) for name in names for prefix in gin.config._LOCATION_PREFIXES]
    return [os.path.abspath(path) for path in paths if Path(path).is_file()]


def _file_text(file: str) -> str:
    """The text of a file, in which bytes that are not UTF-8 are replaced."""
    return Path(file).read_text(encoding="utf-8", errors="replace")


def reachable_nodes(starts: Iterable[Node], successors: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """The nodes `starts`, and those that edges lead to from them at any depth, in the order of a breadth-first search.

    `successors`: node -> the nodes that its edges lead to.
    """
    nodes = dict.fromkeys(starts)
    nodes_to_visit = list(nodes)
    for node in nodes_to_visit:
        new_nodes = [successor for successor in dict.fromkeys(successors(node)) if successor not in nodes]
        nodes |= dict.fromkeys(new_nodes)
        nodes_to_visit += new_nodes  # which the loop comes to
    return nodes_to_visit


def needed_nodes(node: Node) -> Iterator[Node]:
    """The nodes that gin calls before it calls this one, and for `gcjax.run` its experiment, which `run` calls.

    A node is what gin calls, a selector ("module.name"), in a scope, a tuple of names.
    """
    scope, selector = node
    for value in gin.config._get_bindings(selector, scope_components=list(scope)).values():
        for reference in references(value):
            is_called = reference.evaluate or node == RUN_NODE
            if is_called:
                needed_scope, needed_selector = tuple(reference.scopes) or scope, reference.configurable.selector
                yield RUN_NODE if needed_selector == "gcjax.run" else (needed_scope, needed_selector)


def references(value: Any) -> Iterator[gin.config.ConfigurableReference]:
    """The references (`@name`, `@name()`, `%macro`) in a value of a config, also inside of dicts and lists."""
    if isinstance(value, gin.config.ConfigurableReference):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from references(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from references(item)


def node_name(node: Node) -> str:
    """A node (scope, selector) as a config file writes it, without its module."""
    scope, selector = node
    if selector == "gin.macro":
        return "%" + "/".join(scope)
    return "/".join([*scope, selector.rpartition(".")[2]])
