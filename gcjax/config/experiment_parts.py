"""What an experiment's config says about schemes and stragglers, found by the types of the experiment's parameters."""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import gin
import gin.config
import jax

from gcjax.config import errors, missing_arguments
from gcjax.config.arguments import GIVEN_BY_COMMAND, short_type_text, signature_of, types_of_union
from gcjax.config.bound_values import is_macro
from gcjax.protocols import Protocol
from gcjax.protocols.base import workers_of
from gcjax.stragglers import Absences, Links, Network, RandomAbsences, StragglerModel
from gcjax.tasks import Task

DEFAULT_UNITS = 100


class Experiment:
    """The parameters of an experiment, and of the study that it is given, that a config binds.

    The value of each is made when it is asked for.

    Attributes:
      name: of the experiment's function.
      bound_values: parameter -> what the config binds it to, where references (`@name()`) are not made yet.
    """

    def __init__(self, reference: gin.config.ConfigurableReference) -> None:
        """`reference`: by which a config names the experiment, or its study, as `@name`."""
        self.name = reference.selector.rpartition(".")[2]
        self._scope = "/".join(reference.scopes)
        selector = "/".join([*reference.scopes, reference.configurable.selector])
        self.bound_values = gin.config.get_bindings(selector, resolve_references=False)
        parameters = signature_of(inspect.unwrap(reference.configurable.wrapped)).parameters
        self._parameters = {name: parameter for name, parameter in parameters.items() if name not in GIVEN_BY_COMMAND}
        studies = [value for value in self.bound_values.values() if _is_study(value)]
        self._study = Experiment(studies[0]) if len(studies) == 1 else None  # of several it is open which

    def values_of_types(self, types: tuple[type, ...]) -> dict[str, Any]:
        """Name -> value of all that is of these types: a parameter, or the entries of one that is a dict or a sequence.

        Parameters without an annotation are looked at, too. If the experiment has nothing of these types, it is what
        its study has. Where several parameters have entries, the parameter's name goes before that of the entry.
        """
        values_by_parameter: dict[str, dict[str, Any]] = {}
        for name, parameter in self._parameters.items():
            if _allows_any_of(parameter.annotation, types) and self._has_value(name):
                values_by_parameter[name] = dict(_entries_of_types(name, self.value(name), types))
        values_by_parameter = {name: entries for name, entries in values_by_parameter.items() if entries}
        if not values_by_parameter and self._study is not None:
            return self._study.values_of_types(types)
        if len(values_by_parameter) == 1:
            return next(iter(values_by_parameter.values()))
        return {
            entry_name if entry_name == name else f"{name} {entry_name}": entry
            for name, entries in values_by_parameter.items()
            for entry_name, entry in entries.items()
        }

    def whole_number(self, name: str, word: str | None = None) -> int | None:
        """A whole number: the parameter called `name`, or else the only one with `word` in its name; else None.

        If no such parameter of the experiment is a whole number, it is that of its study.
        """
        names_with_word = [parameter for parameter in self._parameters if word is not None and word in parameter]
        candidates = [name] if name in self._parameters else names_with_word
        integer_names = [
            candidate
            for candidate in candidates
            if self._parameters[candidate].annotation in (int, inspect.Parameter.empty)
        ]
        values = [value for value in map(self.value, integer_names) if type(value) is int]
        if not values and self._study is not None:
            return self._study.whole_number(name, word)
        return values[0] if len(values) == 1 else None

    def value(self, name: str) -> Any:
        """The value of the experiment's parameter `name`: what the config binds it to, made now, or its default."""
        if name not in self.bound_values:
            return self._parameters[name].default
        with gin.config.config_scope(self._scope or None):
            return copy.deepcopy(self.bound_values[name])  # gin copies a reference into what that stands for

    def typed_parameters_text(self) -> str:
        """The experiment's parameters with their types, for an error."""
        return ", ".join(
            name if parameter.annotation is parameter.empty else f"{name}: {short_type_text(parameter.annotation)}"
            for name, parameter in self._parameters.items()
        )

    def _has_value(self, name: str) -> bool:
        """Whether the experiment's parameter `name` has a value, from the config or as default."""
        return name in self.bound_values or self._parameters[name].default is not inspect.Parameter.empty


def _is_study(value: Any) -> bool:
    """Whether a binding is a study, such as `@study()`."""
    is_reference = isinstance(value, gin.config.ConfigurableReference) and value.evaluate
    return is_reference and value.configurable.selector == "gcjax.study.study"


def check_values() -> None:
    """Makes all that the loaded config gives its experiment, and forgets it, so that bad values are refused early.

    The experiment is not called.

    Raises:
      ValueError: if something that is needed is missing, or a factory refuses what it is given.
    """
    with errors.errors_in_words():
        missing_arguments.check()
        reference = _without_macro(gin.config.get_bindings("gcjax.run", resolve_references=False)["experiment"])
        if isinstance(reference, gin.config.ConfigurableReference):  # else there is no experiment, which `run` says
            experiment = Experiment(reference)
            for name in experiment.bound_values:
                experiment.value(name)


def _without_macro(value: Any) -> Any:
    """What a bound value is, or the macro (`%name`) that it is."""
    while is_macro(value):
        value = gin.config.get_bindings(value.scoped_selector, resolve_references=False)["value"]
    return value


