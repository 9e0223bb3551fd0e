"""The benchmark of the parameter server: who pushes what, and what answers."""

import threading

import numpy as np
import pytest

from benchmarks import server as benchmark
from gcjax.parameter_server import Limits, Server


def test_pushers_push_until_the_run_is_done():
    server = Server(benchmark.setup_of(50, benchmark.NUM_PUSHERS), Limits(30, seconds=30.0))
    counts = []
    threads = [
        threading.Thread(target=lambda worker=w: counts.append(benchmark.pusher(50, server.address, worker)))
        for w in range(benchmark.NUM_PUSHERS)
    ]
    for thread in threads:
        thread.start()
    run = server.run()
    for thread in threads:
        thread.join(10)
    assert len(run.loss) == 30 and sum(counts) >= 30 and len(run.service_seconds) == 30
    np.testing.assert_array_equal(run.params, np.ones(50, np.float32))  # the gradients pushed are 0


def test_the_echo_answers_with_as_many_bytes():
    server = benchmark.Echo("grpc://127.0.0.1:0")
    begin, end = benchmark.echo_client(50, f"grpc://127.0.0.1:{server.port}", 3)
    server.shutdown()
    assert end > begin


@pytest.mark.slow
def test_many_workers_push_from_few_processes():
    (row,) = benchmark.many_workers(num_workers=6, num_processes=2)
    assert float(row.value) > 0 and "6 workers" in row.what
