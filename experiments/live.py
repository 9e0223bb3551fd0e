"""Live deadlines against the uncoded synchronous step: several processes, one of them slow, on the real clock.

    python -m experiments.live                  # starts four processes on this machine and prints the table
    gcjax run configs/live.gin --distributed    # in each process, where something else starts them

Several processes on two cores would slow each other down, so a worker is paced: a chunk takes `pace` seconds at
least, times the slowdown that the worker has in that round. That stands for devices of that speed. All else is real:
the clocks, the deadlines, the messages, the training, the signals that stop a process.
"""

import argparse
import contextlib
import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from experiments import finished_rows
from experiments.pause_process import interrupted
from gcjax import _validate, analysis, codes, config, engine, files, processes, protocols, register, stragglers, tasks
from gcjax.engine import live as runtime
from gcjax.progress import Progress
from gcjax.tables import RichTable, markdown_table

SLOW = 1  # the worker that is slow, or is stopped
HEADS = (
    "scheme", "who is slow", "round", "ratio", "replayed", "longest", "all rounds", "exact", "train loss", "accuracy",
)  # fmt: skip


class Scheme(NamedTuple):
    """A way to train: which chunks a worker computes, and when a round stops."""

    code: codes.GradientCode
    deadline: runtime.DeadlineRule


class Scenario(NamedTuple):
    """Who is slow.

    Attributes:
      slowdown: `(worker, round) -> times` that a chunk takes longer.
      interrupted: a context in which worker SLOW trains: one of `experiments.pause_process`, or one that does nothing.
    """

    slowdown: Callable[[int, int], float]
    interrupted: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


class Case(NamedTuple):
    """A scheme in a scenario, and what it learns."""

    scheme_name: str
    scheme: Scheme
    scenario_name: str
    scenario: Scenario
    task: tasks.Task

    @property
    def file_name(self) -> str:
        """Without the ending."""
        return f"{self.scheme_name}-{self.scenario_name.replace(' ', '-')}"


