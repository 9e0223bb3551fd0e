"""What `gcjax check` does: an instance of a protocol's specification, checked and shown as tables."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, codes, registry
from gcjax.progress import console
from gcjax.specifications import Decodable, Finding, Result, Specification, check
from gcjax.tables import RichTable

MAX_PROGRESS_STATES = 1 << 20
MAX_PARAMETER_VALUE = 10_000
"""The largest value of a parameter of a specification."""


def run(name: str, arguments: Sequence[str]) -> Result:
    """Checks the specification of these arguments (`specification_of_arguments`), prints and returns what was found.

    That is true in a condition if everything holds.
    """
    result = check(specification_of_arguments(name, arguments))
    for table in result_tables(result):
        console().print(table, "")
    return result


def specification_of_arguments(name: str, arguments: Sequence[str]) -> Specification:
    """The specification of a protocol.

    Args:
      name: of the specification.
      arguments: its parameters as on the command line, for example `["--num-workers", "3", "--staleness=2"]`.

    Raises:
      ValueError: if there is no such specification, or it does not take these parameters.
    """
    entries, protocols = (registry.kinds()[kind].entries for kind in ("specification", "protocol"))
    if name not in entries and name in protocols:
        raise ValueError(
            f"There is no specification '{name}', only a protocol of this name. Hold its schedules against its promise "
            'with gcjax check --schedule CONFIG, or register what makes the promise: @gcjax.register("specification").'
        )
    if name not in entries:
        raise ValueError(f"There is no specification '{name}'. {registry.nearest_names_sentence(name, entries)}")
    factory = entries[name].factory
    factory_parameters = inspect.signature(factory).parameters.values()
    defaults = {
        parameter.name: parameter.default for parameter in factory_parameters if isinstance(parameter.default, int)
    }
    parameters = {**defaults, **_parameter_values(name, arguments, defaults)}
    for parameter, value in parameters.items():
        if value > MAX_PARAMETER_VALUE:
            hint = "All states are tried out, and their number grows with it."
            raise ValueError(f"{parameter} must be a whole number at most {MAX_PARAMETER_VALUE}; got {value}. {hint}")
    code_arguments = _CODE_ARGUMENTS_FACTORIES[name](parameters) if name in _CODE_ARGUMENTS_FACTORIES else {}
    return factory(**parameters, **code_arguments)


def _cyclic_mds_arguments(parameters: dict[str, int]) -> dict[str, Any]:
    """The argument `decodable` of the specification of a coded round: which progress a cyclic MDS code can decode.

    `parameters` has the numbers of workers and of stragglers of the code.
    """
    num_workers, num_stragglers = parameters["num_workers"], parameters["num_stragglers"]
    _validate.integer("num_workers", num_workers, minimum=2, maximum=8, hint="All progress of a code is tried out.")
    code = codes.cyclic_mds(num_workers, num_stragglers=num_stragglers)
    return {"decodable": decodable(code)}


_CODE_ARGUMENTS_FACTORIES: dict[str, Callable[[dict[str, int]], dict[str, Any]]] = {"coded": _cyclic_mds_arguments}
"""Specification -> what makes those of its arguments that are facts of a code, from its numbers."""


def decodable(code: codes.GradientCode) -> Decodable:
    """Which progress of the workers decodes the exact sum, for the specification of a coded round.

    All is planned once, and then looked up: a search asks for the same progress many times.

    Args:
      code: of few workers W with few chunks K each, since all (K + 1)^W states of progress are tried out.

    Raises:
      ValueError: if there are too many states.
    """
    num_workers, load = code.assignment.num_workers, code.assignment.load
    if (load + 1) ** num_workers > MAX_PROGRESS_STATES:
        raise ValueError(
            f"a table of what can be decoded must have at most {MAX_PROGRESS_STATES} entries; {num_workers} workers "
            f"with {load} chunks each have {(load + 1) ** num_workers}. Use a smaller code."
        )
    table_shape = (load + 1,) * num_workers  # an axis a worker, along it the chunks that it has computed
    all_progress = np.indices(table_shape).reshape(num_workers, -1).T  # int[(K+1)^W, W]
    residual = jax.jit(lambda progress: code.plan(progress).residual)
    residuals = jax.lax.map(residual, jnp.asarray(all_progress, jnp.int32), batch_size=1024)
    table = (residuals <= 1e-3).reshape(table_shape)
    return Decodable(load, lambda progress: table[tuple(progress)])


def _parameter_values(name: str, arguments: Sequence[str], defaults: dict[str, int]) -> dict[str, int]:
    """The parameters of specification `name` that `--parameter value` and `--parameter=value` in `arguments` give.

    Raises:
      ValueError: if `defaults`, which has all parameters, has none of this name, or a value is no whole number.
    """
    known_parameters = ", ".join(
        f"--{parameter.replace('_', '-')} (default {value})" for parameter, value in defaults.items()
    )
    flags_and_values = [word for argument in arguments for word in argument.split("=", 1)]  # flag, value, flag, ...
    flags, values = flags_and_values[::2], flags_and_values[1::2]
    for flag in flags:
        if not flag.startswith("--") or _parameter_of_flag(flag) not in defaults:
            raise ValueError(f"{name} takes {known_parameters}; got {flag!r}.")
    if len(flags) > len(values):
        raise ValueError(f"{flags[-1]} needs a number. {name} takes {known_parameters}.")
    for flag, value in zip(flags, values, strict=True):
        if not value.lstrip("-").isdigit():
            raise ValueError(f"{flag} must be a whole number; got {value!r}. {name} takes {known_parameters}.")
    return {_parameter_of_flag(flag): int(value) for flag, value in zip(flags, values, strict=True)}


def _parameter_of_flag(flag: str) -> str:
    """The parameter `num_workers` of the flag `--num-workers`."""
    return flag.removeprefix("--").replace("-", "_")


def result_tables(result: Result) -> list[RichTable]:
    """For the terminal: a table of the findings, and one of the counterexample if there is one."""
    rows = []
    for finding in _distinct_findings(result):
        count_cells = [f"{count:,}" if finding.states else "" for count in (finding.states, finding.transitions)]
        rows.append([finding.part, *count_cells, result.finding_in_words(finding)])
    heads = ("Part", "States", "Transitions", "Result")
    return [RichTable(result.specification.name, heads, rows, left_heads=["Result"]), *_counterexample_tables(result)]


def _distinct_findings(result: Result) -> list[Finding]:
    """All findings, where components of one sort ("worker 0 alone", "worker 1 alone") that gave the same are one."""
    findings_by_outcome: dict[tuple[Any, ...], list[Finding]] = {}
    for finding in result.components:
        component_sort = finding.part.split()[0]  # "worker" of "worker 0 alone"
        outcome = finding.holds, finding.states, finding.transitions, finding.reason
        findings_by_outcome.setdefault((component_sort, *outcome), []).append(finding)
    distinct_components = []
    for (component_sort, *_), same_findings in findings_by_outcome.items():
        num_same, first_finding = len(same_findings), same_findings[0]
        part = f"each of {num_same} {component_sort}s alone" if num_same > 1 else first_finding.part
        distinct_components.append(first_finding._replace(part=part))
    return [*distinct_components, result.composition, result.product, result.progress]


def _counterexample_tables(result: Result) -> list[RichTable]:
    """A table with the steps to the first finding that fails and the state after each; no table if all hold.

    The programs together come first, since in their counterexample only programs take steps.
    """
    findings = (result.product, result.progress, *result.components, result.composition)
    failing_finding = next((finding for finding in findings if not finding), None)
    if failing_finding is None:
        return []
    title = f"A shortest counterexample ({failing_finding.part}: {failing_finding.reason})"
    steps = failing_finding.counterexample
    initial_state = steps[0].before if steps else result.specification.initial
    heads = ["Step", "Who", "Does", *initial_state._fields]
    rows = [["", "", "", *_state_cells(initial_state)]]
    rows += [
        [str(number), step.component, step.action, *_state_cells(step.after)] for number, step in enumerate(steps, 1)
    ]
    return [RichTable(title, heads, rows, num_key_columns=3, left_heads=heads)]


def _state_cells(state: Any) -> list[str]:
    """The entries of each field of a state, a named tuple of arrays, as text."""
    return [" ".join(map(str, np.ravel(field).tolist())) for field in state]
