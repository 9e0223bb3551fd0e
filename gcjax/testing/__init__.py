"""Contract checks that anybody can call on a scheme of their own; the tests of this package call the same ones.

Each check tries many cases and raises a `ContractError`, which is an `AssertionError`, with one sentence and the
smallest case that breaks the contract. Nothing here needs a test runner.
"""

from gcjax.testing.codes import check_code
from gcjax.testing.contract import ContractError
from gcjax.testing.protocols import check_protocol
from gcjax.testing.stragglers import check_straggler_model
from gcjax.testing.tasks import check_task

__all__ = ["ContractError", "check_code", "check_protocol", "check_straggler_model", "check_task"]
