"""A run in slow pieces, as a command would make it, for the tests of what a signal leaves.

python -m tests.engine.interrupted_child FOLDER EVERY SECONDS
"""

import sys
import time
from pathlib import Path

NUM_EVALS = 50


def main(folder, every, seconds):
    """Prints its last number, or how far it is; the steps of the first piece are ready when "ready" is printed."""
    import jax
    import jax.numpy as jnp

    from gcjax import engine, interrupts, saved_progress
    from gcjax.engine.pieces import advance_in_pieces

    interrupts.SAVING_SECONDS = dict.fromkeys(
        interrupts.EXIT_STATUS, 90.0
    )  # a busy machine may need more than a command has
    interrupts.allow_last_checkpoint()
    interrupts.set_advice(lambda: f"; {saved_progress.lost_work_text()}")

    @jax.jit
    def step(x):
        return jnp.sin(1.3 * x + 1.0)

    def advance(training, num_evals):
        x, count = training
        while count < num_evals:
            x, count = step(x), count + 1
            time.sleep(seconds)
        return x, jnp.asarray(count)

    def report(training):
        print(f"ready {training[1]}", flush=True)

    training = jnp.arange(4.0), jnp.asarray(0)
    with engine.Checkpoints(Path(folder), every=every, label="a child") as checkpoints:
        x, _ = advance_in_pieces(advance, training, NUM_EVALS, checkpoints=checkpoints, identity="child", report=report)
    print(x.tolist(), flush=True)


if __name__ == "__main__":
    from gcjax import interrupts

    with interrupts.end_on_signals(until_exit=True):
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
