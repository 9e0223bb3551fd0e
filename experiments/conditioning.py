"""Which code is safe in which precision, and what interpolation does to rounded numbers.

gcjax run configs/conditioning.gin
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow as pa

from gcjax import _validate, analysis, codes, config, files, register
from gcjax.analysis.styles import COLOURS
from gcjax.codes import assignments, diagnostics
from gcjax.progress import Progress
from gcjax.tables import RichTable

Family = Callable[[int, int, int, jax.Array], codes.GradientCode]
"""`(n, s, L, rng_key) -> code`; raises `ValueError` where there is none."""

MANY_WORKERS = 32
"""Beyond so many workers fewer sets of stragglers are tried."""

MIN_MASKS = 16
"""As few as this."""

NOTES = """\
- Condition: Skeel's condition number of decoding from n - s workers, median and largest over {masks} sets of
  stragglers (all of them where they are fewer; for n above {many} so many fewer that the workers in all sets are as
  many, but at least {least}): rounding errors of the messages grow by so much.
- float64, float32, bfloat16: the largest measured relative error of the decoded sum; bfloat16 is the type of the
  messages, planned and added up in float32. Codes that refuse float32 are made for float64.
- Safe in: the shortest type whose error stays below {safe:g}.
"""


def _family_of_one_block(make_code: Callable[[int, int, jax.Array], codes.GradientCode]) -> Family:
    """`make_code(num_workers, num_stragglers, key)` as a family, whose codes have a number of blocks, too: 1."""

    def family(num_workers: int, num_stragglers: int, num_blocks: int, key: jax.Array) -> codes.GradientCode:
        """The code; a `ValueError` for several blocks."""
        if num_blocks > 1:
            raise ValueError(f"this code has one block; got {num_blocks}.")
        return make_code(num_workers, num_stragglers, key)

    return family


FAMILIES: dict[str, Family] = {
    "FRC": _family_of_one_block(lambda n, s, key: codes.fractional_repetition(n, num_stragglers=s)),
    "CRC": _family_of_one_block(lambda n, s, key: codes.cyclic_repetition(n, num_stragglers=s, rng_key=key)),
    "cyclic MDS": _family_of_one_block(lambda n, s, key: codes.cyclic_mds(n, num_stragglers=s)),
    "Reed-Solomon": _family_of_one_block(lambda n, s, key: codes.reed_solomon(n, num_chunks=n + 1, num_stragglers=s)),
    "Reed-Solomon, complex": _family_of_one_block(
        lambda n, s, key: codes.reed_solomon(n, num_chunks=n + 1, num_stragglers=s, points="roots_of_unity")
    ),
    "heterogeneous": _family_of_one_block(
        lambda n, s, key: codes.heterogeneous(list(range(n, 2 * n)), num_chunks=n, num_stragglers=s, rng_key=key)
    ),
    "Ye-Abbe, polynomial": lambda n, s, L, key: codes.communication_efficient(
        n, num_stragglers=s, num_blocks=L, generator="vandermonde"
    ),
    "Ye-Abbe, random": lambda n, s, L, key: codes.communication_efficient(
        n, num_stragglers=s, num_blocks=L, rng_key=key
    ),
    "partial": lambda n, s, L, key: codes.partial(assignments.cyclic(n, load=s + L), num_blocks=L, rng_key=key),
    "partial, harmonic": lambda n, s, L, key: codes.partial(
        assignments.cyclic(n, load=s + L), num_blocks=L, rows="harmonic"
    ),
}


class Row(NamedTuple):
    """One code of n workers, s stragglers, L blocks: condition numbers, median and largest, and its largest errors.

    See `gcjax.codes.diagnostics.Conditioning`; an error is named after the type of the numbers.
    """

    code: str
    n: int
    s: int
    L: int
    typical: float
    worst: float
    float64: float
    float32: float
    bfloat16: float


HEADS = ("Code", "n", "s", "L", "Condition", "worst", "float64", "float32", "bfloat16", "Safe in")


@register("experiment")
def conditioning(
    *,
    num_workers: Sequence[int] = (8, 16, 32, 100, 1000),
    num_stragglers: Sequence[int] = (1, 2, 4),
    num_blocks: Sequence[int] = (1, 2, 4),
    max_masks: int = 256,
    safe: float = 1e-2,
    degrees: Sequence[int] = (20, 25, 30),
    num_polynomials: int = 200,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[Row]:
    """Condition numbers and decoding errors of all exact codes, and the errors of Lagrange interpolation.

    Args:
      num_workers: n, several.
      num_stragglers: s, several.
      num_blocks: L, several.
      max_masks: sets of stragglers at most.
      safe: the relative error up to which a type of number counts as safe.
      degrees: of the polynomials that are interpolated (Ramamoorthy et al. 2024).
      num_polynomials: random polynomials of each degree.
      seed: of everything random here.
      out: the folder to write.
      progress: tells a person how far it is.

    Returns:
      A row for each family, n, s and L of which there is a code.

    Raises:
      ValueError: if an argument is out of its range, or a sequence is empty; or if there is no code for any n, s and L.
    """
    least_values = {"num_workers": 2, "num_stragglers": 0, "num_blocks": 1, "degrees": 1}
    sequences = (num_workers, num_stragglers, num_blocks, degrees)
    for (name, minimum), values in zip(least_values.items(), sequences, strict=True):
        if not _validate.sequence(name, values):
            raise ValueError(f"{name} must have a value at least; got {values!r}.")
        _validate.whole(name, values, minimum=minimum)
    max_masks = _validate.integer("max_masks", max_masks, minimum=1)
    num_polynomials = _validate.integer("num_polynomials", num_polynomials, minimum=1)
    _validate.single_number("safe", safe)
    key = config.key(seed=seed)
    settings = list(itertools.product(FAMILIES, num_workers, num_stragglers, num_blocks))
    rows = []
    for i, (family, workers, stragglers_of_code, blocks_of_code) in enumerate(settings):
        progress.update(f"{family} n={workers}", i / len(settings))
        code = _code_or_none(FAMILIES[family], workers, stragglers_of_code, blocks_of_code, key)
        if code is None:
            continue  # no such code: that is what the table shows
        # Fewer for many workers, so that sets times workers are no more than for `MANY_WORKERS`; but `MIN_MASKS`.
        affordable_masks = max(MIN_MASKS, min(max_masks, max_masks * MANY_WORKERS // workers))
        condition = diagnostics.conditioning(
            code, num_stragglers=stragglers_of_code, rng_key=key, max_masks=min(max_masks, affordable_masks)
        )
        typical_and_worst = {"typical": condition.median_condition_number, "worst": condition.worst_condition_number}
        rows.append(
            Row(code=family, n=workers, s=stragglers_of_code, L=blocks_of_code, **typical_and_worst, **condition.errors)
        )
    if not rows:
        raise ValueError(
            f"there must be a code of some n, s and L; got num_workers={num_workers!r}, "
            f"num_stragglers={num_stragglers!r} and num_blocks={num_blocks!r}."
        )
    digits, errors = interpolation_errors(degrees, num_polynomials, seed)
    _write(rows, digits, errors, {"max_masks": max_masks, "safe": safe}, out, progress)
    return rows


def _code_or_none(family: Family, n: int, s: int, num_blocks: int, key: jax.Array) -> codes.GradientCode | None:
    """The code of a family for n workers and s stragglers; made for float64 if it refuses float32; None if both."""
    for has_float64 in (False, True):
        with contextlib.suppress(ValueError), jax.enable_x64(has_float64):
            return family(n, s, num_blocks, key)
    return None


def interpolation_errors(
    degrees: Sequence[int], num_polynomials: int, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What is left of a polynomial when its values are rounded to so many decimal digits.

    A random polynomial (normal coefficients of Chebyshev polynomials) of degree m is known at m + 1 equidistant points
    of [-1, 1], as a server knows the results of m + 1 workers; its value at a random point is interpolated (Lagrange,
    barycentric form). Beside it: the same number of chunk results, rounded alike, added up as repetition does.

    Returns:
      int[digits], how many digits, and for each curve float[digits]: the mean over polynomials of the relative error,
      over the root mean square of the known values, or for the sum over the norm of the results.
    """
    rng = np.random.default_rng(seed)
    digits = list(range(2, 16))
    errors = {f"interpolation, degree {m}": _interpolation_error(m, digits, num_polynomials, rng) for m in degrees}
    num_results = max(degrees) + 1
    chunk_results = rng.normal(size=(num_polynomials, num_results))
    sums_of_rounded = np.stack([_rounded(chunk_results, d).sum(axis=1) for d in digits])  # [digits, polynomials]
    absolute_errors = np.abs(sums_of_rounded - chunk_results.sum(axis=1))  # [digits, polynomials]
    norms = np.linalg.norm(chunk_results, axis=1)  # [polynomials]
    errors[f"sum of {num_results} results"] = np.mean(absolute_errors / norms, axis=1)
    return np.array(digits), errors


