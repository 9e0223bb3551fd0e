"""The command `gcjax sweep`."""

import argparse
import contextlib
import shlex
from pathlib import Path

from gcjax import interrupts, saved_progress
from gcjax.cli import run, warning_lines


def command(options: argparse.Namespace) -> None:
    """`gcjax sweep`: runs a config for all combinations of some values, in a folder that is locked meanwhile."""
    run.set_up_interrupts_and_cache(options)
    from gcjax import analysis, progress
    from gcjax.analysis import seal
    from gcjax.cli import grid, run_folders, sweep_folders

    grid.combinations(options.over)  # raises for wrong values before a folder is made
    with (
        warning_lines.print_warnings(),
        contextlib.ExitStack() as lock_stack,
        progress.bar() as sweep_progress,
    ):
        choose_folder = run_folders.locked_resumable_or_new_folder if options.resume else run_folders.locked_new_folder
        out = choose_folder(options.out, f"{Path(options.config).stem}-sweep", lock_stack)
        is_begun = sweep_folders.is_begun  # advice must import nothing
        interrupts.set_advice(lambda: _advice(options, out) if is_begun(out) else "; start it again")
        sweep = grid.run(options.config, options.bindings, options.over, out, sweep_progress)
        seal.add_missing_digests(out)
        interrupts.set_advice(lambda: f"; everything was written to {out} before")
        analysis.drop_checkpoints(out)
        sweep_progress.show(f"Written to {out}")
        if options.json:
            from gcjax.cli import results_json

            options.result = results_json.folder_json(out, sweep)


def _advice(options: argparse.Namespace, out: Path) -> str:
    """What an interrupted sweep has lost, and how to go on, as the end of the sentence "gcjax: interrupted"."""
    lost_work_or_nothing = saved_progress.lost_work_text()
    lost_work = f"; {lost_work_or_nothing}" if lost_work_or_nothing else ""
    words = ["gcjax", "sweep", options.config]
    words += [word for parameter_and_values in options.over for word in ("--over", parameter_and_values)]
    words += [word for binding in options.bindings for word in ("--set", binding)]
    resume_command = shlex.join([*words, *run.given_flags(options), "--resume", "--out", str(out)])
    return f"{lost_work}; combinations that are done are kept; go on with: {resume_command}"
