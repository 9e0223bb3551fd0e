"""What an experiment's config says about schemes and stragglers, found by the types of the experiment's parameters."""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import gin
import gin.config
import jax

from gcjax.config.arguments import alternatives, in_short, signature_of
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.tasks import Task

DEFAULT_UNITS = 100
_BY_COMMAND = ("out", "progress")  # given by the command


class Experiment:
    """The parameters of an experiment, and of the study that it is given, that a config binds.

    Each is made when it is asked for.
    """

    def __init__(self, reference: gin.config.ConfigurableReference) -> None:
        self.name = reference.selector.rpartition(".")[2]
        self._scope = "/".join(reference.scopes)
        selector = "/".join([*reference.scopes, reference.configurable.selector])
        self.bound = gin.config.get_bindings(selector, resolve_references=False)
        taken = signature_of(inspect.unwrap(reference.configurable.wrapped)).parameters
        self._parameters = {name: parameter for name, parameter in taken.items() if name not in _BY_COMMAND}
        studies = [value for value in self.bound.values() if _is_study(value)]
        self._study = Experiment(studies[0]) if len(studies) == 1 else None

    def all_of(self, wanted: tuple[type, ...]) -> dict[str, Any]:
        """Everything of these types by name: a parameter, or the entries of one that is a dict or a sequence of them.

        Parameters without an annotation are looked at, too.
        """
        values_by_parameter: dict[str, dict[str, Any]] = {}
        for name, parameter in self._parameters.items():
            if _may_be(parameter.annotation, wanted) and self._has(name):
                values_by_parameter[name] = dict(_entries(name, self.value(name), wanted))
        values_by_parameter = {name: values for name, values in values_by_parameter.items() if values}
        if not values_by_parameter and self._study is not None:
            return self._study.all_of(wanted)
        if len(values_by_parameter) == 1:
            return next(iter(values_by_parameter.values()))
        return {
            key if key == name else f"{name} {key}": value
            for name, values in values_by_parameter.items()
            for key, value in values.items()
        }

    def number(self, name: str, word: str | None = None) -> int | None:
        """A whole number: the parameter of this name, or else the only one with this word in its name."""
        like = [own for own in self._parameters if word is not None and word in own]
        names = [name] if name in self._parameters else like
        values = [
            self.value(own) for own in names if self._parameters[own].annotation in (int, inspect.Parameter.empty)
        ]
        values = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        if not values and self._study is not None:
            return self._study.number(name, word)
        return values[0] if len(values) == 1 else None

    def value(self, name: str) -> Any:
        """What the config binds a parameter to, or its default."""
        if name not in self.bound:
            return self._parameters[name].default
        with gin.config.config_scope(self._scope or None):
            return copy.deepcopy(self.bound[name])  # which is how gin makes what is referred to

    def types(self) -> str:
        """The parameters with their types, for an error."""
        shown = {name: parameter.annotation for name, parameter in self._parameters.items()}
        return ", ".join(
            name if kind is inspect.Parameter.empty else f"{name}: {in_short(kind)}" for name, kind in shown.items()
        )

    def _has(self, name: str) -> bool:
        return name in self.bound or self._parameters[name].default is not inspect.Parameter.empty


def _is_study(value: Any) -> bool:
    """Whether a binding is a study, such as `@study()`."""
    is_reference = isinstance(value, gin.config.ConfigurableReference) and value.evaluate
    return is_reference and value.configurable.selector == "gcjax.study.study"


def of_config() -> Experiment:
    """The experiment that the loaded config runs, or one that this one is given, if that has protocols.

    Raises:
      ValueError: if there is no protocol or no straggler model in it.
    """
    experiments = list(_experiments(gin.config.get_bindings("gcjax.run", resolve_references=False)["experiment"]))
    for experiment in experiments:
        if experiment.all_of((Protocol,)):
            return experiment
    raise ValueError(
        "the experiment of the config must be given protocols to have schedules to check: a parameter that is a "
        f"Protocol, or a dict or list of them. {experiments[0].name} takes {experiments[0].types()}."
    )


def _experiments(reference: gin.config.ConfigurableReference) -> Iterator[Experiment]:
    experiment = Experiment(reference)
    yield experiment
    for value in experiment.bound.values():
        if isinstance(value, gin.config.ConfigurableReference) and not value.evaluate:
            yield from _experiments(value)


def stragglers(experiment: Experiment) -> dict[str, StragglerModel]:
    """Who is slow, by name; one without a name if there is one.

    Raises:
      ValueError: if nobody is.
    """
    models = experiment.all_of((StragglerModel,))
    if not models:
        raise ValueError(
            "the experiment of the config must be given a straggler model to draw durations from: a parameter that is "
            f"a StragglerModel, or a dict or list of them. {experiment.name} takes {experiment.types()}."
        )
    return _unnamed_if_single(experiment, models)


def networks(experiment: Experiment) -> dict[str, Network]:
    """What messages cost, by name; an instantaneous network if nothing is said.

    Raises:
      ValueError: if there are bandwidths but no task, whose parameters are what is sent.
    """
    networks = experiment.all_of((Network, Links)) or {"": Network()}
    if any(isinstance(network, Links) for network in networks.values()):
        tasks = list(experiment.all_of((Task,)).values())
        if not tasks:
            raise ValueError(f"links need a task, whose parameters are what is sent; {experiment.name} is given none.")
        shapes = jax.eval_shape(tasks[0].init, jax.random.key(0))
        networks = {name: network.of(shapes) for name, network in networks.items()}
    return _unnamed_if_single(experiment, networks)


def shape(experiment: Experiment, schemes: Mapping[str, Protocol]) -> tuple[int, int]:
    """The units and workers to draw durations for; 100 units if the experiment does not say how many.

    Raises:
      ValueError: if neither the experiment nor the code of a scheme says how many workers there are.
    """
    coded = {scheme.code.assignment.num_workers for scheme in schemes.values() if scheme.code is not None}
    workers = experiment.number("num_workers", "workers") or (coded.pop() if len(coded) == 1 else None)
    if workers is None:
        raise ValueError(
            "the experiment of the config must say how many workers there are: one parameter with 'workers' in its "
            f"name that is an int, such as num_workers. {experiment.name} takes {experiment.types()}."
        )
    return experiment.number("num_units", "units") or DEFAULT_UNITS, workers


def _unnamed_if_single(experiment: Experiment, things: dict[str, Any]) -> dict[str, Any]:
    """The things; without a name if there is one, and it has that of a parameter."""
    if len(things) > 1:
        return things
    return {"" if name in experiment._parameters else name: thing for name, thing in things.items()}


def _may_be(annotation: Any, wanted: tuple[type, ...]) -> bool:
    """Whether an annotation allows a thing of these types, or a dict or a sequence of such."""
    if annotation in (inspect.Parameter.empty, Any, dict, list, tuple):
        return True
    options = alternatives(annotation)
    if len(options) > 1:
        return any(_may_be(option, wanted) for option in options)
    origin, inner = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, (Mapping, Sequence)):
        return any(_may_be(each, wanted) for each in inner[issubclass(origin, Mapping) :])
    return annotation in wanted


def _entries(name: str, value: Any, wanted: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """The values of these types by name: the value itself, or those in a dict or a sequence."""
    if isinstance(value, wanted):
        yield name, value
    elif isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in value.items() if isinstance(each, wanted))
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{i}]", each) for i, each in enumerate(value) if isinstance(each, wanted))
