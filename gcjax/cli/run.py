"""The command `gcjax run`."""

import argparse
import contextlib
import shlex
from pathlib import Path

from gcjax import interrupts, saved_progress
from gcjax.cli import distributed


def command(options: argparse.Namespace) -> None:
    """Runs the experiment of a config, in a folder that is locked meanwhile."""
    prepare(options)
    from gcjax import analysis, config, processes, progress
    from gcjax.analysis import seal

    with distributed.group(options), contextlib.ExitStack() as holding:
        processes.share(lambda: config.load(options.config, options.bindings))
        processes.agree("config", _agreed())
        out = _out_folder(options, holding)
        complete, resumable = analysis.is_complete, analysis.is_resumable
        interrupts.advise(lambda: _advice(options, out, complete=complete(out), resumable=resumable(out)))
        with progress.bar() if processes.is_first() else contextlib.nullcontext(progress.silent()) as shown:
            config.start(out, shown)
            if processes.is_first():
                seal.complete(out)
            interrupts.advise(lambda: f"; everything was written to {out} before")
            shown.show(f"Written to {out}")


def prepare(options: argparse.Namespace) -> None:
    """What a run and a sweep do first: they can be interrupted from now on, and keep compiled programs."""
    interrupts.advise(lambda: "; start it again")
    interrupts.allow_saving()
    saved_progress.forget()
    from gcjax.cli import cached_programs

    if options.cache:
        cached_programs.keep()


def _advice(options: argparse.Namespace, out: Path, *, complete: bool, resumable: bool) -> str:
    """What an interrupted run has lost, and how to go on, as the end of a sentence."""
    if complete:
        return f"; everything was written to {out} before"
    lost = saved_progress.sentence()
    lost = lost and f"; {lost}"
    if resumable:
        everywhere = " in all processes" if options.distributed else ""
        return f"{lost}; go on{everywhere} with: {_resuming(options, out)}"
    if options.out and any(out.iterdir()):
        return f"{lost}; there is no checkpoint to resume, so empty {out} and start it again"
    return f"{lost}; there is no checkpoint yet, so start it again"


def _resuming(options: argparse.Namespace, out: Path) -> str:
    """The command that goes on with a run."""
    words = ["gcjax", "run", options.config]
    words += [word for binding in options.bindings for word in ("--set", binding)]
    words += ["--distributed"] if options.distributed else []
    for flag, value in distributed.group_options(options).items():
        number = [] if value is True else [f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--" + flag.replace("_", "-"), *number]
    return shlex.join([*words, "--resume", "--out", str(out)])


def _agreed() -> str:
    """What must be the same in all processes."""
    import gin
    import jax

    import gcjax

    floats = jax.dtypes.canonicalize_dtype("float64")  # a switch of JAX, not in the config
    return f"# gcjax {gcjax.__version__}, jax {jax.__version__}, {floats}\n{gin.config_str()}"


def _out_folder(options: argparse.Namespace, holding: contextlib.ExitStack) -> Path:
    """The output folder: chosen, made and locked by process 0, known to all."""
    from gcjax import processes
    from gcjax.cli import run_folders

    def make() -> list[str]:
        if not processes.is_first():
            return []
        choose = run_folders.unfinished if options.resume else run_folders.new
        folder = choose(options.out, Path(options.config).stem, holding)
        return [str(folder), str(folder.absolute())]

    path, absolute_path = processes.share(make)[0]
    return Path(path if processes.is_first() else absolute_path)  # the others may run in another directory
