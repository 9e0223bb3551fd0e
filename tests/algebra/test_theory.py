"""Specifications as commands: `check` and refinement of automata come to the same conclusions."""

import numpy as np
import pytest

from gcjax.algebra.theory import relations, theory
from gcjax.specifications import TABLE, bsp, check, clocks, ssp


def strict(specification):
    """With a property that only BSP has."""
    return specification._replace(invariant=lambda state: state.clock.max() - state.clock.min() <= 1)


def demanding(specification):
    """With a rely that nobody can give."""
    return specification._replace(rely=lambda before, after, worker: (before.clock == after.clock).all())


CASES = {  # name -> the specification, what the promises give, what programs keep, what they achieve
    "BSP refines SSP": (lambda: bsp(2, staleness=1), True, True, True),
    "too weak a guarantee": (lambda: strict(bsp(2, staleness=1)), True, False, True),
    "too much relied on": (lambda: demanding(ssp(2, staleness=1)), False, True, True),
    "too strong a property": (lambda: strict(ssp(2, staleness=1)), True, False, False),
    "too fast a program": (
        lambda: clocks.bounded_staleness("fast", 2, program_staleness=1, promised_staleness=0),
        True,
        False,
        False,
    ),
    "three workers": (lambda: ssp(3, staleness=0), True, True, True),
    "a server": (lambda: TABLE["k_sync"].factory(2, num_contributions=1), True, True, True),
}
SLOW = ["too strong a property", "too fast a program", "three workers", "a server"]


@pytest.mark.slow("BSP refines SSP", "too weak a guarantee")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_refinement_and_exploring_agree(name):
    make, introduced, kept, achieved = CASES[name]
    specification = make()
    commands, result = theory(specification), check(specification)
    assert commands.introduced() == introduced == result.composition.holds
    assert commands.kept() == tuple(part.holds for part in result.components)
    assert all(commands.kept()) == kept
    assert commands.achieved() == achieved == result.product.holds


def test_the_relations_of_ssp():
    found = relations(ssp(2, staleness=0)._replace(rely=None))
    # States: both as far, worker 0 ahead, worker 1 ahead (in the order in which they are found).
    zero_ahead, one_ahead = (int(np.flatnonzero(found.programs[w, 0])[0]) for w in (0, 1))
    for worker, mine, other in ((0, zero_ahead, one_ahead), (1, one_ahead, zero_ahead)):
        expected = np.zeros((3, 3), bool)
        expected[0, mine] = expected[other, 0] = True
        np.testing.assert_array_equal(found.programs[worker], expected)
        np.testing.assert_array_equal(found.guarantees[worker], expected)
        np.testing.assert_array_equal(found.relies[1 - worker], expected | np.eye(3, dtype=bool))
    assert found.holds.all()


def test_too_many_states_are_refused():
    with pytest.raises(ValueError, match="at most 64 states .* Use 3 workers or smaller"):
        theory(ssp(4, staleness=2))
