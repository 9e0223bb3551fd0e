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

    completers = _name_completers()
    completer_of_any_command = {"CONFIG": shtab.glob("*.gin")}
    path_kinds = {"DIR": shtab.DIRECTORY, "RUN_DIR": shtab.DIRECTORY, "FILE": shtab.FILE}
    for command_name, argument in _arguments_of_commands(parser):
        metavar = str(argument.metavar)
        completer = (
            completers.get((command_name, metavar)) or completer_of_any_command.get(metavar) or path_kinds.get(metavar)
        )
        if completer is not None:
            argument.complete = completer  # type: ignore[attr-defined]
    return parser


def _name_completers() -> dict[tuple[str, str], Any]:
    """(command, metavar of its argument) -> what completes it, for arguments that name something of gcjax."""
    from gcjax import registry
    from gcjax.cli import shipped

    kinds = registry.kinds()
    entry_names = {name for kind in kinds.values() for name in kind.entries}
    return {
        ("init", "NAME"): _names_completer(shipped.configs()),
        ("list", "NAME"): _names_completer({*kinds, *entry_names}),
        ("check", "PROTOCOL"): _names_completer(kinds["specification"].entries),
    }


def _names_completer(names: Iterable[str]) -> Any:
    """What completes one of these names, in each shell."""
    import shtab

    return shtab.cmd(shlex.join(["printf", "%s\\n", *sorted(names)]))


def _arguments_of_commands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.Action]]:
    """(name of the command, argument) for the arguments of all commands, and of the commands of these."""
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [(name, action) for name, command in subparsers.choices.items() for action in _arguments(command)]


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a command, and of its own commands."""
    commands = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    of_commands = [_arguments(command) for action in commands for command in action.choices.values()]
    return [*parser._actions, *itertools.chain.from_iterable(of_commands)]
