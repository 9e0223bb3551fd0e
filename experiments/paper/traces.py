"""Numbers and the table of measured traces: what they are like, and whether advice holds on the second half."""

from collections.abc import Callable
from typing import Any

from experiments.paper.macros import Macros, fixed, percent
from experiments.paper.trained import Tables
from gcjax import tex
from gcjax.advice.evaluation import LEVEL
from gcjax.stragglers.traces.description.statistics import SLOW_RATIO

Facts = dict[str, Any]


def traces(result: Facts) -> tuple[Macros, Tables]:
    """The macros and the table of measured traces: a column a job, and what is said of all together."""
    jobs = result["jobs"]
    all_halves = [job["halves"] for job in jobs if job["halves"] is not None]  # of jobs that are long enough
    macros = {
        "TraceJobs": fixed(len(jobs)),
        "TraceHalved": fixed(len(all_halves)),
        "TraceFewestSchemes": fixed(min(halves["schemes"] for halves in all_halves)),
        "TraceMostSchemes": fixed(max(halves["schemes"] for halves in all_halves)),
        "TraceBootstraps": fixed(result["num_bootstraps"]),
        "TraceLevel": percent(LEVEL),
        "TraceSlowRatio": f"{SLOW_RATIO:.1f}",
        **_ranking_macros(jobs),
        **_choice_macros(all_halves),
        **_coverage_macros(all_halves),
        **_synthetic_macros(result),
    }
    return macros, {"traces": _table(jobs)}


def _ranking_macros(jobs: list[Facts]) -> Macros:
    """Which models foretell the held-out steps: the exponential one, and those with memory against their twins.

    `ranking` is of models, the best first; `behind`: by how much the best is better, in nats a step and worker.
    """
    nats_behind_of_models = [
        {ranked_model["model"]: ranked_model["behind"] for ranked_model in job["ranking"]} for job in jobs
    ]
    exponential_nats_behind = [nats_behind["exponential"] for nats_behind in nats_behind_of_models]
    gains = [_gain_of_memory(nats_behind) for nats_behind in nats_behind_of_models]
    return {
        "TraceModels": fixed(max(map(len, nats_behind_of_models))),
        "TraceMemoryFirst": fixed(sum(_has_memory(job["ranking"][0]["model"]) for job in jobs)),
        "TraceExpLeast": f"{min(exponential_nats_behind):.1f}",
        "TraceExpMost": f"{max(exponential_nats_behind):.1f}",
        "TraceMemoryLeast": fixed(min(gains), 2),
        "TraceMemoryMost": fixed(max(gains), 2),
    }


def _has_memory(model: str) -> bool:
    """Whether the states of a model depend on those before."""
    return "markov" in model and "no memory" not in model


def _gain_of_memory(nats_behind: dict[str, float]) -> float:
    """By how much the best Markov model is better than the same one without memory, in nats a step and worker."""
    best_model = min((model for model in nats_behind if _has_memory(model)), key=lambda model: nats_behind[model])
    return nats_behind[f"{best_model}, no memory"] - nats_behind[best_model]


def _choice_macros(all_halves: list[Facts]) -> Macros:
    """The largest regrets of what was chosen on the first half and by the model, and the model's errors, over jobs.

    Chosen of all schemes and of those with the same gradient; a regret, an error and a cost are shares.
    """
    keys = all_halves[0]["chosen"]
    regrets = {key: [halves["chosen"][key]["regret"] for halves in all_halves] for key in keys}
    model_errors = [halves["model_error"] for halves in all_halves]
    model_costs = [halves["costs"]["model"]["value"] for halves in all_halves]
    return {
        "TraceRegretSame": percent(max(regrets["trace_same"]), 1),
        "TraceRegretAll": percent(max(regrets["trace_all"]), 1),
        "TraceModelRegretSame": percent(max(regrets["model_same"]), 1),
        "TraceModelRegretAll": percent(max(regrets["model_all"]), 1),
        "TraceErrorLeast": percent(min(model_errors)),
        "TraceErrorMost": percent(max(model_errors)),
        "TraceModelCostLeast": percent(min(model_costs)),
        "TraceModelCostMost": percent(max(model_costs)),
    }


def _coverage_macros(all_halves: list[Facts]) -> Macros:
    """In how many jobs and schemes the interval of a trace's first half has the value of its second.

    `covered` of a job is [schemes of which it is so, schemes].
    """
    covered_and_schemes = [halves["covered"] for halves in all_halves]
    all_costs = [halves["costs"] for halves in all_halves]
    is_cost_covered = [
        costs["first"]["low"] <= costs["second"]["value"] <= costs["first"]["high"] for costs in all_costs
    ]
    return {
        "TraceCovered": fixed(sum(num_covered for num_covered, _ in covered_and_schemes)),
        "TraceCoverable": fixed(sum(num_schemes for _, num_schemes in covered_and_schemes)),
        "TraceCostCovered": fixed(sum(is_cost_covered)),
    }


