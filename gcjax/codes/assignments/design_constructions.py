"""Balanced incomplete block designs: v points, b blocks of k points, every point in r blocks, any two in λ of them.

Known constructions, each checked when it is made: projective and affine geometries over finite fields, quadratic and
quartic residues, the square grid of 16 points, blocks that miss one point, and the complements of all of these.
(Colbourn and Dinitz, Handbook of Combinatorial Designs, parts II and VI.)
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np


class Design(NamedTuple):
    """A design that can be made.

    Attributes:
      points: v.
      size: k, the points of a block.
      replication: r, the blocks that a point is in.
      make: the incidence bool[b, v].
    """

    points: int
    size: int
    replication: int
    make: Callable[[], np.ndarray]

    @property
    def blocks(self) -> int:
        """The number b."""
        return self.points * self.replication // self.size

    @property
    def shared(self) -> int:
        """The number λ, of blocks that two points share."""
        return self.replication * (self.size - 1) // (self.points - 1)


def smallest_design(points: int, replication: int) -> Design | None:
    """The known design with these parameters that has the fewest blocks."""
    designs = (d for d in known_designs(points) if d.points == points and d.replication == replication)
    return min(designs, key=lambda design: design.blocks, default=None)


def incidence(design: Design) -> np.ndarray:
    """bool[b, v], checked to be the design that it says."""
    matrix = design.make()
    shared = matrix.astype(np.int64).T @ matrix
    expected = np.full((design.points, design.points), design.shared)
    np.fill_diagonal(expected, design.replication)
    sizes = matrix.sum(axis=1)
    if matrix.shape != (design.blocks, design.points) or not np.array_equal(shared, expected) or np.ptp(sizes):
        raise AssertionError(f"the construction of {design} is wrong.")
    return matrix


def known_designs(max_points: int) -> Iterator[Design]:
    """All designs of the list with up to so many points."""
    for design in _basic(max_points):
        yield design
        points, size, replication, _ = design
        if points - size >= 2:
            complement = functools.partial(lambda inner: ~inner.make(), design)
            yield Design(points, points - size, design.blocks - replication, complement)


def prime_power(q: int) -> tuple[int, int] | None:
    """P and k with q = p^k, or None."""
    p = next((p for p in range(2, q + 1) if q % p == 0), 0)
    k = 0
    while p and q % p == 0:
        q, k = q // p, k + 1
    return (p, k) if p and q == 1 else None


@functools.cache
def field(q: int) -> tuple[np.ndarray, np.ndarray]:
    """Addition and multiplication int[q, q] of the field with q elements; element i has the digits of i in base p."""
    p, k = prime_power(q) or (0, 0)
    digits = np.array([[i // p**j % p for j in range(k)] for i in range(q)])
    weights = p ** np.arange(k)
    add = ((digits[:, None] + digits[None]) % p) @ weights
    for modulus in itertools.product(range(p), repeat=k):  # x^k = the polynomial with these coefficients
        multiply = _products(digits, np.array(modulus), p) @ weights
        if all(len(set(row)) == q for row in multiply[1:]):
            return add, multiply
    raise AssertionError(f"no field of {q} elements was found.")


def _products(digits: np.ndarray, modulus: np.ndarray, p: int) -> np.ndarray:
    """int[q, q, k]: products of polynomials, reduced by x^k = modulus."""
    q, k = digits.shape
    total = np.zeros((q, q, k), int)
    shifted = digits.copy()  # x^j times every element
    for j in range(k):
        total += digits[:, None, j, None] * shifted[None]
        carry = shifted[:, -1:]
        shifted = (np.concatenate([np.zeros((q, 1), int), shifted[:, :-1]], axis=1) + carry * modulus) % p
    return total % p


def _basic(max_points: int) -> Iterator[Design]:
    """The designs that are made directly: all others here are complements of these."""
    for v in range(3, max_points + 1):
        yield Design(v, v - 1, v - 1, functools.partial(_missing_one, v))
    if max_points >= 16:
        yield Design(16, 6, 6, _grid)
    for q in filter(prime_power, range(2, max_points + 1)):
        if q % 4 == 3 and q > 3:
            yield Design(q, (q - 1) // 2, (q - 1) // 2, functools.partial(_residues, q, 2))
        root = round(((q - 1) / 4) ** 0.5)
        if prime_power(q) == (q, 1) and q > 5 and q == 4 * root**2 + 1 and root % 2:
            yield Design(q, (q - 1) // 4, (q - 1) // 4, functools.partial(_residues, q, 4))
        for d in itertools.count(2):
            lines = [(q**i - 1) // (q - 1) for i in (d - 1, d, d + 1)]
            if q**d > max_points:
                break
            yield Design(q**d, q ** (d - 1), lines[1], functools.partial(_affine, d, q))
            if lines[2] <= max_points:
                yield Design(lines[2], lines[1], lines[1], functools.partial(_projective, d, q))


def _missing_one(v: int) -> np.ndarray:
    return ~np.eye(v, dtype=bool)


def _grid() -> np.ndarray:
    """The cells of a 4×4 grid; the block of a cell has the others in its row and column."""
    row, column = np.divmod(np.arange(16), 4)
    same = (row[:, None] == row) ^ (column[:, None] == column)
    return np.asarray(same)


def _residues(q: int, power: int) -> np.ndarray:
    """Shifts of the non-zero powers in a field."""
    add, multiply = field(q)
    powers = np.arange(q)
    for _ in range(power - 1):
        powers = multiply[powers, np.arange(q)]
    matrix = np.zeros((q, q), bool)
    for residue in set(powers[1:].tolist()):
        matrix[np.arange(q), add[residue]] = True
    return matrix


def _vectors(d: int, q: int) -> np.ndarray:
    """int[points, d + 1]: the points of the projective geometry, their first non-zero entry 1."""
    rows = np.array(list(itertools.product(range(q), repeat=d + 1)))[1:]
    first = rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)]
    return rows[first == 1]


def _projective(d: int, q: int) -> np.ndarray:
    """Points against hyperplanes: where the product is 0."""
    add, multiply = field(q)
    points = _vectors(d, q)
    total = np.zeros((len(points), len(points)), int)
    for axis in range(d + 1):
        total = add[total, multiply[points[:, None, axis], points[None, :, axis]]]
    return total == 0


def _affine(d: int, q: int) -> np.ndarray:
    """The projective geometry without one hyperplane and its points."""
    matrix = _projective(d, q)
    return matrix[1:, ~matrix[0]]
