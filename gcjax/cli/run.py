"""The command `gcjax run`."""

import argparse
import contextlib
import shlex
import tempfile
from pathlib import Path

from gcjax import interrupts, saved_progress
from gcjax.cli import distributed, warning_lines


def command(options: argparse.Namespace) -> None:
    """`gcjax run`: runs the experiment of a config, in a folder that is locked meanwhile."""
    set_up_interrupts_and_cache(options)  # first, so that Ctrl-C is answered during the slow imports
    from gcjax import analysis, config, processes, progress
    from gcjax.analysis import seal

    with warning_lines.print_warnings(), distributed.group(options), contextlib.ExitStack() as lock_stack:
        processes.share(lambda: config.load(options.config, options.bindings))
        processes.agree("config", _config_and_versions())
        out = _locked_out_folder(options, lock_stack)
        is_complete, is_resumable = analysis.is_complete, analysis.is_resumable  # advice must import nothing
        checkpoints = out / analysis.CHECKPOINTS
        interrupts.set_advice(
            lambda: _advice(
                options, out, is_complete=is_complete(out), is_resumable=is_resumable(out),
                can_begin_again=checkpoints.is_dir(),
            )
        )  # fmt: skip
        no_bar = contextlib.nullcontext(progress.silent())
        with progress.bar() if processes.is_first() else no_bar as run_progress:
            config.run_loaded(out, run_progress)
            if processes.is_first():
                seal.add_missing_digests(out)
            interrupts.set_advice(lambda: f"; everything was written to {out} before")
            run_progress.show(f"Written to {out}")
        if options.json and processes.is_first():
            from gcjax.cli import results_json

            results = analysis.load(out) if analysis.store.is_comparison(out) else None
            options.result = results_json.folder_json(out, results)


def set_up_interrupts_and_cache(options: argparse.Namespace) -> None:
    """What a run and a sweep do first: from now on they can be interrupted, and keep compiled programs if asked to."""
    interrupts.set_advice(lambda: "; start it again")
    interrupts.allow_last_checkpoint()
    saved_progress.forget_run()  # what an earlier command of this process saved
    from gcjax.cli import cached_programs, machine_errors

    if not options.traceback:
        machine_errors.silence_checkpoint_errors()
    if options.cache:
        cached_programs.use_cache_folder()


def _advice(
    options: argparse.Namespace, out: Path, *, is_complete: bool, is_resumable: bool, can_begin_again: bool
) -> str:
    """What an interrupted run has lost, and how to go on, as the end of the sentence "gcjax: interrupted".

    `is_complete`: the run had written everything; `is_resumable`: there is a checkpoint in `out` to go on from;
    `can_begin_again`: there is the folder for checkpoints, so that a run may begin in `out` although it is not empty.
    """
    if is_complete:
        return f"; everything was written to {out} before"
    lost_work_or_nothing = saved_progress.lost_work_text()
    lost_work = f"; {lost_work_or_nothing}" if lost_work_or_nothing else ""
    everywhere = " in all processes" if options.distributed else ""
    if is_resumable:
        return f"{lost_work}; go on{everywhere} with: {_resume_command(options, out)}"
    if can_begin_again:
        command = _resume_command(options, out)
        return f"{lost_work}; there is no checkpoint yet, so start it again{everywhere} with: {command}"
    must_be_emptied_first = options.out and out.is_dir() and any(out.iterdir())
    if must_be_emptied_first:
        return f"{lost_work}; there is no checkpoint to resume, so empty {out} and start it again"
    return f"{lost_work}; there is no checkpoint yet, so start it again"


def _resume_command(options: argparse.Namespace, out: Path) -> str:
    """The command line that goes on with the run in the folder `out`."""
    words = ["gcjax", "run", options.config]
    words += [word for binding in options.bindings for word in ("--set", binding)]
    words += ["--distributed"] if options.distributed else []
    for option, value in distributed.group_options(options).items():
        value_text = f"{value:g}" if isinstance(value, float) else str(value)
        is_switch = value is True
        words += ["--" + option.replace("_", "-"), *([] if is_switch else [value_text])]
    return shlex.join([*words, *given_flags(options), "--resume", "--out", str(out)])


def given_flags(options: argparse.Namespace) -> list[str]:
    """The flags that were given to a run or sweep, as words of a command line, for one that goes on."""
    is_given = {"--no-cache": not options.cache, "--json": options.json, "--traceback": options.traceback}
    return [flag for flag, given in is_given.items() if given]


def _config_and_versions() -> str:
    """The loaded config and what else must be the same in all processes: versions and the width of floats."""
    import gin
    import jax

    import gcjax

    float_width = jax.dtypes.canonicalize_dtype("float64")  # float32 unless jax_enable_x64, which is in no config
    return f"# gcjax {gcjax.__version__}, jax {jax.__version__}, {float_width}\n{gin.config_str()}"


def _locked_out_folder(options: argparse.Namespace, lock_stack: contextlib.ExitStack) -> Path:
    """The output folder: chosen, made and locked by process 0, known to all; closing the stack releases the lock.

    Where processes are apart, each of the others has a temporary one instead, which closing the stack removes.
    """
    from gcjax import processes
    from gcjax.cli import run_folders

    writes_nothing_that_is_kept = processes.current_place() is not None and not processes.is_first()
    if writes_nothing_that_is_kept:
        return Path(lock_stack.enter_context(tempfile.TemporaryDirectory()))

    def path_and_absolute_path() -> list[str]:
        """Of the folder that the command's `options` ask for, in process 0; else []."""
        if not processes.is_first():
            return []
        choose_folder = run_folders.locked_resumable_or_new_folder if options.resume else run_folders.locked_new_folder
        folder = choose_folder(options.out, Path(options.config).stem, lock_stack)
        return [str(folder), str(folder.absolute())]

    paths_of_processes = processes.share(path_and_absolute_path)
    path, absolute_path = paths_of_processes[0]
    return Path(path if processes.is_first() else absolute_path)  # the others may run in another directory
