"""The command line: run an experiment, list what can be named, rebuild a report, check a protocol.

Heavy modules are imported by the command that needs them, so that `gcjax --help` answers at once.
"""

import argparse
import contextlib
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gcjax import _unforeseen, interrupts, keeping

UNFORESEEN = 1
USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0, 1 if a check fails, or 2 if the user has to change something.

    An error that nobody foresaw is status 1, too, and a few lines; with `--traceback`, or GCJAX_TRACEBACK=1, any error
    comes with its traceback.

    A process of several ends with status 3 if another one was lost; see `gcjax.processes`. Ctrl-C ends the process with
    status 130, SIGTERM with 143, at any moment; see `gcjax.interrupts`.

    Args:
      arguments: of the command line; those of this process if None.
    """
    with interrupts.handled(until_exit=arguments is None):
        options = _parser().parse_args(arguments)
        try:
            status: int | None = options.command(options)
        except Exception as error:
            return _failure(error, options)
        return status or 0


def _failure(error: Exception, options: argparse.Namespace) -> int:
    """Says what went wrong and returns the exit status; raises what the command does not promise to put in words."""
    if _unforeseen.is_traceback_wanted(getattr(options, "traceback", False)):
        traceback.print_exception(error)
    if isinstance(error, ValueError):
        print(f"gcjax: {error}", file=sys.stderr)
        return USER_ERROR
    if not hasattr(options, "traceback"):
        raise error
    print(_unforeseen.lines(error), file=sys.stderr)
    return UNFORESEEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gcjax", description="Gradient coding and synchronisation protocols under stragglers."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (_add_run, _add_sweep, _add_list, _add_report, _add_check, _add_algebra):
        add(commands)
    return parser


def _add_run(commands: Any) -> None:
    parser = commands.add_parser("run", help="run the experiment that a config file describes")
    parser.add_argument("config", metavar="CONFIG", help="a .gin file, e.g. configs/quickstart.gin")
    parser.add_argument(
        "--set", dest="bindings", metavar="BINDING", action="append", default=[],
        help="a gin statement that wins over the file, e.g. 'ssp.staleness = 5'; may be repeated",
    )  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="folder to write, new or empty (default: runs/CONFIG-TIME)")
    parser.add_argument(
        "--resume", action="store_true",
        help="go on with the run in DIR, or the newest unfinished one of this config that no process is at, from its "
        "last checkpoint; if there is none, start it",
    )  # fmt: skip
    parser.add_argument(
        "--no-cache", dest="cache", action="store_false",
        help="compile everything anew; without it, compiled programs are kept in the user's cache folder "
        "(~/.cache/gcjax, up to 1 GiB; JAX_COMPILATION_CACHE_DIR says another one)",
    )  # fmt: skip
    _add_distributed(parser)
    _add_traceback(parser)
    parser.set_defaults(command=_run)


def _add_sweep(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep", help="run a config for all combinations of some values, and write one table",
        description="Runs all combinations in this process, where what they share is compiled once.",
    )  # fmt: skip
    parser.add_argument("config", metavar="CONFIG", help="a .gin file whose experiment is a comparison")
    parser.add_argument(
        "--over", metavar="PARAMETER=VALUES", action="append", required=True,
        help="values with commas between them, e.g. 'ssp.staleness=0,1,3'; may be repeated",
    )  # fmt: skip
    parser.add_argument("--set", dest="bindings", metavar="BINDING", action="append", default=[], help="as in run")
    parser.add_argument("--out", metavar="DIR", help="folder to write, new or empty (default: runs/CONFIG-sweep-TIME)")
    parser.add_argument(
        "--resume", action="store_true",
        help="go on with the sweep in DIR, or the newest unfinished one of this config that no process is at: with the "
        "combinations that are not done, from the last checkpoint; if there is none, start it",
    )  # fmt: skip
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="as in run")
    _add_traceback(parser)
    parser.set_defaults(command=_sweep)


def _add_distributed(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "several processes",
        "Every process is started with the same command; process 0 writes and prints. SLURM, Open MPI before 5, TPU "
        "pods and GKE are detected; elsewhere each process is told its place by hand. If one is lost, all others end "
        "with status 3 and say which.",
    )
    group.add_argument("--distributed", action="store_true", help="run as one of several processes")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="a free port of the machine of process 0")
    group.add_argument("--num-processes", metavar="N", type=int, help="processes in all")
    group.add_argument("--process-id", metavar="I", type=int, help="which one this is, from 0")
    group.add_argument(
        "--timeout", metavar="SECONDS", type=float,
        help="wait so long for process 0 to be reached, and then for all others (default: 60)",
    )  # fmt: skip
    group.add_argument(
        "--lost-after", metavar="SECONDS", type=float,
        help="a process of which nothing is heard for so long is lost (default: 30); one that is killed is so at once",
    )  # fmt: skip
    group.add_argument(
        "--secret-file", metavar="FILE",
        help="the secret that all processes share (default: the environment variable GCJAX_SECRET, or the file that "
        "GCJAX_SECRET_FILE names); one is required unless the coordinator is a loopback address",
    )  # fmt: skip
    group.add_argument(
        "--no-secret", action="store_const", const=True, help="believe everybody who reaches the port of process 0"
    )
    group.add_argument(
        "--bind", metavar="HOST",
        help="the interface on which process 0 listens, 0.0.0.0 or :: for all (default: that of the coordinator's "
        "address, or all where that is none of its machine's)",
    )  # fmt: skip


def _add_traceback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traceback", action="store_true", help="show all of an error (or set GCJAX_TRACEBACK=1)")


def _add_list(commands: Any) -> None:
    parser = commands.add_parser("list", help="list all assignments, codes, stopping rules, protocols, ...")
    parser.add_argument(
        "name", metavar="NAME", nargs="?",
        help="a kind, e.g. protocol, with the parameters of its entries; or an entry, e.g. pareto, with all about it",
    )  # fmt: skip
    parser.set_defaults(command=_list)


def _add_report(commands: Any) -> None:
    parser = commands.add_parser("report", help="rebuild the summary and the figures of a run")
    parser.add_argument("folder", metavar="RUN_DIR", help="a folder that 'gcjax run' wrote")
    _add_traceback(parser)
    parser.set_defaults(command=_report)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check", help="check what a protocol guarantees, on a small instance",
        description="Explores all states of a small instance of a protocol: whether each component keeps to its "
        "guarantee, and whether the property holds. Ends with status 1 and a shortest counterexample if not. With "
        "--schedule, holds what runs against what is promised: the schedules of all schemes of a config.",
    )  # fmt: skip
    parser.add_argument(
        "--schedule",
        metavar="CONFIG",
        help="check the schedules of an experiment's config, e.g. configs/quickstart.gin",
    )
    parser.add_argument(
        "--set", dest="bindings", metavar="BINDING", action="append", default=[],
        help="with --schedule: a gin statement that wins over the file; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "protocol", metavar="PROTOCOL", nargs="?", help="a specification, as in 'gcjax list specification'"
    )
    parser.add_argument(
        "parameters", metavar="--PARAMETER N", nargs=argparse.REMAINDER,
        help="of the specification, e.g. --workers 3 --staleness 2",
    )  # fmt: skip
    _add_traceback(parser)
    parser.set_defaults(command=_check)


def _add_algebra(commands: Any) -> None:
    parser = commands.add_parser("algebra", help="try the laws of the program algebra")
    laws = parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser(
        "laws",
        help="try every law on random commands; status 1 if one comes out otherwise than the table says",
    )
    laws.add_argument("--states", metavar="S", type=int, default=2, help="states, at least 2 (default: 2)")
    laws.add_argument("--steps", metavar="N", type=int, default=4, help="steps of the longest trace (default: 4)")
    laws.add_argument("--instances", metavar="B", type=int, default=32, help="random instances (default: 32)")
    laws.add_argument("--seed", metavar="SEED", type=int, default=0, help="of the random commands (default: 0)")
    laws.add_argument("--page", metavar="FILE", help="try nothing, write the table as a Markdown page")
    laws.set_defaults(command=_laws)


def _run(options: argparse.Namespace) -> None:
    interrupts.advise(lambda: "; start it again")
    interrupts.allow_saving()
    keeping.forget()
    from gcjax import analysis, cached_programs, config, processes, progress
    from gcjax.analysis import seal

    if options.cache:
        cached_programs.keep()
    with _together(options), contextlib.ExitStack() as holding:
        processes.share(lambda: config.load(options.config, options.bindings))
        processes.agree("config", _agreed())
        out = _out_folder(options, holding)
        whole, saved = analysis.is_complete, analysis.is_resumable
        interrupts.advise(lambda: _advice(options, out, complete=whole(out), resumable=saved(out)))
        with progress.bar() if processes.is_first() else contextlib.nullcontext(progress.silent()) as shown:
            config.start(out, shown)
            if processes.is_first():
                seal.complete(out)
            interrupts.advise(lambda: f"; everything was written to {out} before")
            shown.show(f"Written to {out}")


def _sweep(options: argparse.Namespace) -> None:
    interrupts.advise(lambda: "; start it again")
    interrupts.allow_saving()
    keeping.forget()
    from gcjax import analysis, cached_programs, progress, run_folders, sweep, sweep_folders
    from gcjax.analysis import seal

    if options.cache:
        cached_programs.keep()
    sweep.combinations(options.over)  # before a folder is made
    with contextlib.ExitStack() as holding, progress.bar() as shown:
        choose, is_begun = run_folders.unfinished if options.resume else run_folders.new, sweep_folders.is_begun
        out = choose(options.out, f"{Path(options.config).stem}-sweep", holding)
        interrupts.advise(lambda: _sweep_advice(options, out) if is_begun(out) else "; start it again")
        sweep.run(options.config, options.bindings, options.over, out, shown)
        seal.complete(out)
        interrupts.advise(lambda: f"; everything was written to {out} before")
        analysis.drop_checkpoints(out)
        shown.show(f"Written to {out}")


def _advice(options: argparse.Namespace, out: Path, *, complete: bool, resumable: bool) -> str:
    """What an interrupted run has lost, and how to go on, as the end of a sentence."""
    if complete:
        return f"; everything was written to {out} before"
    lost = keeping.sentence()
    lost = lost and f"; {lost}"
    if resumable:
        everywhere = " in all processes" if options.distributed else ""
        return f"{lost}; go on{everywhere} with: {_resuming(options, out)}"
    if options.out and any(out.iterdir()):
        return f"{lost}; there is no checkpoint to resume, so empty {out} and start it again"
    return f"{lost}; there is no checkpoint yet, so start it again"


def _sweep_advice(options: argparse.Namespace, out: Path) -> str:
    """What an interrupted sweep has lost, and how to go on, as the end of a sentence."""
    lost = keeping.sentence()
    words = ["gcjax", "sweep", options.config]
    words += [word for text in options.over for word in ("--over", text)]
    words += [word for binding in options.bindings for word in ("--set", binding)]
    command = shlex.join([*words, "--resume", "--out", str(out)])
    return f"{lost and f'; {lost}'}; combinations that are done are kept; go on with: {command}"


def _resuming(options: argparse.Namespace, out: Path) -> str:
    """The command that goes on with a run."""
    words = ["gcjax", "run", options.config]
    words += [word for binding in options.bindings for word in ("--set", binding)]
    words += ["--distributed"] if options.distributed else []
    for flag, value in _group_options(options).items():
        given = [] if value is True else [f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--" + flag.replace("_", "-"), *given]
    return shlex.join([*words, "--resume", "--out", str(out)])


def _together(options: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """The group of processes that was asked for; nothing in a single process."""
    from gcjax import processes

    given = _group_options(options)
    if options.distributed:
        return _quiet_others(processes.group(**given))
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(f"Options for several processes need --distributed; got {flags} without it.")
    return contextlib.nullcontext()


def _group_options(options: argparse.Namespace) -> dict[str, Any]:
    """What the user said of the group of processes."""
    names = ("coordinator", "num_processes", "process_id", "timeout", "lost_after", "secret_file", "no_secret", "bind")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


@contextlib.contextmanager
def _quiet_others(group: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """The group, with the stdout of all processes but the first sent nowhere, also that of libraries in C++."""
    from gcjax import processes

    with group:
        if not processes.is_first():
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
        yield


def _agreed() -> str:
    """What must be the same in all processes."""
    import gin
    import jax

    import gcjax

    floats = jax.dtypes.canonicalize_dtype("float64")  # a switch of JAX, not in the config
    return f"# gcjax {gcjax.__version__}, jax {jax.__version__}, {floats}\n{gin.config_str()}"


def _out_folder(options: argparse.Namespace, holding: contextlib.ExitStack) -> Path:
    """The output folder: chosen, made and locked by process 0, known to all."""
    from gcjax import processes, run_folders

    def make() -> list[str]:
        if not processes.is_first():
            return []
        choose = run_folders.unfinished if options.resume else run_folders.new
        folder = choose(options.out, Path(options.config).stem, holding)
        return [str(folder), str(folder.absolute())]

    chosen, anywhere = processes.share(make)[0]
    return Path(chosen if processes.is_first() else anywhere)  # the others may run in another directory


def _list(options: argparse.Namespace) -> None:
    from gcjax import _listing

    _listing.run(options.name)


def _laws(options: argparse.Namespace) -> int:
    import jax

    from gcjax import _checks, progress
    from gcjax.algebra import laws

    if options.page:
        Path(options.page).write_text(laws.markdown())
        return 0
    hint = "All of them are tried at once."
    _checks.integer("num_instances", options.instances, minimum=1, maximum=1024, hint=hint)
    key = jax.random.key(_checks.integer("seed", options.seed, maximum=2**32 - 1))
    results = laws.check_all(
        num_states=options.states, num_steps=options.steps, num_instances=options.instances, rng_key=key
    )
    console = progress.console()
    console.print(laws.table(results))
    for surprising in (False, True):
        console.print(laws.counterexamples(results, expected=not surprising), markup=False, highlight=False)
    wrong = sum(not result.expected for result in results)
    console.print(f"{len(results)} laws, {wrong} otherwise than expected.", highlight=False)
    return 1 if wrong else 0


def _report(options: argparse.Namespace) -> None:
    from gcjax import analysis, locks, progress, tables
    from gcjax.analysis import seal

    folder = Path(options.folder)
    if not (folder / "metrics.parquet").exists() and (folder / "summary.md").exists():
        with _warnings_in_a_line():
            seal.read(folder)
        progress.console().print(
            tables.rich_page((folder / "summary.md").read_text())
        )  # of a study: its tables, as written
        return
    with _warnings_in_a_line():
        results = analysis.load(folder)
    with locks.held(folder):
        analysis.write_report(results, folder)
    progress.console().print(analysis.table(results))


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Warnings of the block go to stderr, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in caught:
        print(f"gcjax: warning: {each.message}", file=sys.stderr)


def _check(options: argparse.Namespace) -> int:
    if (options.schedule is None) == (options.protocol is None):
        raise ValueError("check takes either a PROTOCOL or --schedule CONFIG; see gcjax check --help.")
    if options.schedule is not None:
        from gcjax import _schedules

        return _schedules.run(options.schedule, options.bindings)
    from gcjax import checking

    return checking.run(options.protocol, options.parameters)


if __name__ == "__main__":
    sys.exit(main())
