"""What sections of the page share: rows of a table, records on disk, and blocks of work on all cores."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from joblib import Parallel, delayed  # type: ignore[import-untyped, unused-ignore]

from research.pages import FIGURES

RECORDS = FIGURES / "attacks"
PROCESSES = 2
Record = dict[str, Any]  # what a section measured: numbers, words and lists of them
Result = TypeVar("Result")


class Row(NamedTuple):
    """One attack: what it got before, what it gets now, and what the figure means."""

    attack: str
    before: str
    now: str
    means: str


class Section(NamedTuple):
    """One section of the page: how it is measured, at a share of its full size, and how a record is shown."""

    name: str
    title: str
    run: Callable[[float], Record]
    rows: Callable[[Record], list[Row]]
    more: Callable[[Record], list[str]] = lambda _: []


def control(figure: str) -> str:
    """A figure of the old rule, which a control of the same run reproduces."""
    return f"{figure} (control)"


def recorded(figure: str) -> str:
    """A figure from the record of the attack, on the version that had the hole."""
    return f"{figure} (record)"


def some(count: int, scale: float) -> int:
    """A share of a count, at least one."""
    return max(1, round(count * scale))


def totals(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts, added up by name."""
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found


def in_blocks(work: Callable[[int, int, Path], Result], total: int, block: int, first: int = 0) -> list[Result]:
    """Work on numbers from `first` on in blocks, each in a folder of its own, on all cores."""
    starts = range(first, first + total, block)
    jobs = (delayed(_in_folder)(work, at, min(block, first + total - at)) for at in starts)
    found: list[Result] = Parallel(n_jobs=PROCESSES)(jobs)
    return found


def _in_folder(work: Callable[[int, int, Path], Result], first: int, count: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        return work(first, count, Path(folder))


def keep(name: str, record: Record, folder: Path = RECORDS) -> None:
    """Write a section's record."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def kept(name: str, folder: Path = RECORDS) -> Record:
    """A section's record as it was written."""
    found: Record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of words."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
