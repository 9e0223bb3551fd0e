"""What is computed from measured traces, which are in files that this repository does not have.

Whoever has them gives their paths; what is written names files without folders, by their names and digests.

Letters: T steps, W workers.
"""

import json
import multiprocessing
import shlex
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import traces
from experiments.paper import provenance
from gcjax import advice, files
from gcjax.advice.blocks import MIN_STEPS, default_block_steps, step_seconds
from gcjax.stragglers import describe, fit, markov, read_trace, shifted_exponential
from gcjax.stragglers.traces.base import Trace

MEASURED = ("traces",)
"""Names of what needs files."""
SEED = 0

Facts = dict[str, Any]


class Size(NamedTuple):
    """How much is computed.

    Attributes:
      schemes: names of protocols and codes; None for all that need no task.
      num_bootstraps: of all advice.
      synthetic: traces, steps of each, workers, of each stationary model.
    """

    schemes: tuple[str, ...] | None
    num_bootstraps: int
    synthetic: tuple[int, int, int]


SIZES = {
    "full": Size(schemes=None, num_bootstraps=100, synthetic=(40, 1024, 8)),
    "quick": Size(("bsp", "k_sync", "asp", "fractional_repetition"), num_bootstraps=20, synthetic=(2, 128, 4)),
}
SYNTHETIC_SCHEMES = ("bsp", "k_sync", "fractional_repetition")


def ensure(name: str, paths: Mapping[str, str], runs: Path, mode: str) -> Path:
    """Computes what is said of measured traces, if it is not there for the same files.

    Args:
      name: of `MEASURED`.
      paths: job -> file.
      runs: the folder of all runs of the manuscript.
      mode: full or quick.

    Returns:
      The file: `provenance`, as of a run, with the names and digests of the files, and `result`.
    """
    result_file = runs / mode / f"{name}.result.json"
    command = _command(name, paths, mode)
    digests = {job: files.sha256(Path(file)) for job, file in paths.items()}
    if result_file.exists():
        old_provenance = json.loads(result_file.read_text())["provenance"]
        if (old_provenance["command"], old_provenance["files"]) == (command, digests):
            return result_file
    with provenance.record(command, mode) as provenance_of_result:
        result = results(paths, SIZES[mode])
    provenance_of_result |= {"seed": SEED, "files": digests}
    result_file.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(result_file, json.dumps({"provenance": provenance_of_result, "result": result}, indent=2) + "\n")
    return result_file


def _command(name: str, paths: Mapping[str, str], mode: str) -> str:
    """The command, with files without their folders."""
    job_files = [f"{job}={Path(file).name}" for job, file in paths.items()]
    quick_option = ["--quick"] if mode == "quick" else []
    return shlex.join(
        ["python", "-m", "experiments.paper", "--only", name, "--write", *quick_option, "--traces", *job_files]
    )


def results(paths: Mapping[str, str], size: Size) -> Facts:
    """What is said of each job (name -> file), and how often intervals cover on traces of stationary models.

    Each is computed in a process of its own.
    """
    spawn_context = multiprocessing.get_context("spawn")  # JAX has threads
    with ProcessPoolExecutor(len(paths) + 2, mp_context=spawn_context) as pool:
        job_futures = [pool.submit(of_file, job, file, size) for job, file in paths.items()]
        synthetic_futures = {name: pool.submit(of_stationary, name, size) for name in ("independent", "spells")}
    return {
        "jobs": [job.result() for job in job_futures],
        "synthetic": {name: coverage_future.result() for name, coverage_future in synthetic_futures.items()},
        "synthetic_traces": size.synthetic[0],
        "synthetic_steps": size.synthetic[1] // 2,  # of a half, which is what is advised on
        "num_bootstraps": size.num_bootstraps,
    }


