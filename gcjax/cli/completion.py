"""The command `gcjax completion`: scripts with which a shell completes commands, options, names and files.

The names are those that there are when the script is printed, so that a shell need not start Python to complete them.
"""

import argparse
import itertools
import shlex
from collections.abc import Iterable
from typing import Any

SHELLS = ("bash", "zsh", "fish")


def command(options: argparse.Namespace) -> None:
    """`gcjax completion SHELL`: prints the script."""
    import shtab

    from gcjax.cli.parser import parser

    print(shtab.complete(_with_completers(parser()), shell=options.shell))


def _with_completers(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser of the command line, where each argument that names or writes something knows what to complete."""
    import shtab

    completers = {**_name_completers(), ("", "CONFIG"): shtab.glob("*.gin")}
    kinds_of_path = {"DIR": shtab.DIRECTORY, "RUN_DIR": shtab.DIRECTORY, "FILE": shtab.FILE}
    for name, action in _actions(parser):
        metavar = str(action.metavar)
        completer = completers.get((name, metavar)) or completers.get(("", metavar)) or kinds_of_path.get(metavar)
        if completer is not None:
            action.complete = completer  # type: ignore[attr-defined]
    return parser


def _name_completers() -> dict[tuple[str, str], Any]:
    """(command, metavar of its argument) -> what completes it, for arguments that name something of gcjax."""
    from gcjax import registry
    from gcjax.cli import shipped

    kinds = registry.kinds()
    entries = {name for kind in kinds.values() for name in kind.entries}
    return {
        ("init", "NAME"): _words(shipped.configs()),
        ("list", "NAME"): _words({*kinds, *entries}),
        ("check", "PROTOCOL"): _words(kinds["specification"].entries),
    }


def _words(names: Iterable[str]) -> Any:
    """What completes one of these names, in each shell."""
    import shtab

    return shtab.cmd(shlex.join(["printf", "%s\\n", *sorted(names)]))


def _actions(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.Action]]:
    """(name of the command, argument) for the arguments of all commands, and of the commands of these."""
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [(name, action) for name, command in subparsers.choices.items() for action in _arguments(command)]


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a command, and of its own commands."""
    commands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    of_commands = [_arguments(command) for action in commands for command in action.choices.values()]
    return [*parser._actions, *itertools.chain.from_iterable(of_commands)]
