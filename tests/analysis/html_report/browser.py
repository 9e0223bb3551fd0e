"""Chromium without a screen, where there is one: what it makes of a page, and what its console says."""

import os
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def command(folder):
    """The begin of the command line of a browser that keeps what it writes in a folder; skips if there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"there is no {', '.join(NAMES)} on PATH")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    options = ["--headless", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--no-first-run"]
    return [program, *options, *sandbox, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000"]


def opened(page, folder, *options):
    """(stdout, lines of the console) after a page was opened."""
    done = subprocess.run(
        [*command(folder), *options, page.as_uri()], capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
