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
