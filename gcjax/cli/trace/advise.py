"""The command `gcjax trace advise`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gcjax import files
from gcjax.cli import out_files
from gcjax.cli.trace import trace_file

if TYPE_CHECKING:
    from gcjax.progress import Progress
    from gcjax.protocols import Protocol
    from gcjax.study import Study


def add(commands: Any) -> None:
    """Adds `gcjax trace advise`."""
    parser = commands.add_parser(
        "advise", help="say which scheme would win how much back of what stragglers cost",
        description="Simulates all protocols and codes on blocks of the measured steps, and says what each would have "
        "won back of the time that stragglers cost, with 90 % intervals.",
    )  # fmt: skip
    trace_file.add_options(parser)
    parser.add_argument(
        "--config", metavar="CONFIG",
        help="a .gin file with schemes to compare instead; if its study has a target, BSP and the fastest scheme of "
        "each class are trained on its task",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="bindings", metavar="BINDING", action="append", default=[],
        help="with --config: a gin statement that wins over the file; may be repeated",
    )  # fmt: skip
    parser.add_argument("--bootstraps", metavar="B", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--block", metavar="STEPS", type=int, help="steps of a block (default: from their number)")
    parser.add_argument("--bytes", metavar="N", type=float, help="of one gradient, to say what is sent in bytes")
    parser.add_argument(
        "--top", metavar="N", type=int,
        help="show the N fastest schemes only, also in the figure, and not what is left out (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--figure", metavar="FILE",
        help="write a figure of what the schemes win back, with intervals, new or empty: .png, .pdf or .svg",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="SEED", type=int, default=0, help="of the bootstraps (default: 0)")
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="compile everything anew")
    parser.set_defaults(command=command, name_of_command="trace advise")


def command(options: argparse.Namespace) -> None:
    """`gcjax trace advise`: prints the verdict, the table and what it means."""
    from gcjax import tables
    from gcjax.advice import advise, page, write_figure
    from gcjax.cli import cached_programs
    from gcjax.progress import bar, console
    from gcjax.wording import counted

    _check(options)
    trace = trace_file.trace_of_options(options)
    if options.cache:
        cached_programs.use_cache_folder()
    schemes, study, why_not_trained = (None, None, "") if options.config is None else _schemes_and_study(options)
    first_line = _time_sentence(are_programs_kept=options.cache, is_trained=study is not None)
    with bar() as progress:
        advice = advise(
            trace,
            schemes=schemes,
            study=study,
            num_bootstraps=options.bootstraps,
            block_steps=options.block,
            gradient_bytes=options.bytes,
            seed=options.seed,
            progress=_with_first_line(progress, first_line),
        )
    console().print(advice.verdict, markup=False)  # names of schemes may have brackets
    rows, notes = page.table_rows(advice), page.notes(advice)
    if options.top is not None:
        num_slower = max(len(rows) - options.top, 0)
        rows, notes = rows[: options.top], notes[: len(notes) - len(advice.left_out)]
        left_out = counted(len(advice.left_out), "scheme")
        notes.append(f"Not shown: {counted(num_slower, 'slower scheme')}; why {left_out} cannot be compared.")
    console().print("", tables.RichTable("", page.heads(advice), rows, left_heads=("Gradient",)), "", sep="\n")
    for note in [*notes, *filter(None, [why_not_trained])]:
        console().print(note, markup=False)
    if options.figure is not None:
        with files.os_errors_as_value_error("--figure must be a file", options.figure):
            write_figure(advice, options.figure, top=options.top)
        console().print(f"Figure written to {options.figure}", markup=False, highlight=False, soft_wrap=True)
    if options.json:
        options.result = {"files": options.files, **page.advice_json(advice)}


def _check(options: argparse.Namespace) -> None:
    """Raises a `ValueError` if options do not go together, or the figure could not be written; computes nothing."""
    if options.bindings and options.config is None:
        raise ValueError("--set is for a config. Add --config CONFIG, or leave it out.")
    if options.top is not None and options.top < 1:
        raise ValueError(f"--top must be at least 1; got {options.top}.")
    if options.figure is not None:
        files.check_figure_ending(options.figure, "--figure")
        out_files.check_new_file("--figure", options.figure)


def _with_first_line(progress: Progress, line: str) -> Progress:
    """The progress, which prints a line on stderr when it is first told something: traces are refused before."""
    unprinted_lines = [line]

    def update(label: str, fraction: float, detail: str = "") -> None:
        """Prints the line, unless that is done, and reports on."""
        while unprinted_lines:
            print(unprinted_lines.pop(), file=sys.stderr, flush=True)
        progress.update(label, fraction, detail)

    return progress._replace(update=update)


def _time_sentence(*, are_programs_kept: bool, is_trained: bool) -> str:
    """How long what comes now may take."""
    which_schemes = "the schemes whose programs are not kept from before" if are_programs_kept else "the schemes"
    sentence = f"Compiling {which_schemes}: two to four minutes for all that gcjax has, on two slow cores."
    return f"{sentence} Then BSP and the fastest of each kind of gradient are trained." if is_trained else sentence


def _schemes_and_study(options: argparse.Namespace) -> tuple[dict[str, Protocol], Study | None, str]:
    """The schemes of a config's experiment; its study if that has a target, else what must be added to the config."""
    from gcjax import config
    from gcjax.config import errors, experiment_parts
    from gcjax.protocols import Protocol
    from gcjax.study import Study

    config.load(options.config, options.bindings)
    with errors.errors_in_words():
        experiment = experiment_parts.experiment_of_config()
        studies = list(experiment.values_of_types((Study,)).values())
        schemes = experiment.values_of_types((Protocol,))
    if not studies:
        return schemes, None, f"Nothing was trained: {options.config} has no study. Add one with a target."
    if studies[0].target is None:
        how = "--set 'study.target = ...', in the units of study.metric"
        return schemes, None, f"Nothing was trained: the study of {options.config} has no target. Add {how}."
    return schemes, studies[0], ""
