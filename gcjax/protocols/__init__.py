"""Synchronisation protocols: who waits for whom. Durations in, a schedule out."""

from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.bsp import bsp
from gcjax.protocols.coded import coded
from gcjax.protocols.ssp import asp, ssp
from gcjax.registry import Entry

TABLE: dict[str, Entry] = {
    "asp": Entry(asp, "Dean et al. 2012"),
    "bsp": Entry(bsp, "Valiant 1990"),
    "coded": Entry(coded, "Tandon et al. 2017"),
    "ssp": Entry(ssp, "Ho et al. 2013"),
}

__all__ = ["TABLE", "Protocol", "Schedule", "asp", "bsp", "coded", "ssp"]
