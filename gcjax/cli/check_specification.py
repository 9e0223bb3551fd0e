"""What `gcjax check` does: an instance of a protocol's specification, checked and shown as tables."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, codes, registry
from gcjax.progress import console
from gcjax.specifications import Finding, Result, Specification, check
from gcjax.tables import RichTable, rich_table

MAX_PROGRESS_STATES = 1 << 20
MAX_NUMBER = 10_000


def run(name: str, arguments: Sequence[str]) -> int:
    """Checks a protocol and prints what was found.

    Args:
      name: of the specification.
      arguments: its parameters, for example `["--num-workers", "3", "--staleness=2"]`.

    Returns:
      The exit status: 0 if everything holds, 1 if not.

    Raises:
      ValueError: if there is no such protocol, or it does not take these parameters.
    """
    result = check(instance(name, arguments))
    for table in tables(result):
        console().print(table, "")
    return 0 if result else 1


def instance(name: str, arguments: Sequence[str]) -> Specification:
    """The specification of a protocol, with parameters as on the command line.

    Raises:
      ValueError: as `run`.
    """
    known = registry.kinds()["specification"].entries
    if name not in known:
        raise ValueError(f"There is no specification '{name}'. {registry.nearest(name, known)}")
    factory = known[name].factory
    defaults = {n: p.default for n, p in inspect.signature(factory).parameters.items() if isinstance(p.default, int)}
    parameters = {**defaults, **_numbers(name, arguments, defaults)}
    for parameter, value in parameters.items():
        if value > MAX_NUMBER:
            hint = "All states are tried out, and their number grows with it."
            raise ValueError(f"{parameter} must be a whole number at most {MAX_NUMBER}; got {value}. {hint}")
    return factory(**parameters, **_FROM_CODES.get(name, _nothing)(parameters))


def _nothing(parameters: dict[str, int]) -> dict[str, Any]:
    return {}


def _cyclic_mds(parameters: dict[str, int]) -> dict[str, Any]:
    """What a cyclic MDS code can decode, so that the specification is about a code that there is."""
    num_workers, num_stragglers = parameters["num_workers"], parameters["num_stragglers"]
    _validate.integer("num_workers", num_workers, minimum=2, maximum=8, hint="All progress of a code is tried out.")
    code = codes.cyclic_mds(num_workers, num_stragglers=num_stragglers)
    return {"decodable": decodable(code)}


_FROM_CODES: dict[str, Callable[[dict[str, int]], dict[str, Any]]] = {"coded": _cyclic_mds}


def decodable(code: codes.GradientCode, *, tolerance: float = 1e-3) -> np.ndarray:
    """What the specification of a coded round takes: which progress decodes the exact sum.

    Args:
      code: of few workers, since all (K + 1)^W states of progress are tried out.
      tolerance: the largest residual that counts as exact.

    Returns:
      bool[K+1, ..., K+1], one axis a worker.

    Raises:
      ValueError: if there are too many.
    """
    workers, load = code.assignment.num_workers, code.assignment.load
    if (load + 1) ** workers > MAX_PROGRESS_STATES:
        raise ValueError(
            f"a table of what can be decoded must have at most {MAX_PROGRESS_STATES} entries; {workers} workers with "
            f"{load} chunks each have {(load + 1) ** workers}. Use a smaller code."
        )
    progress = np.indices((load + 1,) * workers).reshape(workers, -1).T
    residual = jax.lax.map(lambda p: code.plan(p).residual, jnp.asarray(progress, jnp.int32), batch_size=1024)
    return np.asarray(residual <= tolerance).reshape((load + 1,) * workers)


def _numbers(name: str, arguments: Sequence[str], defaults: dict[str, int]) -> dict[str, int]:
    """Numbers by name, from `--name value` and `--name=value`."""
    known = ", ".join(f"--{parameter.replace('_', '-')} (default {value})" for parameter, value in defaults.items())
    words = [word for argument in arguments for word in argument.split("=", 1)]
    flags, values = words[::2], words[1::2]
    for flag in flags:
        if not flag.startswith("--") or flag[2:].replace("-", "_") not in defaults:
            raise ValueError(f"{name} takes {known}; got {flag!r}.")
    if len(flags) > len(values):
        raise ValueError(f"{flags[-1]} needs a number. {name} takes {known}.")
    bad = [(flag, value) for flag, value in zip(flags, values, strict=True) if not value.lstrip("-").isdigit()]
    if bad:
        raise ValueError(f"{bad[0][0]} must be a whole number; got {bad[0][1]!r}. {name} takes {known}.")
    return {flag[2:].replace("-", "_"): int(value) for flag, value in zip(flags, values, strict=True)}


def tables(result: Result) -> list[RichTable]:
    """The findings, and the counterexample if there is one."""
    rows = []
    for part in _findings(result):
        counts = [f"{number:,}" if part.states else "" for number in (part.states, part.transitions)]
        rows.append([part.part, *counts, result.said(part)])
    heads = ("Part", "States", "Transitions", "Result")
    return [rich_table(result.specification.name, heads, rows, left=["Result"]), *_counterexample(result)]


def _findings(result: Result) -> list[Finding]:
    """Components that gave the same are told once."""
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for part in result.components:
        groups.setdefault((part.part.split()[0], *part[1:5]), []).append(part)
    components = []
    for group in groups.values():
        first = group[0].part
        names = f"each of {len(group)} {first.split()[0]}s alone" if len(group) > 1 else first
        components.append(group[0]._replace(part=names))
    return [*components, result.composition, result.product, result.progress]


def _counterexample(result: Result) -> list[RichTable]:
    """Of the first part that fails, all together before one alone, since only programs take steps there."""
    order = (result.product, result.progress, *result.components, result.composition)
    failing = [part for part in order if not part]
    if not failing:
        return []
    part = failing[0]
    title = f"A shortest counterexample ({part.part}: {part.reason})"
    steps = part.counterexample
    state = steps[0].before if steps else result.specification.initial
    heads = ["Step", "Who", "Does", *state._fields]
    rows: list[tuple[str, str, str, Any]] = [("", "", "", state)]
    rows += [(str(n), step.component, step.action, step.after) for n, step in enumerate(steps, 1)]
    lines = [[*words, *(" ".join(map(str, np.ravel(x).tolist())) for x in after)] for *words, after in rows]
    return [rich_table(title, heads, lines, keys=3, left=heads)]
