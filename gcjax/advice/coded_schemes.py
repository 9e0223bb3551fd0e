"""The codes that are tried on a trace; see `gcjax.advice.schemes`.

Letters: W workers, K chunks a worker, L blocks of the gradient, R holders of a chunk, s stragglers tolerated.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import codes, protocols
from gcjax.advice.base import Scheme
from gcjax.codes import assignments, stopping
from gcjax.protocols import Protocol

SchemeRow = tuple[str, str, Callable[[], Protocol | Scheme]]
"""The name of a scheme, its parameters as text, and a function that makes it."""


class SchemeInputs(NamedTuple):
    """What default parameters may depend on.

    Attributes:
      num_workers: W.
      worker_seconds: float64[W], the median step of each worker.
      median_seconds: the median of all steps of all workers.
      key: of random codes.
    """

    num_workers: int
    worker_seconds: np.ndarray
    median_seconds: float
    key: jax.Array


_MAX_JOINTLY_DECODED_WORKERS = 16
"""With more workers, systems to solve in every round would take most of the time of an advice."""

CodeRow = tuple[str, str, Callable[[], codes.GradientCode]]
"""The name of a code, its parameters as text, and a function that makes it."""


def coded_rows(inputs: SchemeInputs) -> Iterator[SchemeRow]:
    """(name, setting, function that makes the protocol) of rounds of all codes, and of codes across rounds."""
    num_workers, key, num_slow = inputs.num_workers, inputs.key, max(1, inputs.num_workers // 8)
    for name, setting, make_code in (*_codes_with_one_message(inputs), *_codes_with_short_or_several_messages(inputs)):
        yield name, setting, _protocol_maker(make_code)
    for num_stragglers, setting in enumerate(("s=0: shares by speed", "s=1")):
        yield "heterogeneous", setting, partial(_heterogeneous_protocol, inputs, num_stragglers)
    setting = "levels 2, 3" if num_workers <= _MAX_JOINTLY_DECODED_WORKERS else "levels 2, 3, each by itself"
    yield "coded_multi_message", setting, partial(_coded_multi_message_protocol, inputs)
    for name, setting, make_code in _approximate_codes(inputs):
        yield name, setting, _protocol_maker(make_code, stopping.fastest(num_workers - 1))
    setting = f"B=1, W=2, λ={num_slow}"  # of codes across rounds, by their paper's letters: burst, window, slow workers
    yield "sr_sgc", setting, lambda: protocols.sr_sgc(num_workers, burst=1, window=2, max_slow=num_slow, rng_key=key)
    yield (
        "pipelined_coded",
        "s=1",
        lambda: protocols.pipelined_coded(codes.cyclic_repetition(num_workers, num_stragglers=1, rng_key=key)),
    )
    yield "m_sgc", setting, lambda: protocols.m_sgc(num_workers, burst=1, window=2, max_slow=num_slow, rng_key=key)


def _protocol_maker(
    make_code: Callable[[], codes.GradientCode], stop: stopping.StoppingRule | None = None
) -> Callable[[], Protocol]:
    """A function that makes the protocol whose rounds use a code and end by `stop`; if None, when it is decodable."""
    return lambda: protocols.coded(make_code(), stop=stop)


def _heterogeneous_protocol(inputs: SchemeInputs, num_stragglers: int) -> Protocol:
    """Loads by speed, in eighths of a share (1/W of the data); a round waits for as many workers as always decode.

    Those are all that hold chunks but `num_stragglers`; a very slow worker may hold none.
    """
    # `worker_seconds`: float64[W], the median step of each; at least 1/1000 of the median of all, as 0 has no speed.
    speeds = (1 / np.maximum(inputs.worker_seconds, inputs.median_seconds * 1e-3)).tolist()
    code = codes.heterogeneous(
        speeds, num_chunks=8 * inputs.num_workers, num_stragglers=num_stragglers, rng_key=inputs.key
    )
    num_waited = int((code.assignment.loads > 0).sum()) - num_stragglers
    return protocols.coded(code, stop=stopping.fastest(num_waited)._replace(waits_for_exact_sum=True))


def _coded_multi_message_protocol(inputs: SchemeInputs) -> Protocol:
    """Messages of two levels; with many workers a round waits until those of one of them decode by themselves.

    A message of level l combines a worker's first l chunks; any W - l + 1 of one level decode. With few workers all
    messages decode together.
    """
    levels = (2, 3)
    code = codes.coded_multi_message(inputs.num_workers, levels=levels, rng_key=inputs.key)
    if inputs.num_workers <= _MAX_JOINTLY_DECODED_WORKERS:
        return protocols.coded(code)
    return protocols.coded(
        code, stop=stopping.StoppingRule(partial(first_level_seconds, levels), waits_for_exact_sum=True)
    )


def first_level_seconds(levels: tuple[int, ...], code: codes.GradientCode, finish: jax.Array) -> jax.Array:
    """float[]: the first time at which, for one of the levels l, all workers but l - 1 have done l chunks.

    Args:
      levels: the values of l.
      code: tells the number of workers.
      finish: float[W, K] seconds, when each chunk of each worker is done.
    """
    num_workers = code.assignment.num_workers
    return jnp.stack([jnp.sort(finish[:, level - 1])[num_workers - level] for level in levels]).min()


def _codes_with_one_message(inputs: SchemeInputs) -> list[CodeRow]:
    """(name, setting, maker) of codes with a message for all K chunks of a worker, which tolerate s = 1 straggler."""
    num_workers, key = inputs.num_workers, inputs.key
    return [
        ("cyclic_repetition", "s=1, K=2", lambda: codes.cyclic_repetition(num_workers, num_stragglers=1, rng_key=key)),
        ("fractional_repetition", "s=1, K=2", lambda: codes.fractional_repetition(num_workers, num_stragglers=1)),
        ("clustered", "2 of cyclic_repetition, s=1", lambda: codes.clustered(
            codes.cyclic_repetition(_half_of_workers(num_workers), num_stragglers=1, rng_key=key), num_clusters=2)),
        ("two_part", "3 chunks, 2 of them coded", lambda: codes.two_part(
            codes.cyclic_repetition(num_workers, num_stragglers=1, rng_key=key), num_uncoded=1)),
    ]  # fmt: skip


def _codes_with_short_or_several_messages(inputs: SchemeInputs) -> list[CodeRow]:
    """(name, setting, maker) of codes with shorter messages (of d/L numbers), or several, or of partial work.

    K chunks a worker, s stragglers tolerated; partial work is what slow workers have done so far.
    """
    num_workers, key = inputs.num_workers, inputs.key
    return [
        ("communication_efficient", "s=1, L=2, K=3", lambda: codes.communication_efficient(
            num_workers, num_stragglers=1, num_blocks=2, rng_key=key)),
        ("partial", "L=1, K=2", lambda: codes.partial(assignments.cyclic(num_workers, load=2))),
        ("partial", "L=2, K=3", lambda: codes.partial(
            assignments.cyclic(num_workers, load=3), num_blocks=2, rng_key=key)),
        ("multi_message", "K=2", lambda: codes.multi_message(assignments.cyclic(num_workers, load=2))),
    ]  # fmt: skip


def _approximate_codes(inputs: SchemeInputs) -> list[CodeRow]:
    """(name, setting, maker) of codes whose rounds end when all workers but one have done their load.

    K chunks a worker, R holders of a chunk, s stragglers tolerated.
    """
    num_workers, key = inputs.num_workers, inputs.key
    whole_workers = codes.whole_workers
    return [
        ("one_step", "K=2, W-1 waited", lambda: whole_workers(
            codes.one_step(assignments.cyclic(num_workers, load=2)))),
        ("optimal_decoding", "K=2, W-1 waited", lambda: whole_workers(
            codes.optimal_decoding(assignments.cyclic(num_workers, load=2)))),
        ("graph_code", "R=4, W-1 waited", lambda: codes.graph_code(num_workers, replication=4, rng_key=key)),
        ("bibd", "K=3, W-1 waited", lambda: codes.bibd(num_workers, load=3)),
        ("batch_raptor", "s=1, W-1 waited", lambda: codes.batch_raptor(
            num_workers, num_chunks=2 * num_workers, num_stragglers=1, error=0.05, rng_key=key)),
    ]  # fmt: skip


def _half_of_workers(num_workers: int) -> int:
    """Half of the workers; a `ValueError` if they cannot be halved, or their halves are too small for a code."""
    if num_workers % 2 or num_workers < 6:
        raise ValueError(f"two clusters of three workers or more need an even number of workers; got {num_workers}.")
    return num_workers // 2