def experiment_of_config() -> Experiment:
    """The experiment that the loaded config runs, or else the first of those that it is given, that has protocols.

    Raises:
      ValueError: if none of them has a protocol.
    """
    bound_experiment = gin.config.get_bindings("gcjax.run", resolve_references=False)["experiment"]
    experiments = list(_experiments(_without_macro(bound_experiment)))
    for experiment in experiments:
        if experiment.values_of_types((Protocol,)):
            return experiment
    raise ValueError(
        "the experiment of the config must be given protocols to have schedules to check: a parameter that is a "
        f"Protocol, or a dict or list of them. {experiments[0].name} takes {experiments[0].typed_parameters_text()}."
    )


def _experiments(reference: gin.config.ConfigurableReference) -> Iterator[Experiment]:
    """The experiment that a config refers to, and those that are given to it as functions, at any depth."""
    experiment = Experiment(reference)
    yield experiment
    for value in experiment.bound_values.values():
        if isinstance(value, gin.config.ConfigurableReference) and not value.evaluate:
            yield from _experiments(value)


def stragglers(experiment: Experiment) -> dict[str, StragglerModel]:
    """The straggler models of an experiment by name; a single one that has no name of its own has an empty one.

    One has a name of its own if it is an entry of a dict or a list, and not the value of a parameter.

    Raises:
      ValueError: if there is none.
    """
    models = experiment.values_of_types((StragglerModel,))
    if not models:
        raise ValueError(
            "the experiment of the config must be given a straggler model to draw durations from: a parameter that is "
            f"a StragglerModel, or a dict or list of them. {experiment.name} takes "
            f"{experiment.typed_parameters_text()}."
        )
    return _unnamed_if_single(experiment, models)


def networks(experiment: Experiment) -> dict[str, Network]:
    """The networks of an experiment by name; an instantaneous one, with an empty name, if it is given none.

    Raises:
      ValueError: if there are links (bandwidths) but no task, whose parameters are what is sent.
    """
    instantaneous_network = Network()
    networks = experiment.values_of_types((Network, Links)) or {"": instantaneous_network}
    have_links = any(isinstance(network, Links) for network in networks.values())
    if have_links:
        tasks = list(experiment.values_of_types((Task,)).values())
        if not tasks:
            raise ValueError(f"links need a task, whose parameters are what is sent; {experiment.name} is given none.")
        param_shapes = jax.eval_shape(tasks[0].init, jax.random.key(0))
        networks = {name: network_or_links.network_for(param_shapes) for name, network_or_links in networks.items()}
    return _unnamed_if_single(experiment, networks)


def absences(experiment: Experiment) -> dict[str, Absences | RandomAbsences | None]:
    """The absences of an experiment by name, as of `stragglers`; None, with an empty name, if it is given none."""
    return _unnamed_if_single(experiment, experiment.values_of_types((Absences, RandomAbsences)) or {"": None})


def durations_shape(experiment: Experiment, schemes: Mapping[str, Protocol]) -> tuple[int, int]:
    """(num_units, num_workers) to draw durations for; 100 units if the experiment does not say how many.

    Raises:
      ValueError: if neither the experiment nor the code of a scheme says how many workers there are.
    """
    workers_of_codes = {workers_of(scheme) for scheme in schemes.values()} - {None}
    num_workers = experiment.whole_number("num_workers", "workers")
    if not num_workers and len(workers_of_codes) == 1:
        num_workers = workers_of_codes.pop()
    if not num_workers:
        raise ValueError(
            "the experiment of the config must say how many workers there are: one parameter with 'workers' in its "
            f"name that is an int, such as num_workers. {experiment.name} takes {experiment.typed_parameters_text()}."
        )
    return experiment.whole_number("num_units", "units") or DEFAULT_UNITS, num_workers


def _unnamed_if_single(experiment: Experiment, values: dict[str, Any]) -> dict[str, Any]:
    """What `experiment.values_of_types` returned; a single value with the name of a parameter gets an empty name."""
    if len(values) > 1:
        return values
    return {"" if name in experiment._parameters else name: value for name, value in values.items()}


def _allows_any_of(annotation: Any, types: tuple[type, ...]) -> bool:
    """Whether an annotation allows a thing of these types, or a dict or a sequence of such."""
    if annotation in (inspect.Parameter.empty, Any, dict, list, tuple):
        return True
    accepted_types = types_of_union(annotation)
    if len(accepted_types) > 1:
        return any(_allows_any_of(accepted_type, types) for accepted_type in accepted_types)
    origin, item_types = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, (Mapping, Sequence)):
        value_types = item_types[1:] if issubclass(origin, Mapping) else item_types  # not the keys of a dict
        return any(_allows_any_of(value_type, types) for value_type in value_types)
    return annotation in types


def _entries_of_types(name: str, value: Any, types: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """(name, value) of the values of these types: the value itself, or those in it if it is a dict or a sequence.

    The value itself is called `name`, an entry of a dict by its key, and one of a sequence `name[i]`.
    """
    if isinstance(value, types):
        yield name, value
    elif isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items() if isinstance(item, types))
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value) if isinstance(item, types))
