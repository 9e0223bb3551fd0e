"""The table of everything that a user can name: assignments, codes, stopping rules, protocols, ...

Each subpackage lists its own entries; nothing here knows a code or a protocol by name. What lies outside of this
package comes by `register`, from a module that was imported: by the user, by a config file, or as an entry point of the
group `gcjax.plugins` (see `gcjax.plugins`).
"""

import difflib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

# Kind -> the module and the name of its table of entries; empty for optax, which has none.
_MODULE_AND_TABLE_OF_KIND = {
    "assignment": ("gcjax.codes.assignments", "TABLE"),
    "code": ("gcjax.codes", "TABLE"),
    "stopping": ("gcjax.codes.stopping", "TABLE"),
    "deadline": ("gcjax.engine.live", "TABLE"),
    "protocol": ("gcjax.protocols", "TABLE"),
    "groups": ("gcjax.protocols", "GROUPS"),
    "specification": ("gcjax.specifications", "TABLE"),
    "straggler": ("gcjax.stragglers", "TABLE"),
    "network": ("gcjax.stragglers", "NETWORKS"),
    "absences": ("gcjax.stragglers", "ABSENCES"),
    "compression": ("gcjax.compression", "TABLE"),
    "attack": ("gcjax.engine.wrong_messages", "ATTACKS"),
    "senders": ("gcjax.engine.wrong_messages", "SENDERS"),
    "trace": ("gcjax.stragglers", "TRACES"),
    "task": ("gcjax.tasks", "TABLE"),
    "optimizer": ("optax", ""),
    "study": ("gcjax.study", "TABLE"),
    "experiment": ("gcjax.study", "EXPERIMENTS"),
}

_OPTAX_NAMES = (
    "adam",
    "adamw",
    "add_decayed_weights",
    "chain",
    "clip_by_global_norm",
    "constant_schedule",
    "cosine_decay_schedule",
    "exponential_decay",
    "lion",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "rmsprop",
    "sgd",
    "warmup_cosine_decay_schedule",
)

# What these make depends on nothing but the arguments; a task may read a file.
_COMPARABLE_KINDS = (
    "code", "stopping", "deadline", "protocol", "groups", "specification", "straggler", "compression", "attack",
    "senders", "optimizer",
)  # fmt: skip

NOT_IN_CONFIGS = ("specification",)  # they are named as the protocols

Factory = TypeVar("Factory", bound=Callable[..., Any])


class Entry(NamedTuple):
    """One thing that a user can name.

    Attributes:
      factory: the function that makes it.
      paper: where it comes from (authors, year); empty if it is nobody's in particular.
      also_needs: parameters of other entries that must be given a value for it, as in a config, each with an example.
    """

    factory: Callable[..., Any]
    paper: str = ""
    also_needs: tuple[tuple[str, Any], ...] = ()

    @property
    def summary(self) -> str:
        """The first line of the factory's docstring."""
        return (self.factory.__doc__ or "").strip().partition("\n")[0]

    @property
    def factory_name(self) -> str:
        """The full name of the factory in Python."""
        return f"{self.factory.__module__}.{self.factory.__qualname__}"


class Kind(NamedTuple):
    """The entries of one sort.

    Attributes:
      module: the module in whose name the entries of this package are known, in Python and in config files.
      entries: name -> entry.
      in_configs: whether config files can name them.
      outside_names: of those entries that were registered from outside; each is known in the name of the module
        that its factory is in.
    """

    module: str
    entries: dict[str, Entry]
    in_configs: bool = True
    outside_names: frozenset[str] = frozenset()

    def module_of(self, name: str) -> str:
        """The module in whose name an entry is known."""
        return str(self.entries[name].factory.__module__) if name in self.outside_names else self.module


Subscriber = Callable[[str, str, Entry], None]
"""`(kind, name, entry)`, called for each entry that is registered from outside."""

_outside_entries: dict[str, dict[str, Entry]] = {kind: {} for kind in _MODULE_AND_TABLE_OF_KIND}
_subscribers: list[Subscriber] = []


def register(kind: str, *, name: str | None = None, paper: str = "") -> Callable[[Factory], Factory]:
    """Makes a factory of your own known to config files, `gcjax list` and `gcjax check --schedule`.

    A specification is known to `gcjax check NAME`, too.

    What it makes from equal arguments is equal then (see `gcjax.comparable`); otherwise it stays what it is.

        @gcjax.register("protocol", paper="Somebody et al. 2030")
        def lazy(*, patience: float) -> gcjax.protocols.Protocol:
            ...

    The config file imports its module, or an entry point of the group `gcjax.plugins` names it. A factory that is
    registered again, since its cell or module is run once more, takes its own place.

    Args:
      kind: assignment, code, stopping, deadline, protocol, groups, specification, straggler, network, absences,
        compression, attack, senders, trace, task, optimizer, study or experiment.
      name: what it is called; the name of the function by default.
      paper: where it comes from (authors, year).

    Raises:
      ValueError: if there is no such kind, or none is given, or the factory is no function, or its name is taken.
    """
    if not isinstance(kind, str):
        raise ValueError(f'register must be given a kind, as in @gcjax.register("protocol"); got {kind!r:.200}.')
    if kind not in _MODULE_AND_TABLE_OF_KIND:
        raise ValueError(
            f"There is no kind '{kind}' to register. {nearest_names_sentence(kind, _MODULE_AND_TABLE_OF_KIND)}"
        )

    def add(factory: Factory) -> Factory:
        """Registers a factory as `kind` under `name`, and returns it, comparable where the kind allows it."""
        entry_name = _valid_entry_name(kind, name, factory)
        if kind in _COMPARABLE_KINDS:
            from gcjax.equality import comparable

            factory = cast(Factory, comparable(factory))
        _add_outside_entry(kind, entry_name, Entry(factory, paper))
        return factory

    return add


