"""Which bindings of a config gave the values that an error complains about."""

import re

import gin.config

_PARAMETER = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")  # names of several words only: others may be ordinary words
_MAX_BINDINGS = 8  # that an error names


def bindings_in_message(message: str, configurable: str) -> str:
    """The macros that a configurable gets, if an error names a parameter of it, and what binds others that it names.

    Args:
      message: of the error, in which a parameter is told by its name of several words, as `num_workers`.
      configurable: the name of what was being called, with its scope, as in 'a/coded'.

    Returns:
      The end of a sentence; empty if the message names no parameter that the config binds.
    """
    named_parameters = dict.fromkeys(_PARAMETER.findall(message))
    own_values = _values_of_configurable(configurable)
    names_own_parameter = any(parameter in own_values for parameter in named_parameters)
    binding_texts = [
        f"{parameter} = {value!r}" for parameter, value in own_values.items() if names_own_parameter and is_macro(value)
    ]
    for parameter in named_parameters:
        binding_texts += [] if parameter in own_values else _bindings_of_parameter(parameter)
    others_text = f" and {len(binding_texts) - _MAX_BINDINGS} more" if len(binding_texts) > _MAX_BINDINGS else ""
    return f", with {', '.join(binding_texts[:_MAX_BINDINGS])}{others_text}" if binding_texts else ""


def _values_of_configurable(configurable: str) -> dict[str, object]:
    """Parameter -> what is bound to it, of the configurable SCOPE/NAME; nothing if the name is unknown or ambiguous."""
    scope, _, selector = configurable.rpartition("/")
    matching_selectors = gin.config._REGISTRY.matching_selectors(selector)
    if len(matching_selectors) != 1:
        return {}
    return gin.config._get_bindings(matching_selectors[0], scope_components=scope.split("/") if scope else [])


def is_macro(value: object) -> bool:
    """Whether a value stands for a macro, `%name`."""
    return isinstance(value, gin.config.ConfigurableReference) and value.configurable.selector == "gin.macro"


def _bindings_of_parameter(parameter: str) -> list[str]:
    """All bindings of a parameter of this name, of whatever configurable, as a config file has them, sorted.

    Each is `SCOPE/NAME.parameter = VALUE`, without the module of NAME, and VALUE cut at 40 characters.
    """
    return sorted(
        f"{scope + '/' if scope else ''}{selector.rpartition('.')[2]}.{parameter} = {values[parameter]!r:.40}"
        for (scope, selector), values in gin.config._CONFIG.items()
        if parameter in values
    )
