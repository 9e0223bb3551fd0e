"""The kept figures of benchmarks: one file a machine, one page, and a new run replaces its own figures only."""

import json

from benchmarks import results
from benchmarks.timing import Row

ALONE = Row(what="schedule", value="0.8 s", target="1 s", met=True, note="")
COMPARED = Row(what="schedule | over SimPy", value="62", target=">= 200", met=False, note="", peer="SimPy 4")
ORDER = ["first", "second"]


def test_a_benchmark_replaces_its_own_figures_only(tmp_path):
    results.save(tmp_path, "An (odd) CPU, 2 cores", "second", [ALONE], order=ORDER)
    results.save(tmp_path, "An (odd) CPU, 2 cores", "first", [COMPARED], order=ORDER)
    results.save(tmp_path, "An (odd) CPU, 2 cores", "second", [ALONE._replace(value="0.5 s")], order=ORDER)
    content = json.loads((tmp_path / "an-odd-cpu-2-cores.json").read_text())
    assert list(content["benchmarks"]) == ORDER
    values = {name: [row["value"] for row in kept["rows"]] for name, kept in content["benchmarks"].items()}
    assert values == {"first": ["62"], "second": ["0.5 s"]}
    assert all(kept["date"] and kept["jax"] for kept in content["benchmarks"].values())


def test_the_page_has_every_machine_and_says_what_was_missed(tmp_path):
    results.save(tmp_path, "machine one", "first", [ALONE, COMPARED], order=ORDER)
    results.save(tmp_path, "machine two", "first", [ALONE._replace(value="9 s", met=False)], order=ORDER)
    results.write_page(tmp_path)
    page = (tmp_path / "README.md").read_text()
    one, two = page.split("## machine two")
    assert "| schedule | 0.8 s | 1 s | yes |" in one
    assert r"| schedule \| over SimPy | 62 | >= 200 | MISSED | SimPy 4 |" in one
    assert one.index("SimPy 4") < one.index("By itself")
    assert "| schedule | 9 s | 1 s | MISSED |" in two
    assert "Compared with others" not in two


def test_the_kept_page_is_that_of_the_kept_figures(tmp_path):
    kept = sorted(results.FOLDER.glob("*.json"))
    assert kept, "make bench writes benchmarks/results"
    for path in kept:
        (tmp_path / path.name).write_text(path.read_text())
    results.write_page(tmp_path)
    assert (tmp_path / "README.md").read_text() == (results.FOLDER / "README.md").read_text()


def test_a_machine_is_told_by_its_processor_and_cores():
    kind, cores = results.machine().rsplit(", ", 1)
    assert kind
    assert cores.endswith(" cores")
    assert int(cores.split()[0]) >= 1
