"""The bounded model of the synchronous program algebra: commands and their operators.

A command is the set of its traces of at most n steps, as boolean arrays; see `gcjax.algebra.command` for what a trace
is. Cutting at a length respects all operators, so every equation can be tested exactly at that length, and every
counterexample is a real one. What the model lacks are infinite traces: it says nothing on total correctness, fairness
or progress.

**Orientation.** `c >= d` says that d refines c, choice is union, `abort` is the top and `magic` the bottom: the papers
write refinement upside down.

    model = Model(shared_memory(num_states=2), max_steps=4)
    refines(guarantee(model, g), command)
"""

from gcjax.algebra.command import Command, choice, closed, equal, includes, meet, sequence
from gcjax.algebra.iteration import infinite, omega, star
from gcjax.algebra.primitives import abort, assertion, atomic, environment_step, magic, nil, program_step, test
from gcjax.algebra.refinement import Refinement, Trace, accepts, refines
from gcjax.algebra.rely_guarantee import chaos, guarantee, rely, skip, specification
from gcjax.algebra.synchronise import ccs_parallel, csp_parallel, parallel, synchronise, weak_conjunction
from gcjax.algebra.traces import Model

__all__ = [
    "Command",
    "Model",
    "Refinement",
    "Trace",
    "abort",
    "accepts",
    "assertion",
    "atomic",
    "ccs_parallel",
    "chaos",
    "choice",
    "closed",
    "csp_parallel",
    "environment_step",
    "equal",
    "guarantee",
    "includes",
    "infinite",
    "magic",
    "meet",
    "nil",
    "omega",
    "parallel",
    "program_step",
    "refines",
    "rely",
    "sequence",
    "skip",
    "specification",
    "star",
    "synchronise",
    "test",
    "weak_conjunction",
]
