"""What each scheme does with the blocks of a trace; programs are compiled while others are traced and run.

Letters: T steps, W workers.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from gcjax.advice import evaluation, simulation
from gcjax.advice.base import Scheme
from gcjax.advice.evaluation import Ratios
from gcjax.advice.labels import label
from gcjax.progress import Progress

_NUM_COMPILING = 2  # programs at a time, beside the thread that traces and runs
_COMPILING_FRACTION = 0.3  # of the whole, before the first scheme is run


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
    """What the schemes do with a trace `float64[T, W]`.

    Raises:
      ValueError: if one cannot be scheduled; the error names it.
    """
    results = []
    with _compilations(schemes, seconds.shape, sample, progress) as compilations:
        for index, (scheme, compilation) in enumerate(zip(schemes, compilations, strict=True)):
            fraction = _COMPILING_FRACTION + (1 - _COMPILING_FRACTION) * index / len(schemes)
            progress.update(label(scheme), fraction)
            compilation.result()  # waits for it
            with _errors_with_name(scheme):
                results.append(_simulated_result(scheme, seconds, sample))
    return results


@contextlib.contextmanager
def _compilations(
    schemes: Sequence[Scheme], trace_shape: tuple[int, ...], sample: Sample, progress: Progress
) -> Iterator[list[Future[Any]]]:
    """The compilation of each scheme's program, under way on other threads; at the end no more are begun.

    A program is traced on this thread, whose settings of JAX it takes.
    """
    pool = ThreadPoolExecutor(_NUM_COMPILING, thread_name_prefix="gcjax-advice-compile")
    try:
        compilations = []
        for index, scheme in enumerate(schemes):
            progress.update("compiling", _COMPILING_FRACTION * index / len(schemes))
            with _errors_with_name(scheme):
                program = simulation.lowered_program(
                    scheme, trace_shape, sample.first_step_of_block, sample.block_steps
                )
            compilations.append(pool.submit(program.compile))
        yield compilations
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _errors_with_name(scheme: Scheme) -> Iterator[None]:
    """Within this block a `ValueError` names the scheme."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"scheme '{label(scheme)}': {error}") from error


def _simulated_result(scheme: Scheme, seconds: np.ndarray, sample: Sample) -> Result:
    """What a scheme does with the blocks of a trace `float64[T, W]`.

    Raises:
      ValueError: if it commits nothing in them.
    """
    num_workers, block_steps = seconds.shape[1], sample.block_steps
    sums = simulation.block_sums(scheme, seconds, sample.first_step_of_block, block_steps)
    if not sums.effective_steps.sum() > 0:
        raise ValueError(f"it makes no commit in blocks of {block_steps} steps. Take longer ones: block_steps=...")
    exactness = evaluation.exactness(
        scheme, num_workers, has_uneven_commits=lambda: simulation.has_uneven_commits(scheme, seconds, block_steps)
    )
    ratios = evaluation.ratios(sums, sample.block_counts, num_workers)
    return Result(scheme, exactness, ratios, float(sums.max_staleness.max()))
