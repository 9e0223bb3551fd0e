"""How `make docs` builds these pages; they need no network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import gcjax  # noqa: E402

project = "gcjax"
author = "The gcjax authors"
copyright = "The gcjax authors"
version = release = gcjax.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "myst_nb", "gcjax_docs"]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
highlight_language = "none"
default_role = "literal"

html_theme = "furo"
html_title = f"gcjax {version}"
html_copy_source = False
html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
add_module_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_output_stderr = "remove"
