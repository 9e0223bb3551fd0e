"""The summary of a sweep: a row for each combination and scheme, and how much longer than the best they take."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gcjax import _validate, files
from gcjax.analysis import paired, seal, store, summary
from gcjax.analysis.summary import SummaryRow
from gcjax.analysis.sweeps import Combination, Sweep
from gcjax.tables import RichTable, markdown_table

_SHARED_BY_COMBINATIONS = "Those that are compared have the same delays and random keys"
_NOTES = """\
- Only combinations with the same delays in each seed, and the same target, are compared with each other: values that
  change who is slow have a reference of their own.
"""


class Entry(NamedTuple):
    """A scheme in one combination.

    Attributes:
      combination: which one.
      scheme: its name.
      times: float[S] virtual seconds to the target for each of S seeds, inf where it was not reached.
    """

    combination: Combination
    scheme: str
    times: np.ndarray


def entries(sweep: Sweep) -> list[Entry]:
    """The schemes of all combinations, in the order of the table: in each combination, the best first."""
    return [
        Entry(combination, scheme, times)
        for combination in sweep.combinations
        for scheme, times in summary.times_best_first(combination.results).items()
    ]


def references(sweep: Sweep, against: str | None = None) -> list[Entry | None]:
    """What each of `entries` is compared with: the best of all that have the same delays and target.

    None where there is 1 seed, or nothing has reached the target.

    Args:
      sweep: any.
      against: the scheme that the others are compared with in each combination, instead.

    Raises:
      ValueError: if a combination has no scheme `against`; it has the names of all.
    """
    all_entries = entries(sweep)
    if against is not None:
        for combination in sweep.combinations:
            _validate.choice("against", against, combination.results.schemes)
        named = {entry.combination.folder: entry for entry in all_entries if entry.scheme == against}
        return [named[entry.combination.folder] for entry in all_entries]
    best: dict[str, Entry] = {}
    for entry in all_entries:
        key = _pairing_key(entry.combination)
        if key not in best or summary.rank(entry.times) < summary.rank(best[key].times):
            best[key] = entry
    has_reference = {key: entry.times.size > 1 and np.isfinite(entry.times).any() for key, entry in best.items()}
    keys = [_pairing_key(entry.combination) for entry in all_entries]
    return [best[key] if has_reference[key] else None for key in keys]


def reference_name(reference: Entry, sweep: Sweep) -> str:
    """The name of a reference that the best of all combinations is, with the values of its own."""
    bindings = zip(sweep.parameters, reference.combination.values, strict=True)
    return ", ".join([reference.scheme, *(f"{name} = {value}" for name, value in bindings)])


def heads(sweep: Sweep) -> list[str]:
    """The heads of the columns of the table."""
    return [*sweep.parameters, *_common_heads(sweep)]


def rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """The cells of each combination and scheme: the values, and the cells as of a comparison."""
    return [
        (*combination.values, *row) for combination in sweep.combinations for row in summary.rows(combination.results)
    ]


def table(sweep: Sweep, title: str = "All combinations") -> RichTable:
    """The summary for the terminal."""
    return RichTable(title, heads(sweep), rows(sweep), num_key_columns=_num_key_columns(sweep))


def paired_table(sweep: Sweep, against: str) -> RichTable:
    """The differences from the scheme `against`, seed by seed, for the terminal; errors as of `references`."""
    title = summary.paired_title(against)
    return RichTable(
        title,
        _paired_heads(sweep, against),
        list(_paired_rows(sweep, against)),
        num_key_columns=_num_key_columns(sweep),
    )


def markdown(sweep: Sweep, *, against: str | None = None) -> str:
    """The summary as a Markdown page, with what its columns mean, and with the differences seed by seed.

    Args:
      sweep: what it found.
      against: the scheme that the differences are from in each combination; the best one if None (see `references`).

    Raises:
      ValueError: if a combination has no scheme `against`.
    """
    all_rows = markdown_table(heads(sweep), rows(sweep), num_key_columns=_num_key_columns(sweep))
    page = f"# Sweep\n\n{all_rows}\n\n{summary.NOTES}"
    section = _paired_section(sweep, against)
    return f"{page}\n{section}" if section else page


def write(sweep: Sweep, folder: Path, *, against: str | None = None) -> None:
    """Writes `summary.md` anew, and its digest; arguments and errors as of `markdown`."""
    page = markdown(sweep, against=against)
    with seal.rewriting(folder, (store.SUMMARY_FILE,)):
        files.write_text(folder / store.SUMMARY_FILE, page)


def _paired_section(sweep: Sweep, against: str | None) -> str:
    """A section in Markdown with a row for each entry but the references; empty if there is nothing to compare."""
    paired_rows = list(_paired_rows(sweep, against))
    if not paired_rows:
        return ""
    differences = markdown_table(
        _paired_heads(sweep, against),
        paired_rows,
        num_key_columns=_num_key_columns(sweep) + (against is None),
    )
    if against is None:  # the reference may be in another combination
        notes = paired.notes(None, what_is_shared=_SHARED_BY_COMBINATIONS) + _NOTES
    else:
        notes = paired.notes(against)
    return f"## Later than {against or 'the best'}, seed by seed\n\n{differences}\n\n{notes}"


def _paired_heads(sweep: Sweep, against: str | None) -> list[str]:
    """The heads of the columns of `_paired_rows`."""
    scheme_head, *number_heads = paired.HEADS
    return [*sweep.parameters, scheme_head, *(["Later than"] if against is None else []), *number_heads]


def _paired_rows(sweep: Sweep, against: str | None) -> Iterator[tuple[str, ...]]:
    """The cells of each entry but the references: its values, its scheme, without `against` its reference, numbers."""
    for entry, reference in zip(entries(sweep), references(sweep, against), strict=True):
        if reference is None or is_same(entry, reference):
            continue
        row = paired.row(entry.scheme, reference.times, entry.times)
        names = [entry.scheme] if against is not None else [entry.scheme, reference_name(reference, sweep)]
        yield (*entry.combination.values, *names, *row[1:])


def is_same(entry: Entry, reference: Entry) -> bool:
    """Whether two entries are the same scheme in the same combination."""
    return (entry.combination.folder, entry.scheme) == (reference.combination.folder, reference.scheme)


def _pairing_key(combination: Combination) -> str:
    """The same text for combinations whose seeds make pairs: those with the same delays and the same target."""
    run_facts = combination.results.facts
    delays = run_facts.get("delays_sha256", combination.folder)
    return json.dumps([delays, run_facts["target"]], sort_keys=True)


def _num_key_columns(sweep: Sweep) -> int:
    """The parameters and the scheme name a row."""
    return len(sweep.parameters) + 1


def _common_heads(sweep: Sweep) -> SummaryRow:
    """The heads of the summary of all combinations, which do not name what differs between them."""
    first_heads, *other_heads = dict.fromkeys(summary.heads(combination.results) for combination in sweep.combinations)
    if not other_heads:
        return first_heads
    return first_heads._replace(time_to_target="Time to the target (s)", final_value="Final value")
