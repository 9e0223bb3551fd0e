"""The command `gcjax sweep`."""

import argparse
import contextlib
import shlex
from pathlib import Path

from gcjax import interrupts, saved_progress
from gcjax.cli import run


def command(options: argparse.Namespace) -> None:
    """Runs a config for all combinations of some values."""
    run.prepare(options)
    from gcjax import analysis, progress
    from gcjax.analysis import seal
    from gcjax.cli import grid, run_folders, sweep_folders

    grid.combinations(options.over)  # before a folder is made
    with contextlib.ExitStack() as holding, progress.bar() as shown:
        choose, is_begun = run_folders.unfinished if options.resume else run_folders.new, sweep_folders.is_begun
        out = choose(options.out, f"{Path(options.config).stem}-sweep", holding)
        interrupts.advise(lambda: _advice(options, out) if is_begun(out) else "; start it again")
        grid.run(options.config, options.bindings, options.over, out, shown)
        seal.complete(out)
        interrupts.advise(lambda: f"; everything was written to {out} before")
        analysis.drop_checkpoints(out)
        shown.show(f"Written to {out}")


def _advice(options: argparse.Namespace, out: Path) -> str:
    """What an interrupted sweep has lost, and how to go on, as the end of a sentence."""
    lost = saved_progress.sentence()
    words = ["gcjax", "sweep", options.config]
    words += [word for text in options.over for word in ("--over", text)]
    words += [word for binding in options.bindings for word in ("--set", binding)]
    command = shlex.join([*words, "--resume", "--out", str(out)])
    return f"{lost and f'; {lost}'}; combinations that are done are kept; go on with: {command}"
