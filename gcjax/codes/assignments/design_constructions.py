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
      num_points: v.
      num_design_blocks: b.
      replication: r, the blocks that a point is in.
      block_size: k, the points of a block.
      num_shared_blocks: λ, the blocks that two points share.
      make_incidence: the incidence bool[b, v].
    """

    num_points: int
    num_design_blocks: int
    replication: int
    block_size: int
    num_shared_blocks: int
    make_incidence: Callable[[], np.ndarray]


def smallest_design(num_points: int, replication: int) -> Design | None:
    """The known design with these parameters that has the fewest blocks."""
    designs = (d for d in known_designs(num_points) if d.num_points == num_points and d.replication == replication)
    return min(designs, key=lambda design: design.num_design_blocks, default=None)


def incidence(design: Design) -> np.ndarray:
    """bool[blocks, points]: which points are in each block; checked: each is in r blocks, any two are in λ of them."""
    matrix = design.make_incidence()
    common_blocks = matrix.astype(np.int64).T @ matrix  # int[v, v]
    expected_common = np.full((design.num_points, design.num_points), design.num_shared_blocks)
    np.fill_diagonal(expected_common, design.replication)
    has_shape, block_sizes = matrix.shape == (design.num_design_blocks, design.num_points), matrix.sum(axis=1)
    if not has_shape or not np.array_equal(common_blocks, expected_common) or np.ptp(block_sizes):
        raise AssertionError(f"the construction of {design} is wrong.")
    return matrix


def known_designs(max_points: int) -> Iterator[Design]:
    """All designs of the list with up to so many points."""
    for design in _direct_designs(max_points):
        yield design
        complement_size = design.num_points - design.block_size
        if complement_size >= 2:  # a smaller block holds no pair of points
            yield _complement_design(design)


def _complement_design(design: Design) -> Design:
    """The design whose blocks have the points that those of another do not have.

    Of b blocks, two points are both in λ and one of them in 2 (r - λ), so both are missing in b - 2 r + λ.
    """
    return design._replace(
        replication=design.num_design_blocks - design.replication,
        block_size=design.num_points - design.block_size,
        num_shared_blocks=design.num_design_blocks - 2 * design.replication + design.num_shared_blocks,
        make_incidence=lambda: ~design.make_incidence(),
    )


def prime_power(q: int) -> tuple[int, int] | None:
    """The prime p and the exponent k with q = p^k; None if there are none."""
    prime = next((divisor for divisor in range(2, q + 1) if q % divisor == 0), 0)  # the least divisor is a prime
    quotient, exponent = q, 0
    while prime and quotient % prime == 0:
        quotient, exponent = quotient // prime, exponent + 1
    return (prime, exponent) if prime and quotient == 1 else None


@functools.cache
def field(q: int) -> tuple[np.ndarray, np.ndarray]:
    """Addition and multiplication int[q, q] of the field with q elements; element i has the digits of i in base p."""
    p, k = prime_power(q) or (0, 0)  # q = p^k
    # int[q, k]: an element as a polynomial of degree below k, the digit of x^i at i.
    digits = np.array([[element // p**digit % p for digit in range(k)] for element in range(q)])
    digit_values = p ** np.arange(k)
    sum_table = ((digits[:, None] + digits[None]) % p) @ digit_values
    for modulus in itertools.product(range(p), repeat=k):  # x^k = the polynomial with these coefficients
        product_table = _polynomial_products(digits, np.array(modulus), p) @ digit_values
        is_division_possible = all(len(set(multiples_of_element)) == q for multiples_of_element in product_table[1:])
        if is_division_possible:
            return sum_table, product_table
    raise AssertionError(f"no field of {q} elements was found.")


def _polynomial_products(coefficients: np.ndarray, modulus: np.ndarray, p: int) -> np.ndarray:
    """int[q, q, k]: products of all pairs of polynomials, `coefficients int[q, k]`, mod p; x^k = `modulus int[k]`.

    Entry i of the last axis is the coefficient of x^i.
    """
    q, k = coefficients.shape
    products = np.zeros((q, q, k), int)
    polynomials_times_power = coefficients.copy()  # x^power times every polynomial
    for power in range(k):
        products += coefficients[:, None, power, None] * polynomials_times_power[None]
        leading_coefficient = polynomials_times_power[:, -1:]
        polynomials_times_x = np.concatenate([np.zeros((q, 1), int), polynomials_times_power[:, :-1]], axis=1)
        polynomials_times_power = (polynomials_times_x + leading_coefficient * modulus) % p
    return products % p


def _symmetric_design(
    num_points: int, block_size: int, num_shared_blocks: int, make_incidence: Callable[[], np.ndarray]
) -> Design:
    """A design with as many blocks as points: b = v, and so r = k."""
    return Design(
        num_points=num_points,
        num_design_blocks=num_points,
        replication=block_size,
        block_size=block_size,
        num_shared_blocks=num_shared_blocks,
        make_incidence=make_incidence,
    )


def _direct_designs(max_points: int) -> Iterator[Design]:
    """The designs up to so many points that are made directly: all others here are complements of these."""
    for v in range(3, max_points + 1):
        make_missing_one = functools.partial(_missing_one_incidence, v)
        yield _symmetric_design(
            num_points=v, block_size=v - 1, num_shared_blocks=v - 2, make_incidence=make_missing_one
        )
    if max_points >= 16:
        yield _symmetric_design(num_points=16, block_size=6, num_shared_blocks=2, make_incidence=_grid_incidence)
    for q in filter(prime_power, range(2, max_points + 1)):
        yield from _residue_designs(q)
        yield from _geometries(q, max_points)


def _residue_designs(q: int) -> Iterator[Design]:
    """The designs of q points whose blocks are shifts of the quadratic or quartic residues, for a prime power q.

    Quadratic ones for q = 3 mod 4, above 3; quartic ones for a prime q = 4 m² + 1, above 5, with m odd.
    """
    if q % 4 == 3 and q > 3:
        make_quadratic = functools.partial(_residue_incidence, q, power=2)
        yield _symmetric_design(
            num_points=q, block_size=(q - 1) // 2, num_shared_blocks=(q - 3) // 4, make_incidence=make_quadratic
        )
    odd_root = round(((q - 1) / 4) ** 0.5)
    if prime_power(q) == (q, 1) and q > 5 and q == 4 * odd_root**2 + 1 and odd_root % 2:
        make_quartic = functools.partial(_residue_incidence, q, power=4)
        yield _symmetric_design(
            num_points=q, block_size=(q - 1) // 4, num_shared_blocks=(q - 5) // 16, make_incidence=make_quartic
        )


def _geometries(q: int, max_points: int) -> Iterator[Design]:
    """The affine and projective geometries over q elements, of two and more dimensions d."""
    for d in itertools.count(2):
        if q**d > max_points:
            return
        # Points of the projective geometries of d - 2, d - 1 and d dimensions.
        points_d_minus_2, points_d_minus_1, points_d = (
            (q**num_entries - 1) // (q - 1) for num_entries in (d - 1, d, d + 1)
        )
        make_affine = functools.partial(_affine_incidence, d, q)
        yield Design(
            num_points=q**d,
            num_design_blocks=q * points_d_minus_1,
            replication=points_d_minus_1,
            block_size=q ** (d - 1),
            num_shared_blocks=points_d_minus_2,
            make_incidence=make_affine,
        )
        if points_d <= max_points:
            make_projective = functools.partial(_projective_incidence, d, q)
            yield _symmetric_design(
                num_points=points_d,
                block_size=points_d_minus_1,
                num_shared_blocks=points_d_minus_2,
                make_incidence=make_projective,
            )


def _missing_one_incidence(v: int) -> np.ndarray:
    """bool[v, v]: each block has all points but one."""
    return ~np.eye(v, dtype=bool)


def _grid_incidence() -> np.ndarray:
    """bool[16, 16]: points are the cells of a 4×4 grid; the block of a cell has the others in its row and column."""
    row, column = np.divmod(np.arange(16), 4)
    shares_one_line = (row[:, None] == row) ^ (column[:, None] == column)
    return np.asarray(shares_one_line)


def _residue_incidence(q: int, power: int) -> np.ndarray:
    """bool[q, q]: each block is a shift of the non-zero powers (squares for 2) in the field of q elements.

    Points are elements; block i has i plus each of the different values that x^power takes for x other than 0.
    """
    sum_table, product_table = field(q)
    powers_of_elements = np.arange(q)
    for _ in range(power - 1):
        powers_of_elements = product_table[powers_of_elements, np.arange(q)]
    incidence = np.zeros((q, q), bool)
    for residue in set(powers_of_elements[1:].tolist()):  # element 0 of the field is its zero
        incidence[np.arange(q), sum_table[residue]] = True
    return incidence


def _projective_points(d: int, q: int) -> np.ndarray:
    """int[points, d + 1]: the points of the projective geometry over q elements, scaled to a first non-zero entry 1."""
    vectors = np.array(list(itertools.product(range(q), repeat=d + 1)))[1:]  # all but zero
    first_nonzero = vectors[np.arange(len(vectors)), (vectors != 0).argmax(axis=1)]
    return vectors[first_nonzero == 1]


def _projective_incidence(d: int, q: int) -> np.ndarray:
    """bool[points, points]: which point is on which hyperplane of d dimensions over q elements: inner product 0."""
    sum_table, product_table = field(q)
    points = _projective_points(d, q)
    inner_products = np.zeros((len(points), len(points)), int)
    for axis in range(d + 1):
        inner_products = sum_table[inner_products, product_table[points[:, None, axis], points[None, :, axis]]]
    return inner_products == 0


def _affine_incidence(d: int, q: int) -> np.ndarray:
    """bool[blocks, points]: the projective geometry without one hyperplane, row 0, and its points."""
    matrix = _projective_incidence(d, q)
    return matrix[1:, ~matrix[0]]
