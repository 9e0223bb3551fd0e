"""Weights of least squares leave the least there is, also where singular values are 0 up to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments
from gcjax.codes.least_squares import least_norm, message_matrix
from tests.codes.helpers import KEY

CODES = {
    "optimal decoding": lambda: codes.optimal_decoding(assignments.cyclic(60, load=2)),
    "cyclic MDS": lambda: codes.cyclic_mds(60, num_stragglers=2),
    "cyclic repetition": lambda: codes.cyclic_repetition(60, num_stragglers=2, rng_key=KEY),
    "Reed-Solomon": lambda: codes.reed_solomon(30, num_chunks=30, num_stragglers=1, points="roots_of_unity"),
    "graph": lambda: codes.graph_code(60, replication=3, rng_key=KEY),
}


@pytest.mark.slow("cyclic repetition-64", "graph-64", "optimal decoding-64")
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", CODES)
def test_no_weights_leave_less(name, bits):
    with jax.enable_x64(bits == 64):
        code, rng = CODES[name](), np.random.default_rng(1)
        share_missing = rng.uniform(0, 0.5, (40, 1))
        is_there = rng.random((40, code.assignment.num_workers)) >= share_missing
        coding = jax.jit(jax.vmap(code.plan))(jnp.asarray(is_there * code.assignment.loads, jnp.int32))
        matrices = np.asarray(jax.vmap(lambda encode: message_matrix(code.assignment, encode))(coding.encode), float)
    for matrix, decode, residual in zip(matrices, coding.decode, coding.residual, strict=True):
        target = np.tile(np.eye(code.num_blocks), (code.assignment.num_chunks, 1))
        weights = np.linalg.lstsq(matrix.T, target, rcond=1e-6)[0]
        least = np.linalg.norm(matrix.T @ weights - target)
        left = np.linalg.norm(matrix.T @ np.asarray(decode, float).reshape(len(matrix), -1) - target)
        assert left <= 1.001 * least + 1e-4
        np.testing.assert_allclose(residual, left, rtol=1e-3, atol=1e-4)


def test_singular_values_that_are_small_and_not_0_are_used():
    singular_values = np.array([1.0, 1e-1, 20 * np.finfo(np.float32).eps, 0.0])
    orthogonal, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 4)))
    matrix = orthogonal * singular_values  # [100, 4]: the third is below 100 units of rounding
    target = orthogonal[:, [2]]
    solution = least_norm(jnp.asarray(matrix, jnp.float32), jnp.asarray(target, jnp.float32))
    assert np.linalg.norm(matrix @ np.asarray(solution) - target) < 0.1 and solution[3] == 0