def _valid_entry_name(kind: str, name: str | None, factory: Any) -> str:
    """The name to register a factory by: `name`, or by default its own; a `ValueError` if it is no identifier."""
    if not callable(factory) or not hasattr(factory, "__qualname__"):
        raise ValueError(f"What is registered as {kind} must be a function; got {factory!r}. Write it with def.")
    name = factory.__name__ if name is None else name
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"The name of a {kind} must be one that Python could give; got {name!r}. Pass name='...'.")
    return name


def _add_outside_entry(kind: str, name: str, entry: Entry) -> None:
    """Adds an entry from outside of gcjax and tells the subscribers.

    An entry of the same factory (by its full name) is replaced: its cell or module has been run once more.

    Raises:
      ValueError: if the name is taken, here or by a subscriber; the table is then as it was.
    """
    registered_entries = {**_kind_of_package(kind).entries, **_outside_entries[kind]}
    if name in registered_entries and registered_entries[name].factory_name != entry.factory_name:
        raise name_taken_error(kind, name, entry, registered_entries[name].factory_name)
    replaced_entry = _outside_entries[kind].get(name)
    _outside_entries[kind][name] = entry
    try:
        for subscriber in _subscribers:
            subscriber(kind, name, entry)
    except ValueError:
        _outside_entries[kind].pop(name)
        if replaced_entry is not None:
            _outside_entries[kind][name] = replaced_entry
        raise


def name_taken_error(kind: str, name: str, entry: Entry, name_holder: str) -> ValueError:
    """What to raise if an entry has a name that something else has already."""
    return ValueError(
        f"The {kind} {entry.factory_name} cannot be called '{name}', since {name_holder} has this name. "
        f"Register it under another one: register('{kind}', name='...')."
    )


def subscribe(subscriber: Subscriber) -> None:
    """Calls a function for each entry from outside of gcjax: now for those so far, later for each new one."""
    for kind, entries in _outside_entries.items():
        for name, entry in entries.items():
            subscriber(kind, name, entry)
    _subscribers.append(subscriber)


def outside_entries() -> list[Entry]:
    """All entries from outside of gcjax."""
    return [entry for entries in _outside_entries.values() for entry in entries.values()]


def remove_outside_entries(is_to_be_removed: Callable[[Entry], bool]) -> None:
    """Removes the entries from outside of gcjax for which a condition holds."""
    for entries in _outside_entries.values():
        for name in [name for name, entry in entries.items() if is_to_be_removed(entry)]:
            del entries[name]


def own_kinds() -> dict[str, Kind]:
    """The entries of this package by kind; the subpackages are imported only now, since they import `Entry` from here.

    Those of optax that config files can name are among them.
    """
    return {kind: _kind_of_package(kind) for kind in _MODULE_AND_TABLE_OF_KIND}


def kinds() -> dict[str, Kind]:
    """All entries by kind, also those from outside; imports the plugins when it is first called."""
    from gcjax import plugins

    plugins.load()
    return {
        name: kind._replace(
            entries={**kind.entries, **_outside_entries[name]}, outside_names=frozenset(_outside_entries[name])
        )
        for name, kind in own_kinds().items()
    }


def _kind_of_package(kind: str) -> Kind:
    """A kind with the entries of this package, or with those of optax that config files can name."""
    module_name, table_name = _MODULE_AND_TABLE_OF_KIND[kind]
    module = import_module(module_name)
    is_of_optax = not table_name
    if is_of_optax:
        comparable = import_module("gcjax.equality").comparable
        entries = {name: Entry(comparable(getattr(module, name))) for name in _OPTAX_NAMES}
    else:
        entries = getattr(module, table_name)
    return Kind(module_name, entries, in_configs=kind not in NOT_IN_CONFIGS)


def nearest_names_sentence(name: str, valid: Iterable[str]) -> str:
    """A sentence with the valid names that `name` stands for or looks like, in any case; all of them if there is none.

    It stands for those of several words, `learning_rate`, whose initials it is, `lr`.
    """
    names = sorted(set(valid))
    names_by_lower_case = {valid_name.lower(): valid_name for valid_name in names}
    similar_names = [
        valid_name
        for valid_name in names
        if "_" in valid_name and name.lower() == "".join(word[:1] for word in valid_name.lower().split("_"))
    ] or [
        names_by_lower_case[match]
        for match in difflib.get_close_matches(name.lower(), names_by_lower_case, n=3, cutoff=0.5)
    ]
    if similar_names:
        return f"Did you mean {' or '.join(similar_names)}?"
    return f"Known: {', '.join(names)}." if names else "There is none."
