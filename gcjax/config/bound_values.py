"""Which bindings of a config gave the values that an error complains about."""

import re

import gin.config

_PARAMETER = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")  # names of several words only: others may be ordinary words
_MAX_BINDINGS = 8  # that an error names


def of_message(message: str, configurable: str) -> str:
    """The macros of the configurable that an error is about, and what binds the parameters of others that it names.

    Args:
      message: of the error.
      configurable: the name of what was being called, with its scope, as in 'a/coded'.

    Returns:
      The end of a sentence; empty if the message names no parameter that the config binds.
    """
    names = dict.fromkeys(_PARAMETER.findall(message))
    own_values = _own_values(configurable)
    is_about_own = any(name in own_values for name in names)
    texts = [f"{name} = {value!r}" for name, value in own_values.items() if is_about_own and _is_macro(value)]
    for name in names:
        texts += [] if name in own_values else _all_bindings(name)
    others = f" and {len(texts) - _MAX_BINDINGS} more" if len(texts) > _MAX_BINDINGS else ""
    return f", with {', '.join(texts[:_MAX_BINDINGS])}{others}" if texts else ""


def _own_values(configurable: str) -> dict[str, object]:
    """Parameter -> what is bound to it, of the configurable of this name; nothing if the name is ambiguous."""
    scope, _, selector = configurable.rpartition("/")
    matches = gin.config._REGISTRY.matching_selectors(selector)
    if len(matches) != 1:
        return {}
    return gin.config._get_bindings(matches[0], scope_components=scope.split("/") if scope else [])


def _is_macro(value: object) -> bool:
    """Whether a value stands for a macro, `%name`."""
    return isinstance(value, gin.config.ConfigurableReference) and value.configurable.selector == "gin.macro"


def _all_bindings(parameter: str) -> list[str]:
    """All bindings of a parameter of this name, as a config file has them."""
    return sorted(
        f"{scope + '/' if scope else ''}{selector.rpartition('.')[2]}.{parameter} = {values[parameter]!r:.40}"
        for (scope, selector), values in gin.config._CONFIG.items()
        if parameter in values
    )
