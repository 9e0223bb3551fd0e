"""Does `gcjax.watch` name the process that is stopped, how soon, and how often one that is not?

    python -m experiments.watch --out runs/watch

Starts four processes on this machine, for each kind of step (`experiments.watch_member`), and in turn stops and
continues one of them for a while (SIGSTOP, SIGCONT). Then it counts: the steps from the first stop to the step at which
the process was named; and, in a run in which nobody is stopped, the windows of 20 steps in which anybody was named.
"Quiet" means that only: other programs may well delay one of the processes. So it is also counted where Linux does not
say the same: where the threads of who is named have not waited for a processor longer than those of the median process,
by half of what it is said to have been late.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import rich
import scipy.stats

from experiments.watch_member import KINDS
from gcjax import tables
from gcjax.files import write_text
from gcjax.watching import WINDOW
from gcjax.watching.group import Group
from gcjax.watching.reports import Report
from gcjax.watching.shared_folder import SharedFolder

NUM_PROCESSES = 4
DUTY_CYCLES = ((0.02, 0.02), (0.1, 0.1))
"""(seconds stopped, seconds running)."""
_PROCESS_COLUMN, _STEP_COLUMN = 0, 1  # of the rows of a shared folder
GAP_STEPS = 4 * WINDOW
"""Steps between two episodes in which nobody is stopped."""
STOPPED_SECONDS = 0.05 * WINDOW
"""Of an episode."""
HEADS = (
    "step", "stopped, running", "episodes", "named within 20", "steps to it", "named before", "others named",
    "persistent",
)  # fmt: skip
QUIET_HEADS = (
    "step", "iteration", "quiet windows", "somebody named (95 % interval)", "as persistent",
    "named, and Linux does not say so", "as persistent, too",
)  # fmt: skip


class Episode(NamedTuple):
    """A process was stopped and continued between these times, in seconds since the epoch."""

    worker: int
    begin: float
    end: float


@contextlib.contextmanager
def members(kind: str, folder: Path, num_steps: int, num_products: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of a group, which are ended at the end of the block whatever happens; they log into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "experiments.watch_member", kind, str(folder), "--coordinator", address]
    command += ["--num-processes", str(NUM_PROCESSES), "--steps", str(num_steps), "--products", str(num_products)]
    processes = []
    try:
        for rank in range(NUM_PROCESSES):
            with (folder / f"log.{rank}").open("w") as log:
                command_of_rank = [*command, "--process-id", str(rank)]
                processes.append(subprocess.Popen(command_of_rank, env=environment, stdout=log, stderr=log))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_step(folder: Path, step: int, processes: list[subprocess.Popen[bytes]]) -> bool:
    """Waits until process 0 has written this step, or all processes are done; returns whether it has written it."""
    shared_folder = SharedFolder(folder, "step", 0)
    last_step = -1  # none yet
    while last_step < step and any(process.poll() is None for process in processes):
        new_rows = shared_folder.news()
        is_of_process_0 = new_rows[:, _PROCESS_COLUMN] == 0
        last_step = int(new_rows[is_of_process_0, _STEP_COLUMN].max(initial=last_step))
        time.sleep(0.05)
    return last_step >= step


def stop_and_continue(process: subprocess.Popen[bytes], stopped: float, running: float, seconds: float) -> None:
    """Stops and continues a process in turn, `stopped` and `running` seconds, for `seconds`; leaves it running."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            process.send_signal(signal.SIGSTOP)
            time.sleep(stopped)
            process.send_signal(signal.SIGCONT)
            time.sleep(running)
    finally:
        process.send_signal(signal.SIGCONT)


def run(
    kind: str, folder: Path, num_steps: int, num_products: int, duty_cycle: tuple[float, float] | None
) -> list[Episode]:
    """Runs a group, and stops its processes in turn, with `GAP_STEPS` steps in between; with no duty cycle nobody.

    Each is stopped and continued for a second. A `RuntimeError` with the log of a process that has failed.
    """
    episodes: list[Episode] = []
    with members(kind, folder, num_steps, num_products) as processes:
        begin_step = GAP_STEPS
        while duty_cycle and wait_for_step(folder, begin_step, processes) and begin_step + 2 * GAP_STEPS < num_steps:
            seconds_stopped, seconds_running = duty_cycle
            worker, begin_time = len(episodes) % NUM_PROCESSES, time.time()
            stop_and_continue(processes[worker], seconds_stopped, seconds_running, seconds=STOPPED_SECONDS)
            episodes.append(Episode(worker, begin_time, time.time()))
            begin_step = _last_step(folder) + GAP_STEPS
        statuses = [process.wait() for process in processes]
    if any(statuses):
        raise RuntimeError(f"a process has failed: {(folder / f'log.{np.argmax(statuses)}').read_text()}")
    return episodes


