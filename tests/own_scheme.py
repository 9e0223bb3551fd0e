"""The package of the pages in docs/how_to, written to a folder, and its traces removed again."""

import sys
from contextlib import contextmanager

import gin

from gcjax import plugins, registry
from gcjax.config import loading

NAME = "my_schemes"


def write(folder, texts):
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def install(folder, **points):
    """Entry points, as an installed package would have them; name -> module."""
    lines = "".join(f"{name} = {module}\n" for name, module in points.items())
    meta = "Metadata-Version: 2.1\nName: my-schemes\nVersion: 1.0\n"
    write(
        folder / "my_schemes-1.0.dist-info",
        {"METADATA": meta, "entry_points.txt": f"[{plugins.ENTRY_POINT_GROUP}]\n{lines}"},
    )


@contextmanager
def unloaded(monkeypatch, *names):
    """Entry points are looked at anew; what is registered within, and the modules so named, are forgotten behind."""
    loading.register_entries()  # otherwise gin would get what other tests have registered within, and forget it, too
    before = [entry.factory for entry in registry.outside_entries()]
    selectors = {selector for selector, _ in gin.config._REGISTRY.items()}
    monkeypatch.setattr(plugins, "_problems", None)
    try:
        yield
    finally:
        registry.remove_outside_entries(lambda entry: not any(entry.factory is factory for factory in before))
        for selector in {selector for selector, _ in gin.config._REGISTRY.items()} - selectors:
            if not selector.startswith(
                ("gcjax.", "optax.", "experiments.")
            ):  # gin has these names once it is asked for any
                gin.config._REGISTRY.pop(selector)
        for module in [module for module in sys.modules if module.partition(".")[0] in names]:
            del sys.modules[module]
        gin.clear_config()
