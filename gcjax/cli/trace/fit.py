"""The command `gcjax trace fit`."""

import argparse
from pathlib import Path
from typing import Any

from gcjax import files
from gcjax.cli import out_files
from gcjax.cli.trace import trace_file


def add(commands: Any) -> None:
    """Adds `gcjax trace fit`."""
    parser = commands.add_parser(
        "fit", help="fit all straggler models, ranked by steps that they were not fitted to",
        description="One sentence first: which model foretells the last steps best. Then how well all models do, what "
        "they simulate, and the best one as lines of a config.",
    )  # fmt: skip
    trace_file.add_options(parser)
    parser.add_argument(
        "--held-out", metavar="SHARE", type=float, default=0.3,
        help="share of the steps, the last ones, by which models are ranked (default: 0.3)",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="SEED", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument(
        "--out", metavar="FILE",
        help="write a config file to include, new or empty: the best model, all others as comments",
    )  # fmt: skip
    parser.set_defaults(command=command, name_of_command="trace fit")


def command(options: argparse.Namespace) -> None:
    """`gcjax trace fit`: prints the models and how well they do; writes the config file if asked to."""
    from rich.text import Text

    from gcjax.cli import cached_programs
    from gcjax.cli.trace import fit_json, fit_tables
    from gcjax.progress import bar, console
    from gcjax.stragglers import fit

    trace = trace_file.trace_of_options(options)
    out_files.check_new_file("--out", options.out)
    cached_programs.use_cache_folder()
    with bar() as progress:
        fits = fit(trace, held_out=options.held_out, seed=options.seed, progress=progress)
    if options.out is not None:
        with files.os_errors_as_value_error("--out must be a file", options.out):
            Path(options.out).write_text(fits.gin)
    if options.json:
        options.result = {"files": options.files, **fit_json.fits_json(fits)}
    else:
        for part in fit_tables.printed_parts(fits):
            console().print(part, highlight=False, soft_wrap=isinstance(part, Text))  # lines to paste stay whole
    if options.out is not None:
        console().print(f"Config written to {options.out}", markup=False, highlight=False, soft_wrap=True)