def _last_step(folder: Path) -> int:
    return int(SharedFolder(folder, "step", 0).news()[:, _STEP_COLUMN].max())


def reports_by_step(folder: Path) -> dict[int, Report]:
    """Step -> the report of that step, of all steps; judged from the files, as process 0 does while they grow."""
    group, reports = Group(NUM_PROCESSES), {}
    rows = SharedFolder(folder, "step", 0).all_rows()
    for step in np.unique(rows[:, _STEP_COLUMN]).astype(int).tolist():
        group.add(rows[rows[:, _STEP_COLUMN] == step])
        reports[step] = group.report()
    return reports


class Delays(NamedTuple):
    """How soon those who were stopped were named.

    Attributes:
      steps: of each episode, from the first stop to the name; None if it was not named before the last stop.
      num_before: the episodes, left out of `steps`, whose process was named already before it was stopped.
      num_others: names of other processes during the episodes.
      num_persistent: the episodes in which the right process was called persistently slow.
    """

    steps: list[int | None]
    num_before: int
    num_others: int
    num_persistent: int


def delays(folder: Path, episodes: list[Episode]) -> Delays:
    """How soon those who were stopped were named, by the files in the folder of the run."""
    reports = reports_by_step(folder)
    steps_to_name, num_before, num_others, num_persistent = [], 0, 0, 0
    for worker, begin, end in episodes:
        call_times = np.load(folder / f"calls.{worker}.npy")  # float64[steps], seconds since the epoch
        step_under_way_at_begin, step_under_way_at_end = (int(i) - 1 for i in np.searchsorted(call_times, (begin, end)))
        # Position 0 is the step before the first stop, 1 the step under way then: so many steps a name has taken.
        steps = range(step_under_way_at_begin - 1, step_under_way_at_end + 1)
        verdict_of_worker_by_step = [{verdict.worker: verdict for verdict in reports[step].slow} for step in steps]
        named_before = set(verdict_of_worker_by_step[0])
        verdicts_on_worker = [
            (position, verdict_of_worker[worker])
            for position, verdict_of_worker in enumerate(verdict_of_worker_by_step)
            if worker in verdict_of_worker
        ]
        if worker in named_before:
            num_before += 1
        else:
            position_of_first_name = verdicts_on_worker[0][0] if verdicts_on_worker else None
            steps_to_name.append(position_of_first_name)
        named_during = set().union(*verdict_of_worker_by_step[1:])
        num_others += len(named_during - {worker} - named_before)
        num_persistent += any(verdict.is_persistent for _, verdict in verdicts_on_worker)
    return Delays(steps_to_name, num_before, num_others, num_persistent)


def stopped_row(
    kind: str, folder: Path, num_steps: int, num_products: int, duty_cycle: tuple[float, float]
) -> list[str]:
    """A row of the table of episodes, by `HEADS`; `duty_cycle`: seconds that a process is stopped, and runs, in turn.

    `num_steps` of the run, and `num_products` products of matrices a step.
    """
    episodes = run(kind, folder, num_steps, num_products, duty_cycle)
    write_text(folder / "episodes.json", json.dumps(episodes))
    steps, num_before, num_others, num_persistent = delays(folder, episodes)
    known_steps = [step for step in steps if step is not None]
    num_within_window = sum(step <= WINDOW for step in known_steps)
    steps_text = f"median {np.median(known_steps):.0f}, at most {max(known_steps)}" if known_steps else "-"
    milliseconds = " ".join(f"{1000 * seconds:.0f}" for seconds in duty_cycle)
    counts = (num_before, num_others, num_persistent)
    return [kind, f"{milliseconds} ms", f"{len(steps)}", f"{num_within_window}", steps_text, *map(str, counts)]


