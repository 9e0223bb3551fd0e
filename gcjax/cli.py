"""The command line: run an experiment, list what can be named, rebuild a report.

Heavy modules are imported by the command that needs them, so that `gcjax --help` answers at once.
"""

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0, or 2 if the user has to change something.

    Args:
      arguments: of the command line; those of this process if None.
    """
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except ValueError as error:
        print(f"gcjax: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("gcjax: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gcjax", description="Gradient coding and synchronisation protocols under stragglers."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (_add_run, _add_list, _add_report):
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
    parser.set_defaults(command=_run)


def _add_list(commands: Any) -> None:
    parser = commands.add_parser("list", help="list all assignments, codes, stopping rules, protocols, ...")
    parser.add_argument("kind", metavar="KIND", nargs="?", help="only this kind, e.g. protocol")
    parser.set_defaults(command=_list)


def _add_report(commands: Any) -> None:
    parser = commands.add_parser("report", help="rebuild the summary and the figures of a run")
    parser.add_argument("folder", metavar="RUN_DIR", help="a folder that 'gcjax run' wrote")
    parser.set_defaults(command=_report)


def _run(options: argparse.Namespace) -> None:
    from gcjax import config, progress
    from gcjax.analysis import empty_folder

    config.load(options.config, options.bindings)
    out = empty_folder(options.out or _default_folder(options.config))
    with progress.bar() as shown:
        config.start(out, shown)
        shown.show(f"Written to {out}")


def _default_folder(config: str) -> Path:
    return Path("runs") / f"{Path(config).stem}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def _list(options: argparse.Namespace) -> None:
    from rich.table import Table
    from rich.text import Text

    from gcjax import progress, registry

    for name, kind in registry.select(options.kind).items():
        table = Table(title=f"{name}: {kind.module}.…", title_justify="left", show_edge=False, pad_edge=False)
        table.add_column("Name", no_wrap=True, style="bold")
        table.add_column("What it is")
        table.add_column("Paper")
        for entry_name, entry in sorted(kind.entries.items()):
            table.add_row(entry_name, Text(entry.summary), Text(entry.paper))
        progress.console().print(table, "")


def _report(options: argparse.Namespace) -> None:
    from gcjax import analysis, progress

    folder = Path(options.folder)
    results = analysis.load(folder)
    analysis.write_report(results, folder)
    progress.console().print(analysis.table(results))


if __name__ == "__main__":
    sys.exit(main())
