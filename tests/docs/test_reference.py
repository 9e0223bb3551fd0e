"""Every public name stands on exactly one page of the reference, and says what it is. Needs no Sphinx.

What is public is read from the sources here, and not from the module that writes the pages.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import re

import pytest

from tests.docs.pages import DOCS, ROOT

DIRECTIVE = re.compile(r"^\.\. (autofunction|autoclass|automodule|py:data):: (\S+)$", flags=re.MULTILINE)


@functools.cache
def all_lists():
    """Module -> the names in its `__all__`."""
    lists = {}
    for file in sorted((ROOT / "gcjax").rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                lists[module] = ast.literal_eval(node.value)
    return lists


PUBLIC = [(module, name) for module, names in all_lists().items() for name in names]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> text of the generated pages."""
    spec = importlib.util.spec_from_file_location("reference_pages", DOCS / "_ext" / "reference_pages.py")
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    folder = tmp_path_factory.mktemp("reference")
    (folder / "gcjax.gone.rst").write_text("of a module that is there no more")
    generator.write(folder)
    return {file.stem: file.read_text() for file in folder.iterdir()}


def entries_of(pages):
    """(directive, name) of all that the pages explain."""
    return [entry for text in pages.values() for entry in DIRECTIVE.findall(text)]


def value_of(directive, name):
    module, _, last = name.rpartition(".")
    return (
        importlib.import_module(name) if directive == "automodule" else getattr(importlib.import_module(module), last)
    )


def test_each_public_name_stands_on_exactly_one_page(pages):
    values = [(name, value_of(directive, name)) for directive, name in entries_of(pages)]
    wrong = {}
    for module, name in PUBLIC:
        value = getattr(importlib.import_module(module), name)
        is_plain = not (callable(value) or inspect.ismodule(value))  # a constant counts by its name
        places = [n for n, v in values if (n == f"{module}.{name}" if is_plain else v is value)]
        if len(places) != 1:
            wrong[f"{module}.{name}"] = places
    assert wrong == {}


def test_nothing_else_stands_there(pages):
    public = {f"{module}.{name}" for module, name in PUBLIC} | set(all_lists())
    assert {name for _, name in entries_of(pages)} <= public


def test_each_module_has_a_page_that_the_index_lists(pages):
    assert set(all_lists()) == set(pages) - {"index"}
    assert re.findall(r"^   (gcjax\S*)$", pages["index"], flags=re.MULTILINE) == sorted(all_lists())
    assert all(f".. automodule:: {name}\n" in text for name, text in pages.items() if name != "index")


def test_schemes_have_their_papers(pages):
    assert re.search(
        r"\* - :py:obj:`~gcjax.protocols.ssp`\n     - .*\n     - Ho et al. 2013\n", pages["gcjax.protocols"]
    )


def test_types_list_their_methods_and_not_their_fields(pages):
    members = re.search(r"autoclass:: gcjax.codes.Assignment\n   :members: (.*)", pages["gcjax.codes"])[1]
    assert members.split(", ") == ["num_workers", "load", "loads"]


@pytest.mark.parametrize("module", all_lists())
def test_public_names_are_sorted_and_say_what_they_are(module):
    names = all_lists()[module]
    values = {name: getattr(importlib.import_module(module), name) for name in names}
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    explained = {name: inspect.getdoc(value) for name, value in values.items() if callable(value)}
    assert [name for name, text in explained.items() if not text or text.startswith(f"{name}(")] == []
