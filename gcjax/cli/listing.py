"""The command `gcjax list`."""

import argparse


def command(options: argparse.Namespace) -> None:
    """Prints what can be named."""
    from gcjax.cli import listing_tables

    listing_tables.run(options.name)
