"""What `gcjax list --json` prints."""

from inspect import Parameter
from typing import Any

from gcjax import config, registry
from gcjax.cli.listing_tables import check_name, default_text
from gcjax.config.arguments import short_type_text, signature_of


def kinds_json(name: str | None) -> dict[str, Any]:
    """All kinds with all their entries; or one kind, or each entry, of this name.

    Raises:
      ValueError: if nothing has this name.
    """
    config.register_entries()
    kinds = registry.kinds()
    check_name(name, kinds)
    shown_kinds = {}
    for kind_name, kind in kinds.items():
        entry_names = [entry_name for entry_name in kind.entries if name in (None, kind_name, entry_name)]
        if entry_names or kind_name == name:
            shown_kinds[kind_name] = {entry_name: _entry_json(kind, entry_name) for entry_name in sorted(entry_names)}
    return {"kinds": shown_kinds}


def _entry_json(kind: registry.Kind, name: str) -> dict[str, Any]:
    """An entry: its first sentence, its paper, its module, and its parameters."""
    entry = kind.entries[name]
    signature = signature_of(entry.factory)
    return {
        "summary": entry.summary,
        "paper": entry.paper,
        "module": entry.factory.__module__,
        "in_configs": kind.in_configs,
        "parameters": {parameter.name: _parameter_json(parameter) for parameter in signature.parameters.values()},
    }


def _parameter_json(parameter: Parameter) -> dict[str, Any]:
    """The type and the default of a parameter, null where it has none, and whether a call must give it."""
    has_default = parameter.default is not parameter.empty
    takes_any_number_of_arguments = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return {
        "type": None if parameter.annotation is parameter.empty else short_type_text(parameter.annotation),
        "required": not has_default and not takes_any_number_of_arguments,
        "default": default_text(parameter.default) if has_default else None,
    }
