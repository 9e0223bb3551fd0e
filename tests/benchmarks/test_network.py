"""The benchmark over a network of namespaces says what it needs where it cannot run."""

import os
import shutil

import pytest

from benchmarks import network


@pytest.mark.parametrize(
    ("user", "commands", "reason"),
    [(1000, ("ip", "tc", "openssl"), "needs root"), (0, ("ip", "tc"), "openssl missing")],
)
def test_it_is_skipped_with_a_reason(user, commands, reason, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in commands else None)
    (row,) = network.network()
    assert row.value == "none" and row.met and row.note == f"skipped: {reason}"
