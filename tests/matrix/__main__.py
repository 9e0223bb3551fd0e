"""`make test-matrix`: a quick subset of the tests on what gcjax supports, and one table.

    python -m tests.matrix                                           # everything
    python -m tests.matrix --environment oldest --setting float64    # those cells whose names contain this

Environments are kept in `.matrix`. The status is 1 if a cell failed; what cannot be had here is skipped with a reason.
"""

import argparse
import sys
import time

from gcjax import progress, tables
from tests.matrix import configs
from tests.matrix.cells import SETTINGS, Outcome, run_configs, run_tests
from tests.matrix.environments import Environment, environments, versions

CONFIGS = "configs"


def main() -> int:
    """Runs the matrix, prints its table and what failed, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--environment", metavar="TEXT", default="", help="only those whose names contain this")
    parser.add_argument("--setting", metavar="TEXT", default="", help="only those whose names contain this")
    options = parser.parse_args()
    columns = [name for name in (*SETTINGS, CONFIGS) if options.setting in name]
    rows, failures = [], []
    for environment in environments(options.environment):
        outcomes = {column: cell(environment, column) for column in columns}
        place = environment.problem if environment.python is None else versions(environment.python)
        rows.append([environment.name, place, *(outcome.text for outcome in outcomes.values())])
        failures += [
            f"{environment.name}, {column}:\n{outcome.details}"
            for column, outcome in outcomes.items()
            if outcome.passed is False
        ]
    console = progress.console()
    console.print(
        tables.RichTable(
            "What is supported", ["Environment", "Versions", *columns], rows, num_key_columns=1, left_heads=columns
        )
    )
    for name, reason in configs.SKIPPED.items() if CONFIGS in columns else ():
        console.print(f"Config {name} is skipped: {reason}.", highlight=False)
    console.print(*failures, sep="\n", markup=False, highlight=False)
    return 1 if failures else 0


def cell(environment: Environment, column: str) -> Outcome:
    """Runs one cell and says on stderr how long it took."""
    if environment.python is None:
        return Outcome(None, "skipped")
    start = time.perf_counter()
    outcome = run_configs(environment.python) if column == CONFIGS else run_tests(environment.python, column)
    seconds = time.perf_counter() - start
    print(f"{environment.name}, {column}: {outcome.text} ({seconds:.0f} s)", file=sys.stderr, flush=True)
    return outcome if outcome.passed else outcome._replace(text=f"FAILED: {outcome.text}")


if __name__ == "__main__":
    sys.exit(main())
