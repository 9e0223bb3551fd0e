"""What `gcjax list --json` prints."""

from typing import Any

from gcjax import config, registry
from gcjax.cli.listing_tables import check_name, default_text
from gcjax.config.arguments import in_short, signature_of


def of(name: str | None) -> dict[str, Any]:
    """All kinds with all their entries; or one kind, or each entry, of this name.

    Raises:
      ValueError: if nothing has this name.
    """
    config.register()
    kinds = registry.kinds()
    check_name(name, kinds)
    entries_by_kind = {
        title: {key: entry for key, entry in kind.entries.items() if name in (None, title, key)}
        for title, kind in kinds.items()
    }
    return {
        "kinds": {
            title: {key: _entry(kinds[title], key) for key in sorted(entries)}
            for title, entries in entries_by_kind.items()
            if entries or title == name
        }
    }


def _entry(kind: registry.Kind, name: str) -> dict[str, Any]:
    """An entry: its first sentence, its paper, its module, and its parameters."""
    entry = kind.entries[name]
    signature = signature_of(entry.factory)
    parameters = {
        parameter.name: {
            "type": None if parameter.annotation is parameter.empty else in_short(parameter.annotation),
            "required": parameter.default is parameter.empty and "VAR" not in parameter.kind.name,
            "default": None if parameter.default is parameter.empty else default_text(parameter.default),
        }
        for parameter in signature.parameters.values()
    }
    return {
        "summary": entry.summary,
        "paper": entry.paper,
        "module": entry.factory.__module__,
        "in_configs": kind.in_configs,
        "parameters": parameters,
    }
