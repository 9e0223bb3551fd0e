"""Synchronisation protocols: who waits for whom. Durations in, a schedule out."""

from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.bsp import bsp
from gcjax.protocols.coded import coded
from gcjax.protocols.sequential import m_sgc, sr_sgc
from gcjax.protocols.ssp import asp, ssp
from gcjax.registry import Entry

TABLE: dict[str, Entry] = {
    "asp": Entry(asp, "Dean et al. 2012"),
    "bsp": Entry(bsp, "Valiant 1990"),
    "coded": Entry(coded, "Tandon et al. 2017"),
    "m_sgc": Entry(m_sgc, "Krishnan et al. 2023"),
    "sr_sgc": Entry(sr_sgc, "Krishnan et al. 2023"),
    "ssp": Entry(ssp, "Ho et al. 2013"),
}

__all__ = ["TABLE", "Protocol", "Schedule", "asp", "bsp", "coded", "m_sgc", "sr_sgc", "ssp"]
