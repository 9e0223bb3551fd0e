"""Lines for a config file that name an entry of the registry, with a value for everything that it needs."""

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, get_args, get_origin

import gin
import jax
import numpy as np

from gcjax import registry
from gcjax.config.arguments import GIVEN_BY_COMMAND, signature_of, types_of_union
from gcjax.study import Tuning

# Kind -> the line that names an entry: {0} is its selector in gin, {1} its name.
_USE_LINES = {
    "assignment": "partial.assignment = @{0}()",
    "code": "coded.code = @{0}()",
    "stopping": "coded.stop = @{0}()",
    "deadline": "live.deadline = @{0}()",
    "protocol": "compare.schemes = {{'{1}': @{0}()}}",
    "groups": "grouped.groups = @{0}()",
    "straggler": "compare.stragglers = @{0}()",
    "network": "compare.network = @{0}()",
    "absences": "compare.absences = @{0}()",
    "compression": "study.compressions = {{'bsp': @{0}()}}",
    "attack": "wrong_senders.attack = @{0}()",
    "senders": "study.wrong_senders = {{'coded': @{0}()}}",
    "trace": "replay.trace = @{0}()",
    "task": "study.task = @{0}()",
    "optimizer": "study.optimizer = @{0}()",
    "study": "compare.study = @{0}()",
    "experiment": "run.experiment = @{0}",
}
_SCHEDULE_USE_LINE = "sgd.learning_rate = @{0}()"
_TUNING_USE_LINE = "import experiments.protocols\nprotocol_map.tuning = @{0}()"

# Parameter -> an example; these fit together. What is not here gets a value of the right type.
_EXAMPLES = {
    "decay_steps": 1000,
    "error": 0.1,
    "learning_rate": 0.1,
    "load": 3,
    "num_chunks": 4,
    "num_units": 300,
    "num_workers": 4,
    "persistence": 0.5,
    "probability": 0.5,
    "replication": 2,
    "slowdown": 5.0,
    "staleness": 1,
    "straggler_probabilities": 0.2,
    "straggler_probability": 0.2,
    "warmup_steps": 100,
    "window": 2,
}
_LITERALS: dict[Any, Any] = {float: 1.0, int: 1, str: None, Path: None, bool: True}
"""Type -> an example; None: the parameter's own name as text."""
_MATRIX = [[0, 1], [1, 0]]
_USUAL_NAMES = ("digits", "sgd")
"""Entries that are proposed before others of their type, however few arguments those need."""


def lines(kind: str, name: str) -> list[str]:
    """The lines to write into a config file to use an entry, and its options as comments with their defaults.

    `kind` and `name` are those of the entry in the registry. The names `coded`, `compare` and so on, that the entry is
    given to, stand for what the config has there.
    """
    kinds = registry.kinds()
    entry = kinds[kind].entries[name]
    signature = signature_of(entry.factory)
    # An optimizer that returns a function, of the step.
    is_learning_rate_schedule = kind == "optimizer" and get_origin(signature.return_annotation) is Callable
    use_line = _SCHEDULE_USE_LINE if is_learning_rate_schedule else _USE_LINES[kind]
    use_line = _TUNING_USE_LINE if signature.return_annotation is Tuning else use_line
    selector = _selector(kinds[kind], name)
    config_lines = _ConfigLines(kinds)
    config_lines.add_entry(selector, entry)
    config_lines.lines += [f"{parameter} = {value!r}" for parameter, value in entry.also_needs]
    return [
        *use_line.format(selector, name).splitlines(),
        *config_lines.lines,
        *_comments_on_defaults(selector, signature),
    ]


class _ConfigLines:
    """The lines so far that bind what an entry, and all entries that it needs, cannot do without.

    Attributes:
      kinds: the registry, where entries to name are looked for.
      lines: as in a config file.
    """

    def __init__(self, kinds: dict[str, registry.Kind]) -> None:
        """No lines yet."""
        self.kinds = kinds
        self.lines: list[str] = []
        self._written_selectors: set[str] = set()

    def add_entry(self, selector: str, entry: registry.Entry) -> None:
        """Adds a line for each required parameter of an entry, and those of the entries named there; once an entry.

        Args:
          selector: the entry's name in gin.
          entry: of the registry.
        """
        if selector in self._written_selectors:
            return
        self._written_selectors.add(selector)
        named_entries: list[tuple[str, registry.Entry]] = []
        for parameter in _required_parameters(signature_of(entry.factory)):
            example = self._example_text(parameter.name, parameter.annotation, entry, named_entries)
            takes_several = parameter.kind is parameter.VAR_POSITIONAL
            self.lines.append(f"{selector}.{parameter.name} = {f'[{example}]' if takes_several else example}")
        for named_selector, named_entry in named_entries:
            self.add_entry(named_selector, named_entry)

    def _example_text(
        self, parameter: str, annotation: Any, owner: registry.Entry, named_entries: list[tuple[str, registry.Entry]]
    ) -> str:
        """An example of a value, as gin writes it: a number or text, a collection, another entry, or an array; or None.

        Args:
          parameter: the name of the parameter that gets the value.
          annotation: its type.
          owner: the entry that has the parameter, which is no example for itself.
          named_entries: gets the (selector, entry) that the value names, if it names one.
        """
        accepted_types = types_of_union(annotation)
        if parameter == "rng_key":
            self._written_selectors.add("key")
            if "key.seed = 0" not in self.lines:
                self.lines.append("key.seed = 0")
            return "@key()"
        for literal_type, literal in _LITERALS.items():
            if literal_type in accepted_types:
                return repr(_EXAMPLES.get(parameter, parameter if literal is None else literal))
        for accepted_type in accepted_types:
            text = self._example_of_collection(parameter, accepted_type, owner, named_entries)
            if text is not None:
                return text
            named_entry = _simplest_entry(self.kinds, accepted_type, owner)
            if named_entry is not None:
                named_entries.append(named_entry)
                selector, _ = named_entry
                takes_factory_itself = get_origin(accepted_type) is Callable
                return f"@{selector}" if takes_factory_itself else f"@{selector}()"
        array_types = (Any, Parameter.empty, jax.Array, np.ndarray)
        return repr(_MATRIX) if any(accepted_type in array_types for accepted_type in accepted_types) else "None"

    def _example_of_collection(
        self, parameter: str, annotation: Any, owner: registry.Entry, named_entries: list[tuple[str, registry.Entry]]
    ) -> str | None:
        """An example of a dict or a list with one item, or of a pair, as gin writes it; None for another annotation.

        Arguments are those of `_example_text`.
        """
        collection_type, item_types = get_origin(annotation), get_args(annotation)
        if not isinstance(collection_type, type) or not item_types or collection_type is types.UnionType:
            return None
        if issubclass(collection_type, Mapping):
            _, value_type = item_types
            return "{'name': " + self._example_text(parameter, value_type, owner, named_entries) + "}"
        if issubclass(collection_type, Sequence):
            item_type = item_types[0]
            pair = _example_of_pair(item_type)
            return pair or f"[{self._example_text(parameter, item_type, owner, named_entries)}]"
        return None


