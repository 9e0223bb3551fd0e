"""Every protocol with a rule, served: its record keeps the promise, and its replay gives the same parameters."""

import chex
import jax
import pytest

from gcjax import protocols
from gcjax.protocols.conformance.structure import check_structure
from tests.parameter_server.runs import NUM_WORKERS, live_run, replay
from tests.protocols.test_rules import PROTOCOLS

QUICK = ("k_sync",)
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(PROTOCOLS)]


@pytest.mark.parametrize("name", CASES)
def test_a_live_run_is_what_was_promised_and_can_be_replayed(name):
    protocol = PROTOCOLS[name]
    with jax.enable_x64(True):
        run, reports = live_run(protocol)
        assert len(run.loss) == 20 and run.num_refused == 0
        check_structure(run.schedule, protocol)
        kept = protocols.check(run.schedule, protocol.specification(NUM_WORKERS))
        assert kept, str(kept)
        chex.assert_trees_all_close(run.params, replay(protocol, run).params, rtol=1e-9, atol=1e-12)
        assert sum(report.num_pushes for report in reports.values()) >= (run.schedule.worker >= 0).sum() / 2
