"""gcjax: gradient coding and synchronisation protocols for distributed training, in JAX."""

from gcjax import codes, engine, processes, protocols, stragglers, tasks
from gcjax.registry import register

__version__ = "0.1.0"

__all__ = ["codes", "engine", "processes", "protocols", "register", "stragglers", "tasks"]
