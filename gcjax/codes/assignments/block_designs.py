"""Assignments from block designs (Kadhe, Koyluoglu, Ramchandran, ISIT 2019, arXiv 1904.13373)."""

from gcjax import _validate
from gcjax.codes.assignments import design_constructions as designs
from gcjax.codes.assignments.conversions import from_matrix
from gcjax.codes.base import Assignment


def block_design(num_workers: int, *, load: int) -> Assignment:
    """Any two workers share the same number λ of chunks: workers are the points of a design, chunks its blocks.

    Args:
      num_workers: W = v.
      load: K = r, the blocks that a point is in. N, the number of blocks, follows.

    Raises:
      ValueError: if no such design is known here.
    """
    return from_matrix(designs.incidence(design(num_workers, load)))


def design(num_workers: int, load: int) -> designs.Design:
    """The design of W points, each in K blocks of k points, any two in λ of them; of several that of fewest blocks.

    Raises:
      ValueError: if none is known here; with the nearest that are.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=3)
    load = _validate.integer("load", load, minimum=1)
    smallest_design = designs.smallest_design(num_workers, load)
    if smallest_design is not None:
        return smallest_design

    def relative_distance(points_and_replication: tuple[int, int]) -> float:
        """How far a design of so many points, each in so many blocks, is from what is asked for."""
        points, replication = points_and_replication
        return abs(points / num_workers - 1) + abs(replication / load - 1)

    available_sizes = {
        (d.num_points, d.replication) for d in designs.known_designs(2 * num_workers) if d.num_points > 3
    }
    nearest_sizes = sorted(available_sizes, key=relative_distance)[:4]
    raise ValueError(
        "a block design needs λ (W - 1) = K (k - 1) with whole λ and k, and at least as many blocks as points, and a "
        f"construction that is known here; there is none for num_workers={num_workers}, load={load}. The nearest are "
        + ", ".join(f"({points}, {replication})" for points, replication in nearest_sizes)
        + "."
    )
