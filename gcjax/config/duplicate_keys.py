"""Dicts in config files: a key that is there twice is an error, where Python and gin would keep the last."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gin import config_parser


class _UniqueKeysParser(config_parser.ConfigParser):
    """Reads a config as gin does, and refuses a dict that has a key twice."""

    _keys_of_dict: list[Any]  # of the dict that is being read, so far

    def _maybe_parse_container(self) -> Any:
        """Overrides gin's: reads a dict, list or tuple, with a list of keys of its own for a dict inside of another."""
        outer_keys, self._keys_of_dict = getattr(self, "_keys_of_dict", []), []
        try:
            return super()._maybe_parse_container()
        finally:
            self._keys_of_dict = outer_keys

    def _parse_dict_item(self) -> Any:
        """Overrides gin's: a key of a dict and its value; a `ValueError` if the dict has the key already."""
        location = self._current_location()
        key, value = super()._parse_dict_item()
        if key in self._keys_of_dict:
            line_text = f"{location.filename or ''} line {location.line_num}".strip()
            raise ValueError(
                f"a dict must have each key once; {key!r} is there twice, and only the last would count ({line_text}: "
                f"{location.line_content.strip()}). Choose another name, or take one of them out."
            )
        self._keys_of_dict.append(key)
        return key, value


@contextmanager
def no_duplicate_dict_keys() -> Iterator[None]:
    """In this block, reading a config or a file that it includes is a `ValueError` if a dict has a key twice."""
    gin_parser = config_parser.ConfigParser
    config_parser.ConfigParser = _UniqueKeysParser
    try:
        yield
    finally:
        config_parser.ConfigParser = gin_parser
