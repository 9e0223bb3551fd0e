"""Finite automata: the commands of `gcjax.algebra.commands`, with traces of any length.

Every function takes a `Space` where that of the bounded model takes a `Model`. Refinement is decided for finite traces
of all lengths; like the bounded model it says nothing of infinite ones, so nothing of fairness or progress.
"""

from gcjax.algebra.automata.base import MAX_ENTRIES, Automaton, automaton
from gcjax.algebra.automata.constructors import (
    abort,
    always,
    assertion,
    atomic,
    chaos,
    environment_step,
    magic,
    nil,
    program_step,
    skip,
    test,
)
from gcjax.algebra.automata.inclusion import Search, refines, search
from gcjax.algebra.automata.observers import guarantee, rely, specification
from gcjax.algebra.automata.operators import choice, infinite, omega, sequence, star
from gcjax.algebra.automata.products import (
    ccs_parallel,
    csp_parallel,
    meet,
    parallel,
    synchronise,
    weak_conjunction,
)
from gcjax.algebra.automata.random_automata import random_automaton
from gcjax.algebra.automata.reachability import pruned, reachable
from gcjax.algebra.automata.unfolding import traces

__all__ = [
    "MAX_ENTRIES",
    "Automaton",
    "Search",
    "abort",
    "always",
    "assertion",
    "atomic",
    "automaton",
    "ccs_parallel",
    "chaos",
    "choice",
    "csp_parallel",
    "environment_step",
    "guarantee",
    "infinite",
    "magic",
    "meet",
    "nil",
    "omega",
    "parallel",
    "program_step",
    "pruned",
    "random_automaton",
    "reachable",
    "refines",
    "rely",
    "search",
    "sequence",
    "skip",
    "specification",
    "star",
    "synchronise",
    "test",
    "traces",
    "weak_conjunction",
]
