"""One of several processes of a live run: python live_process.py RANK NUMBER PORT FILE; writes what it ended with."""

import sys

import jax
import numpy as np
import optax

RANK, NUMBER, PORT = map(int, sys.argv[1:4])
if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(
        f"127.0.0.1:{PORT}", NUMBER, RANK, initialization_timeout=20, shutdown_timeout_seconds=20
    )

    from gcjax import codes, tasks
    from gcjax.engine import live

    run = live.train(
        tasks.digits(6, batch_size=3, hidden=(5,)),
        codes.partial(
            codes.assignments.from_matrix(np.ones((6, NUMBER), int)), num_blocks=2, rng_key=jax.random.key(2)
        ),
        optax.sgd(0.1, momentum=0.5),
        rng_key=jax.random.key(2),
        num_rounds=6,
        deadline=live.fixed(0.15),
        max_residual=3.0,
        throttle=lambda worker, round: 0.06 if worker == 1 else 0.02,
    )
    np.savez(sys.argv[4], *jax.tree.leaves(run.params), **run.rounds._asdict())
    jax.distributed.shutdown()
