"""What a fit leads to: the call of a straggler model's factory, as an object and as lines of a config file."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from gcjax.stragglers.base import StragglerModel
from gcjax.stragglers.bursty import bursty
from gcjax.stragglers.failures import failed_count, failed_probability, failed_workers
from gcjax.stragglers.heterogeneous import delayed, scaled, worker_speeds
from gcjax.stragglers.iid import bimodal, constant, exponential, lognormal, pareto, shifted_exponential, weibull
from gcjax.stragglers.markov import markov

_DIGITS = 9  # of a number in a config file: at least as many as float32 has

_FACTORIES: dict[str, Callable[..., StragglerModel]] = {
    factory.__name__: factory
    for factory in (
        bimodal, bursty, constant, delayed, exponential, failed_count, failed_probability, failed_workers, lognormal,
        markov, pareto, scaled, shifted_exponential, weibull, worker_speeds,
    )
}  # fmt: skip

_GIN_NAMES = {"constant": "stragglers.constant"}
"""What config files call a factory of whose name there is another."""


class Call(NamedTuple):
    """The call of a factory.

    Attributes:
      name: of the factory.
      arguments: parameter -> a number, a tuple of one a worker, or another call.
    """

    name: str
    arguments: Mapping[str, Any]

    @property
    def model(self) -> StragglerModel:
        """The straggler model that the call makes; arguments that are calls are made first."""
        evaluated_arguments = {
            name: argument.model if isinstance(argument, Call) else argument
            for name, argument in self.arguments.items()
        }  # fmt: skip
        return _FACTORIES[self.name](**evaluated_arguments)

    @property
    def gin_name(self) -> str:
        """What config files call the factory."""
        return _GIN_NAMES.get(self.name, self.name)

    @property
    def nested_names(self) -> str:
        """The factory and those that it is given, as in `scaled(markov(weibull))`."""
        nested_names_of_calls = [
            argument.nested_names for argument in self.arguments.values() if isinstance(argument, Call)
        ]
        return f"{self.name}({nested_names_of_calls[0]})" if nested_names_of_calls else self.name

    def gin_lines(self) -> Iterator[str]:
        """The lines of a config file that bind all parameters; `@gin_name()` is then the model."""
        for parameter, value in self.arguments.items():
            if isinstance(value, Call):
                yield f"{self.gin_name}.{parameter} = @{value.gin_name}()"
                yield from value.gin_lines()
            else:
                yield f"{self.gin_name}.{parameter} = {value!r}"


def call(name: str, **arguments: Any) -> Call:
    """A call with numbers that a config file can have: rounded to 9 digits, arrays as tuples."""
    return Call(name, {parameter: _literal(value) for parameter, value in arguments.items()})


def _literal(value: Any) -> Any:
    """A number with 9 digits, an array or a plain tuple as a tuple of such; all else, as a `Call`, as it is."""
    if isinstance(value, np.ndarray) or type(value) is tuple:
        return tuple(map(_literal, np.asarray(value).tolist()))
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.{_DIGITS}g}")
    return value
