"""What is computed from measured traces, which are in files that this repository does not have.

Whoever has them gives their paths; what is written names files without folders, by their names and digests.

Letters: T steps, W workers.
"""

import hashlib
import json
import multiprocessing
import shlex
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from experiments import traces
from experiments.paper import provenance
from gcjax import advice, files
from gcjax.advice.blocks import default_block_steps, step_seconds
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
    "full": Size(None, 100, (40, 1024, 8)),
    "quick": Size(("bsp", "k_sync", "asp", "fractional_repetition"), 20, (2, 128, 4)),
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
    path = runs / mode / f"{name}.result.json"
    command = _command(name, paths, mode)
    digests = {job: hashlib.sha256(Path(file).read_bytes()).hexdigest() for job, file in paths.items()}
    if path.exists():
        old = json.loads(path.read_text())["provenance"]
        if (old["command"], old["files"]) == (command, digests):
            return path
    with provenance.record(command, mode) as facts:
        result = results(paths, SIZES[mode])
    facts |= {"seed": SEED, "files": digests}
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps({"provenance": facts, "result": result}, indent=2) + "\n")
    return path


def _command(name: str, paths: Mapping[str, str], mode: str) -> str:
    """The command, with files without their folders."""
    words = [f"{job}={Path(file).name}" for job, file in paths.items()]
    quick = ["--quick"] if mode == "quick" else []
    return shlex.join(["python", "-m", "experiments.paper", "--only", name, "--write", *quick, "--traces", *words])


def results(paths: Mapping[str, str], size: Size) -> Facts:
    """What is said of each job (name -> file), and how often intervals cover on traces of stationary models.

    Each is computed in a process of its own.
    """
    spawning = multiprocessing.get_context("spawn")  # JAX has threads
    with ProcessPoolExecutor(len(paths) + 2, mp_context=spawning) as pool:
        jobs = [pool.submit(of_file, job, file, size) for job, file in paths.items()]
        synthetic = {name: pool.submit(of_stationary, name, size) for name in ("independent", "spells")}
    return {
        "jobs": [job.result() for job in jobs],
        "synthetic": {name: covered.result() for name, covered in synthetic.items()},
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
    covered = traces.synthetic_coverage(
        models[name], size.synthetic, SYNTHETIC_SCHEMES, num_bootstraps=size.num_bootstraps, seed=SEED
    )
    return sum(covered), len(covered)


def of_file(job: str, file: str, size: Size) -> Facts:
    """What is said of the job in a file."""
    return of_job(job, read_trace(file), size)


def of_job(job: str, trace: Trace, size: Size) -> Facts:
    """What is said of one job: described, fitted, advised on its first half and judged by its second."""
    seconds, _ = step_seconds(trace)  # float64[T, W], gaps filled
    num_steps, num_workers = seconds.shape
    schemes, _ = advice.default_schemes(seconds[: num_steps // 2], names=size.schemes)
    half = traces.halves(seconds, schemes, num_bootstraps=size.num_bootstraps, seed=SEED)
    covered = traces.coverage(half.first, traces.won_back(half.second))
    return {
        "job": job,
        "steps": num_steps,
        "workers": num_workers,
        **_described(trace),
        **_fitted(trace),
        "schemes": len(schemes),
        "block_steps": default_block_steps(seconds[: num_steps // 2]),
        "costs": {name: advised.cost._asdict() for name, advised in half._asdict().items()},
        "chosen": _choices(half),
        "model_error": traces.model_error(half),
        "covered": [sum(covered), len(covered)],  # schemes whose interval has the value of the second half, of how many
    }


def _described(trace: Trace) -> Facts:
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
        "persistent": parts.persistent_share,
        "shared": parts.shared_share,
        "passing": parts.passing_share,
        "changes": len(description.changes),
    }


def _fitted(trace: Trace) -> Facts:
    """The ranking of `gcjax trace fit`: models, the best first, by how much that is better, in nats a step and worker.

    `held_out`: the steps by which they are ranked.
    """
    fits = fit(trace, num_simulated_models=0, seed=SEED)
    ranking = [
        {
            "model": one.name,
            "behind": one.score_behind_best.mean if one.score_behind_best else 0.0,
            "is_behind": one.is_surely_behind,
        }
        for one in fits.duration_fits
    ]
    return {"ranking": ranking, "held_out": fits.num_held_out_steps}


def _choices(half: traces.Half) -> Facts:
    """What is chosen on the first half and by the model, among all schemes and among those of the same gradient."""
    chosen_on = {"trace": half.first, "model": half.model}
    kinds = {"all": False, "same": True}
    return {
        f"{source}_{kind}": traces.choice(advised, half.second, same_gradient=same)._asdict()
        for source, advised in chosen_on.items()
        for kind, same in kinds.items()
    }
