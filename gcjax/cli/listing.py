"""The command `gcjax list`."""

import argparse


def command(options: argparse.Namespace) -> None:
    """`gcjax list [NAME]`: prints all that a config can name, or one kind or entry of it."""
    if options.json:
        from gcjax.cli import listing_json

        options.result = listing_json.kinds_json(options.name)
    else:
        from gcjax.cli import listing_tables

        listing_tables.run(options.name)
