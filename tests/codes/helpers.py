"""A plain numpy reference of gradient coding, independent of the package's own decoder."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import codes

KEY = jax.random.key(7)


def exact_codes():
    """(name, code, number of stragglers of which every set must be decoded), all small."""
    cyclic = codes.cyclic(6, load=3)
    graph = codes.order_chunks(codes.random_regular(6, load=4, rng_key=KEY))
    uneven = codes.from_matrix([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1]])
    return [
        ("uncoded", codes.uncoded(4), 0),
        ("uncoded load 3", codes.uncoded(3, load=3), 0),
        ("frc 6 s=1", codes.fractional_repetition(6, num_stragglers=1), 1),
        ("frc 6 s=2", codes.fractional_repetition(6, num_stragglers=2), 2),
        ("crc 5 s=0", codes.cyclic_repetition(5, num_stragglers=0, rng_key=KEY), 0),
        ("crc 5 s=1", codes.cyclic_repetition(5, num_stragglers=1, rng_key=KEY), 1),
        ("crc 7 s=3", codes.cyclic_repetition(7, num_stragglers=3, rng_key=KEY), 3),
        ("partial L=1", codes.partial(cyclic), 2),
        ("partial L=2", codes.partial(cyclic, num_blocks=2, rng_key=KEY), 1),
        ("partial L=3", codes.partial(cyclic, num_blocks=3, rng_key=KEY), 0),
        ("partial graph L=2", codes.partial(graph, num_blocks=2, rng_key=KEY), 2),
        ("partial uneven", codes.partial(uneven, num_blocks=2, rng_key=KEY), 0),
        ("frc by least squares", least_squares_frc(), 2),
        ("one step", codes.whole_workers(codes.one_step(codes.cyclic(5, load=3))), 0),
        ("optimal whole", codes.whole_workers(codes.optimal_decoding(codes.cyclic(5, load=3))), 0),
        (
            "optimal iterative",
            codes.whole_workers(codes.optimal_decoding(codes.cyclic(5, load=3), num_iterations=60)),
            0,
        ),
        ("two parts", codes.two_part(codes.cyclic_repetition(4, num_stragglers=1, rng_key=KEY), num_uncoded=2), 0),
        (
            "two parts L=2",
            codes.two_part(codes.partial(codes.cyclic(3, load=3), num_blocks=2, rng_key=KEY), num_uncoded=1),
            0,
        ),
        ("multi-message", codes.multi_message(codes.cyclic(5, load=3)), 2),
        ("coded multi-message", codes.coded_multi_message(5, levels=(1, 3), rng_key=KEY), 2),
        ("clustered", codes.clustered(codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY), num_clusters=2), 1),
        ("cyclic MDS real", codes.cyclic_mds(6, num_stragglers=3), 3),
        ("cyclic MDS complex", codes.cyclic_mds(6, num_stragglers=2), 2),
        ("Reed-Solomon", codes.reed_solomon(5, num_chunks=7, num_stragglers=2), 2),
        ("Reed-Solomon complex", codes.reed_solomon(7, num_chunks=4, num_stragglers=3, points="roots_of_unity"), 3),
        ("Ye-Abbe", codes.communication_efficient(7, num_stragglers=2, num_blocks=2, generator="vandermonde"), 2),
        ("Ye-Abbe random", codes.communication_efficient(6, num_stragglers=1, num_blocks=3, rng_key=KEY), 1),
        ("heterogeneous", codes.heterogeneous([1, 2, 2, 4, 5], num_chunks=7, num_stragglers=2, rng_key=KEY), 2),
        ("BIBD", codes.bibd(7, load=3), 0),
        ("graph", codes.graph_code(6, replication=3, rng_key=KEY), 2),
        (
            "side by side",
            codes.side_by_side(codes.uncoded(2, load=2), codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY)),
            0,
        ),
        ("whole uneven", all_or_nothing(), 0),
        ("ignore", codes.ignore_stragglers(4, num_stragglers=1), 0),
    ]


def all_or_nothing():
    """Whole workers with uneven loads and chunks with uneven replication; everybody is needed."""
    assignment = codes.from_matrix([[1, 0], [1, 1], [0, 1], [1, 0]])
    shares = np.array([[1.0, 0.5, 1.0], [0.5, 1.0, 0.0]])
    return codes.fixed_code(assignment, shares, decode=lambda progress, encode: jnp.ones((2, 1, 1)))


def least_squares_frc():
    """Fractional repetition without its closed forms: duplicates, so of deficient rank."""
    return codes.fixed_code(codes.repetition(6, load=3), np.ones((6, 3)))


def decoded(code, coding, gradients):
    """The estimate of the gradient sum, message by message, by the definition. `gradients` is float[N, d]."""
    size = gradients.shape[1] // code.num_blocks
    blocks = np.asarray(gradients).reshape(gradients.shape[0], code.num_blocks, size)
    encode, decode = np.asarray(coding.encode), np.asarray(coding.decode)
    estimate = np.zeros((code.num_blocks, size))
    for w, row in enumerate(code.assignment.chunks):
        for m in range(code.num_messages):
            message = np.zeros(size)
            for k, chunk in enumerate(row):
                for b in range(code.num_blocks):
                    message += encode[w, m, k, b] * blocks[chunk, b]
            estimate += decode[w, m][:, None] * message
    return estimate.ravel()


def distance(code, coding):
    """The Frobenius distance of the decoded coefficients from 1 ⊗ I_L, by the definition."""
    encode, decode = np.asarray(coding.encode), np.asarray(coding.decode)
    total = 0.0
    for chunk in range(code.assignment.num_chunks):
        product = np.zeros((code.num_blocks, code.num_blocks))
        for w, k in zip(*np.nonzero(code.assignment.chunks == chunk), strict=True):
            product += np.einsum("ma,mb->ab", decode[w], encode[w, :, k])
        total += ((product - np.eye(code.num_blocks)) ** 2).sum()
    return np.sqrt(total)


def straggler_sets(num_workers, most):
    for count in range(most + 1):
        yield from itertools.combinations(range(num_workers), count)


def without(code, stragglers):
    progress = code.assignment.loads.copy()
    progress[list(stragglers)] = 0
    return jnp.asarray(progress)