def _interpolation_error(degree: int, digits: list[int], num_polynomials: int, rng: np.random.Generator) -> np.ndarray:
    """float[digits]: mean relative errors of interpolation from values that are rounded to so many digits.

    Lagrange in barycentric form, with a term for each of the degree + 1 nodes.
    """
    nodes = np.linspace(-1, 1, degree + 1)
    differences_with_unit_diagonal = nodes[:, None] - nodes[None] + np.eye(degree + 1)
    barycentric_weights = 1 / differences_with_unit_diagonal.prod(axis=1)  # [nodes]
    points = rng.uniform(-1, 1, num_polynomials)  # one of each polynomial
    coefficients = rng.normal(size=(degree + 1, num_polynomials))
    node_values = np.polynomial.chebyshev.chebval(nodes, coefficients)  # [polynomials, nodes]
    true_values = np.polynomial.chebyshev.chebval(points, coefficients, tensor=False)  # [polynomials]
    terms = barycentric_weights / (points[:, None] - nodes)  # [polynomials, nodes]
    root_mean_squares = np.sqrt((node_values**2).mean(axis=1))
    interpolated = np.stack([(terms * _rounded(node_values, d)).sum(axis=1) / terms.sum(axis=1) for d in digits])
    return np.mean(np.abs(interpolated - true_values) / root_mean_squares, axis=1)