@register("experiment")
def live(
    *,
    deadline: runtime.DeadlineRule,
    optimizer: optax.GradientTransformation,
    load: int = 8,
    replication: int = 2,
    num_blocks: int = 1,
    num_rounds: int = 40,
    pace: float = 0.025,
    slowdown: float = 3.0,
    stop_seconds: float = 2.0,
    batch_size: int = 32,
    seed: int = 0,
    checkpoint_every: int = 10,
    checkpoints_kept: int = 2,
    out: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Trains on the digits with and without a code, with nobody slow, or one worker in one of several ways.

    Without a code all wait for everybody's whole load. Under both schemes a worker computes as many chunk gradients a
    round, of batches of the same size; with the code each chunk is computed `replication` times. The folder:
    `operative.gin`, `live.json`, `summary.md`, and the chunk times of each run as `SCHEME-SCENARIO.csv`, which
    `gcjax.stragglers.replay` takes; and `checkpoints` until all of these are written. If there are checkpoints in it
    already, runs that are done are not repeated, and the one that was cut off goes on; in that one, a worker that is
    stopped once may be stopped once more.

    Args:
      deadline: when a coded round stops.
      optimizer: of both schemes.
      load: K, the chunks of each worker.
      replication: the workers that hold a chunk under the code.
      num_blocks: L.
      num_rounds: of each run.
      pace: seconds that a chunk takes at least on a worker that is not slow.
      slowdown: of the slow one.
      stop_seconds: how long a worker is stopped once. In another scenario it is stopped and continued all the time,
        twice a chunk, so that it is that much slower without anything in the program that knows.
      batch_size: examples of a chunk's batch.
      seed: of all randomness.
      checkpoint_every: rounds from one checkpoint to the next.
      checkpoints_kept: the checkpoints kept of a run.
      out: the folder to write; empty, or with the checkpoints of this experiment. All processes must see it.
      progress: tells a person how far it is.

    Returns:
      A row for each run.

    Raises:
      ValueError: if the checkpoints are of another config or number of processes, or a process does not see them.
    """
    num_workers, rng_key = jax.process_count(), config.key(seed=seed)
    hint = "Start it with python -m experiments.live."
    _validate.integer("the number of processes", num_workers, minimum=2, hint=hint)
    coded = codes.partial(shifted(num_workers, load, replication), num_blocks=num_blocks, rng_key=rng_key)
    uncoded = Scheme(codes.uncoded(num_workers, load=load), runtime.whole_load())
    all_scenarios = scenarios(num_workers, num_rounds, pace, slowdown, stop_seconds)
    train = partial(_train, pace=pace, optimizer=optimizer, rng_key=rng_key, num_rounds=num_rounds)
    checkpoints = partial(engine.Checkpoints, every=checkpoint_every, keep=checkpoints_kept)
    rows: list[dict[str, Any]] = []
    for name, scheme in {"uncoded": uncoded, "coded": Scheme(coded, deadline)}.items():
        task = tasks.digits(scheme.code.assignment.num_chunks, batch_size=batch_size)
        for label, scenario in all_scenarios.items():
            progress.update(f"{name}, {label}", len(rows) / (2 * len(all_scenarios)))
            case = Case(scheme_name=name, scheme=scheme, scenario_name=label, scenario=scenario, task=task)
            rows.append(_stored_or_trained(case, train, checkpoints, out, progress))
    _write(out, rows, progress)
    if processes.is_first():
        analysis.drop_checkpoints(out)
    return rows


def _stored_or_trained(
    case: Case, train: Callable[..., runtime.CodedRun], checkpoints: Callable[..., engine.Checkpoints], out: Path,
    progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """The row of a case: of the run that is done, or else of a new one, whose chunk times and row are written.

    `train`: `(case, checkpoints, identity) -> run`; `checkpoints`: `(folder, label) -> where a run is kept`.
    """
    checkpoint_folder, label = out / analysis.CHECKPOINTS, f"{case.scheme_name}, {case.scenario_name}"
    identity = f"{config.text()}\nscheme = {label}, {jax.process_count()} processes"
    row_file = checkpoint_folder / f"{case.file_name}.json"
    row = finished_rows.stored_row(row_file, identity)
    if row is None:
        run_folder = checkpoint_folder / analysis.file_name(case.scheme_name) / analysis.file_name(case.scenario_name)
        run = train(case, checkpoints(run_folder, label=label), identity)
        if processes.is_first():
            with files.atomic_write(out / f"{case.file_name}.csv") as trace_file:
                stragglers.write_trace(trace_file, run.rounds.trace)
        progress.show(f"{label}: {runtime.slow_text(runtime.slow_spells(run.rounds.chunk_seconds))}")
        row = _row_of_run(case, run)
        finished_rows.write_row(row_file, row, identity)
    return row


def _train(
    case: Case, checkpoints: engine.Checkpoints, identity: str, *, pace: float, **options: Any
) -> runtime.CodedRun:
    """Trains one scheme in one scenario on the real clock; `options` are those of `runtime.train`.

    `pace`: seconds that a chunk takes at least on a worker that is not slow; `identity`: what the run depends on.
    """
    with checkpoints, contextlib.ExitStack() as stack:
        return runtime.train(
            case.task,
            case.scheme.code,
            deadline=case.scheme.deadline,
            throttle=lambda worker, round: pace * case.scenario.slowdown(worker, round),
            on_round=partial(_interrupt_after_first_round, case.scenario, stack, itertools.count()),
            checkpoints=checkpoints,
            identity=identity,
            **options,
        )


def _interrupt_after_first_round(
    scenario: Scenario, stack: contextlib.ExitStack, calls: Iterator[int], *round_facts: Any
) -> None:
    """Begins the scenario's interruptions, which end with `stack`, after the first round, when all is compiled.

    Called after each round, in all processes; does something in the one that is slow. `calls` counts the rounds.
    """
    del round_facts
    is_first_round = next(calls) == 0
    if is_first_round and jax.process_index() == SLOW:
        stack.enter_context(scenario.interrupted())


def shifted(num_workers: int, load: int, replication: int) -> codes.Assignment:
    """Chunks in groups of K/R, one group a worker; worker w holds the groups w, w-1, ..., w-R+1. N = W·K/R.

    Args:
      num_workers: W.
      load: K.
      replication: R, at most W.

    Raises:
      ValueError: if R does not divide K.
    """
    replication = _validate.integer("replication", replication, minimum=1, maximum=num_workers)
    if load % replication:
        raise ValueError(f"replication must divide load; got replication={replication}, load={load}.")
    group_of_chunk = np.repeat(np.arange(num_workers), load // replication)[:, None]  # [N, 1]
    workers_after_group = (np.arange(num_workers) - group_of_chunk) % num_workers  # [N, W], around
    is_held_by_worker = workers_after_group < replication  # [N, W]
    return codes.assignments.order_chunks(codes.assignments.from_matrix(is_held_by_worker.astype(int)))


def scenarios(num_workers: int, num_rounds: int, pace: float, slowdown: float, stop: float) -> dict[str, Scenario]:
    """Name -> scenario: who is slow when, by what factor, or who is stopped.

    Args:
      num_workers: W.
      num_rounds: of a run.
      pace: seconds that a chunk takes at least.
      slowdown: the factor on the time of a slow worker's chunk.
      stop: seconds for which a process is stopped.
    """
    rounds_per_slow_worker = max(1, num_rounds // (2 * num_workers))  # then it is the turn of the next one
    # To the end of the run: a chunk runs for `pace` seconds in two parts, and is stopped `slowdown` - 1 times as long.
    twice_a_chunk = partial(interrupted, stopped=pace * (slowdown - 1) / 2, running=pace / 2, times=10**9)
    once = partial(interrupted, stopped=stop, running=stop, times=1)

    def nobody_slow(worker: int, round: int) -> float:
        del worker, round
        return 1.0

    def one_slow(worker: int, round: int) -> float:
        del round
        return slowdown if worker == SLOW else 1.0

    def slow_one_changes(worker: int, round: int) -> float:
        slow_worker = round // rounds_per_slow_worker % num_workers
        return slowdown if worker == slow_worker else 1.0

    return {
        "nobody slow": Scenario(nobody_slow),
        "one slow": Scenario(one_slow),
        "slow one changes": Scenario(slow_one_changes),
        "one interrupted": Scenario(nobody_slow, twice_a_chunk),
        f"one stopped {stop:g} s": Scenario(nobody_slow, once),
    }


def _row_of_run(case: Case, run: runtime.CodedRun) -> dict[str, Any]:
    """What one live run took and reached, by column; seconds of its rounds are those of the calling process.

    `round_seconds` is the median; `replayed_round` what a simulation of the recorded chunk times says instead.
    """
    rounds = run.rounds
    is_exact = rounds.residual <= 1e-3  # bool[rounds], up to rounding
    final_metrics = case.task.metrics(run.params, case.task.data)
    return {
        "scheme": case.scheme_name,
        "scenario": case.scenario_name,
        "round_seconds": float(np.median(rounds.seconds)),
        "longest_round": float(rounds.seconds.max()),
        "all_rounds": float(rounds.seconds.sum()),
        "replayed_round": _simulated_round_seconds(run, case.scheme.code),
        "extensions": int(rounds.extensions.sum()),
        "exact_rounds": int(is_exact.sum()),
        "num_rounds": len(rounds.seconds),
        **{name: float(value) for name, value in final_metrics.items()},
    }


def _simulated_round_seconds(run: runtime.CodedRun, code: codes.GradientCode) -> float:
    """The median seconds of a round that the simulator predicts, without messages, for the recorded chunk times.

    All its rounds stop at the median deadline of the run; without one (inf) they wait for all workers.
    """
    trace, deadline = run.rounds.trace, float(np.median(run.rounds.deadline))  # [units, W]; seconds
    stop = codes.stopping.deadline(deadline) if np.isfinite(deadline) else codes.stopping.all_workers()
    replayed = stragglers.replay(trace=trace, start="recorded")
    durations = stragglers.sample_durations(replayed, jax.random.key(0), len(trace), code.assignment.num_workers)
    commit_times = np.asarray(protocols.coded(code, stop=stop)(durations).time)
    return float(np.median(np.diff(commit_times)))


def _write(out: Path, rows: list[dict[str, Any]], progress: Progress) -> None:
    """Writes the config, the rows and the page to the folder `out`, in process 0, and shows the table."""
    if processes.is_first():
        files.write_text(out / "operative.gin", config.operative())
        files.write_text(out / "live.json", json.dumps(rows, indent=2) + "\n")
        page_head = f"# Live deadlines\n\nMedian of {rows[0]['num_rounds']} rounds.\n\n"
        files.write_text(out / "summary.md", page_head + markdown_table(HEADS, _cells(rows), num_key_columns=2) + "\n")
    progress.show(table(rows))


def table(rows: list[dict[str, Any]]) -> RichTable:
    """The rows for a person; the ratio is that of round times, to the same scheme with nobody slow."""
    return RichTable(f"median of {rows[0]['num_rounds']} rounds", HEADS, _cells(rows), num_key_columns=2)


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The text of each row, by HEADS; the ratio is that of round times, to the same scheme with nobody slow."""
    rows_with_nobody_slow = [row for row in rows if row["scenario"] == "nobody slow"]
    normal_seconds = {row["scheme"]: row["round_seconds"] for row in reversed(rows_with_nobody_slow)}
    lines = []
    for row in rows:
        ratio = row["round_seconds"] / normal_seconds[row["scheme"]]
        number_cells = [
            f"{1000 * row['round_seconds']:.0f} ms",
            f"{ratio:.2f}",
            f"{1000 * row['replayed_round']:.0f} ms",
            f"{row['longest_round']:.2f} s",
            f"{row['all_rounds']:.1f} s",
            f"{row['exact_rounds']}/{row['num_rounds']}",
            f"{row['train_loss']:.4f}",
            f"{row['accuracy']:.3f}",
        ]
        lines.append([row["scheme"], row["scenario"], *number_cells])
    return lines


def start(arguments: list[str], num_processes: int) -> int:
    """Starts `gcjax run` in several processes on this machine, and returns the largest of their statuses.

    That of a process that a signal has ended is 128 more than the signal, as in a shell.

    None of them is left behind, whatever happens.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "gcjax", "run", *arguments, "--distributed", "--coordinator", free_address]
    command += ["--num-processes", str(num_processes)]
    # JAX would look at all of a machine's accelerators from each process; the processes are to be workers on its cores.
    environment = {"JAX_PLATFORMS": "cpu", **os.environ, "GCJAX_SECRET": secrets.token_hex()}
    launch = partial(subprocess.Popen, env=environment)
    children = [launch([*command, "--process-id", str(i)]) for i in range(num_processes)]
    try:
        statuses = [child.wait() for child in children]
        return max(status if status >= 0 else 128 - status for status in statuses)
    finally:
        for child in children:
            child.kill()
            child.wait()


def main() -> int:
    """Starts the processes; arguments that it does not know go to `gcjax run`."""
    parser = argparse.ArgumentParser(description=start.__doc__, epilog="Other arguments are those of gcjax run.")
    parser.add_argument("--num-processes", type=int, default=4, metavar="N")
    parser.add_argument("--config", default="configs/live.gin", metavar="CONFIG")
    options, run_arguments = parser.parse_known_args()
    return start([options.config, *run_arguments], options.num_processes)


if __name__ == "__main__":
    sys.exit(main())
