"""The tables of the command line are wide here, so that a test can look for a whole sentence."""

import pytest


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """As of a wide terminal."""
    monkeypatch.setenv("COLUMNS", "180")
