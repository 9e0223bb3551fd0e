"""Protocols on the real clock: a parameter server and its workers, of which one is slow, is stopped, or is killed.

    gcjax run configs/live/protocols.gin                         # a server and four workers on this machine
    python -m experiments.live_protocols                         # the same
    gcjax run configs/live/protocols.gin --distributed --coordinator HOST:PORT --num-processes 5 --process-id I

With --distributed process 0 serves and each of the others is a worker.

Several processes on two cores would slow each other down, so a worker is paced: a unit takes so many seconds at least,
which stands for devices of that speed. All else is real: the clocks, the messages, the training, the signals.
"""

import contextlib
import math
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import optax

from experiments import live_members
from experiments.live_members import KILL, STOP, Case, Place, Scenario
from experiments.live_records import Records, verdict
from experiments.live_rows import Measured, Options, measured_row, predicted_row
from gcjax import _validate, analysis, config, files, parameter_server, processes, protocols, register
from gcjax._cores import num_cores
from gcjax.parameter_server import Limits, LiveRun
from gcjax.progress import Progress
from gcjax.tables import RichTable, markdown_table
from gcjax.tasks import Task

SCENARIOS = {
    "nobody slow": Scenario(),
    "one slow": Scenario(slowdown=3.0),
    "one stopped": Scenario(event=STOP),
    "one killed": Scenario(event=KILL),
}
HEADS = (
    "what happens", "scheme", "commits", "time to {target:g}", "predicted", "error of commit times", "promise",
    "replay differs by", "left", "load",
)  # fmt: skip
NOTES = """\
- Seconds on the clock from the moment that all begin to {metric} {target:g}; a dash: not within {seconds:g} s. It is
  that of the commit at which a replay of the record gets there. `predicted`: what the simulator says, from the
  durations, messages and service times measured under {calibrated_by} where the same happens. A worker that has left
  there is away at the same seconds; workers that compute while they send, and schemes that look at the loss, are not
  predicted then.
- The error of commit times is that of the prediction, in percent of the measured time: the mean over all commits but
  the first five, ± their standard deviation.
- Promise: whether the record keeps to the protocol's specification; a dash: it does not say what it promises if workers
  leave. Replay, in the type of the run: the largest difference of a parameter
  between the server and the engine on the record, over the largest parameter.
- Load: processes that wanted a core in the last minute, of {cores} cores. Units are paced to {pace:g} s.
"""


