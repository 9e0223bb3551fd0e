"""Compiled programs are forgotten when a process maps much memory, between the schemes of a study, too."""

import pathlib

import jax
import jax.numpy as jnp
import optax
import pytest

from gcjax import memory, progress, protocols, stragglers, tasks
from gcjax.study import Condition, Study, plan, run

needs_mappings = pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="the system does not tell")


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


def test_a_study_looks_at_the_memory_behind_each_scheme(monkeypatch, tmp_path):
    looks = []
    monkeypatch.setattr(memory, "forget_programs", lambda: looks.append(True))
    small_study = Study(
        task=tasks.linear_regression(2, num_features=2, num_examples=8), optimizer=optax.sgd(0.05), num_workers=2,
        num_units=4, num_seeds=1,
    )  # fmt: skip
    schemes = {"BSP": protocols.bsp(), "ASP": protocols.asp()}
    conditions = {"even": Condition(stragglers.exponential(mean=1.0))}
    run(plan(small_study, schemes, conditions), out=tmp_path, progress=progress.silent())
    assert len(looks) == 2
