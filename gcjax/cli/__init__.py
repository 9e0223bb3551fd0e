"""The command line: run an experiment, list what can be named, rebuild a report, check a protocol."""

from gcjax.cli.main import main

__all__ = ["main"]
