"""An advice as a table, for the terminal and for Markdown, and as what `--json` prints."""

from collections.abc import Iterator
from typing import Any

from gcjax import tables
from gcjax.advice import targets
from gcjax.advice.base import CLASSES, Advice, Estimate, SchemeAdvice
from gcjax.advice.verdicts import percent_text, share_text
from gcjax.stragglers.traces import base, departures
from gcjax.wording import counted

HEADS = ("Scheme", "Gradient", "Won back", "s a step", "Regret", "Waiting", "Staleness", "Wasted", "Sent")
HEAD_OF_TIME_TO_TARGET = "Target after (s)"


def heads(advice: Advice) -> tuple[str, ...]:
    """The heads of the table; one more where a task was given."""
    return (*HEADS, HEAD_OF_TIME_TO_TARGET) if advice.target else HEADS


def table_rows(advice: Advice) -> list[list[str]]:
    """The cells of a row for each scheme, the fastest first."""
    return [_table_cells(row, advice) for row in advice.schemes]


def _table_cells(row: SchemeAdvice, advice: Advice) -> list[str]:
    """The cells of one scheme; the name of the best is bold."""
    name = row.scheme.label
    cells = [
        f"**{name}**" if row.is_best else name,
        row.exactness,
        share_text(row.won_back),
        f"{row.seconds.value:.4g}",
        _regret_text(row),
        f"{percent_text(row.waiting.value)} %",
        f"{row.mean_staleness.value:.3g} ({row.max_staleness:.0f})",
        f"{percent_text(row.wasted.value)} %",
        _sent_text(row, advice.gradient_bytes),
    ]
    return [*cells, targets.time_cell(row)] if advice.target else cells


def _regret_text(row: SchemeAdvice) -> str:
    """The regret, or that the scheme is the best or, on a line of its own, that it cannot be told from the best."""
    if row.is_best:
        return "best"
    regret_text = share_text(row.regret)
    return f"indistinguishable,\n{regret_text}" if row.is_indistinguishable else regret_text


def _sent_text(row: SchemeAdvice, gradient_bytes: float | None) -> str:
    """Gradients that a worker sends per effective step, or bytes if the size of one, `gradient_bytes`, is known."""
    if gradient_bytes is None:
        return f"{row.messages.value:.3g}"
    return f"{row.messages.value * gradient_bytes:.3g} B"


def notes(advice: Advice) -> list[str]:
    """What the columns mean, and what was assumed; last, one for each scheme, what is left out."""
    classes = [name for name in CLASSES if any(row.exactness == name for row in advice.schemes)]
    time_unit = "medians" if advice.is_relative else "seconds"  # relative: times are known up to a factor only
    messages = "Messages are free."
    if advice.has_communication:
        messages = "Messages are free: times of communicating, which the trace has, count nowhere."
    message_unit = "gradients" if advice.gradient_bytes is None else "bytes"
    first_cost, second_cost = advice.cost_of_halves
    return [
        " ".join(_sentences_on_steps(advice)),
        "In brackets: what 90 % of other stretches of as many steps would give if the job went on as in this trace, "
        "paired between schemes. What the trace has not seen is not in them: a rarer event, or a change of level. "
        f"Stragglers cost {percent_text(first_cost)} % in its first half, {percent_text(second_cost)} % in its second.",
        "A step is the use of as many examples as BSP uses in one; a chunk of a code with N chunks takes W/N of a "
        f"measured step, and a worker pays for all that it holds. {messages}",
        f"Won back: of what stragglers cost BSP. s a step: {time_unit} per step. Regret: more time than the best. "
        f"Staleness: in commits, mean (largest). Wasted: computed and in no step, or twice. "
        f"Sent: {message_unit} per worker and step.",
        *(f"{name}: {CLASSES[name]}." for name in classes),
        *targets.notes(advice),
        *(f"Left out: {name}: {reason}" for name, reason in advice.left_out.items()),
    ]


def _sentences_on_steps(advice: Advice) -> Iterator[str]:
    """How many steps there are and how they are drawn, and what counts for those that are not there."""
    yield (
        f"{advice.num_steps:,} steps of {advice.num_workers} workers, {advice.num_bootstraps} bootstraps of blocks of "
        f"{advice.block_steps} steps."
    )
    if advice.num_filled:
        yield f"Without a measurement, and counted as the worker's last one: {counted(advice.num_filled, 'cell')}."
    if advice.departures:
        sentence = departures.sentence_on(advice.departures)
        yield f"{sentence[0].upper()}{sentence[1:]}"
    if advice.num_missing_steps:
        yield base.sentence_on_missing_steps(advice.num_missing_steps)


def markdown(advice: Advice) -> str:
    """The page: verdict, table, notes."""
    table = tables.markdown_table(heads(advice), table_rows(advice), left_heads=("Gradient",))
    return "\n".join([advice.verdict, "", table, "", *(f"- {note}" for note in notes(advice))])


def advice_json(advice: Advice) -> dict[str, Any]:
    """All numbers of the advice, for scripts."""
    to_target = targets.json_of_schemes(advice)
    return {
        "verdict": advice.verdict,
        "cost": advice.cost._asdict(),
        "cost_of_halves": list(advice.cost_of_halves),
        "seconds": {"bsp": advice.bsp_seconds._asdict(), "median": advice.median_seconds._asdict()},
        "steps": advice.num_steps,
        "workers": advice.num_workers,
        "filled": advice.num_filled,
        "missing_steps": advice.num_missing_steps,
        "has_communication": advice.has_communication,
        "departures": [{"worker": worker, "step": step} for worker, step in advice.departures],
        "relative": advice.is_relative,
        "block_steps": advice.block_steps,
        "bootstraps": advice.num_bootstraps,
        "gradient_bytes": advice.gradient_bytes,
        "target": advice.target or None,
        "schemes": [{**_json_row(row), "to_target": to_target.get(row.scheme.label)} for row in advice.schemes],
        "left_out": advice.left_out,
    }


def _json_row(row: SchemeAdvice) -> dict[str, Any]:
    """The numbers of one scheme, with its name and setting instead of the protocol."""
    fields = row._asdict()
    del fields["scheme"]
    json_values = {name: value._asdict() if isinstance(value, Estimate) else value for name, value in fields.items()}
    return {"name": row.scheme.name, "setting": row.scheme.setting, **json_values}
