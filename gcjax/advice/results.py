"""What each scheme does with the blocks of a trace; programs are compiled and run while others are traced.

Letters: T steps, W workers.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.advice import evaluation, simulation
from gcjax.advice.base import Scheme
from gcjax.advice.evaluation import Ratios
from gcjax.progress import Progress
from gcjax.study.checks import scheme_name_in_errors
from gcjax.study.compiled_ahead import compiling_threads

_TRACING_FRACTION = 0.6  # of the whole, before the first result is waited for; nearly all with a short trace


class Sample(NamedTuple):
    """The blocks, and what each stretch of steps draws of them.

    Attributes:
      first_step_of_block: int64[blocks], the first step of each block.
      block_steps: their length.
      block_counts: float64[1 + bootstraps, blocks], how often each counts on the trace (first) and in a drawn stretch.
    """

    first_step_of_block: np.ndarray
    block_steps: int
    block_counts: np.ndarray


class Result(NamedTuple):
    """A scheme, what it computes, and its ratios on the trace and in each drawn stretch."""

    scheme: Scheme
    exactness: str
    ratios: Ratios
    max_staleness: float


def scheme_results(schemes: Sequence[Scheme], seconds: np.ndarray, sample: Sample, progress: Progress) -> list[Result]:
    """What the schemes do with a trace `float64[T, W]` of seconds, in their order.

    Raises:
      ValueError: if one cannot be scheduled; the error names it.
    """
    results = []
    with _results_under_way(schemes, seconds, sample, progress) as results_under_way:
        for index, (scheme, result) in enumerate(zip(schemes, results_under_way, strict=True)):
            fraction = _TRACING_FRACTION + (1 - _TRACING_FRACTION) * index / len(schemes)
            progress.update("simulating", fraction, scheme.label)  # one label: most schemes are done by now
            results.append(result.result())  # of a future: waits for it
    return results


@contextlib.contextmanager
def _results_under_way(
    schemes: Sequence[Scheme], seconds: np.ndarray, sample: Sample, progress: Progress
) -> Iterator[list[Future[Result]]]:
    """The result of each scheme, compiled and simulated on other threads; at the end no more are begun.

    A program is traced on this thread, whose settings of JAX it takes.
    """
    has_64_bits, results = jnp.result_type(float) == np.float64, []
    with compiling_threads("gcjax-advice") as threads:
        for index, scheme in enumerate(schemes):
            progress.update("compiling", _TRACING_FRACTION * index / len(schemes))
            with scheme_name_in_errors(scheme.label):
                program = simulation.lowered_program(
                    scheme, seconds.shape, sample.first_step_of_block, sample.block_steps
                )
            results.append(threads.submit(_result, scheme, program, seconds, sample, has_64_bits))
        yield results


def _result(
    scheme: Scheme, program: jax.stages.Lowered, seconds: np.ndarray, sample: Sample, has_64_bits: bool
) -> Result:
    """What a scheme, whose program is compiled first, does with the blocks of a trace `float64[T, W]`; on any thread.

    Raises:
      ValueError: if it commits nothing in them.
    """
    num_workers, block_steps = seconds.shape[1], sample.block_steps
    with scheme_name_in_errors(scheme.label), jax.enable_x64(has_64_bits):
        program.compile()
        sums = simulation.block_sums(scheme, seconds, sample.first_step_of_block, block_steps)  # float64[blocks] each
        if not sums.effective_steps.sum() > 0:
            raise ValueError(f"it makes no commit in blocks of {block_steps} steps. Take longer ones: block_steps=...")
        exactness = evaluation.exactness(
            scheme, num_workers, has_uneven_commits=lambda: simulation.has_uneven_commits(scheme, seconds, block_steps)
        )
        ratios = evaluation.ratios(sums, sample.block_counts, num_workers)
    return Result(scheme, exactness, ratios, float(sums.max_staleness.max()))
