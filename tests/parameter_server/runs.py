"""Runs on the real clock in one process: a server, and its workers in threads."""

import threading

import chex
import jax
import optax

from gcjax import engine, parameter_server, protocols, tasks
from gcjax.protocols.conformance.structure import check_structure

NUM_WORKERS = 4
KEY = jax.random.key(0)
OPTIMIZER = optax.sgd(0.05)


def setup(protocol, **fields):
    task = tasks.linear_regression(num_chunks=NUM_WORKERS)
    return parameter_server.Setup(task, protocol, OPTIMIZER, NUM_WORKERS, KEY, **fields)


def throttle(worker, unit):
    """Worker 1 is three times slower."""
    return 0.006 if worker == 1 else 0.002


def start_workers(address, protocol, workers=range(NUM_WORKERS), throttle=throttle, **arguments):
    """The threads of the workers, and a dict that gets their reports, or the errors that they raise."""
    results, wide = {}, jax.config.jax_enable_x64

    def target(worker):
        try:
            with jax.enable_x64(wide):  # each thread has its own setting
                results[worker] = parameter_server.work(
                    setup(protocol), address, worker=worker, throttle=throttle, patience=30.0, **arguments
                )
        except (ValueError, OSError) as error:
            results[worker] = error

    threads = [threading.Thread(target=target, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    return threads, results


def live_run(
    protocol,
    num_commits=20,
    seconds=60.0,
    throttle=throttle,
    on_end=lambda: None,
    checkpoints=None,
    checkpoint_every=100,
    check=False,
    **limits,
):
    """What the server returns, and the workers' reports; `on_end` is called once the server has ended."""
    server = parameter_server.Server(
        setup(protocol),
        parameter_server.Limits(num_commits, seconds=seconds, **limits),
        checkpoints=checkpoints,
        checkpoint_every=checkpoint_every,
        check=check,
    )
    threads, results = start_workers(server.address, protocol, throttle=throttle)
    run = server.run()
    on_end()
    for thread in threads:
        thread.join(10)
    return run, results


def replay(protocol, run):
    """The run of the engine on the record."""
    return engine.replay(
        setup(protocol).task, protocol, OPTIMIZER, run.schedule, rng_key=KEY, memberships=run.memberships
    )


def assert_kept_and_replayed(protocol, run):
    """The record keeps to its promise, if there is one, and its replay gives the same parameters and losses."""
    check_structure(run.schedule, protocol)
    if protocol.specification is not None:
        kept = protocols.check(run.schedule, protocol.specification(NUM_WORKERS))
        assert kept, str(kept)
    again = replay(protocol, run)
    chex.assert_trees_all_close(run.params, again.params, rtol=1e-9, atol=1e-12)
    chex.assert_trees_all_close(run.loss, again.info.loss[: len(run.loss)], rtol=1e-8)
