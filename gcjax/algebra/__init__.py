"""The synchronous program algebra: what protocols guarantee, checked on small instances."""

from gcjax.algebra import automata, commands, laws
from gcjax.algebra.commands import Command, Model, refines
from gcjax.algebra.steps import Space, events, shared_memory

__all__ = ["Command", "Model", "Space", "automata", "commands", "events", "laws", "refines", "shared_memory"]
