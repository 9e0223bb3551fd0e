"""Live training in two processes that gets a signal: all save the same round, and it goes on with the same bits."""

import signal

import numpy as np
import pytest

from tests.processes.commands import group
from tests.test_interrupts import STATUS, WORDS

EXPERIMENT = """
import jax
import numpy as np
import optax

from gcjax import analysis, codes, config, engine, processes, tasks, register
from gcjax.engine import live


@register("experiment")
def trained(*, num_rounds, out, progress):
    def on_round(number, happened, params):
        if processes.is_first():
            (out / "round").write_text(str(number))

    with engine.Checkpoints(out / analysis.CHECKPOINTS / "live", every=1000, label="live") as checkpoints:
        run = live.train(
            tasks.digits(4, batch_size=3, hidden=(4,)),
            codes.uncoded(2, load=2),
            optax.sgd(0.1, momentum=0.5),
            rng_key=jax.random.key(2),
            num_rounds=num_rounds,
            deadline=live.whole_load(),
            throttle=lambda worker, round: 0.02,
            on_round=on_round,
            checkpoints=checkpoints,
            identity=config.text(),
        )
    if processes.is_first():
        np.savez(out / "params.npz", *jax.tree.leaves(run.params))
        analysis.drop_checkpoints(out)
"""
CONFIG = """
import trained
run.experiment = @trained
trained.num_rounds = 150
"""


@pytest.mark.slow
def test_all_save_the_same_round_if_some_get_a_signal(tmp_path):
    """With nobody's signal there would be no checkpoint before the end."""
    (tmp_path / "trained.py").write_text(EXPERIMENT)
    with group(tmp_path, 2, config=CONFIG, out="whole") as started:
        assert {end.status for end in started.end(200).values()} == {0}
    whole = np.load(tmp_path / "whole" / "params.npz")
    for number, ranks in ((signal.SIGTERM, (1,)), (signal.SIGTERM, (0,)), (signal.SIGINT, (0, 1))):
        signalled(tmp_path, number, ranks)
        (tmp_path / "out").rename(tmp_path / f"{number}-{ranks}")
    with group(tmp_path, 2, "--resume", config=CONFIG, out=f"{signal.SIGTERM}-(1,)") as started:
        assert {end.status for end in started.end(200).values()} == {0}
    resumed = np.load(tmp_path / f"{signal.SIGTERM}-(1,)" / "params.npz")
    assert all((whole[name] == resumed[name]).all() for name in whole.files)


def signalled(folder, number, ranks):
    """All have ended, the signalled ones with the status of the signal, and nothing is lost."""
    with group(folder, 2, config=CONFIG) as started:
        started.wait_for_round(3, timeout=100)
        for rank in ranks:
            started.processes[rank].send_signal(number)
        ends = started.end(60)
        last = started.round()
    checkpoint = folder / "out" / "checkpoints" / "live" / str(last + 1)
    assert (checkpoint / "_CHECKPOINT_METADATA").exists(), ends
    for rank, end in ends.items():
        if rank in ranks and end.status == STATUS[number]:
            line = rf"gcjax: {WORDS[number]}; a checkpoint was written at {(last + 1) / 150:.0%} of live, so nothing is"
            assert line in end.stderr, end
        else:
            assert end.status == 3 and "interrupted" in end.stderr and "--resume" in end.stderr, end
    assert STATUS[number] in {end.status for end in ends.values()}
