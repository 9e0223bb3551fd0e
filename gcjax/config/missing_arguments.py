"""What a config must bind and does not: all of it at once, before anything is called."""

import inspect
from collections.abc import Iterator

import gin.config

from gcjax.config.arguments import required_parameters
from gcjax.config.circular_references import RUN_NODE, Node, needed_nodes, reachable_nodes
from gcjax.config.unused_bindings import gcjax_selectors


def check() -> None:
    """Checks that everything that the loaded config calls is given what it needs.

    What is named as a function (`@name`) may be given arguments when it is called; only the experiment is looked at.

    Raises:
      ValueError: naming all that is missing.
    """
    selectors = gcjax_selectors() - {"gcjax.run", "gin.macro"}
    nodes = reachable_nodes([RUN_NODE], needed_nodes)  # not functions that are passed on
    names = [name for node in nodes if node[1] in selectors for name in _unbound_required_parameters(node)]
    missing_parameters = list(dict.fromkeys(names))
    if missing_parameters:
        configurables = dict.fromkeys(name.partition(".")[0] for name in missing_parameters)
        commands = ", ".join(f"gcjax list {configurable}" for configurable in configurables)
        how_many = (
            "a required argument" if len(missing_parameters) == 1 else f"{len(missing_parameters)} required arguments"
        )
        raise ValueError(
            f"A config must bind all that is needed: missing {how_many}: {', '.join(missing_parameters)}. "
            f"Add a line for each, as shown by {commands}."
        )


def _unbound_required_parameters(node: Node) -> Iterator[str]:
    """The required parameters of a node (scope, selector) that nothing is bound to, as a config names them."""
    scope, selector = node
    bound_values = gin.config._get_bindings(selector, scope_components=list(scope))
    for name in required_parameters(inspect.signature(gin.config._REGISTRY[selector].wrapped)):
        if name not in bound_values:
            yield f"{selector.rpartition('.')[2]}.{name}"