def windows_with_names(folder: Path) -> list[set[int]]:
    """The windows, from 1, in which somebody was named; as persistent; and of both those where Linux did not say so.

    A window is `WINDOW` steps; the first, 0, in which all begins, is left out. Where Linux says nothing (NaN) of how
    long threads have waited for a processor, it does not say so.
    """
    call_times = np.load(folder / "calls.0.npy")  # float64[steps], seconds since the epoch
    # float64[processes, steps]: seconds that the threads of a process have waited up to the call of a step.
    waited_until = np.stack([np.load(folder / f"waits.{worker}.npy") for worker in range(NUM_PROCESSES)])
    named_windows, persistent_windows, unconfirmed_windows, persistent_unconfirmed_windows = set(), set(), set(), set()
    for step, report in reports_by_step(folder).items():
        last_call, window = min(step + 1, len(call_times) - 1), (step - 1) // WINDOW
        first_call = max(last_call - WINDOW, 0)
        # [processes], in the last WINDOW steps.
        waited_seconds = waited_until[:, last_call] - waited_until[:, first_call]
        median_waited_seconds = np.sort(waited_seconds)[(NUM_PROCESSES - 1) // 2]
        seconds_of_window = call_times[last_call] - call_times[first_call]
        for verdict in report.slow:
            # `cost` is a share of the time; half of it is asked for.
            does_linux_say_so = (
                waited_seconds[verdict.worker] - median_waited_seconds >= 0.5 * verdict.cost * seconds_of_window
            )
            named_windows.add(window)
            if verdict.is_persistent:
                persistent_windows.add(window)
            if not does_linux_say_so:
                unconfirmed_windows.add(window)
            if verdict.is_persistent and not does_linux_say_so:
                persistent_unconfirmed_windows.add(window)
    first_window = {0}
    return [
        windows - first_window
        for windows in (named_windows, persistent_windows, unconfirmed_windows, persistent_unconfirmed_windows)
    ]


def quiet_row(kind: str, folder: Path, num_windows: int, num_products: int) -> list[str]:
    """A row of the table of windows in which nobody is stopped, by `QUIET_HEADS`; `num_products`: products a step."""
    num_steps = (num_windows + 1) * WINDOW + 1  # the first window is left out
    run(kind, folder, num_steps, num_products, duty_cycle=None)
    median_iteration = np.median(np.diff(np.load(folder / "calls.0.npy")))
    cells = [kind, f"{1000 * median_iteration:.1f} ms", f"{num_windows}"]
    for windows in windows_with_names(folder):
        interval = scipy.stats.binomtest(len(windows), num_windows).proportion_ci(method="exact")
        cells.append(f"{len(windows)} ({100 * interval.low:.1f} to {100 * interval.high:.1f} %)")
    return cells


def main() -> None:
    """Runs everything, and prints and writes the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/watch"), help="an empty folder (%(default)s)")
    parser.add_argument("--windows", type=int, default=1000, help="quiet windows of each kind of step (%(default)s)")
    parser.add_argument("--steps", type=int, default=3000, help="of a run in which processes are stopped (%(default)s)")
    parser.add_argument("--products", type=int, default=4, help="products of matrices a step (%(default)s)")
    options = parser.parse_args()
    stopped_rows = [
        stopped_row(kind, options.out / f"{kind}-{duty_cycle[0]}", options.steps, options.products, duty_cycle)
        for kind in KINDS
        for duty_cycle in DUTY_CYCLES
    ]
    quiet_rows = [quiet_row(kind, options.out / f"{kind}-quiet", options.windows, options.products) for kind in KINDS]
    _, _, load_of_minutes = os.getloadavg()
    load_sentence = (
        f"Processes that wanted one of the {os.cpu_count()} processors in the last minutes: {load_of_minutes:.0f}."
    )
    print(load_sentence)
    page_lines = [load_sentence, ""]
    for title, heads, rows in (("Stopped", HEADS, stopped_rows), ("Nobody stopped", QUIET_HEADS, quiet_rows)):
        rich.print(tables.RichTable(title, heads, rows, num_key_columns=2))
        page_lines += [f"## {title}", "", tables.markdown_table(heads, rows, num_key_columns=2), ""]
    write_text(options.out / "summary.md", "\n".join(page_lines))


if __name__ == "__main__":
    main()
