"""Lines for a config file that name an entry of the registry, with a value for everything that it needs."""

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, get_args, get_origin

import gin
import jax
import numpy as np

from gcjax import registry
from gcjax.config.arguments import alternatives, signature_of

_USES = {
    "assignment": "partial.assignment = @{0}()",
    "code": "coded.code = @{0}()",
    "stopping": "coded.stop = @{0}()",
    "deadline": "live.deadline = @{0}()",
    "protocol": "compare.schemes = {{'{1}': @{0}()}}",
    "groups": "grouped.groups = @{0}()",
    "straggler": "compare.stragglers = @{0}()",
    "network": "compare.network = @{0}()",
    "task": "study.task = @{0}()",
    "optimizer": "study.optimizer = @{0}()",
    "study": "compare.study = @{0}()",
    "experiment": "run.experiment = @{0}",
}
_SCHEDULE = "sgd.learning_rate = @{0}()"

# Numbers that fit together; what is not here gets one of the right type.
_VALUES = {
    "decay_steps": 1000,
    "error": 0.1,
    "learning_rate": 0.1,
    "load": 3,
    "num_chunks": 4,
    "num_workers": 4,
    "persistence": 0.5,
    "probability": 0.5,
    "replication": 2,
    "slowdown": 5.0,
    "warmup_steps": 100,
    "window": 2,
}
_LITERALS: dict[Any, Any] = {float: 1.0, int: 1, str: None, Path: None, bool: True}  # text: the parameter's own name
_MATRIX = [[0, 1], [1, 0]]


def lines(kind: str, name: str) -> list[str]:
    """What to write into a config file to use an entry, and its options as comments with their defaults.

    The names `coded`, `compare` and so on, that the entry is given to, stand for what the config has there.
    """
    kinds = registry.kinds()
    entry = kinds[kind].entries[name]
    use = _USES[kind]
    if kind == "optimizer" and get_origin(signature_of(entry.factory).return_annotation) is Callable:
        use = _SCHEDULE
    selector = _selector(kinds[kind], name)
    written = _Lines(kinds)
    written.add(selector, entry)
    return [use.format(selector, name), *written.lines, *_options(selector, signature_of(entry.factory))]


class _Lines:
    """The lines so far, of an entry and of all that it needs."""

    def __init__(self, kinds: dict[str, registry.Kind]) -> None:
        self.kinds = kinds
        self.lines: list[str] = []
        self._names: set[str] = set()

    def add(self, selector: str, entry: registry.Entry) -> None:
        """Writes what an entry needs, unless that has been done."""
        if selector in self._names:
            return
        self._names.add(selector)
        needed: list[tuple[str, registry.Entry]] = []
        for parameter in _required(signature_of(entry.factory)):
            value = self._value(parameter.name, parameter.annotation, entry, needed)
            value = f"[{value}]" if parameter.kind is parameter.VAR_POSITIONAL else value
            self.lines.append(f"{selector}.{parameter.name} = {value}")
        for other in needed:
            self.add(*other)

    def _value(self, name: str, wanted: Any, user: registry.Entry, needed: list[tuple[str, registry.Entry]]) -> str:
        """A value of this type as gin writes it; the entries that it names are put into `needed`."""
        options = alternatives(wanted)
        if name == "rng_key":
            self._names.add("key")
            if "key.seed = 0" not in self.lines:
                self.lines.append("key.seed = 0")
            return "@key()"
        for literal, value in _LITERALS.items():
            if literal in options:
                return repr(_VALUES.get(name, name if value is None else value))
        for option in options:
            if (text := self._collection(name, option, user, needed)) is not None:
                return text
        for option in options:
            if simplest := _simplest(self.kinds, option, user):
                needed.append(simplest)
                return f"@{simplest[0]}" + ("" if get_origin(option) is Callable else "()")
        arrays = (Any, Parameter.empty, jax.Array, np.ndarray)
        return repr(_MATRIX) if any(option in arrays for option in options) else "None"

    def _collection(
        self, name: str, option: Any, user: registry.Entry, needed: list[tuple[str, registry.Entry]]
    ) -> str | None:
        """A dict or a list with one entry, or a pair; None if the type is neither."""
        origin, inner = get_origin(option), get_args(option)
        if not isinstance(origin, type) or not inner or origin is types.UnionType:
            return None
        if issubclass(origin, Mapping):
            return "{'name': " + self._value(name, inner[1], user, needed) + "}"
        if issubclass(origin, Sequence):
            return _pair(inner[0]) or f"[{self._value(name, inner[0], user, needed)}]"
        return None


def _pair(inner: Any) -> str:
    """Two numbers, or two pairs of workers."""
    if inner is int:
        return "(1, 2)"
    if inner is float:
        return "(1.0, 2.0)"
    return "((0, 1), (2, 3))" if get_args(inner)[:1] == (int,) else ""


def _required(signature: Signature) -> Iterator[Parameter]:
    for parameter in signature.parameters.values():
        by_command = parameter.name in ("out", "progress")
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD and not by_command:
            yield parameter


def _options(selector: str, signature: Signature) -> Iterator[str]:
    for parameter in signature.parameters.values():
        default = parameter.default
        if default is None or isinstance(default, (bool, int, float, str, tuple)):
            text = repr(default)
            if "inf" not in text and "nan" not in text:
                yield f"# {selector}.{parameter.name} = {text}"


def _selector(kind: registry.Kind, name: str) -> str:
    """The shortest name that gin knows an entry by."""
    return str(gin.config._REGISTRY.minimal_selector(f"{kind.module_of(name)}.{name}"))


def _simplest(kinds: dict[str, registry.Kind], wanted: Any, user: registry.Entry) -> tuple[str, registry.Entry] | None:
    """The entry that makes a thing of this type, or of the type that a callable returns, and needs least."""
    product = get_args(wanted)[-1] if get_origin(wanted) is Callable and get_args(wanted) else wanted
    candidates = [
        (_cost(entry), _selector(kind, name), entry)
        for kind in kinds.values()
        for name, entry in (kind.entries.items() if kind.in_configs and isinstance(product, type) else ())
        if entry != user and _makes(entry, product)
    ]
    return min(candidates, key=lambda each: each[:2])[1:] if candidates else None


def _makes(entry: registry.Entry, wanted: type) -> bool:
    returned = signature_of(entry.factory).return_annotation
    return isinstance(returned, type) and get_origin(returned) is None and issubclass(returned, wanted)


def _cost(entry: registry.Entry) -> tuple[int, int]:
    required = list(_required(signature_of(entry.factory)))
    literal = [any(option in _LITERALS for option in alternatives(parameter.annotation)) for parameter in required]
    return literal.count(False), len(required)
