"""Training on the real clock: workers stop at a deadline, and the code decodes what each has finished."""

from gcjax.engine.live.deadlines import (
    DeadlineInputs,
    DeadlineRule,
    adaptive,
    fixed,
    until_decodable,
    whole_load,
)
from gcjax.engine.live.round_records import CodedRun, Round
from gcjax.engine.live.slow_workers import SlowSpell, slow_spells, slow_text
from gcjax.engine.live.training import train
from gcjax.registry import Entry

TABLE: dict[str, Entry] = {
    "adaptive": Entry(adaptive),
    "fixed": Entry(fixed),
    "until_decodable": Entry(until_decodable),
    "whole_load": Entry(whole_load),
}

__all__ = [
    "TABLE",
    "CodedRun",
    "DeadlineInputs",
    "DeadlineRule",
    "Round",
    "SlowSpell",
    "adaptive",
    "fixed",
    "slow_spells",
    "slow_text",
    "train",
    "until_decodable",
    "whole_load",
]