def of_stationary(name: str, size: Size) -> tuple[int, int]:
    """How many intervals of first halves cover the second ones, and of how many, on traces of a stationary model."""
    models = {
        "independent": shifted_exponential(shift=1.0, mean=0.3),
        "spells": markov(base=1.0, slowdown=3.0, probability=0.1, persistence=0.9),
    }
    is_covered = traces.synthetic_coverage(
        models[name], size.synthetic, SYNTHETIC_SCHEMES, num_bootstraps=size.num_bootstraps, seed=SEED
    )
    return sum(is_covered), len(is_covered)


def of_file(job: str, file: str, size: Size) -> Facts:
    """What is said of the job in a file."""
    return of_job(job, read_trace(file), size)


def of_job(job: str, trace: Trace, size: Size) -> Facts:
    """What is said of one job: described, fitted, and if it is long enough advised on its first half."""
    seconds, _ = step_seconds(trace)  # float64[T, W], gaps filled
    num_steps, num_workers = seconds.shape
    has_halves = num_steps // 2 >= MIN_STEPS
    return {
        "job": job,
        "steps": num_steps,
        "workers": num_workers,
        **_description_facts(trace),
        **_fit_facts(trace),
        "halves": _halves_facts(seconds, size) if has_halves else None,
    }


def _halves_facts(seconds: np.ndarray, size: Size) -> Facts:
    """What is said of the times `float64[T, W]`: advised on the first half, and judged by the second."""
    first_half = seconds[: len(seconds) // 2]
    schemes, _ = advice.default_schemes(first_half, names=size.schemes)
    advice_of_halves = traces.halves(seconds, schemes, num_bootstraps=size.num_bootstraps, seed=SEED)
    is_covered = traces.coverage(advice_of_halves.first, traces.won_back(advice_of_halves.second))
    return {
        "schemes": len(schemes),
        "block_steps": default_block_steps(first_half),
        "costs": {name: advised.cost._asdict() for name, advised in advice_of_halves._asdict().items()},
        "chosen": _choices(advice_of_halves),
        "model_error": traces.model_error(advice_of_halves),
        # Schemes whose interval has the value of the second half, of how many.
        "covered": [sum(is_covered), len(is_covered)],
    }


def _description_facts(trace: Trace) -> Facts:
    """The figures of `gcjax trace describe`: what sort of slowness, slowdown, probabilities, shares of lost time."""
    description = describe(trace)
    statistics, slowdown, parts = description.statistics, description.slowdown, description.decomposition
    return {
        "kind": description.verdict.kind,
        "sentence": description.sentence,
        "slowdown": slowdown.total_ratio,
        "explained": slowdown.share_of_slowest,
        "slow": statistics.slow_probability,
        "slow_again": statistics.slow_again_probability,
        "tail": statistics.tail_over_median[1],  # the 99th percentile
        "correlation": statistics.correlation,
        "persistent": parts.spell_share,
        "shared": parts.shared_share,
        "passing": parts.passing_share,
        "changes": len(description.changes),
    }


def _fit_facts(trace: Trace) -> Facts:
    """The ranking of `gcjax trace fit`: models, the best first, by how much that is better, in nats a step and worker.

    `held_out`: the steps by which they are ranked.
    """
    fits = fit(trace, num_simulated_models=0, seed=SEED)
    ranking = [
        {
            "model": model_fit.name,
            "behind": model_fit.score_behind_best.mean if model_fit.score_behind_best else 0.0,
            "is_behind": model_fit.is_surely_behind,
        }
        for model_fit in fits.duration_fits
    ]
    return {"ranking": ranking, "held_out": fits.num_held_out_steps}


def _choices(advice_of_halves: traces.Half) -> Facts:
    """What is chosen on the first half and by the model, among all schemes and among those of the same gradient."""
    advice_of_source = {"trace": advice_of_halves.first, "model": advice_of_halves.model}
    same_gradient_of_kind = {"all": False, "same": True}
    return {
        f"{source}_{kind}": traces.choice(advised, advice_of_halves.second, same_gradient=same_gradient)._asdict()
        for source, advised in advice_of_source.items()
        for kind, same_gradient in same_gradient_of_kind.items()
    }
