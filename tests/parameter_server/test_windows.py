"""Protocols that look at the loss, served: they choose by the losses of the run, and keep to what they have chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols
from gcjax.parameter_server.turn_log import TurnLog
from gcjax.parameter_server.windows import Windows
from tests.parameter_server.runs import assert_kept_and_replayed, live_run

PROTOCOLS = {
    "adacomm": protocols.adacomm(num_local_steps=8, seconds=0.15, num_windows=6),
    "adsp": protocols.adsp(seconds=0.15, num_windows=6, min_interval=0.004),
}


def log_of(times, losses):
    log = TurnLog(1)
    log.commit_times, log.losses = list(times), list(losses)
    return log


def chosen(loss_feedback, times, losses):
    """The controls after the last window, by what the protocol says of each window."""
    controls, dtype = loss_feedback.initial(loss_feedback.num_windows), jnp.result_type(float)
    for window in range(loss_feedback.num_windows - 1):
        end = (window + 1) * loss_feedback.seconds
        known = np.asarray(times) < end
        controls = loss_feedback.next(
            controls,
            protocols.base.Observed(
                jnp.int32(window),
                jnp.asarray(end, dtype),
                jnp.where(known, jnp.asarray(times, dtype), jnp.inf),
                jnp.where(known, jnp.asarray(losses, dtype), jnp.inf),
            ),
        )
    return controls


def test_the_controls_are_those_of_the_losses():
    loss_feedback = protocols.adacomm(num_local_steps=8, seconds=1.0, num_windows=4).loss_feedback
    times, losses = [0.2, 0.9, 2.0, 2.5], [4.0, 2.0, 1.0, 0.5]  # one as a window ends
    windows = Windows(loss_feedback, num_commits=4)
    controls = loss_feedback.initial(4)
    for now in (0.5, 1.1, 1.2, 2.1, 9.0):  # the last one is after the ends of two windows, one of them of no length
        num = sum(time < now for time in times)
        controls = windows.controls_after(now, log_of(times[:num], losses[:num]), controls)
    assert controls.tolist() == chosen(loss_feedback, times, losses).tolist()
    assert len(set(controls.tolist())) > 2


def test_a_run_goes_on_in_the_window_in_which_it_was():
    """At each end, in the type of times, for which the quotient may be one less."""
    loss_feedback = protocols.adacomm(num_local_steps=8, seconds=0.1, num_windows=60).loss_feedback
    controls, log = loss_feedback.initial(60), log_of([], [])
    for number in range(1, 50):
        windows, again = Windows(loss_feedback, num_commits=4), Windows(loss_feedback, num_commits=4)
        end = float(np.float32(number) * np.float32(0.1))
        windows.controls_after(end, log, controls)
        again.go_on_at(end)
        assert windows._window == again._window == number


def test_without_windows_nothing_changes():
    assert Windows(None, 3).controls_after(5.0, log_of([], []), "memory") == "memory"


@pytest.mark.slow
def test_the_rounds_have_the_steps_that_were_chosen():
    protocol = PROTOCOLS["adacomm"]
    with jax.enable_x64(True):
        run, _ = live_run(protocol, num_commits=60)
        assert_kept_and_replayed(protocol, run)
        steps = np.asarray(chosen(protocol.loss_feedback, run.schedule.time, run.loss))
        begin = np.append(0.0, run.schedule.time[:-1])
        window = np.minimum(begin // 0.15, 5).astype(int)
        assert (run.schedule.work == steps[window][:, None]).all()
        assert len(set(run.schedule.work[:, 0].tolist())) > 1


@pytest.mark.slow
def test_the_pushes_of_adsp_fill_their_interval():
    protocol = PROTOCOLS["adsp"]
    with jax.enable_x64(True):
        run, _ = live_run(protocol, num_commits=60)
        assert_kept_and_replayed(protocol, run)
        rates = chosen(protocol.loss_feedback, run.schedule.time, run.loss)
        assert len(set(rates.num_commits.tolist())) > 1
        host = run.schedule
        first, worker, work = host.unit[:, 0], host.worker[:, 0], host.work[:, 0]
        begin, last = host.compute_start[first, worker], first + work - 1
        window = np.minimum(host.start[first, worker] // 0.15, 5).astype(int)
        interval = np.maximum(0.004, 0.15 / np.asarray(rates.num_commits)[window])
        assert (host.compute_end[last, worker] - begin >= interval - 1e-6).all()
        assert (host.compute_start[last, worker] - begin < interval + 1e-6).all()
