"""Devices and meshes for tests, which are skipped where there are fewer devices: on a single accelerator, say."""

import jax
import numpy as np
import pytest


def devices(count):
    """The first of JAX's devices, so many."""
    if jax.device_count() < count:
        pytest.skip(f"needs {count} devices; there are {jax.device_count()}")
    return jax.devices()[:count]


def mesh(*shape):
    """A mesh of workers, or of workers and model."""
    names = ("workers", "model")[: len(shape)]
    return jax.make_mesh(shape, names, devices=devices(np.prod(shape)))
