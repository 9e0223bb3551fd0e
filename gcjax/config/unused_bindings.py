"""Bindings of the command line that have no effect on what a config runs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import gin.config
from gin import config_parser

from gcjax import registry
from gcjax.config.circular_references import RUN_NODE, Node, node_name, reachable_nodes, references


class _BoundParameter(NamedTuple):
    """What a binding sets: the parameter of a configurable, by its selector, in a scope, as in 'a/b'."""

    scope: str
    selector: str
    parameter: str


def check(bindings: Sequence[str]) -> None:
    """Checks that what each binding sets is the value that a configurable of the loaded config is called with.

    Configurables of other packages than gcjax may be called from Python, so that what is bound to them may be used.

    Args:
      bindings: gin statements, read after the config.

    Raises:
      ValueError: naming the binding, and what to write instead.
    """
    bound_parameters = [(binding, bound) for binding in bindings for bound in _parameters_set_by(binding)]
    if not bound_parameters:
        return
    selectors = gcjax_selectors()
    nodes = _called_nodes(selectors)
    for binding, bound in bound_parameters:
        if bound.selector in selectors and not _is_used(bound, nodes):
            raise ValueError(f"'{binding}' has no effect: {_reason_without_effect(bound, nodes)}")


def _parameters_set_by(binding: str) -> Iterator[_BoundParameter]:
    """The parameters (scope, selector, name) that the statements of a binding set."""
    for statement in config_parser.ConfigParser(binding, gin.config.ParserDelegate()):
        if isinstance(statement, config_parser.BindingStatement):
            scope, selector, parameter = statement.scope, statement.selector, statement.arg_name
            if parameter:
                yield _BoundParameter(scope, gin.config._REGISTRY.get_match(selector).selector, parameter)
            else:  # a macro, whose name is the scope
                yield _BoundParameter(f"{scope}/{selector}" if scope else selector, "gin.macro", "value")


def gcjax_selectors() -> set[str]:
    """The selectors that are called only where a config names them: those of the registry, and macros."""
    kinds = registry.kinds().values()
    entries = {f"{kind.module_of(name)}.{name}" for kind in kinds if kind.in_configs for name in kind.entries}
    return {*entries, "gcjax.key", "gcjax.mesh", "gcjax.run", "gin.macro"}


def _called_nodes(gcjax_selectors: set[str]) -> set[Node]:
    """The nodes (scope, selector) that `run` comes to call, and those that other packages may call, or lead to.

    What is in none of `gcjax_selectors` is of another package, and may be called from Python.
    """
    other_nodes = [
        (tuple(filter(None, scope.split("/"))), selector)
        for scope, selector in gin.config._CONFIG
        if selector not in gcjax_selectors
    ]
    return set(reachable_nodes([RUN_NODE, *other_nodes], _nodes_in_values))


def _nodes_in_values(node: Node) -> Iterator[Node]:
    """The nodes that the values of a node name; a function that is not called yet may be called in any scope.

    So one that has no scope of its own comes twice: in that of the node, and in none.
    """
    scope, selector = node
    for value in gin.config._get_bindings(selector, scope_components=list(scope)).values():
        for reference in references(value):
            yield tuple(reference.scopes) or scope, reference.configurable.selector
            if not reference.evaluate:
                yield tuple(reference.scopes), reference.configurable.selector


def _is_used(bound: _BoundParameter, nodes: set[Node]) -> bool:
    """Whether a node takes its parameter from this binding."""
    return any(node[1] == bound.selector and _scope_of_value(node, bound.parameter) == bound.scope for node in nodes)


def _scope_of_value(node: Node, parameter: str) -> str:
    """The scope from which a node takes the value of a parameter: the innermost one that binds it, else its own."""
    scope, selector = node
    scopes = ["/".join(scope[:depth]) for depth in range(len(scope), -1, -1)]
    binding_scopes = (scope for scope in scopes if parameter in gin.config._CONFIG.get((scope, selector), {}))
    return next(binding_scopes, scopes[0])


def _reason_without_effect(bound: _BoundParameter, nodes: set[Node]) -> str:
    """Why a binding has no effect if these nodes are called, and what to write; the end of an error."""
    name = _name_in_configs(bound.scope, bound.selector)
    if bound.selector == "gin.macro":
        return f"nothing that this config runs uses {name}. Set the parameter itself, as name.parameter = value."
    scopes = {_scope_of_value(node, bound.parameter) for node in nodes if node[1] == bound.selector}
    if scopes:
        names = sorted(f"{_name_in_configs(scope, bound.selector)}.{bound.parameter}" for scope in scopes)
        return f"this config takes the parameter from {' and '.join(names)}. Write {' or '.join(names)}."
    short_name = bound.selector.rpartition(".")[2]
    names_of_called_selectors = sorted({node[1].rpartition(".")[2] for node in nodes} - {"macro"})
    return (
        f"nothing that this config runs uses {short_name}. Name it in the config, as @{short_name}(), or set a "
        f"parameter of what it runs: {', '.join(names_of_called_selectors)}."
    )


def _name_in_configs(scope: str, selector: str) -> str:
    """What a config file calls a selector in a scope."""
    return node_name((tuple(filter(None, scope.split("/"))), selector))
