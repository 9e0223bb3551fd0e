"""Runs `gcjax run configs/adaptive.gin`, with the options of this command behind it."""

import sys

from gcjax import cli

if __name__ == "__main__":
    sys.exit(cli.main(["run", "configs/adaptive.gin", *sys.argv[1:]]))
