"""Which studies there are, in the order in which they are read, and what the paper prints for them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsrc.audit.study import Study, Table
from fedsrc.errors import FedsrcError

FOLDER = Path(__file__).parent
NAMES = (
    "registered", "privacy-curve", "redeep", "halueval-surrogate", "halueval", "stress", "capital", "heterogeneity",
    "eta", "ablations", "reuse", "scores-ragtruth", "scores-halueval", "today-ragtruth", "today-halueval",
)  # fmt: skip
LONG = ("boundary",)  # run by name only


@dataclass(frozen=True)
class Printed:
    """What the paper prints beside one study: rows of `match` (which settings) and its figures."""

    label: str
    rule: str
    rows: tuple[dict[str, Any], ...]
    note: str


def path_of(name: str) -> Path:
    """The file of a study; an unknown name is refused."""
    if name not in (*NAMES, *LONG):
        raise FedsrcError(f"there is no study {name!r}", hint=f"studies: {', '.join((*NAMES, *LONG))}")
    return FOLDER / f"{name}.toml"


def study_of(name: str) -> Study:
    """The study of that name."""
    return Study.read(path_of(name))


def missing_tables(study: Study, tables: Path) -> list[str]:
    """Tables the study needs that are not in the folder."""
    wanted = dict.fromkeys(each.table for each in study.populations if isinstance(each, Table))
    return [name for name in wanted if not (tables / name).is_file()]


def printed(name: str) -> Printed | None:
    """The paper's figures beside a study, or None."""
    tables = tomllib.loads((FOLDER / "printed.toml").read_text(encoding="utf-8"))["tables"]
    found = next((each for each in tables if each["study"] == name), None)
    return None if found is None else Printed(found["label"], found["rule"], tuple(found["rows"]), found["note"])
