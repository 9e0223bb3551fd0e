"""Numbers and a table of the map: which tuned scheme reaches the target first under which conditions."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.paper.macros import Macros, binding, fixed, percent
from experiments.paper.trained import Tables
from experiments.protocol_claims import Claim, claim
from gcjax import tex
from gcjax.analysis import paired
from gcjax.analysis.store import Columns, table_columns
from gcjax.study import seed_values

MAX_NAMED = 5
"""Schemes that cannot be told from the first one and are named in the table; of the others there is the number."""


class Map(NamedTuple):
    """What the run says.

    Attributes:
      rows: a row for each scheme, condition and seed.
      regimes: who is slow, names.
      networks: what messages cost, names, the cheapest first.
      claims: one for each regime and network, the networks of a regime beside each other.
    """

    rows: Columns
    regimes: list[str]
    networks: list[str]
    claims: list[Claim]

    def of_network(self, network: str) -> list[Claim]:
        """Those at this cost of messages."""
        return [each for each in self.claims if each.network == network]

    def mean_seconds(self, scheme: str, networks: list[str]) -> list[float]:
        """Mean seconds of a scheme, inf where a seed did not get there, under all regimes at these costs."""
        conditions = [f"{regime}, {network}" for regime in self.regimes for network in networks]
        return [float(seed_values(self.rows, scheme, name, "reach").mean()) for name in conditions]

    def schemes(self) -> list[str]:
        """The names of all schemes."""
        return list(dict.fromkeys(self.rows["scheme"].tolist()))


def read(folder: Path) -> Map:
    """The map that `gcjax run configs/protocols.gin` has written; a condition is called "regime, network"."""
    rows = table_columns(folder / "results.parquet")
    names = [name.partition(", ") for name in dict.fromkeys(rows["condition"].tolist())]
    regimes, networks = (
        list(dict.fromkeys(part)) for part in zip(*[(name[0], name[2]) for name in names], strict=True)
    )
    claims = [claim(rows, regime, network) for regime in regimes for network in networks]
    return Map(rows, regimes, networks, claims)


def scheme_map(folder: Path) -> tuple[Macros, Tables]:
    """The macros and the table of all schemes under all conditions.

    Messages are dear at the last cost, and cheap at all others. BSP's seconds are also over those of the first scheme
    at the cheap ones; where nobody got there there is no first.
    """
    run, run_facts = read(folder), json.loads((folder / "run.json").read_text())
    cheap_networks, dear_network = run.networks[:-1], run.networks[-1]
    cheap_claims = [each for network in cheap_networks for each in run.of_network(network)]
    bsp_ratios = [
        seconds / each.seconds.mean()
        for network in cheap_networks
        for each, seconds in zip(run.of_network(network), run.mean_seconds("BSP", [network]), strict=True)
        if each.first is not None
    ]
    never_schemes = [
        scheme for scheme in run.schemes() if not np.isfinite(run.mean_seconds(scheme, run.networks)).any()
    ]
    macros = {
        "MapSchemes": fixed(len(run.schemes())),
        "MapTrials": fixed(run_facts["tuning"]["num_trials"]),
        "MapConditions": fixed(len(run.claims)),
        "MapSeeds": fixed(run_facts["num_seeds"]),
        "MapWorkers": fixed(run_facts["num_workers"]),
        "MapTarget": percent(run_facts["target"]),
        "MapConfidence": percent(paired.CONFIDENCE),
        "MapSeconds": fixed(float(binding(folder / "operative.gin", "study.seconds"))),
        "MapFewestTied": fixed(min(len(each.others) for each in cheap_claims)),
        "MapMostTied": fixed(max(len(each.others) for each in cheap_claims)),
        "MapDearFewestTied": fixed(min(len(each.others) for each in run.of_network(dear_network))),
        "MapDearMostTied": fixed(max(len(each.others) for each in run.of_network(dear_network))),
        "MapWon": fixed(sum(not each.others for each in run.claims)),
        "MapBspLeast": fixed(min(bsp_ratios), 1),
        "MapBspMost": fixed(max(bsp_ratios), 1),
        **_seconds_range("MapBspDear", run.mean_seconds("BSP", [dear_network])),
        **_seconds_range("MapDearFirst", [float(each.seconds.mean()) for each in run.of_network(dear_network)]),
        **_seconds_range("MapPipelined", run.mean_seconds("pipelined codes", run.networks[:1])),
        **_seconds_range("MapRepetition", run.mean_seconds("fractional repetition", run.networks[:1])),
        "MapNever": tex.escape(", ".join(never_schemes)) or "none",
    }
    heads = ["Stragglers", "Messages", "First", "Seconds", "Cannot be told from it"]
    return macros, {"map": tex.tabular(r"@{}lllrp{0.5\textwidth}@{}", heads, list(map(_cells, run.claims)))}


def _seconds_range(name: str, seconds: list[float]) -> Macros:
    """The least and the largest of these seconds, as two macros; a dash for what is not finite."""
    return {
        f"{name}{end}": fixed(bound_seconds) if np.isfinite(bound_seconds) else "--"
        for end, bound_seconds in (("Low", min(seconds)), ("High", max(seconds)))
    }


def _cells(each: Claim) -> list[str]:
    """The cells of one condition: its names, the first scheme, its seconds, the schemes beside it with theirs.

    Seconds are means over seeds; dashes if no scheme got there with every seed.
    """
    if each.first is None:
        return [tex.escape(each.regime), tex.escape(each.network), "--", "--", "--"]
    named_texts = [
        f"{tex.escape(name)} ({seconds.mean():.0f})" for name, seconds in list(each.others.items())[:MAX_NAMED]
    ]
    num_unnamed = len(each.others) - len(named_texts)
    others_text = ", ".join(named_texts) + (f", {num_unnamed} more" if num_unnamed else "")
    seconds_text = rf"{each.seconds.mean():.1f} $\pm$ {each.seconds.std(ddof=1):.1f}"
    return [
        tex.escape(each.regime),
        tex.escape(each.network),
        tex.escape(each.first),
        seconds_text,
        others_text or "nobody",
    ]
