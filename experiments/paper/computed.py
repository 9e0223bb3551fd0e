"""What is computed for the manuscript beside the runs of configs; each result in a JSON file of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.paper import identities, promises, provenance, speed
from gcjax import files


class Computation(NamedTuple):
    """A result in both sizes.

    Attributes:
      full: computes it.
      quick: the same, smaller.
    """

    full: Callable[[], dict[str, Any]]
    quick: Callable[[], dict[str, Any]]


COMPUTED = {
    "identities": Computation(
        lambda: identities.identities(num_workers=8, num_units=40, num_draws=50),
        lambda: identities.identities(num_workers=4, num_units=10, num_draws=4),
    ),
    "wavefronts": Computation(
        lambda: identities.wavefronts(num_workers=32, num_units=200),
        lambda: identities.wavefronts(num_workers=16, num_units=20),
    ),
    "specifications": Computation(promises.specifications, promises.specifications),
    "laws": Computation(
        lambda: promises.tried_laws(num_states=2, max_steps=4, num_instances=32),
        lambda: promises.tried_laws(num_states=2, max_steps=3, num_instances=4),
    ),
    "validation": Computation(
        lambda: promises.validated(num_units=60, num_damaged=50),
        lambda: promises.validated(num_units=20, num_damaged=4),
    ),
    "speed": Computation(speed.ratios, speed.ratios),
    "schedule_speed": Computation(
        lambda: speed.schedules(large=(1000, 10_000), sizes=(100, 1000, 4000)),
        lambda: speed.schedules(large=(100, 1000), sizes=(100, 1000)),
    ),
    "validation_speed": Computation(
        lambda: speed.validation(num_units=1_000_000), lambda: speed.validation(num_units=16_000)
    ),
}
"""Name -> what is computed. All seeds are 0, but for the durations of `validation`, which are of seed 1."""


def ensure(name: str, runs: Path, mode: str) -> Path:
    """Computes a result if it is not there.

    Args:
      name: of `COMPUTED`.
      runs: the folder of all runs of the manuscript.
      mode: full or quick.

    Returns:
      The file: `provenance`, as of a run, and `result`.
    """
    result_file = runs / mode / f"{name}.result.json"
    if result_file.exists():
        return result_file
    command = f"python -m experiments.paper --only {name}" + (" --quick" if mode == "quick" else "")
    compute = getattr(COMPUTED[name], mode)
    with provenance.record(command, mode) as provenance_of_result:
        result = compute()
    provenance_of_result["seed"] = 1 if name == "validation" else 0
    result_file.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(result_file, json.dumps({"provenance": provenance_of_result, "result": result}, indent=2) + "\n")
    return result_file
