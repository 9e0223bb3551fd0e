"""The commands and their options."""

import argparse
from typing import Any

import gcjax
from gcjax.cli import (
    algebra,
    check,
    completion,
    distributed,
    doctor,
    init,
    internal_errors,
    json_output,
    listing,
    report,
    report_files,
    report_tables,
    run,
    sweep,
    trace,
)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; the options that it reads have as `command` the function to call with them."""
    parser = argparse.ArgumentParser(
        prog="gcjax", description="Gradient coding and synchronisation protocols under stragglers."
    )
    parser.add_argument("--version", action="version", version=f"gcjax {gcjax.__version__}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="name_of_command", parser_class=_CommandParser
    )
    for add_command in (
        _add_init,
        _add_run,
        _add_sweep,
        _add_list,
        _add_report,
        trace.add,
        _add_check,
        _add_algebra,
        _add_doctor,
        _add_completion,
    ):
        add_command(commands)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """The parser of one command, which refuses what it does not know with its own usage, not with that of `gcjax`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Overrides that of argparse: ends the process if there is an argument that the command does not have."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = " (--over is of gcjax sweep)" if "--over" in unknown else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown


class _ParametersAndFlags(argparse.Action):
    """All words that are left, where `--json` and `--traceback` are not those of a specification but of the command."""

    def __call__(self, parser: Any, options: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Puts the words into `options`, all but `--json` and `--traceback`, which it sets."""
        option_of_flag = {"--json": "json", "--traceback": "traceback"}
        for flag in set(values) & set(option_of_flag):
            setattr(options, option_of_flag[flag], True)
        words_of_specification = [word for word in values if word not in option_of_flag]
        setattr(options, self.dest, words_of_specification)


def _add_init(commands: Any) -> None:
    """Adds `gcjax init`."""
    parser = commands.add_parser(
        "init", help="copy a config to start from, with the source of its experiment",
        description="Copies one of the configs that come with gcjax into DIR, with the source of its experiment unless "
        "that is one of gcjax itself. Nothing that is there is overwritten.",
    )  # fmt: skip
    parser.add_argument("folder", metavar="DIR", nargs="?", help="folder to write")
    parser.add_argument("--config", metavar="NAME", default="quickstart", help="which config (default: quickstart)")
    parser.add_argument("--list", action="store_true", help="list the configs instead")
    internal_errors.add_option(parser)
    parser.set_defaults(command=init.command)


def _add_run(commands: Any) -> None:
    """Adds `gcjax run`."""
    parser = commands.add_parser("run", help="run the experiment that a config file describes")
    parser.add_argument("config", metavar="CONFIG", help="a .gin file, e.g. configs/quickstart.gin")
    _add_bindings(parser, "a gin statement that wins over the file, e.g. 'ssp.staleness = 5'; may be repeated")
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
    distributed.add_options(parser)
    internal_errors.add_option(parser)
    json_output.add_option(parser)
    parser.set_defaults(command=run.command)


def _add_sweep(commands: Any) -> None:
    """Adds `gcjax sweep`."""
    parser = commands.add_parser(
        "sweep", help="run a config for all combinations of some values, and write one table",
        description="Runs all combinations in this process, where what they share is compiled once.",
    )  # fmt: skip
    parser.add_argument("config", metavar="CONFIG", help="a .gin file whose experiment is a comparison")
    parser.add_argument(
        "--over", metavar="PARAMETER=VALUES", action="append", required=True,
        help="values with commas between them, e.g. 'ssp.staleness=0,1,3'; may be repeated",
    )  # fmt: skip
    _add_bindings(parser, "as in run")
    parser.add_argument("--out", metavar="DIR", help="folder to write, new or empty (default: runs/CONFIG-sweep-TIME)")
    parser.add_argument(
        "--resume", action="store_true",
        help="go on with the sweep in DIR, or the newest unfinished one of this config that no process is at: with the "
        "combinations that are not done, from the last checkpoint; if there is none, start it",
    )  # fmt: skip
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="as in run")
    internal_errors.add_option(parser)
    json_output.add_option(parser)
    parser.set_defaults(command=sweep.command)


def _add_bindings(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Adds `--set BINDING`, which may be repeated, to a command's parser."""
    parser.add_argument("--set", dest="bindings", metavar="BINDING", action="append", default=[], help=help_text)


def _add_list(commands: Any) -> None:
    """Adds `gcjax list`."""
    parser = commands.add_parser("list", help="list all assignments, codes, stopping rules, protocols, ...")
    parser.add_argument(
        "name", metavar="NAME", nargs="?",
        help="a kind, e.g. protocol, with the parameters of its entries; or an entry, e.g. pareto, with all about it",
    )  # fmt: skip
    json_output.add_option(parser)
    parser.set_defaults(command=listing.command)


def _add_report(commands: Any) -> None:
    """Adds `gcjax report`."""
    parser = commands.add_parser("report", help="rebuild the summary and the figures of a run or sweep")
    parser.add_argument("folder", metavar="RUN_DIR", help="a folder that 'gcjax run' or 'gcjax sweep' wrote")
    report_tables.add_options(parser)
    report_files.add_options(parser)
    internal_errors.add_option(parser)
    json_output.add_option(parser)
    parser.set_defaults(command=report.command)


def _add_check(commands: Any) -> None:
    """Adds `gcjax check`."""
    parser = commands.add_parser(
        "check", help="check what a protocol guarantees, on a small instance",
        description="Explores all states of a small instance of a protocol: whether each component keeps to its "
        "guarantee, and whether the property holds. Ends with status 1 and a shortest counterexample if not. With "
        "--schedule, holds what runs against what is promised: the schedules of all schemes of a config.",
    )  # fmt: skip
    parser.add_argument(
        "--schedule", metavar="CONFIG",
        help="check the schedules of an experiment's config, e.g. configs/quickstart.gin",
    )  # fmt: skip
    _add_bindings(parser, "with --schedule: a gin statement that wins over the file; may be repeated")
    parser.add_argument(
        "protocol", metavar="PROTOCOL", nargs="?", help="a specification, as in 'gcjax list specification'"
    )
    parser.add_argument(
        "parameters", metavar="--PARAMETER N", nargs=argparse.REMAINDER, action=_ParametersAndFlags,
        help="of the specification, e.g. --num-workers 3 --staleness 2",
    )  # fmt: skip
    internal_errors.add_option(parser)
    json_output.add_option(parser)
    parser.set_defaults(command=check.command)


def _add_algebra(commands: Any) -> None:
    """Adds `gcjax algebra laws`."""
    algebra_parser = commands.add_parser("algebra", help="try the laws of the program algebra")
    parser = algebra_parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser(
        "laws", help="try every law on random commands; status 1 if one comes out otherwise than the table says"
    )
    parser.add_argument("--states", metavar="S", type=int, default=2, help="states, at least 2 (default: 2)")
    parser.add_argument("--steps", metavar="N", type=int, default=4, help="steps of the longest trace (default: 4)")
    parser.add_argument("--instances", metavar="B", type=int, default=32, help="random instances (default: 32)")
    parser.add_argument("--seed", metavar="SEED", type=int, default=0, help="of the random commands (default: 0)")
    parser.add_argument("--page", action="store_true", help="try nothing, print the table as a Markdown page")
    parser.set_defaults(command=algebra.laws)


def _add_doctor(commands: Any) -> None:
    """Adds `gcjax doctor`."""
    parser = commands.add_parser(
        "doctor", help="say whether a run would work here: versions, devices, memory, cache; status 1 if not"
    )
    json_output.add_option(parser)
    internal_errors.add_option(parser)
    parser.set_defaults(command=doctor.command)


def _add_completion(commands: Any) -> None:
    """Adds `gcjax completion`."""
    parser = commands.add_parser("completion", help="print a script that completes commands, options and names")
    parser.add_argument(
        "shell", metavar="SHELL", choices=completion.SHELLS, help=f"one of {', '.join(completion.SHELLS)}"
    )
    internal_errors.add_option(parser)
    parser.set_defaults(command=completion.command)
