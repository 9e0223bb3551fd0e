"""Schemes of a study whose messages are compressed, in Python and from a config file."""

import dataclasses

import numpy as np
import pytest

from gcjax import cli, compression, engine, progress, protocols, stragglers
from gcjax.study import Condition, final_rows, plan, run, seed_values
from tests.docs.pages import ROOT
from tests.study.test_runner import STUDY

NETWORK = stragglers.constant_network(upload=2.0, download=0.5)
CONDITIONS = {"all": Condition(stragglers.constant(seconds=1.0), NETWORK)}
SIGN = compression.error_feedback(compression.sign())  # 5 bytes of 8


@pytest.mark.slow
def test_a_scheme_has_a_compression_of_its_own(tmp_path):
    schemes = {
        "BSP": protocols.bsp(),
        "signs": protocols.bsp(),
        "adaptive": protocols.adacomm(num_local_steps=2, seconds=4.0, num_windows=2),
    }
    study = dataclasses.replace(STUDY, compressions={"signs": SIGN, "adaptive": SIGN})
    planned = plan(study, schemes, CONDITIONS)
    results = run(planned, out=tmp_path, progress=progress.silent())
    rows = final_rows(results)
    np.testing.assert_allclose(seed_values(rows, "BSP", "all", "end"), 6 * 3.5)
    np.testing.assert_allclose(seed_values(rows, "signs", "all", "end"), 6 * (1.5 + 2 * 5 / 8))
    inputs = planned.inputs
    single = engine.run(
        study.task, schemes["signs"], study.optimizer, inputs.durations[0], rng_key=inputs.rng_key[0],
        params=inputs.params[0], network=NETWORK, compression=SIGN, eval_every=2,
    )  # fmt: skip
    np.testing.assert_allclose(
        results.runs["signs"].trajectory.metrics["suboptimality"][0],
        single.trajectory.metrics["suboptimality"],
        rtol=1e-5,
    )


@pytest.mark.slow
def test_the_messages_of_a_study_are_as_long_as_the_bits_of_each_worker(tmp_path):
    """A worker with four times the bandwidth has many more levels than others: a norm, and 16 or 2 bits a number."""
    num_workers = STUDY.num_workers
    network = stragglers.constant_network(upload=(0.5,) + (2.0,) * (num_workers - 1))
    levels = (2**15 - 1,) + (1,) * (num_workers - 1)
    study = dataclasses.replace(STUDY, compressions={"by worker": compression.qsgd(levels=levels, bucket_size=2)})
    planned = plan(study, {"by worker": protocols.bsp()}, {"all": Condition(stragglers.constant(seconds=1.0), network)})
    rows = final_rows(run(planned, out=tmp_path, progress=progress.silent()))
    sizes = study.compressions["by worker"].num_bytes(study.task.init(planned.inputs.rng_key[0]))
    slowest = max(0.5 * sizes[0] / 8, 2.0 * sizes[1] / 8)
    np.testing.assert_allclose(sizes[:2], [8, 5])
    np.testing.assert_allclose(seed_values(rows, "by worker", "all", "end"), 6 * (1 + slowest))


def test_a_compression_of_other_workers_is_refused():
    study = dataclasses.replace(STUDY, compressions={"BSP": compression.qsgd(levels=(1,) * (STUDY.num_workers + 1))})
    with pytest.raises(ValueError, match=r"scheme 'BSP': a compression that differs by worker must be for those"):
        plan(study, {"BSP": protocols.bsp()}, CONDITIONS)


def test_a_compression_of_no_scheme_is_refused():
    study = dataclasses.replace(STUDY, compressions={"SSP": SIGN})
    with pytest.raises(ValueError, match="compressions must be those of schemes, BSP; got one for 'SSP'"):
        plan(study, {"BSP": protocols.bsp()}, CONDITIONS)


@pytest.mark.slow
def test_a_config_binds_one(tmp_path):
    lines = [
        f"include '{ROOT / 'configs' / 'smallest.gin'}'",
        "compare.schemes = {'BSP': @bsp(), 'top-k': @bsp()}",
        "study.compressions = {'top-k': @error_feedback()}",
        "error_feedback.compression = @top_k()",
        "top_k.share = 0.5",
    ]
    (tmp_path / "c.gin").write_text("\n".join(lines))
    assert cli.main(["run", str(tmp_path / "c.gin"), "--out", str(tmp_path / "out")]) == 0
    assert "top-k" in (tmp_path / "out" / "summary.md").read_text()


@pytest.mark.slow
def test_a_config_binds_levels_by_worker(tmp_path):
    lines = [
        f"include '{ROOT / 'configs' / 'smallest.gin'}'",
        "study.compressions = {'BSP': @qsgd()}",
        "qsgd.levels = [7, 7, 3, 1]",
    ]
    (tmp_path / "c.gin").write_text("\n".join(lines))
    assert cli.main(["run", str(tmp_path / "c.gin"), "--out", str(tmp_path / "out")]) == 0
