"""The documentation as a site: `make docs`. Pages are the Markdown files of the repository, as they are read there too.

Nothing on the site asks another host for anything: formulas become MathML when the site is built, search runs in the
reader's browser on an index that comes with the site, and theme and fonts are local.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

project = "fedsrc"
author = "The fedsrc authors"
extensions = ["myst_parser"]
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
html_theme = "furo"
html_title = "fedsrc"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["start"]  # index.html, which leads to the first page

# The order in which a newcomer needs them; every page must be here, or the build fails.
SECTIONS = {
    "Start": ["docs/your-own-table", "docs/choosing", "docs/card", "docs/guarantee", "examples/README"],
    "Several sites": ["docs/air-gapped", "docs/live"],
    "Scores": ["docs/scores"],
    "In production": ["docs/gate", "docs/monitor"],
    "Check it": ["docs/audit", "docs/theory", "paper/notation", "docs/reproduce", "docs/comparison"],
    "Project": ["SECURITY", "CONTRIBUTING", "CHANGELOG"],
    "Results": ["docs/results/studies/README", "docs/results/*", "docs/results/studies/*"],
}


def add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page the contents, which the sidebar shows; the Markdown file itself stays plain."""
    if page == root_doc:
        for caption, pages in SECTIONS.items():
            names = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{names}\n```\n"


def inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode  # its source is not shown as well


def display_formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(
        f'<div style="overflow-x: auto; overflow-y: hidden">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
    app.add_html_math_renderer("mathml", (inline_formula, None), (display_formula, None))
