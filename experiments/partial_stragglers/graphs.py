"""The same simulation on several graphs, and under several random orders of one: how much depends on which is drawn.

Letters: S trials, D deadlines, G graphs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from experiments.partial_stragglers import simulate
from gcjax import _validate, analysis, codes

Graphs = dict[str, Callable[..., codes.Assignment]]
"""Setting -> a function `rng_key -> assignment` that draws its graph anew."""

GraphWithKeys = tuple[codes.Assignment, jax.Array]
"""An assignment, and the keys of its random orders and rows."""


def check(assignments: dict[str, codes.Assignment], redraw: Graphs, num_graphs: int) -> None:
    """Refuses settings that are unknown, and a number of graphs below 1.

    Raises:
      ValueError: if so.
    """
    _validate.integer("num_graphs", num_graphs, minimum=1)
    unknown = sorted(set(redraw) - set(assignments))
    if unknown:
        raise ValueError(f"redraw must name settings, {', '.join(assignments)}; got '{unknown[0]}'.")


def variants(
    assignment: codes.Assignment, draw: Callable[..., codes.Assignment] | None, num_graphs: int, keys: jax.Array
) -> Iterator[GraphWithKeys]:
    """The assignment with its keys, and after it further graphs, each with orders and rows of its own.

    Args:
      assignment: the first graph.
      draw: makes another one of `rng_key`; None if the assignment is not random.
      num_graphs: all of them together.
      keys: four, as `report.keys` makes them; the last one is for the further graphs. The third, of the trials, is for
        all graphs.
    """
    yield assignment, keys[:2]
    for number in range(1, num_graphs if draw else 1):
        graph_key, *others = jax.random.split(jax.random.fold_in(keys[3], number), 3)
        assert draw is not None
        yield draw(rng_key=graph_key), jax.numpy.stack(others)


class Orders(NamedTuple):
    """Completion times under random orders of one assignment, of which each is the best of some draws.

    Attributes:
      setting: the name of the assignment.
      num_blocks: L.
      draws: of how many draws each order has the least `q_max`.
      means: float[orders], the mean completion time over the trials, of each order.
    """

    setting: str
    num_blocks: int
    draws: int
    means: np.ndarray


HEADS = ("setting", "L", "order", "mean over orders", "sd between orders", "least", "largest")


def orders(
    setting: str,
    assignment: codes.Assignment,
    finish: dict[int, jax.Array],
    *,
    num_orders: int,
    draws: Sequence[int],
    rng_key: jax.Array,
) -> list[Orders]:
    """Repeats the random order, on one assignment and the same trials.

    Args:
      setting: the name of the assignment.
      assignment: who holds what.
      finish: L -> float[K, W, S], when chunks are finished.
      num_orders: how many orders of each kind.
      draws: kinds: of so many draws, the one with the least `q_max`.
      rng_key: a JAX key.
    """
    means: dict[tuple[int, int], list[float]] = {(blocks, number): [] for blocks in finish for number in draws}
    for key in jax.random.split(rng_key, num_orders):
        kept = simulate.random_orders(assignment, draws=draws, rng_key=key)
        for blocks, number in means:
            times = np.asarray(simulate.completion(kept[number], blocks, whole_workers=False)(finish[blocks]))
            means[blocks, number].append(float(times[np.isfinite(times)].mean()))
    return [Orders(setting, blocks, number, np.array(values)) for (blocks, number), values in means.items()]


def orders_page(all_orders: Sequence[Orders]) -> str:
    """A section of the summary; empty if there are none."""
    if not all_orders:
        return ""
    names = {1: "one draw", 2: "better of 2 (released notebook)"}
    lines = [
        [o.setting, str(o.num_blocks), names.get(o.draws, f"best of {o.draws}")]
        + [f"{value:.3f}" for value in (o.means.mean(), o.means.std(ddof=1), o.means.min(), o.means.max())]
        for o in all_orders
    ]
    title = f"## Completion time over {all_orders[0].means.size} random orders of one assignment, on the same trials"
    return "\n".join([title, "", analysis.markdown_table(HEADS, lines), "", ""])