@register("experiment")
def live_protocols(
    schemes: Mapping[str, protocols.Protocol],
    *,
    task: Task,
    optimizer: optax.GradientTransformation,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    calibrated_by: str = "ASP",
    num_workers: int = 4,
    target: float = 0.95,
    metric: str = "accuracy",
    seconds: float = 5.0,
    num_commits: int = 5000,
    pace: float = 0.02,
    stop_seconds: float = 2.0,
    lease: float = 5.0,
    patience: float = 120.0,
    check: bool = False,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Trains under each scheme in each scenario, with a parameter server and workers that are processes.

    The folder: `results.parquet` (a row for each run), `timeline.parquet` and `commits.parquet` (who did what when),
    `summary.md`, `run.json` and `operative.gin`.

    Args:
      schemes: name -> protocol, each with a rule.
      task: what is trained.
      optimizer: of all schemes.
      scenarios: what happens; names of `SCENARIOS`.
      calibrated_by: the scheme whose run in a scenario gives what the others' times are predicted from.
      num_workers: W.
      target: the value of the metric that is to be reached.
      metric: of the task.
      seconds: of each run, from the moment that all begin.
      num_commits: after which a run ends, too.
      pace: seconds that a unit takes at least.
      stop_seconds: how long a worker is stopped.
      lease: seconds for which a worker of which nothing is heard still takes part.
      patience: seconds for which workers and server wait for each other.
      check: whether each run is held against what its protocol promises while it goes on, and ends with the event that
        violates it.
      seed: of all randomness.
      out: the folder to write.
      progress: tells a person how far it is.

    Returns:
      A row for each run; none in a process that works.

    Raises:
      ValueError: if the calibrating scheme is none of them, or there is no such scenario, or processes are too few.
    """
    _validate.choice("calibrated_by", calibrated_by, schemes)
    _validate.single_number("patience", patience)
    goal = analysis.target(metric, target, jax.eval_shape(task.metrics, jax.eval_shape(task.init, jax.random.key(0)),
                           task.data))  # fmt: skip
    names = [calibrated_by, *(name for name in schemes if name != calibrated_by)]  # whose run predicts the others'
    cases = [
        _case(
            name, schemes[name], _validate.choice("scenario", scenario, SCENARIOS), task, optimizer, num_workers, seed
        )
        for scenario in scenarios
        for name in names
    ]
    options = Options(goal, seconds, lease, patience, num_commits, calibrated_by, pace, check)
    worker = live_members.place()
    if worker is not None:
        live_members.take_part(cases, worker, pace=pace, stop_seconds=stop_seconds)
        return []
    with _workers(num_workers, patience) as server_place:
        if server_place is None:
            return []
        records = Records()
        rows = list(_served(cases, server_place, options, records, progress))
    records.write(out)
    _write(out, rows, options, progress, stop_seconds, records)
    return rows


def _case(
    scheme_name: str, protocol: protocols.Protocol, scenario_name: str, task: Task,
    optimizer: optax.GradientTransformation, num_workers: int, seed: int,
) -> Case:  # fmt: skip
    """A scheme in a scenario, with the setup of its run; `seed` draws parameters and batches."""
    config_digest = config.digest()[:12]
    identity = f"{scheme_name}, {scenario_name} ({config_digest})"
    setup = parameter_server.Setup(task, protocol, optimizer, num_workers, config.key(seed=seed), identity)
    return Case(scheme_name, scenario_name, SCENARIOS[scenario_name], setup)


@contextlib.contextmanager
def _workers(num_workers: int, patience: float) -> Iterator[Place | None]:
    """Starts the workers that are to be on this machine; gives the place of the server, or None if that is elsewhere.

    Started alone, it starts all of them. One of several processes starts its own, and starts it again if it is killed.
    """
    place_of_process = processes.current_place()  # None if started alone
    if place_of_process is None:
        address, token = _free_address(), secrets.token_hex()
        workers_to_start: list[int] = list(range(num_workers))
    else:
        address, token = place_of_process.rendezvous.address, place_of_process.secret
        workers_to_start = _workers_of_process(place_of_process.rendezvous, num_workers)
    shared_arguments = {"text": config.text(), "address": address, "token": token, "patience": patience}
    arguments = {worker: {**shared_arguments, "worker": worker} for worker in workers_to_start}
    listen_address = address if place_of_process is None else place_of_process.listen
    is_server = place_of_process is None or processes.is_first()
    server_place = Place(-1, listen_address, token, patience) if is_server else None  # -1: no worker
    _has_failed.clear()
    with parameter_server.processes(live_members.member, arguments, restart=True, on_error=_stop_servers) as children:
        yield server_place
        if not is_server:
            while not children.join(60.0):
                pass


def _workers_of_process(rendezvous: processes.Rendezvous, num_workers: int) -> list[int]:
    """The worker that this process starts, process 1 the first; none in process 0, which is the server.

    Raises:
      ValueError: if there is not a process for each of them.
    """
    if rendezvous.num_processes != num_workers + 1:
        raise ValueError(
            f"there must be a process for the server and one for each of {num_workers} workers; got "
            f"num-processes={rendezvous.num_processes}. Set live_protocols.num_workers, or start others."
        )
    return [rendezvous.process_id - 1] if rendezvous.process_id else []


_running_servers: list[parameter_server.Server] = []
_has_failed = threading.Event()
"""Whether a worker has ended with an error."""


def _stop_servers() -> None:
    """Ends the run of the server, and all runs after it, since a worker has ended with an error."""
    _has_failed.set()
    for server in _running_servers:
        server.stop()


def _served(
    cases: Sequence[Case], place: Place, options: Options, records: Records, progress: Progress
) -> Iterator[dict[str, Any]]:
    """The row of each case, after its run, which `records` keeps.

    In each scenario the scheme `options.calibrated_by` comes first: by what its run has measured the others, and that
    run itself, are predicted.
    """
    measured_in_calibrating_run = None
    for number, case in enumerate(cases):
        progress.update(case.label, number / len(cases))
        run = _serve_case(case, place, options)
        if case.scheme_name == options.calibrated_by:
            measured_in_calibrating_run = Measured(
                parameter_server.calibration(run), parameter_server.measured_absences(run)
            )
            records.calibrate(case.scenario_name, measured_in_calibrating_run.calibration)
        records.add(case.label, run)
        row = {**measured_row(case, run, options), **predicted_row(case, run, measured_in_calibrating_run, options)}
        cells_of_row = _cells([row])[0]
        progress.show("; ".join(cells_of_row))
        yield row


def _serve_case(case: Case, place: Place, options: Options) -> LiveRun:
    """Serves the run of a case to its workers at `place`.

    Raises:
      ValueError: if there was no commit, or a worker has ended with an error.
    """
    limits = Limits(options.num_commits, options.seconds, lease=options.lease, join_seconds=options.patience)
    server = parameter_server.Server(
        case.setup, limits, address=place.address, security=place.security, check=options.check
    )
    _running_servers[:] = [server]  # for `_stop_servers`
    if _has_failed.is_set():  # before there was this server
        server.stop()
    run = server.run()
    if _has_failed.is_set():
        raise ValueError(f"{case.label}: the workers must end without an error; one has not.")
    if not server.has_begun:
        raise ValueError(
            f"{case.label}: all {case.setup.num_workers} workers must come within {options.patience:g} s, and did not. "
            "See what they say."
        )
    if not len(run.loss):
        raise ValueError(f"{case.label}: there must be a commit within {options.seconds:g} s; there was none.")
    return run


def _write(
    out: Path, rows: list[dict[str, Any]], options: Options, progress: Progress, stop_seconds: float, records: Records
) -> None:
    """Writes the page, the table of rows and the records to the folder `out`, and shows the table."""
    goal, cores = options.target, num_cores()
    notes = NOTES.format(
        metric=goal.metric, target=goal.value, cores=cores, seconds=options.seconds,
        calibrated_by=options.calibrated_by, pace=options.pace,
    )  # fmt: skip
    events = f"One worker is three times slower, or is stopped for {stop_seconds:g} s, or is killed and started again."
    heads = [head.format(target=goal.value) for head in HEADS]
    page = ["# Protocols on the real clock", events, markdown_table(heads, _cells(rows), num_key_columns=2), notes]
    facts = {"target": goal.value, "metric": goal.metric, "cores": cores, "calibrations": records.calibrations}
    facts["verdict"] = verdict(rows, f"{goal.value:g} {goal.metric}")
    analysis.write_page(out, "\n\n".join(page), facts)
    files.write_table(out / "results.parquet", {name: [row[name] for row in rows] for name in rows[0]})
    progress.show(table(rows, goal.value))


def table(rows: list[dict[str, Any]], target: float) -> RichTable:
    """The rows for a person."""
    heads = [head.format(target=target) for head in HEADS]
    return RichTable("seconds on the clock", heads, _cells(rows), num_key_columns=2)


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The text of each row, by HEADS; a dash for seconds that are inf or NaN, and errors that are NaN (no prediction).

    Rows are those of `measured_row` and `predicted_row`.
    """
    return [
        [
            row["scenario"],
            row["scheme"],
            str(row["num_commits"]),
            _seconds_text(row["reach"]),
            _seconds_text(row["predicted"]),
            _error_text(row["error_mean"], row["error_std"]),
            row["promise"],
            f"{row['replay_difference']:.0e}",
            str(row["num_left"]),
            f"{row['load']:.1f}",
        ]
        for row in rows
    ]


def _error_text(mean: float, deviation: float) -> str:
    """The relative error of predicted times (shares) in percent, or a dash if nothing was predicted (NaN)."""
    return "-" if math.isnan(mean) else f"{100 * mean:+.1f} ± {100 * deviation:.1f} %"


def _seconds_text(seconds: float) -> str:
    """Seconds, or a dash if there is no such number."""
    return f"{seconds:.2f} s" if math.isfinite(seconds) else "-"


def _free_address() -> str:
    """An address of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def main() -> None:
    """Becomes `gcjax run` with this experiment's config, and the options that were given."""
    arguments = [sys.executable, "-m", "gcjax", "run", "configs/live/protocols.gin", *sys.argv[1:]]
    os.execv(sys.executable, arguments)


if __name__ == "__main__":
    main()
