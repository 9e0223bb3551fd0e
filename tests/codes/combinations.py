"""Random combinations of codes, exact and approximate, for property tests."""

import numpy as np
from hypothesis import strategies as st

from gcjax import codes
from gcjax.codes import assignments
from tests.codes.helpers import KEY, least_squares_frc

SIMPLE = [
    lambda n: codes.one_step(assignments.cyclic(n, load=2)),
    lambda n: codes.optimal_decoding(assignments.cyclic(n, load=2)),
    lambda n: codes.multi_message(assignments.cyclic(n, load=2)),
    lambda n: codes.partial(assignments.cyclic(n, load=2)),
    lambda n: codes.cyclic_repetition(n, num_stragglers=1, rng_key=KEY),
    lambda n: codes.cyclic_mds(n, num_stragglers=1),
    lambda n: codes.ignore_stragglers(n),
    lambda n: codes.coded_multi_message(n, levels=(1, 2), rng_key=KEY),
    lambda n: codes.uncoded(n, load=2),
    lambda n: codes.fractional_repetition(2 * (n // 2), num_stragglers=1),
    lambda n: codes.one_step(assignments.repetition(2 * (n // 2), load=2)),
    lambda n: codes.fixed_code(assignments.cyclic(n, load=2), np.ones((n, 2)), num_chunks_needed=np.ones((n, 1), int)),
    lambda n: codes.expander(4, load=n - 1, rng_key=KEY),
    lambda n: codes.bibd(3, load=2),
    lambda n: least_squares_frc(),
]
"""`n -> code` of few workers."""


def _same_blocks(pair):
    return pair[0].num_blocks == pair[1].num_blocks


def combined():
    """Combinators around codes, up to three of them."""
    simple = st.tuples(st.sampled_from(SIMPLE), st.integers(2, 4)).map(lambda x: x[0](x[1]))
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            inner.map(codes.whole_workers),
            st.tuples(inner, st.integers(1, 2)).map(lambda x: codes.two_part(x[0], num_uncoded=x[1])),
            st.tuples(inner, st.integers(2, 3)).map(lambda x: codes.clustered(x[0], num_clusters=x[1])),
            st.tuples(inner, inner).filter(_same_blocks).map(lambda x: codes.side_by_side(*x)),
        ),
        max_leaves=3,
    )


def finish_times(code, rng, count):
    """float[count, W, K]: when each worker finishes each chunk; some fail, some at the same moment."""
    shape = (count, *code.assignment.chunks.shape)
    seconds = rng.exponential(size=shape)
    seconds[::2] = np.ceil(seconds[::2] * 2)  # many ties
    fails = rng.random(shape) < 0.03
    return np.cumsum(np.where(fails, np.inf, seconds), axis=2)
