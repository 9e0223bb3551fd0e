"""What `gcjax check --schedule CONFIG` does: the schedules of a config, held against what the protocols promise."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
from rich.text import Text

from gcjax import _gin_errors, _setting, config
from gcjax.progress import console
from gcjax.protocols import Kept, Protocol, check
from gcjax.stragglers import Network, StragglerModel, sample_durations
from gcjax.tables import RichTable, rich_table


class Place(NamedTuple):
    """One setting of a config: its name, who is slow, and what messages cost."""

    name: str
    stragglers: StragglerModel
    network: Network


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
    with _gin_errors.readable():
        setting = _setting.of_config()
        schemes: dict[str, Protocol] = setting.all_of((Protocol,))
        places = _places(setting)
        shape = _setting.shape(setting, schemes)
    keys = jax.random.split(config.key(seed=setting.number("seed") or 0), setting.number("num_seeds") or 1)
    key = jax.random.fold_in(keys[0], 0)
    drawn = [sample_durations(place.stragglers, key, *shape) for place in places]
    rows, broken = [], []
    for name, protocol in schemes.items():
        found = _held(protocol, drawn, places)
        for place, kept in zip(places, found, strict=True):
            rows.append([name, place.name, f"{kept.events:,}" if kept else "", _said(kept)])
        broken += [f"{name}: {kept}" for kept in found if kept is not None and not kept][:1]
    title = f"Schedules of {path}, {shape[0]} units of {shape[1]} workers"
    console().print(table(title, rows), "", *(Text(line) for line in broken), sep="\n")
    return 1 if broken else 0


def table(title: str, rows: Sequence[Sequence[str]]) -> RichTable:
    """For the terminal: what became of each schedule."""
    return rich_table(title, ("Scheme", "Setting", "Steps", "Result"), rows, keys=2, left=["Result"])


def _places(setting: _setting.Setting) -> list[Place]:
    models, networks = _setting.stragglers(setting), _setting.networks(setting)
    return [
        Place(", ".join(filter(None, (regime, cost))), model, network)
        for regime, model in models.items()
        for cost, network in networks.items()
    ]


def _held(protocol: Protocol, drawn: Sequence[jax.Array], places: Sequence[Place]) -> list[Kept | None]:
    """The schedules of all places against what the protocol promises; None if it promises nothing."""
    if protocol.specification is None:
        return [None for _ in places]
    schedule, promise = jax.jit(lambda d, n: protocol(d, n)), protocol.specification(drawn[0].shape[1])
    return [check(schedule(d, place.network), promise) for d, place in zip(drawn, places, strict=True)]


def _said(kept: Kept | None) -> str:
    if kept is None:
        return "promises nothing that can be checked"
    return f"keeps to it: {kept.specification.claim}" if kept else f"breaks its {kept.broken} at {kept.time:.4g} s"
