"""What `gcjax check --schedule CONFIG` does: the schedules of a config, held against what the protocols promise."""

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gin
import jax
from rich.text import Text

from gcjax import _gin_errors, config
from gcjax.progress import console
from gcjax.protocols import Kept, Protocol, check
from gcjax.stragglers import Network, StragglerModel, sample_durations
from gcjax.tables import RichTable, rich_table

ASKED = ("schemes", "num_workers", "num_units")


class Place(NamedTuple):
    """One setting of a config: its name, who is slow, and what messages cost."""

    name: str
    stragglers: StragglerModel
    network: Any


def run(path: str | Path, bindings: Sequence[str] = ()) -> int:
    """Checks the schedules of an experiment's config, on durations of its seed, and prints a table.

    Args:
      path: a config of an experiment with `schemes`, `num_workers`, `num_units`, and `stragglers` or `regimes`.
      bindings: gin statements that win over the file.

    Returns:
      The exit status: 0 if all schedules keep to what their protocols promise, 1 if not.

    Raises:
      ValueError: if the config cannot be read, or its experiment has no schemes.
    """
    config.load(path, bindings)
    with _gin_errors.readable():
        bound = _Bound()
        schemes: dict[str, Protocol] = bound("schemes")
        places = list(_places(bound))
        keys = jax.random.split(jax.random.key(bound("seed", 0)), bound("num_seeds", 1))
        shape = bound("num_units"), bound("num_workers")
    key = jax.random.fold_in(keys[0], 0)
    drawn = [sample_durations(place.stragglers, key, *shape) for place in places]
    rows, broken = [], []
    for name, protocol in schemes.items():
        found = _held(protocol, drawn, places)
        for place, kept in zip(places, found, strict=True):
            rows.append([name, place.name, f"{kept.events:,}" if kept else "", _said(kept)])
        broken += [f"{name}: {kept}" for kept in found if kept is not None and not kept][:1]
    console().print(table(f"Schedules of {path}", rows), "", *(Text(line) for line in broken), sep="\n")
    return 1 if broken else 0


def table(title: str, rows: Sequence[Sequence[str]]) -> RichTable:
    """For the terminal: what became of each schedule."""
    return rich_table(title, ("Scheme", "Setting", "Steps", "Result"), rows, keys=2, left=["Result"])


class _Bound:
    """The parameters of the config's experiment, made only when they are asked for."""

    def __init__(self) -> None:
        reference = gin.config.get_bindings("gcjax.run", resolve_references=False)["experiment"]
        self.name = reference.selector
        self.given = gin.config.get_bindings(self.name, resolve_references=False)
        takes = inspect.signature(inspect.unwrap(reference.configurable.wrapped)).parameters
        missing = [name for name in ASKED if name not in takes]
        if missing:
            raise ValueError(
                f"the experiment of the config must have {', '.join(ASKED)} to have schedules to check; "
                f"{self.name.rpartition('.')[2]} has no {missing[0]}."
            )

    def __call__(self, name: str, default: Any = None) -> Any:
        if name not in self.given:
            return default
        return copy.deepcopy(self.given[name])  # which is how gin makes what is referred to


def _places(bound: Callable[..., Any]) -> Iterator[Place]:
    regimes = bound("regimes") or {"": bound("stragglers")}
    networks = bound("networks") or {"": bound("network")}
    shapes = None
    for network in networks.values():
        if network is not None and not isinstance(network, Network) and shapes is None:
            shapes = jax.eval_shape(bound("task").init, jax.random.key(0))  # links: messages are as large as these
    for regime, model in regimes.items():
        for cost, network in networks.items():
            yield Place(", ".join(filter(None, (regime, cost))), model, network.of(shapes) if network else Network())


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
