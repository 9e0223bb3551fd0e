"""Where processes meet: by hand, detected, or wrong; and what is shared in a single process."""

import pytest

from gcjax import cli, processes

LAUNCHERS = ("SLURM", "OMPI", "JAX", "KUBERNETES", "MEGASCALE", "TPU")
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NODELIST": "node[007-010]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.fixture
def launcher(monkeypatch):
    """Sets the variables of a launcher, and of no other."""
    import os

    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


def place(coordinator=None, num_processes=None, process_id=None):
    return processes.rendezvous(coordinator, num_processes, process_id, timeout=1.0)


def test_by_hand():
    assert place("[::1]:1234", 4, 3) == processes.Rendezvous("[::1]:1234", 4, 3)
    assert (place("[::1]:1234", 4, 3).host, place("a.b:1234", 4, 3).port) == ("::1", 1234)


def test_detected(launcher):
    launcher(SLURM)
    assert place() == processes.Rendezvous("node007:61441", 4, 2, (1,))
    launcher({"JAX_COORDINATOR_ADDRESS": "10.0.0.1:99", "JAX_LOCAL_DEVICE_IDS": "0,1"})
    assert place() == processes.Rendezvous("10.0.0.1:99", 4, 2)
    launcher({"SLURM_NTASKS": "many"})
    with pytest.raises(ValueError, match=r"was detected, but not understood: .*many.* Start each process with"):
        place()


def test_detected_open_mpi(launcher):
    launcher(OPEN_MPI)
    found = place()
    assert found._replace(address="") == processes.Rendezvous("", 8, 5, (0,))
    assert found.host == "10.96.0.1"


def test_nothing_detected(launcher):
    with pytest.raises(ValueError, match=r"No launcher of several .* was detected. Start each process with --coord"):
        place()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("10.0.0.1:1234", 2, None), "or by none; missing: --process-id"),
        ((None, 2, 0), "missing: --coordinator"),
        (("10.0.0.1", 2, 0), "must be HOST:PORT"),
        (("10.0.0.1:99999", 2, 0), "must be HOST:PORT"),
        (("::1:1234", 2, 0), "must be HOST:PORT"),
        (("10.0.0.1:1234", 0, 0), "num-processes must be a whole number at least 1; got 0"),
        (("10.0.0.1:1234", 2, 2), "process-id must be a whole number between 0 and 1; got 2"),
    ],
)
def test_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        place(*arguments)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--coordinator localhost:1 --process-id 0", "got --coordinator, --process-id without it"),
        ("--lost-after 3", "need --distributed; got --lost-after without it"),
        ("--distributed --num-processes 2", "missing: --coordinator, --process-id"),
        ("--distributed --lost-after 0.5", "lost-after must be at least 1 and finite; got 0.5"),
        ("--distributed --timeout 0", "timeout must be above 0"),
    ],
)
def test_the_command_refuses_bad_flags(flags, text, capsys):
    assert cli.main(["run", "config.gin", *flags.split()]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("gcjax: ")
    assert text in said.err
    assert said.out == ""


def test_a_single_process_is_the_first_and_agrees_with_itself():
    assert processes.is_first()
    processes.agree("config", "text")
    assert processes.share(lambda: [1, "two"]) == [[1, "two"]]
    with pytest.raises(ValueError, match="^no$"):
        processes.share(_refuse)


def _refuse():
    raise ValueError("no")
