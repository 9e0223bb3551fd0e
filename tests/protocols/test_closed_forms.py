"""Expected times between commits under exponential durations (Dutta et al. 2018), in standard errors of the mean."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols
from tests.protocols import table

NUM_WORKERS, UNITS, SEEDS, RATE = 6, 200, 4, 2.0
STANDARD_ERRORS = 4.0


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def k_sync(k):
    return (harmonic(NUM_WORKERS) - harmonic(NUM_WORKERS - k)) / RATE


def k_batch(k):
    return k / (NUM_WORKERS * RATE)


def rennala(b):
    """From one commit to the next: by the workers with the newest version so far, and the gradients still needed.

    After a commit that is one worker; every arrival is of such a worker, or makes one more.
    """

    @functools.cache
    def seconds(num_newest, num_needed):
        if num_needed == 0:
            return 0.0
        share = num_newest / NUM_WORKERS
        arrival = 1 / (NUM_WORKERS * RATE)
        if share == 1:
            return num_needed * arrival
        accepted, ignored = seconds(num_newest, num_needed - 1), seconds(num_newest + 1, num_needed)
        return arrival + share * accepted + (1 - share) * ignored

    return seconds(1, b)


CASES = {
    ("k_sync", 2): k_sync,
    ("k_sync", 6): k_sync,
    ("k_batch_sync", 4): k_batch,
    ("k_batch_async", 4): k_batch,
    ("rennala", 1): rennala,
    ("rennala", 4): rennala,
}


@pytest.mark.slow("k_batch_sync-4", "k_sync-2", "rennala-1")
@pytest.mark.parametrize(("name", "k"), CASES)
def test_expected_time_between_commits(name, k, x64):
    made = getattr(protocols, name)(num_contributions=k)
    key = jax.random.key(17)
    durations = jax.random.exponential(key, (SEEDS, UNITS, NUM_WORKERS), jnp.float64) / RATE
    program = jax.jit(lambda d: made(d).time, compiler_options=table.quick())
    # Everybody begins the first round with the newest version, but not the others.
    gaps = [np.diff(t[np.isfinite(t)]) for t in map(np.asarray, map(program, durations))]
    # The last commits before the horizon are no fair sample: whoever runs out has been fast. Half of them is.
    gaps = np.concatenate([g[: len(g) // 2] for g in gaps])
    assert gaps.size >= 200
    error = gaps.std() / np.sqrt(gaps.size)
    assert abs(gaps.mean() - CASES[name, k](k)) <= STANDARD_ERRORS * error
    assert error < 0.06 * CASES[name, k](k)  # so that the test can tell one formula from another
