"""Dicts in config files: a key that is there twice is an error, where Python and gin would keep the last."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gin import config_parser


class _Parser(config_parser.ConfigParser):
    """Reads a config as gin does, and looks at the keys of each dict."""

    _keys: list[Any]

    def _maybe_parse_container(self) -> Any:
        outer_keys, self._keys = getattr(self, "_keys", []), []
        try:
            return super()._maybe_parse_container()
        finally:
            self._keys = outer_keys

    def _parse_dict_item(self) -> Any:
        """A key and its value; a `ValueError` if the dict has the key already."""
        location = self._current_location()
        key, value = super()._parse_dict_item()
        if key in self._keys:
            where = (
                f"{location.filename} line {location.line_num}" if location.filename else f"line {location.line_num}"
            )
            raise ValueError(
                f"a dict must have each key once; {key!r} is there twice, and only the last would count ({where}: "
                f"{location.line_content.strip()}). Choose another name, or take one of them out."
            )
        self._keys.append(key)
        return key, value


@contextmanager
def each_once() -> Iterator[None]:
    """What gin reads meanwhile, included files as well, has each key of a dict once, or ends in a `ValueError`."""
    parser = config_parser.ConfigParser
    config_parser.ConfigParser = _Parser
    try:
        yield
    finally:
        config_parser.ConfigParser = parser
