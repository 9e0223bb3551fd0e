"""gcjax: gradient coding and synchronisation protocols for distributed training, in JAX.

Nothing is imported before it is used, so `import gcjax` takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gcjax import (
        advice,
        algebra,
        analysis,
        codes,
        compression,
        engine,
        parameter_server,
        processes,
        progress,
        protocols,
        specifications,
        stragglers,
        study,
        tasks,
        testing,
        watching,
    )
    from gcjax.equality import comparable
    from gcjax.registry import register
    from gcjax.watching.watch import watch

__version__ = "0.1.0"

__all__ = [
    "advice",
    "algebra",
    "analysis",
    "codes",
    "comparable",
    "compression",
    "engine",
    "parameter_server",
    "processes",
    "progress",
    "protocols",
    "register",
    "specifications",
    "stragglers",
    "study",
    "tasks",
    "testing",
    "watch",
    "watching",
]

_MODULE_OF_FUNCTION = {"comparable": "gcjax.equality", "register": "gcjax.registry", "watch": "gcjax.watching.watch"}


def __getattr__(name: str) -> Any:
    """What Python calls for `gcjax.name` when nothing has set it: imports the module or the function of this name."""
    if name in _MODULE_OF_FUNCTION:
        return getattr(importlib.import_module(_MODULE_OF_FUNCTION[name]), name)
    if name in __all__:
        return importlib.import_module(f"gcjax.{name}")
    raise AttributeError(f"module 'gcjax' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What `dir(gcjax)` lists: all of it, imported yet or not."""
    return ["__version__", *__all__]
