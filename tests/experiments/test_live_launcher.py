"""The launcher of processes on this machine."""

import subprocess

from experiments import live


def test_every_group_gets_a_secret_of_its_own(monkeypatch):
    environments = []

    class Child:
        def __init__(self, command, env):
            environments.append(env)

        def wait(self):
            return 0

        def kill(self):
            pass

    monkeypatch.setattr(subprocess, "Popen", Child)
    assert [live.start(["config.gin"], 3) for _ in range(2)] == [0, 0]
    one, other = (
        {environment["GCJAX_SECRET"] for environment in half} for half in (environments[:3], environments[3:])
    )
    assert len(one) == len(other) == 1 and one != other
    assert all(len(secret) == 64 for secret in one | other)


def test_a_process_that_was_killed_is_no_success(monkeypatch):
    statuses = [0, -9, 2]

    class Child:
        def __init__(self, command, env):
            self.status = statuses.pop(0)

        def wait(self):
            return self.status

        def kill(self):
            pass

    monkeypatch.setattr(subprocess, "Popen", Child)
    assert live.start(["config.gin"], 3) == 137
