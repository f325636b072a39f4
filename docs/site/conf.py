"""The documentation as a site: `make docs`. Pages are the Markdown files of the repository, as they are read there too.

Nothing on the site asks another host for anything: formulas become MathML when the site is built, search runs in the
reader's browser on an index that comes with the site, and theme and fonts are local.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from docutils import nodes
from latex2mathml.converter import convert

import fedsrc

sys.path.append(str(Path(__file__).parent))
from cells import rendered  # beside this file

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

project = "fedsrc"
author = "The fedsrc authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/**/*.md",
    "paper/*.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "examples/*.md",
]
exclude_patterns = [".venv", ".git", "build", "src", "tests", "research", "docs/site"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links to headings are checked, and their names are those of GitHub
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries, in signatures; links between pages stay strict
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Tabular", "Place", "Missing", "Preset", "Unit", "Reason")}
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
html_theme = "furo"
html_title = "fedsrc"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["start"]  # index.html, which leads to the first page

# In the order of need; every page must be here or below one, or the build fails.
SECTIONS = {
    "Your own table": ["docs/from-a-log", "docs/notebook", "docs/scores", "docs/choosing"],
    "Several sites": ["docs/air-gapped", "docs/live", "SECURITY"],
    "In production": ["docs/gate", "docs/monitor"],
    "What is guaranteed": ["docs/guarantee", "docs/theory", "docs/audit", "docs/comparison", "docs/results/README"],
    "Reference": ["docs/reference", "docs/format", "examples/README", "CONTRIBUTING", "CHANGELOG"],
}
BELOW = {  # collapsed in the sidebar
    "docs/theory": ["docs/theory/*", "paper/notation"],
    "docs/results/README": ["docs/results/studies/README", "docs/results/[a-z]*", "docs/results/studies/*"],
}
NAME = re.compile(r"^### `(\w+)`$", flags=re.MULTILINE)
ALIAS = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
WITH_MEMBERS = ("Run", "Certificate", "Forecast", "Verified", "Gate")
READ_ONLY = ("Run", "Certificate", "Registration", "Forecast", "Verified")


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page the contents, which the sidebar shows; the Markdown files themselves stay plain."""
    contents = SECTIONS if page == root_doc else {"Below": BELOW[page]} if page in BELOW else {}
    for caption, pages in contents.items():
        names = "\n".join(f"/{name}" for name in pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{names}\n```\n"


def add_reference(_: Sphinx, page: str, source: list[str]) -> None:
    """Complete the reference from the docstrings: in the repository the page only names what there is."""
    if page == "docs/reference":
        source[0] = NAME.sub(lambda found: f"{found[0]}\n\n{_documented(found[1])}", source[0])


def _documented(name: str) -> str:
    kind = "function" if inspect.isfunction(getattr(fedsrc, name)) else "class"
    members = "\n   :members:\n   :member-order: bysource" if name in WITH_MEMBERS else ""
    return f"```{{eval-rst}}\n.. auto{kind}:: fedsrc.{name}{members}\n```"


def shown_signature(
    _: Sphinx, what: str, name: str, __: object, ___: object, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Leave out the fields of values that nobody constructs, and call types by their names."""
    if what == "class" and name.removeprefix("fedsrc.") in READ_ONLY:
        return "", None
    return None if signature is None else (ALIAS.sub(r"\1", signature), returned)


def add_notebook(app: Sphinx, page: str, source: list[str]) -> None:
    """Show on the site what a notebook shows: the script is run, and its outputs and card stand below its cells."""
    if page == "docs/notebook":
        script = (Path(app.srcdir) / "examples" / "notebook.py").read_text(encoding="utf-8")
        with TemporaryDirectory() as folder, chdir(folder):
            os.environ |= dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME"), folder)
            source[0] = rendered(script)


def inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode  # its source is not shown as well


def display_formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(
        f'<div style="overflow-x: auto; overflow-y: hidden">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    for complete in (add_contents, add_reference, add_notebook):
        app.connect("source-read", complete)
    app.connect("autodoc-process-signature", shown_signature)
    app.add_html_math_renderer("mathml", (inline_formula, None), (display_formula, None))
