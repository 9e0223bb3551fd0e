"""The same simulation on several graphs, and under several random orders of one: how much depends on which is drawn.

Letters: S trials, D deadlines, G graphs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from experiments.partial_stragglers import report, simulate
from gcjax import _validate, analysis, codes
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel

Graphs = dict[str, Callable[..., codes.Assignment]]
"""Setting -> a function `rng_key -> assignment` that draws its graph anew."""


class Graph(NamedTuple):
    """One graph of a setting.

    Attributes:
      setting: the name of the assignment.
      number: 0 is the assignment given, others are drawn anew.
      assignment: who holds what.
      order_key: of its random orders.
      row_key: of the rows of its codes.
      trials: the same for all graphs of a setting.
    """

    setting: str
    number: int
    assignment: codes.Assignment
    order_key: jax.Array
    row_key: jax.Array
    trials: simulate.Trials


def check(assignments: dict[str, codes.Assignment], redraw: Graphs, **counts: int) -> None:
    """Refuses settings that are unknown, fewer than two trials, and other counts below 1.

    Raises:
      ValueError: if so.
    """
    for name, count in counts.items():
        _validate.integer(name, count, minimum=2 if name == "num_trials" else 1)
    unknown = sorted(set(redraw) - set(assignments))
    if unknown:
        raise ValueError(f"redraw must name settings, {', '.join(assignments)}; got '{unknown[0]}'.")


def all_graphs(
    assignments: dict[str, codes.Assignment], redraw: Graphs, num_graphs: int, *, stragglers: StragglerModel,
    num_trials: int, seed: int, progress: Progress,
) -> Iterator[Graph]:  # fmt: skip
    """The graphs of all settings: the assignment given, and after it `num_graphs - 1` more if `redraw` has it."""
    for i, (setting, assignment) in enumerate(assignments.items()):
        order_key, row_key, trial_key, redraw_key = report.keys(seed, i)
        trials = simulate.draw(stragglers, trial_key, assignment.load, assignment.num_workers, num_trials)
        num_graphs_of_setting = num_graphs if setting in redraw else 1
        for number in range(num_graphs_of_setting):
            progress.update(f"{setting}, graph {number + 1}", (i + number / num_graphs) / len(assignments))
            is_drawn_anew = number > 0
            if is_drawn_anew:  # the trials stay
                graph_key, order_key, row_key = jax.random.split(jax.random.fold_in(redraw_key, number), 3)
                assignment = redraw[setting](rng_key=graph_key)
            yield Graph(
                setting=setting, number=number, assignment=assignment, order_key=order_key, row_key=row_key,
                trials=trials,
            )  # fmt: skip


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
    """The mean completion times under several random orders, on one assignment and the same trials.

    Args:
      setting: the name of the assignment.
      assignment: who holds what.
      finish: L -> float[K, W, S], when chunks are finished.
      num_orders: how many orders of each kind.
      draws: kinds: of so many draws, the one with the least `q_max`.
      rng_key: a JAX key.
    """
    mean_times: dict[tuple[int, int], list[float]] = {
        (num_blocks, num_draws): [] for num_blocks in finish for num_draws in draws
    }
    for key in jax.random.split(rng_key, num_orders):
        best_order_of_draws = simulate.random_orders(assignment, draws=draws, rng_key=key)
        for num_blocks, num_draws in mean_times:
            completion = simulate.completion(best_order_of_draws[num_draws], num_blocks, whole_workers=False)
            times = np.asarray(completion(finish[num_blocks]))
            mean_times[num_blocks, num_draws].append(float(times[np.isfinite(times)].mean()))
    return [
        Orders(setting, num_blocks, num_draws, np.array(means)) for (num_blocks, num_draws), means in mean_times.items()
    ]


def orders_page(all_orders: Sequence[Orders]) -> str:
    """A section of the summary, a line for each L and number of draws; empty if there are no orders."""
    if not all_orders:
        return ""
    name_of_draws = {1: "one draw", 2: "better of 2 (released notebook)"}
    lines = []
    for orders in all_orders:
        name = name_of_draws.get(orders.draws, f"best of {orders.draws}")
        spread = orders.means.std(ddof=1) if orders.means.size > 1 else 0.0
        statistics = (orders.means.mean(), spread, orders.means.min(), orders.means.max())
        lines.append([orders.setting, str(orders.num_blocks), name, *(f"{statistic:.3f}" for statistic in statistics)])
    num_orders = all_orders[0].means.size
    title = f"## Completion time over {num_orders} random orders of one assignment, on the same trials"
    return "\n".join([title, "", analysis.markdown_table(HEADS, lines), "", ""])
