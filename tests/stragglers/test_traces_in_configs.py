"""Config files name how a trace is read and how it is replayed."""

import gin
import jax
import numpy as np
import pytest

from gcjax import config, progress, register, stragglers
from gcjax.stragglers import StragglerModel

SAMPLES: dict = {}


@register("experiment")
def sampler(stragglers: StragglerModel, *, out, progress):
    """An experiment that only keeps its straggler model."""
    SAMPLES["model"] = stragglers


@pytest.fixture
def sample(tmp_path):
    """The durations that a config with these lines leads to."""
    (tmp_path / "times.csv").write_text(
        "host,iteration,ms,wait\nb,1,2000,1\na,1,1000,1\na,3,3000,1\nb,3,4000,1\nb,3,8000,1\n"
    )

    def durations(*lines):
        text = ["run.experiment = @sampler", "sampler.stragglers = @replay()", "replay.trace = @read_trace()"]
        text += [f"read_trace.path = '{tmp_path / 'times.csv'}'", "replay.start = 'recorded'", *lines]
        (tmp_path / "c.gin").write_text("\n".join(text))
        config.load(tmp_path / "c.gin", [])
        config.run_loaded(tmp_path, progress.silent())
        return np.asarray(stragglers.sample_durations(SAMPLES["model"], jax.random.key(0), 2, 2))

    yield durations
    gin.clear_config()
    SAMPLES.clear()


COLUMNS = "read_trace.columns = {'worker': 'host', 'step': 'iteration', 'compute': 'ms', 'communication': 'wait'}"


def test_a_table_with_named_columns_is_replayed_by_a_config(sample):
    np.testing.assert_array_equal(sample(COLUMNS, "read_trace.scale = 1e-3"), [[1, 2], [3, 8]])
    scaled = sample(COLUMNS, "read_trace.scale = 1e-3", "replay.slope = 0.5", "replay.intercept = 1.0")
    np.testing.assert_array_equal(scaled, [[1.5, 2], [2.5, 5]])


def test_what_a_config_gives_wrongly_is_said(sample):
    with pytest.raises(ValueError, match=r"read_trace.columns must be .*; got \['host'\]"):
        sample("read_trace.columns = ['host']")
    with pytest.raises(ValueError, match="has no column 'hosts', but 'host', 'iteration', 'ms', 'wait'"):
        sample("read_trace.columns = {'worker': 'hosts', 'step': 'iteration', 'compute': 'ms'}")
    with pytest.raises(ValueError, match="Of another table say which column is what"):
        sample()
