"""What `gcjax check --schedule CONFIG` does: the schedules of a config, held against what the protocols promise."""

from collections.abc import Sequence
from pathlib import Path

import jax
from rich.text import Text

from gcjax import config
from gcjax.config import errors, experiment_parts
from gcjax.progress import console
from gcjax.protocols import Conformance, Protocol, check
from gcjax.stragglers import Network, sample_durations
from gcjax.tables import RichTable, rich_table


def run(path: str | Path, bindings: Sequence[str] = ()) -> int:
    """Checks the schedules of an experiment's config, on durations of its seed, and prints a table.

    What is what is found by the types of the experiment's parameters, whatever they are called.

    Args:
      path: a config of an experiment that is given protocols, a straggler model and a number of workers.
      bindings: gin statements that win over the file.

    Returns:
      The exit status: 0 if all schedules keep to what their protocols promise, 1 if not.

    Raises:
      ValueError: if the config cannot be read, or its experiment is not given all of these.
    """
    config.load(path, bindings)
    with errors.readable():
        experiment = experiment_parts.of_config()
        schemes: dict[str, Protocol] = experiment.all_of((Protocol,))
        models, networks = experiment_parts.stragglers(experiment), experiment_parts.networks(experiment)
        shape = experiment_parts.shape(experiment, schemes)
    keys = jax.random.split(config.key(seed=experiment.number("seed") or 0), experiment.number("num_seeds") or 1)
    key = jax.random.fold_in(keys[0], 0)
    durations_of = {name: sample_durations(model, key, *shape) for name, model in models.items()}
    settings = {
        ", ".join(filter(None, (regime, cost))): (durations, network)
        for regime, durations in durations_of.items()
        for cost, network in networks.items()
    }
    rows, broken = [], []
    for name, protocol in schemes.items():
        results = _conformances(protocol, list(settings.values()))
        for setting, result in zip(settings, results, strict=True):
            rows.append([name, setting, f"{result.events:,}" if result else "", _in_words(result)])
        broken += [f"{name}: {result}" for result in results if result is not None and not result][:1]
    title = f"Schedules of {path}, {shape[0]} units of {shape[1]} workers"
    console().print(table(title, rows), "", *(Text(line) for line in broken), sep="\n")
    return 1 if broken else 0


def table(title: str, rows: Sequence[Sequence[str]]) -> RichTable:
    """For the terminal: what became of each schedule."""
    return rich_table(title, ("Scheme", "Setting", "Steps", "Result"), rows, keys=2, left=["Result"])


def _conformances(protocol: Protocol, settings: Sequence[tuple[jax.Array, Network]]) -> list[Conformance | None]:
    """The schedules for durations and networks against what the protocol promises; None if it promises nothing."""
    if protocol.specification is None:
        return [None for _ in settings]
    schedule, specification = jax.jit(lambda d, n: protocol(d, n)), protocol.specification(settings[0][0].shape[1])
    return [check(schedule(*setting), specification) for setting in settings]


def _in_words(result: Conformance | None) -> str:
    if result is None:
        return "promises nothing that can be checked"
    if result:
        return f"keeps to it: {result.specification.claim}"
    return f"breaks its {result.violated} at {result.time:.4g} s"
