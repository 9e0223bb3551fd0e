"""Processes that are apart: what a config says of them, and who is first."""

import pytest

from experiments import live_members
from gcjax import cli, parameter_server, processes


def test_a_config_or_a_binding_asks_for_it(tmp_path):
    file = tmp_path / "c.gin"
    file.write_text("# run.processes = 'apart'\nrun.experiment = @x\n")
    assert not processes.asks_for_apart(file) and not processes.asks_for_apart(tmp_path / "none.gin")
    assert processes.asks_for_apart(file, ["a.b = 1", "run.processes = 'apart'"])
    file.write_text('run.experiment = @x\nrun.processes = "apart"  # of their own\n')
    assert processes.asks_for_apart(file)


def test_each_knows_its_place(monkeypatch):
    monkeypatch.delenv("GCJAX_SECRET", raising=False)
    assert processes.current_place() is None and processes.is_first()
    where = {"coordinator": "localhost:1234", "num_processes": 3}
    with processes.apart(**where, process_id=2):
        place = processes.current_place()
        assert place.rendezvous.process_id == 2 and place.secret == "" and not processes.is_first()
    with processes.apart(**where, process_id=0, bind="127.0.0.1"):
        assert processes.is_first() and processes.current_place().listen == "127.0.0.1:1234"
    assert processes.current_place() is None


def test_others_on_the_network_need_a_secret(monkeypatch):
    monkeypatch.delenv("GCJAX_SECRET", raising=False)
    monkeypatch.delenv("GCJAX_SECRET_FILE", raising=False)
    where = {"coordinator": "10.0.0.1:1234", "num_processes": 2, "process_id": 0}
    with pytest.raises(ValueError, match="secret"), processes.apart(**where):
        pass
    monkeypatch.setenv("GCJAX_SECRET", "x" * 40)
    with processes.apart(**where):
        assert processes.current_place().secret == "x" * 40
    for host in ("[::1]", "[fd00::1]"):
        with processes.apart(**{**where, "coordinator": f"{host}:1234"}):
            assert processes.current_place().listen == f"{host}:1234"
    with processes.apart(**where, bind="::"):
        assert processes.current_place().listen == "[::]:1234"
    monkeypatch.delenv("GCJAX_SECRET")
    with processes.apart(**where, no_secret=True):
        place = processes.current_place()
    security = live_members.Place(-1, place.listen, place.secret, 1.0).security
    assert security == parameter_server.Security(open_to_all=True)


def test_options_of_a_group_are_refused(tmp_path, capsys):
    file = tmp_path / "c.gin"
    file.write_text("run.experiment = @compare\nrun.processes = 'apart'\n")
    arguments = ["--distributed", "--coordinator", "localhost:1", "--num-processes", "1", "--process-id", "0"]
    assert cli.main(["run", str(file), *arguments, "--lost-after", "3"]) == 2
    assert "leave out --lost-after" in capsys.readouterr().err
