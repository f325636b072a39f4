"""A script of cells (`# %%`, or `# %% [markdown]` for text) as a page: its text, its code, and what each cell shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

CELL = re.compile(r"^# %%(.*)\n", flags=re.MULTILINE)


def rendered(script: str) -> str:
    """Run a script of cells in order, and return it as Markdown with its outputs."""
    known: dict[str, Any] = {}
    parts: list[str] = []
    _, *cells = CELL.split(script)
    for kind, text in zip(cells[::2], cells[1::2], strict=True):
        said = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        parts += [said] if "[markdown]" in kind else _cell(text.strip(), known)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _cell(code: str, known: dict[str, Any]) -> Iterator[str]:
    """Yield the code of a cell, what it prints, and its last value as a notebook shows it."""
    yield f"```python\n{code}\n```"
    *first, last = ast.parse(code).body
    value, shown = None, isinstance(last, ast.Expr)
    with redirect_stdout(StringIO()) as printed:
        exec(compile(ast.Module(first if shown else [*first, last], []), "cell", "exec"), known)  # noqa: S102 (our own)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), known)  # noqa: S307 (our own)
    if printed.getvalue():
        yield f"```text\n{printed.getvalue()}```"
    if hasattr(value, "_repr_html_"):
        yield f"```{{raw}} html\n{value._repr_html_()}\n```"
    elif value is not None:
        yield f"```text\n{value!r}\n```"