def _rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """The values, of any shape and none of them 0, rounded to so many significant decimal digits."""
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values))))
    return np.round(values * scale) / scale


def _write(
    rows: list[Row], digits: np.ndarray, error_curves: dict[str, np.ndarray], run_facts: dict[str, Any], out: Path,
    progress: Progress,
) -> None:  # fmt: skip
    """Writes the page with both tables, their numbers and the figures, and shows the tables.

    `error_curves`: name -> float[digits], the errors of interpolation with `digits int[digits]`.
    """
    code_rows = [_cells(row, run_facts["safe"]) for row in rows]
    curve_rows = [
        [name, *(f"{error:.1g}" for error in errors_of_curve)] for name, errors_of_curve in error_curves.items()
    ]
    lagrange_heads = ["Relative error with ... digits", *map(str, digits)]
    notes = NOTES.format(masks=run_facts["max_masks"], many=MANY_WORKERS, least=MIN_MASKS, safe=run_facts["safe"])
    page_lines = ["# Conditioning", "", analysis.markdown_table(HEADS, code_rows, num_key_columns=4), "", notes]
    page_lines += ["# Interpolation", "", analysis.markdown_table(lagrange_heads, curve_rows), ""]
    analysis.write_page(out, "\n".join(page_lines), run_facts)
    files.write_table(out / "conditioning.parquet", pa.Table.from_pylist([row._asdict() for row in rows]))
    files.write_table(out / "interpolation.parquet", {"digits": digits, **error_curves})
    _draw_codes(rows, out / "conditioning.png")
    _draw_interpolation(digits, error_curves, out / "interpolation.png")
    progress.show(table(rows, safe=run_facts["safe"]))
    progress.show(analysis.RichTable("Interpolation", lagrange_heads, curve_rows))


def table(rows: Sequence[Row], *, safe: float) -> RichTable:
    """The codes for the terminal."""
    return analysis.RichTable("Conditioning", HEADS, [_cells(row, safe) for row in rows], num_key_columns=4)


def _cells(row: Row, safe: float) -> list[str]:
    """The cells of a code, by `HEADS`; the last one is the shortest type whose error is below `safe`, or "none"."""
    types = [name for name in ("bfloat16", "float32", "float64") if getattr(row, name) < safe]
    errors = [f"{error:.1g}" for error in (row.float64, row.float32, row.bfloat16)]
    counts = [str(count) for count in (row.n, row.s, row.L)]
    return [row.code, *counts, f"{row.typical:.3g}", f"{row.worst:.3g}", *errors, types[0] if types else "none"]


_LOOKS = "o-", "s--", "^:", "v-."
"""Markers and dashes of lines that share a colour."""


def _draw_codes(rows: list[Row], file: Path) -> None:
    """Draws the float32 error against n workers: a panel for each number of stragglers, a line for each code and L."""
    straggler_counts, worker_counts = sorted({row.s for row in rows}), sorted({row.n for row in rows})
    figure = files.figure(4.2 * len(straggler_counts), 4.6)
    panels = figure.subplots(1, len(straggler_counts), sharey=True, squeeze=False)[0]
    lines = sorted({(row.code, row.L) for row in rows})
    for panel, num_stragglers in zip(panels, straggler_counts, strict=True):
        for i, (code, num_blocks) in enumerate(lines):  # each looks the same in all panels
            rows_of_line = [row for row in rows if (row.code, row.s, row.L) == (code, num_stragglers, num_blocks)]
            num_workers, errors = [row.n for row in rows_of_line], [row.float32 for row in rows_of_line]
            num_colours = len(COLOURS)
            colour, look = COLOURS[i % num_colours], _LOOKS[i // num_colours % len(_LOOKS)]
            if rows_of_line:
                panel.plot(num_workers, errors, look, color=colour, label=f"{files.figure_text(code)}, L={num_blocks}")
        title = f"{num_stragglers} straggler{'s' * (num_stragglers != 1)}"
        panel.set(title=title, xlabel="workers n", xscale="log", yscale="log")
        panel.set_xticks(worker_counts, labels=list(map(str, worker_counts)))
        panel.set_xticks([], minor=True)
    panels[0].set_ylabel("largest relative error in float32")
    handle_of_label = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handle_of_label.values(), handle_of_label.keys(), loc="outside right center", fontsize="small")
    files.write_figure(file, figure)


def _draw_interpolation(digits: np.ndarray, error_curves: dict[str, np.ndarray], file: Path) -> None:
    """Draws the mean errors `float[digits]` of each curve against the number of digits."""
    figure = files.figure(6.4, 4.4)
    axes = figure.subplots()
    for name, errors in error_curves.items():
        axes.plot(digits, errors, ".-", label=name)
    axes.set(xlabel="significant decimal digits of the results", ylabel="mean relative error", yscale="log")
    axes.legend()
    files.write_figure(file, figure)
