"""`fedsrc.toml` in the working folder: how its tables are read, so that commands need not be told each time.

It holds intake alone. Flags and the environment come before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsrc.common.toml import parse_toml
from fedsrc.errors import FedsrcError

FILE = Path("fedsrc.toml")
TEXTS = (
    "score_column", "loss_column", "site_column", "source_column", "group_column", "id_column", "score_scale",
    "missing",
)  # fmt: skip
LISTS = ("unsupported", "supported")


def kept() -> dict[str, Any]:
    """Return what the file says; refuse anything else than how tables are read."""
    if not FILE.is_file():
        return {}
    try:
        found = parse_toml(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(FILE), hint="mend it, or delete it") from error
    for name, value in found.items():
        _check(name, value)
    return found


def _check(name: str, value: object) -> None:
    if name not in (*TEXTS, *LISTS):
        raise FedsrcError(
            f"{name!r} does not belong here: this file says how tables are read, and nothing else",
            where=str(FILE),
            hint=f"it may hold {', '.join((*TEXTS, *LISTS))}; give the rest with each command",
        )
    if name in TEXTS and not isinstance(value, str):
        raise FedsrcError(f"{name} is not a text in quotes", where=str(FILE))
    if name in LISTS and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
        raise FedsrcError(f'{name} is not a list of texts, such as ["hallucinated"]', where=str(FILE))
