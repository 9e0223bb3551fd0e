"""Straggler models: who is slow."""

from gcjax.registry import Entry
from gcjax.stragglers.absences import Absences, RandomAbsences, absences, random_absences
from gcjax.stragglers.base import StragglerModel, sample_durations
from gcjax.stragglers.bursty import bursty
from gcjax.stragglers.failures import failed_count, failed_probability, failed_workers
from gcjax.stragglers.heterogeneous import delayed, scaled, worker_speeds
from gcjax.stragglers.iid import (
    bimodal,
    constant,
    exponential,
    independent,
    lognormal,
    pareto,
    shifted_exponential,
    weibull,
)
from gcjax.stragglers.markov import markov
from gcjax.stragglers.network import Links, Network, constant_network, links
from gcjax.stragglers.traces import (
    Description,
    Fit,
    Fits,
    Reading,
    Trace,
    describe,
    fit,
    read_trace,
    replay,
    write_trace,
)

TABLE: dict[str, Entry] = {
    "bimodal": Entry(bimodal),
    "bursty": Entry(bursty, "Krishnan et al. 2023"),
    "constant": Entry(constant),
    "delayed": Entry(delayed, "Yang et al. 2024"),
    "exponential": Entry(exponential),
    "failed_count": Entry(failed_count, "Ramamoorthy et al. 2024"),
    "failed_probability": Entry(failed_probability),
    "failed_workers": Entry(failed_workers),
    "lognormal": Entry(lognormal),
    "markov": Entry(markov, "Yang et al. 2019"),
    "pareto": Entry(pareto),
    "replay": Entry(replay),
    "scaled": Entry(scaled),
    "shifted_exponential": Entry(shifted_exponential, "Lee et al. 2018"),
    "weibull": Entry(weibull),
    "worker_speeds": Entry(worker_speeds, "Ramamoorthy et al. 2024"),
}

NETWORKS: dict[str, Entry] = {"constant_network": Entry(constant_network), "links": Entry(links)}
ABSENCES: dict[str, Entry] = {"absences": Entry(absences), "random_absences": Entry(random_absences)}
TRACES: dict[str, Entry] = {"read_trace": Entry(read_trace)}

__all__ = [
    "ABSENCES",
    "NETWORKS",
    "TABLE",
    "TRACES",
    "Absences",
    "Description",
    "Fit",
    "Fits",
    "Links",
    "Network",
    "RandomAbsences",
    "Reading",
    "StragglerModel",
    "Trace",
    "absences",
    "bimodal",
    "bursty",
    "constant",
    "constant_network",
    "delayed",
    "describe",
    "exponential",
    "failed_count",
    "failed_probability",
    "failed_workers",
    "fit",
    "independent",
    "links",
    "lognormal",
    "markov",
    "pareto",
    "random_absences",
    "read_trace",
    "replay",
    "sample_durations",
    "scaled",
    "shifted_exponential",
    "weibull",
    "worker_speeds",
    "write_trace",
]