def _example_of_pair(item_type: Any) -> str:
    """Two numbers, or two groups of two workers, as gin writes them, for items of a type; empty for another type."""
    if item_type is int:
        return "(1, 2)"
    if item_type is float:
        return "(1.0, 2.0)"
    is_group_of_workers = get_args(item_type)[:1] == (int,)
    return "((0, 1), (2, 3))" if is_group_of_workers else ""


def _required_parameters(signature: Signature) -> Iterator[Parameter]:
    """The parameters of a factory that a config must bind, `*args` among them."""
    for parameter in signature.parameters.values():
        is_required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if is_required and parameter.name not in GIVEN_BY_COMMAND:
            yield parameter


def _comments_on_defaults(selector: str, signature: Signature) -> Iterator[str]:
    """A comment for each parameter with a default that gin can write."""
    for parameter in signature.parameters.values():
        default_text = _literal_text(parameter.default)
        if default_text is not None and parameter.name not in GIVEN_BY_COMMAND:
            yield f"# {selector}.{parameter.name} = {default_text}"


def _literal_text(value: Any) -> str | None:
    """A value as gin writes it; None if it cannot, as it cannot write NaN, or infinity in a tuple."""
    if isinstance(value, float) and value == math.inf:
        return "1e999  # infinity"
    text, is_literal = repr(value), value is None or isinstance(value, (bool, int, float, str, tuple))
    return text if is_literal and "inf" not in text and "nan" not in text else None


def _selector(kind: registry.Kind, name: str) -> str:
    """The shortest name by which gin knows the entry `name` of a kind."""
    return str(gin.config._REGISTRY.minimal_selector(f"{kind.module_of(name)}.{name}"))


def _simplest_entry(
    kinds: dict[str, registry.Kind], annotation: Any, owner: registry.Entry
) -> tuple[str, registry.Entry] | None:
    """The selector and the entry, other than `owner`, to propose for a parameter of this type.

    It is the usual one, or else the one with the fewest arguments. For a `Callable[..., T]` it is one that makes a
    T. None if there is none.
    """
    is_factory_type = get_origin(annotation) is Callable and get_args(annotation)
    needed_type = get_args(annotation)[-1] if is_factory_type else annotation
    if not isinstance(needed_type, type):
        return None
    # The least comes first: a usual one (False), with few arguments, by name.
    complexities_and_entries = [
        ((name not in _USUAL_NAMES, _required_parameter_counts(entry), _selector(kind, name)), entry)
        for kind in kinds.values()
        if kind.in_configs
        for name, entry in kind.entries.items()
        if entry != owner and _makes(entry, needed_type)
    ]
    if not complexities_and_entries:
        return None
    (_, _, selector), simplest_entry = min(complexities_and_entries, key=lambda pair: pair[0])
    return selector, simplest_entry


def _makes(entry: registry.Entry, needed_type: type) -> bool:
    """Whether the factory of an entry says that it returns an instance of this type."""
    returned_type = signature_of(entry.factory).return_annotation
    is_plain_type = isinstance(returned_type, type) and get_origin(returned_type) is None
    return is_plain_type and issubclass(returned_type, needed_type)


def _required_parameter_counts(entry: registry.Entry) -> tuple[int, int]:
    """How many required parameters an entry has that cannot be of a type in `_LITERALS`, and how many in all."""
    required_parameters = list(_required_parameters(signature_of(entry.factory)))
    takes_literal = [
        any(accepted_type in _LITERALS for accepted_type in types_of_union(parameter.annotation))
        for parameter in required_parameters
    ]
    return takes_literal.count(False), len(required_parameters)
