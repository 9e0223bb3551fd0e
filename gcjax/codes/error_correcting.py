"""A code that finds and leaves out wrong messages (Chen, Wang, Charles, Papailiopoulos 2018: DRACO, cyclic code).

Right messages are the values of one polynomial at the points of the workers, coordinate by coordinate. Where a of them
are something else, a polynomial of degree a that vanishes at their points says so (Welch, Berlekamp 1986). One random
combination of all coordinates is enough to find it.

Letters: W workers, d parameters, a wrong messages, s stragglers, K = 2 a + s + 1 chunks a worker holds.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._products import matmul
from gcjax.codes.base import Coding, GradientCode
from gcjax.codes.fixed import completion_by_fastest, fixed_code
from gcjax.codes.least_squares import least_squares
from gcjax.codes.mds import complex_as_real_blocks, messages_of_length_one, round_robin
from gcjax.codes.reed_solomon import reed_solomon_coefficients
from gcjax.equality import comparable

_COMBINATION_SEED = 20180710
"""Of the random combination of coordinates; the same in each round, so that a run is a function of its arguments."""


@comparable
def error_correcting(num_workers: int, *, num_wrong: int, num_stragglers: int) -> GradientCode:
    """Cyclic code with loads of 2 a + s + 1: a workers may send anything and s nothing. N = W, L = M = 2.

    As `majority`, but the number of workers need not be a multiple of the load, and any a workers may be wrong rather
    than a of each group. Half of the gradient serves as the imaginary part of complex messages, so that a worker sends
    d numbers (see `reed_solomon`). With fewer than W - s arrived nothing is decoded. A plan knows who has arrived, not
    what was sent: this is examined in `gcjax.engine.run(..., wrong_senders=)`, where the a most suspicious workers of
    each round are left out. Messages count as right up to rounding, so that devices need not agree to the last bit; who
    knows the random combination could choose a wrong message that it hides (with real attackers, draw another one).

    Of many wrong ones float32 has too few digits to find each: with a = 3 of 200 workers or 5 of 100 the sums that were
    decoded in trials were off by less than one percent, with a = 10 of 200 in one of six rounds by more, up to any
    size. In float64 all of them were right.

    Where DRACO solves for the error locator from syndromes, this takes the null vector of the equations of Welch and
    Berlekamp, which bears missing rows.

    Args:
      num_workers: W = N.
      num_wrong: a.
      num_stragglers: s; 0 in the paper.

    Raises:
      ValueError: if the load is above the number of workers.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    num_wrong = _validate.integer("num_wrong", num_wrong, minimum=0)
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=0)
    load, num_needed = 2 * num_wrong + num_stragglers + 1, num_workers - num_stragglers
    if load > num_workers:
        raise ValueError(
            f"2 num_wrong + num_stragglers must be below num_workers, {num_workers}; got {load - 1}. A worker would "
            "have to hold more chunks than there are."
        )
    assignment = round_robin(num_workers, np.full(num_workers, load))
    worker_points = np.exp(2j * np.pi * np.arange(num_workers) / num_workers)
    coefficients = reed_solomon_coefficients(assignment, worker_points, mean_distance=1.0)
    solve = least_squares(assignment, num_messages=2, num_blocks=2)

    def weights_of(encode: jax.Array, is_used: jax.Array) -> jax.Array:
        """float[W, 2, 2]: the weights with which the messages of the workers `is_used bool[W]` decode; 0 for others.

        Of both messages of a worker, real and imaginary part, for both blocks, the halves of the gradient; `encode` is
        float[W, 2, K, 2], message, chunk and block.
        """
        weights = solve(jnp.where(is_used[:, None, None, None], encode, 0))
        return jnp.where(is_used[:, None, None], weights, 0)  # rounding can leave weights for what is not there

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 2, 2], of both messages for both blocks: weights of all that are there; 0 if of fewer than W - s.

        A worker's messages are there with its `load` finished; W - s is `num_needed`.
        """
        is_enough = (progress >= load).sum(dtype=jnp.int32) >= num_needed
        return jnp.where(is_enough, solve(encode), 0)

    def weights_from_messages(messages: jax.Array, coding: Coding) -> jax.Array:
        """float[W, 2, 2]: weights of the messages without those of the `num_wrong` most suspicious workers.

        Of both messages of a worker, the real and the imaginary part of a complex one, for both blocks, the halves of
        the gradient. `messages` are float[W, 2, width]; encode is float[W, 2, K, 2]: message, chunk, block.
        """
        has_arrived = (coding.encode != 0).any(axis=(1, 2, 3))  # bool[W]
        # Right messages are the values of a polynomial of degree W - K: each chunk's vanishes at all but its K holders.
        is_trusted = _trusted(messages, has_arrived, worker_points, num_wrong, degree=num_workers - load)
        planned, weights = weights_of(coding.encode, has_arrived), weights_of(coding.encode, is_trusted)
        # The decode given is what was planned, times the weight of the commit, or 0 with too few arrived: the new
        # weights are multiplied by the same. With nobody arrived, what was planned is 0, too: then by 0.
        scale = jnp.abs(coding.decode).sum() / jnp.maximum(jnp.abs(planned).sum(), jnp.finfo(planned.dtype).tiny)
        return (weights * scale).astype(coding.decode.dtype)

    messages = messages_of_length_one(complex_as_real_blocks(coefficients))
    code = fixed_code(assignment, messages, decode=decode, completion=completion_by_fastest(num_needed))
    return code._replace(weights_from_messages=weights_from_messages)


def _trusted(
    messages: jax.Array, has_arrived: jax.Array, worker_points: np.ndarray, num_wrong: int, degree: int
) -> jax.Array:
    """bool[W]: who has arrived and is not among the a = `num_wrong` that are most likely to be wrong.

    Sought are polynomials E of degree a and Q of degree `degree` + a, not both zero, with Q(x) = r E(x) at the point x
    of each worker that has arrived, where r is a combination of the numbers it has sent. If at most a of them are
    wrong, E vanishes at their points, since Q / E is the polynomial of the right ones.

    Args:
      messages: float[W, 2, width], the real and the imaginary parts of what was sent.
      has_arrived: bool[W].
      worker_points: complex[W].
      num_wrong: a.
      degree: of the polynomial of right messages, W - K.
    """
    if jnp.finfo(messages.dtype).bits < 32:  # there is no complex bfloat16
        messages = messages.astype(jnp.float32)
    factors = jax.random.normal(jax.random.key(_COMBINATION_SEED), messages.shape[2:], messages.dtype)  # [width]
    parts = matmul(messages, factors)  # [W, 2]
    received = jax.lax.complex(parts[:, 0], parts[:, 1])
    is_usable = has_arrived & jnp.isfinite(jnp.abs(received))  # what is not finite makes its combination so
    powers = jnp.asarray(worker_points[:, None] ** np.arange(degree + num_wrong + 1), received.dtype)  # those of Q
    locator_powers = powers[:, : num_wrong + 1]
    equations = _equations(received, is_usable, powers, locator_powers)
    # The coefficients of Q, then of E; in full, since without stragglers there is one more of them than equations.
    null_vector = jnp.linalg.svd(equations, full_matrices=True)[2][-1].conj()
    locator = jnp.abs(matmul(locator_powers, null_vector[-(num_wrong + 1) :]))  # |E| at each worker's point
    # int[W], 0 where |E| is least; those who are not usable come last, and are not among the a.
    suspicion_rank = jnp.argsort(jnp.argsort(jnp.where(is_usable, locator, jnp.inf)))
    return is_usable & (suspicion_rank >= num_wrong)


def _equations(received: jax.Array, is_usable: jax.Array, powers: jax.Array, locator_powers: jax.Array) -> jax.Array:
    """complex[W, coefficients of Q and of E]: `Q(x) - r E(x)` at each worker's point, in rows of about equal size.

    Q is taken in a unit that is no larger than the largest right message: one of the a + 1 largest is right. If no more
    than a are above 0, the right ones are all 0, and any unit will do. Nothing is squared, so that no size is too large
    or too small. Rows that do not count are 0.

    Args:
      received: complex[W], r.
      is_usable: bool[W], whose equation counts.
      powers: complex[W, degree of Q + 1], of the points.
      locator_powers: complex[W, a + 1], likewise for E.
    """
    message_size = jnp.where(is_usable, jnp.abs(received), 0)
    largest_message_sizes = jax.lax.top_k(message_size, locator_powers.shape[1])[0]
    unit = jnp.where(largest_message_sizes[-1] > 0, largest_message_sizes[-1], largest_message_sizes[0])
    equation_size = jnp.hypot(unit, message_size)
    is_equation = is_usable & (equation_size > 0)
    divisor = jnp.where(is_equation, equation_size, 1)
    share_of_unit = jnp.where(is_equation, unit / divisor, 0).astype(powers.dtype)[:, None]
    share_received = jnp.where(is_equation, received / divisor.astype(powers.dtype), 0)[:, None]
    return jnp.concatenate([powers * share_of_unit, -share_received * locator_powers], axis=1)
