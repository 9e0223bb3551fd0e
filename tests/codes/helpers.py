"""A plain numpy reference of gradient coding, independent of the package's own decoder."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import codes
from gcjax.codes import assignments

KEY = jax.random.key(7)


def exact_codes():
    """(name, code, number of stragglers of which every set must be decoded), all small."""
    cyclic = assignments.cyclic(6, load=3)
    graph = assignments.order_chunks(assignments.random_regular(6, load=4, rng_key=KEY))
    uneven = assignments.from_matrix([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1]])
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
        ("partial L=3 harmonic", codes.partial(graph, num_blocks=3, rows="harmonic"), 1),
        ("partial uneven", codes.partial(uneven, num_blocks=2, rng_key=KEY), 0),
        ("frc by least squares", least_squares_frc(), 2),
        ("one step", codes.whole_workers(codes.one_step(assignments.cyclic(5, load=3))), 0),
        ("optimal whole", codes.whole_workers(codes.optimal_decoding(assignments.cyclic(5, load=3))), 0),
        (
            "optimal iterative",
            codes.whole_workers(codes.optimal_decoding(assignments.cyclic(5, load=3), max_iterations=60)),
            0,
        ),
        ("two parts", codes.two_part(codes.cyclic_repetition(4, num_stragglers=1, rng_key=KEY), num_uncoded=2), 0),
        (
            "two parts L=2",
            codes.two_part(codes.partial(assignments.cyclic(3, load=3), num_blocks=2, rng_key=KEY), num_uncoded=1),
            0,
        ),
        ("multi-message", codes.multi_message(assignments.cyclic(5, load=3)), 2),
        ("coded multi-message", codes.coded_multi_message(5, levels=(1, 3), rng_key=KEY), 2),
        ("tree", codes.tree_code(codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY), num_layers=2), 1),
        ("tree of repetition", codes.tree_code(codes.fractional_repetition(2, num_stragglers=1), num_layers=2), 1),
        ("clustered", codes.clustered(codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY), num_clusters=2), 1),
        ("cyclic MDS real", codes.cyclic_mds(6, num_stragglers=3), 3),
        ("cyclic MDS complex", codes.cyclic_mds(6, num_stragglers=2), 2),
        ("Reed-Solomon", codes.reed_solomon(5, num_chunks=7, num_stragglers=2), 2),
        ("Reed-Solomon complex", codes.reed_solomon(7, num_chunks=4, num_stragglers=3, points="roots_of_unity"), 3),
        ("Ye-Abbe", codes.communication_efficient(7, num_stragglers=2, num_blocks=2, generator="vandermonde"), 2),
        ("Ye-Abbe random", codes.communication_efficient(6, num_stragglers=1, num_blocks=3, rng_key=KEY), 1),
        ("heterogeneous", codes.heterogeneous([1, 2, 2, 4, 5], num_chunks=7, num_stragglers=2, rng_key=KEY), 2),
        ("BIBD", codes.bibd(7, load=3), 0),
        ("block coordinate", codes.block_coordinate(5, redundancies=(1, 1, 3), rng_key=KEY), 1),
        ("graph", codes.graph_code(6, replication=3, rng_key=KEY), 2),
        (
            "side by side",
            codes.side_by_side(codes.uncoded(2, load=2), codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY)),
            0,
        ),
        (
            "alternatives",
            codes.alternatives(
                codes.partial(assignments.cyclic(3, load=2), num_blocks=2, rows="harmonic"),
                codes.uncoded(3),
                codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY),
            ),
            1,
        ),
        ("whole uneven", all_or_nothing(), 0),
        ("majority", codes.majority(8, num_wrong=1, num_stragglers=1), 1),
        ("error correcting", codes.error_correcting(5, num_wrong=1, num_stragglers=1), 1),
        ("ignore", codes.ignore_stragglers(4), 0),
    ]


def all_or_nothing():
    """Whole workers with uneven loads and chunks with uneven replication; everybody is needed."""
    assignment = assignments.from_matrix([[1, 0], [1, 1], [0, 1], [1, 0]])
    shares = np.array([[1.0, 0.5, 1.0], [0.5, 1.0, 0.0]])
    return codes.fixed_code(assignment, shares, decode=lambda progress, encode: jnp.ones((2, 1, 1)))


def least_squares_frc():
    """Fractional repetition without its closed forms: duplicates, so of deficient rank."""
    return codes.fixed_code(assignments.repetition(6, load=3), np.ones((6, 3)))


def decoded(code, coding, gradients):
    """float[masks, d]: the estimates of the gradient sum, by the definition, from codings with a leading axis.

    `gradients` is float[N, d].
    """
    size = gradients.shape[1] // code.num_blocks
    blocks = np.asarray(gradients).reshape(gradients.shape[0], code.num_blocks, size)
    estimate = np.zeros((len(coding.residual), code.num_blocks, size))
    for w, row in enumerate(code.assignment.chunks):
        messages = np.einsum("smkb,kbi->smi", coding.encode[:, w], blocks[row] * (row >= 0)[:, None, None])
        estimate += np.einsum("sma,smi->sai", coding.decode[:, w], messages)
    return estimate.reshape(len(estimate), -1)


def distances(code, coding):
    """float[masks]: the Frobenius distances of the decoded coefficients from 1 ⊗ I_L, by the definition."""
    total = np.zeros(len(coding.residual))
    for chunk in range(code.assignment.num_chunks):
        error = np.broadcast_to(-np.eye(code.num_blocks), (len(total), code.num_blocks, code.num_blocks)).copy()
        for w, k in zip(*np.nonzero(code.assignment.chunks == chunk), strict=True):
            error += np.einsum("sma,smb->sab", coding.decode[:, w], coding.encode[:, w, :, k])
        total += (error**2).sum(axis=(1, 2))
    return np.sqrt(total)


def distance(code, coding):
    """As `distances`, of one coding."""
    return distances(code, alone(coding))[0]


def alone(coding):
    """One coding with a leading axis."""
    return type(coding)(*(np.asarray(part)[None] for part in coding))


def completion(code):
    """`codes.completion_time` of a code as one program; op by op, each operation would be compiled by itself."""
    return jax.jit(lambda seconds: codes.completion_time(code, seconds))


def without(code, stragglers):
    progress = code.assignment.loads.copy()
    progress[list(stragglers)] = 0
    return jnp.asarray(progress)