def _synthetic_macros(result: Facts) -> Macros:
    """How large a share of the intervals covers the second half, on traces of two stationary models."""
    shares = {name: num_covered / num_intervals for name, (num_covered, num_intervals) in result["synthetic"].items()}
    return {
        "TraceDrawn": fixed(result["synthetic_traces"]),
        "TraceDrawnSteps": fixed(result["synthetic_steps"]),
        "TraceCoverIndependent": percent(shares["independent"]),
        "TraceCoverSpells": percent(shares["spells"]),
    }


def _table(jobs: list[Facts]) -> str:
    """The LaTeX table: a column for each job, a row for each figure; shares in percent, errors of them in points."""
    rows = [
        ["Steps, workers", *(f"{fixed(job['steps'])}, {job['workers']}" for job in jobs)],
        ["Slowdown $S$", *(f"{job['slowdown']:.2f}" for job in jobs)],
        [r"$P(\mathrm{slow})$, $P(\mathrm{slow}\mid\mathrm{slow})$", *map(_probabilities, jobs)],
        [r"Lost: in slow spells, shared, passing (\%)", *map(_lost_time_shares, jobs)],
        ["Best model on held-out steps", *(tex.escape(_model(job)) for job in jobs)],
    ]
    cell_of_row: dict[str, Callable[[Facts], str]] = {
        r"Cost of stragglers, both halves (\%)": _costs,
        r"Interval of the first half (\%)": lambda halves: _interval(halves["costs"]["first"]),
        "Chosen, same gradient": lambda halves: tex.escape(_short_scheme(halves["chosen"]["trace_same"])),
        r"Its regret on the second half (\%)": lambda halves: percent(halves["chosen"]["trace_same"]["regret"], 1),
        "Chosen of all": lambda halves: tex.escape(_short_scheme(halves["chosen"]["trace_all"])),
        r"Regret of that on the second half (\%)": lambda halves: percent(halves["chosen"]["trace_all"]["regret"], 1),
        r"Regret of the exponential model (\%)": _model_regrets,
        "Its error of shares won back (points)": lambda halves: percent(halves["model_error"]),
        "Second half in the interval, schemes": lambda halves: "{} of {}".format(*halves["covered"]),
    }
    rows += [
        [head, *("--" if job["halves"] is None else cell(job["halves"]) for job in jobs)]
        for head, cell in cell_of_row.items()
    ]
    return tex.tabular(f"@{{}}l{'r' * len(jobs)}@{{}}", ["", *(tex.escape(job["job"]) for job in jobs)], rows)


def _probabilities(job: Facts) -> str:
    """Of being slow, and of being so again."""
    return f"{job['slow']:.2f}, {_probability_or_dash(job['slow_again'])}"


def _probability_or_dash(probability: float) -> str:
    """A number, or a dash where nobody was slow."""
    return "--" if probability != probability else f"{probability:.2f}"


def _lost_time_shares(job: Facts) -> str:
    """The shares of the lost time."""
    return ", ".join(percent(job[name]) for name in ("persistent", "shared", "passing"))


def _model(job: Facts) -> str:
    """The model of the first rank, in short, and how many others cannot be told from it."""
    num_indistinguishable = sum(not ranked_model["is_behind"] for ranked_model in job["ranking"][1:])
    return _short_name(job["ranking"][0]["model"]) + (f" (+{num_indistinguishable})" if num_indistinguishable else "")


def _short_name(model: str) -> str:
    """A model's distribution, and in letters what is around it: W for `scaled`, M for `markov`, B without memory."""
    *around, distribution = model.removesuffix(", no memory").rstrip(")").split("(")
    letters = {"scaled": "W", "markov": "M" if _has_memory(model) else "B"}
    return " ".join([distribution.replace("_", " "), *(letters[name] for name in reversed(around))])


def _short_scheme(choice: Facts) -> str:
    """A chosen scheme without the word for its parameter's name."""
    return choice["scheme"].replace("shares by speed", "by speed")


def _costs(halves: Facts) -> str:
    """What stragglers cost in the first half and in the second."""
    return ", ".join(percent(halves["costs"][name]["value"], 1) for name in ("first", "second"))


def _interval(cost: Facts) -> str:
    """The ends of an interval of a share."""
    return f"{percent(cost['low'], 1)} to {percent(cost['high'], 1)}"


def _model_regrets(halves: Facts) -> str:
    """Of the scheme that the model chooses, of the same gradient and of all."""
    return ", ".join(percent(halves["chosen"][name]["regret"], 1) for name in ("model_same", "model_all"))
