"""Turns gin's errors into `ValueError`s that name the nearest valid name."""

import difflib
import inspect
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gin.config

from gcjax import memory
from gcjax.config import bound_values
from gcjax.config.arguments import GIVEN_BY_COMMAND
from gcjax.registry import nearest_names_sentence

_UNPARSED_TOKEN = re.compile(r"Failed to parse token '(?P<name>.*)'")
PLACE = re.compile(r"\n  In (?:file \"(?P<file>.*?)\",|bindings string) line (?P<line>\d+)\n *(?P<text>.*)(?:\n *\^)?")
_CONFIGURABLE_CALL = re.compile(
    r"\n  In call to configurable '(?P<name>[\w.]+)' \(.*?\)(?: in scope '(?P<scope>.*?)')?(?=\n|$)"
)

_GRAMMAR_HINT = (
    "A value is a number, a 'text' in quotes, True, None, a list, @name(), @name or %macro; arguments have lines of "
    "their own, as in name.argument = 3."
)


@contextmanager
def errors_in_words(binding: str = "", file: Path | None = None) -> Iterator[None]:
    """Reraises errors of gin and of the factories that a config names as `ValueError`s in plain words.

    Errors that have no such words, other than `ValueError`s, are left as they are.

    Args:
      binding: the single statement that is being read, if it is one.
      file: the config file that is being read, if it is one.
    """
    try:
        yield
    except SyntaxError as error:
        is_config = file is not None and error.filename == str(file)
        if str(error.filename).endswith(".py") and not is_config:  # of a module that the config imports
            raise ValueError(f"{error.filename} line {error.lineno} is no Python: {error.msg}.") from error
        raise ValueError(f"Cannot read {_syntax_problem(error, binding, file)}") from None
    except tokenize.TokenError as error:
        raise ValueError(f"Cannot read {_unclosed_statement(binding, file)}{config_place_text(str(error))}") from error
    except (KeyError, NameError, TypeError, OSError, ModuleNotFoundError, ValueError) as error:
        message = explanation(str(error))
        if message is None and not isinstance(error, ValueError):
            raise
        raise ValueError((message or without_gin_suffixes(str(error))) + config_place_text(str(error))) from error
    except RecursionError as error:
        if _CONFIGURABLE_CALL.search(str(error)):  # of what a config has called: a mistake in there
            raise
        raise ValueError(
            f"A value of a config must not be nested so deeply. Use fewer brackets.{config_place_text(str(error))}"
        ) from error
    except OverflowError as error:
        raise ValueError(
            f"A number is too large to compute with: {first_line(error)}{config_place_text(str(error))}"
        ) from error
    except Exception as error:
        if not memory.is_exhausted(error):
            raise
        raise ValueError(
            f"This needs more memory than there is: {first_line(error)} Make what the config asks for smaller."
            f"{config_place_text(str(error))}"
        ) from error


def bound_macros() -> set[str]:
    """The names of the macros (`name = value`) that have a value."""
    return {scope for scope, selector in gin.config._CONFIG if selector == "gin.macro"}  # the scope is the name


def check_macros(macros_of_file: set[str]) -> None:
    """Checks that every macro (`%name`) that is used has a value, and that every value of a macro is used.

    A macro of the file may be unused, since another binding may have won over the one that used it, unless
    its name looks like that of a used one: a misspelt name would have no effect at all.

    Args:
      macros_of_file: the macros that the config file binds.

    Raises:
      ValueError: naming the nearest macro.
    """
    bound_names, macro = bound_macros(), gin.config.get_configurable("gin.macro")
    references = gin.config.iterate_references(gin.config._CONFIG, to=macro)
    used_names = {"/".join(reference.scopes) for reference in references}  # the scope is the name
    for name in sorted(used_names - bound_names):
        raise ValueError(
            f"%{name} must be given a value, as '{name} = ...'. {nearest_names_sentence(name, bound_names)}"
        )
    for name in sorted(bound_names - used_names):
        if name not in macros_of_file or difflib.get_close_matches(name, used_names, cutoff=0.85):
            raise ValueError(
                f"'{name} = ...' sets a value that nothing uses. {nearest_names_sentence(name, used_names)} "
                "A parameter is set by name.parameter = value."
            )


def _syntax_problem(error: SyntaxError, binding: str, file: Path | None) -> str:
    """The end of an error: the statement of a config that gin cannot read, a single `binding` or in a file, and why."""
    if file is not None and _open_bracket_line(file) is not None:
        return _unclosed_statement(binding, file)
    source = f"'{binding}'" if binding else f"{error.filename} line {error.lineno}: {(error.text or '').strip()}"
    token = _UNPARSED_TOKEN.search(str(error.msg))
    reason = f"{token['name']} is no value" if token else str(error.msg).rstrip(".")
    return f"{source}: {reason}. {_GRAMMAR_HINT}"


def _unclosed_statement(binding: str, file: Path | None) -> str:
    """The end of an error: what ended in the middle of a statement, the single `binding` or a file, and why."""
    line_number = None if file is None else _open_bracket_line(file)
    source = f"'{binding}'" if binding else file or "a config file"
    if line_number is None:
        return f"{source}: a bracket or a text in quotes is never closed. Close it."
    return f"{source} line {line_number}: its bracket is never closed. Close it."


def _open_bracket_line(file: Path) -> int | None:
    """The line of the innermost bracket that a file never closes; None if there is none."""
    open_lines: list[int] = []
    try:
        with tokenize.open(file) as source_file:
            for token in tokenize.generate_tokens(source_file.readline):
                if token.string in ("(", "[", "{"):
                    open_lines.append(token.start[0])
                elif token.string in (")", "]", "}") and open_lines:
                    open_lines.pop()
    except tokenize.TokenError as error:
        return open_lines[-1] if open_lines and "EOF in multi-line statement" in str(error) else None
    except SyntaxError:
        return None
    return None


