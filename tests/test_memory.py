"""Compiled programs are forgotten when a process maps much memory."""

import pathlib

import jax
import jax.numpy as jnp
import pytest

from gcjax import memory

needs_mappings = pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="the system does not tell")


@pytest.mark.slow
@needs_mappings
def test_programs_are_compiled_again_after_they_were_forgotten():
    traced = []

    @jax.jit
    def program(x):
        traced.append(x)
        return x + 1

    program(jnp.zeros(3))
    assert not memory.forget_programs(10**9)
    program(jnp.zeros(3))
    assert len(traced) == 1
    assert memory.forget_programs(0)
    program(jnp.zeros(3))
    assert len(traced) == 2


def test_nothing_is_forgotten_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr(memory, "Path", lambda name: pathlib.Path("not") / "there")
    assert not memory.forget_programs(0)
