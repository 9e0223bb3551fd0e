"""What Sphinx does for these pages: writes the reference, links every public name, shows examples as code.

Nothing of it needs the network: names of other libraries stay plain.
"""

import re
from pathlib import Path
from typing import Any

import reference_pages
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.transforms import SphinxTransform

FOLDER = "reference"


class LinkPublicNames(SphinxTransform):
    """Makes `gcjax.codes.partial` in literal text a link to where the reference explains it."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Wraps each literal that is a public name in a reference that Sphinx resolves."""
        names = self.app.gcjax_names
        for literal in list(self.document.findall(nodes.literal)):
            target = names.get(literal.astext().removesuffix("()"))
            if target and not isinstance(literal.parent, (addnodes.pending_xref, nodes.reference, nodes.title)):
                options = {"refdomain": "py", "reftype": "obj", "reftarget": target, "refdoc": self.env.docname}
                literal.replace_self(addnodes.pending_xref("", literal.deepcopy(), refexplicit=False, **options))


def write_reference(app: Sphinx) -> None:
    """Writes the pages of the reference before Sphinx looks for pages."""
    app.gcjax_names = reference_pages.public_names()
    reference_pages.write(Path(app.srcdir) / FOLDER)


def as_read_in_the_source(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A docstring as a reader of the source takes it, before it is taken for reStructuredText.

    Indented lines after an empty one are code. A letter and a full stop, as in `num_workers: W.`, are no numbered list.
    What stands before a colon in the first line of a property is not its type.
    """
    result: list[str] = [""] if what == "property" else []
    for line in lines:
        before = next((text for text in reversed(result) if text.strip()), "")
        begins = line.startswith("    ") and result and not result[-1].strip() and not before.startswith((" ", ".."))
        language = "python" if re.match(r" *(with|import|from|@|\w+ = |assert|refines|>>>)", line) else "none"
        result += [f".. code-block:: {language}", ""] if begins else []
        result.append(re.sub(r"^( *(?:\w+: )?\w)\.(?=\s|$)", r"\1\\.", line))
    lines[:] = result


def plain_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: Any, returns: Any) -> Any:
    """Defaults that are functions by their names; several functions in a tuple, which say nothing, as an ellipsis."""
    if signature is None or "<function" not in signature:
        return None
    plain = re.sub(r"<function (?:\w+\.)*(?:<\w+>\.)*(\w+|<lambda>)(?: at \w+)?>", r"\1", signature)
    plain = plain.replace("<lambda>", "...")
    return re.sub(r"\(init_fn, update_fn\)", "...", plain), returns


def resolve(app: Sphinx, env: Any, node: addnodes.pending_xref, content: nodes.Element) -> nodes.Element | None:
    """Types by the name that the reference has for them; what belongs to Python or another library stays text."""
    target = node.get("reftarget", "")
    home = app.gcjax_names.get(target)
    if node.get("refdomain") != "py":
        return None
    if home and home != target:
        return env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, content)
    is_public = target in app.gcjax_names or (target.startswith("gcjax.") and node.get("reftype") != "class")
    return None if is_public else content


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects all of this to Sphinx."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # instead of "Variables"
    app.add_transform(LinkPublicNames)
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", as_read_in_the_source, priority=400)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