def first_line(error: BaseException) -> str:
    """The first line of what an error says, without what gin adds, as a sentence; its type if it says nothing."""
    line = (without_gin_suffixes(str(error)).splitlines() or [type(error).__name__])[0]
    return f"{line[:300].rstrip('.')}."


def without_gin_suffixes(message: str) -> str:
    """The message without the lines of the config and the calls of configurables that gin appends."""
    return _CONFIGURABLE_CALL.sub("", PLACE.sub("", message)).strip()


def config_place_text(message: str) -> str:
    """The line of the config file, or the innermost configurable that was being called, that gin's message tells.

    Returns:
      A line in brackets to append to an error; empty if the message tells neither.
    """
    for place in PLACE.finditer(message):
        if place["file"]:
            return f"\n  ({place['file']} line {place['line']}: {place['text']})"
    for configurable_call in _CONFIGURABLE_CALL.finditer(message):
        if configurable_call["name"] != "run" and not message.startswith(configurable_call["name"]):
            scoped_name = (
                f"{configurable_call['scope'] + '/' if configurable_call['scope'] else ''}{configurable_call['name']}"
            )
            return (
                f"\n  (in {scoped_name}{bound_values.bindings_in_message(without_gin_suffixes(message), scoped_name)})"
            )
    return ""


def explanation(message: str) -> str | None:
    """An error in plain words for a message of gin; None if the message is not one that gin is known to give."""
    for pattern, explain in _EXPLANATIONS.items():
        if match := re.search(pattern, message):
            return explain(**match.groupdict())
    return None


def _unknown_name_message(name: str) -> str:
    """An error for the name of a configurable that gin does not know."""
    valid_names = {selector.rsplit(".", 1)[-1] for selector, _ in gin.config._REGISTRY.items()}
    return f"Nothing is called '{name}'. {nearest_names_sentence(name.rsplit('.', 1)[-1], valid_names)} See gcjax list."


def _unknown_parameter_message(name: str, parameter: str) -> str:
    """An error for a parameter that the configurable `name` does not have."""
    signature = inspect.signature(gin.config.get_configurable(name))
    nearest_sentence = nearest_names_sentence(parameter, set(signature.parameters) - set(GIVEN_BY_COMMAND))
    return f"{name} has no parameter '{parameter}'. {nearest_sentence}"


def _ambiguous_name_message(name: str, names: str) -> str:
    """An error for a name that several configurables have; `names` is the list of their full names, as text.

    It proposes these without their package.
    """
    full_names = [full_name.strip(" '") for full_name in names.strip("[]").split(",")]
    unambiguous = " or ".join(full_name.split(".", 1)[1] for full_name in full_names)
    return f"'{name}' could be any of {', '.join(full_names)}. Write {unambiguous}."


def _unknown_experiment_message(name: str) -> str:
    """An error for a module `experiments.X`, called `name`, that is in no folder `experiments` of `sys.path`."""
    module = name.removeprefix("experiments").lstrip(".")
    folders = [Path(folder) / "experiments" for folder in sys.path]
    known_modules = {file.stem for folder in folders for file in folder.glob("[a-z]*.py")}
    return f"There is no experiment module '{module or name}'. {nearest_names_sentence(module, known_modules)}"


# A pattern of what gin says -> what makes an error of the groups that it finds. The first that is found counts.
_EXPLANATIONS: dict[str, Callable[..., str]] = {
    r"No configurable matching (?:reference )?'@?(?P<name>[\w./]+)(?:\(\))?'": _unknown_name_message,
    r"Configurable '(?P<name>[\w.]+)' doesn't have a parameter named '(?P<parameter>\w+)'": _unknown_parameter_message,
    r"Configurable '(?P<name>[\w.]+)' has denylisted kwarg '(?P<parameter>\w+)'": (
        "{name}.{parameter} is given by the command that runs the config. Leave it out; gcjax run --out is the folder "
        "to write.".format
    ),
    r"Ambiguous selector '(?P<name>[\w.]+)', matches (?P<names>\[.*?\])": _ambiguous_name_message,
    r"No module named '(?P<name>experiments(?:\.\w+)*)'": _unknown_experiment_message,
    r"No module named '(?P<name>[\w.]+)'": (
        "No module '{name}' can be imported. Install it, or start gcjax in the folder that '{name}' lies in.".format
    ),
    r"can't decode byte (?P<byte>0x\w+) in position (?P<position>\d+)": (
        "A config file must be text in UTF-8; its byte {position} is {byte}. Save it as UTF-8.".format
    ),
    r"unhashable type: '(?P<name>[\w.]+)'": (
        "A key in {{}} must be a text or a number; got one of type {name}. Replace it.".format
    ),
    # `%name` as a key of a dict, where gin does not say which macro it is.
    r"^macro\(\) missing 1 required positional argument: 'value'": (
        "A macro is used as a key in {{}}, and has no value. Give it one, as 'name = ...' for %name.".format
    ),
    # In a config that asks gin to know only what it imports itself.
    r"'(?P<name>[\w.]+)' was not provided by an import statement": (
        "With dynamic registration gin knows only what a config imports, and not '{name}'. Take the line 'from "
        "__gin__ import dynamic_registration' out.".format
    ),
    r"Unable to open file: (?P<file>.*?)\. Searched": (
        "An included config file must exist; there is no '{file}'.".format
    ),
}
