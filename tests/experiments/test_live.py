"""What the live experiment writes; the processes themselves are tested with the runtime."""

from experiments import live
from gcjax import cli, progress


def row(scheme, scenario, seconds):
    times = dict.fromkeys(("round_seconds", "longest_round", "all_rounds", "replayed_round"), seconds)
    counts = {"extensions": 0, "exact_rounds": 3, "num_rounds": 4}
    return {"scheme": scheme, "scenario": scenario, **times, **counts, "train_loss": 0.25, "accuracy": 0.5}


def test_report_shows_the_table_of_a_live_run(tmp_path, capsys):
    rows = [row("coded", "nobody slow", 0.2), row("coded", "one slow", 0.3)]
    live._write(tmp_path, rows, progress.silent())
    assert "| coded | one slow | 300 ms | 1.50 | 300 ms | 0.30 s | 0.3 s | 3/4 | 0.2500 | 0.500 |" in (
        (tmp_path / "summary.md").read_text()
    )
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "one slow" in capsys.readouterr().out
    shown = live.table(rows)
    assert shown.row_count == 2 and [column.header for column in shown.columns] == list(live.HEADS)
