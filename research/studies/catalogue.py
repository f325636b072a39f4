"""Which studies there are, in the order in which they are read, and what the paper prints for them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsrc.audit.study import Study, StudyTable
from fedsrc.errors import FedsrcError
from fedsrc.records.scan import scan

FOLDER = Path(__file__).parent
NAMES = (
    "registered", "tasks", "privacy-curve", "redeep", "c1", "halueval-surrogate", "halueval", "stress", "capital",
    "c1-capital", "heterogeneity", "eta", "c1-transfer", "ablations", "c1-ablations", "reuse", "baselines",
    "planned-baselines", "scores-ragtruth", "scores-controls", "scores-halueval", "today-ragtruth", "today-halueval",
    "planned-ragtruth", "planned-halueval", "planned-curve", "planned-redeep", "planned-c1",
    "planned-halueval-surrogate", "planned-tasks", "planned-heterogeneity", "planned-eta", "planned-c1-transfer",
    "planned-reuse", "planned-registered", "planned-scores", "planned-scores-ragtruth", "planned-controls",
    "planned-hecurve",
)  # fmt: skip
LONG = ("boundary", "boundary-paper")  # run by name only


@dataclass(frozen=True)
class Paper:
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
    """Tables, and columns of tables, that the study needs and the folder lacks."""
    wanted: dict[str, dict[str, None]] = {}
    for each in study.populations:
        if isinstance(each, StudyTable):
            wanted.setdefault(each.table, {}).update(dict.fromkeys([each.score, *each.where]))
    lacking = []
    for name, columns in wanted.items():
        if not (tables / name).is_file():
            lacking.append(name)
        elif absent := [key for key in columns if key not in scan(tables / name)[0].collect_schema().names()]:
            lacking.append(f"{name} with the columns {', '.join(absent)}")
    return lacking


def printed(name: str) -> list[Paper]:
    """The paper's figures beside a study, table by table."""
    return [
        Paper(each["label"], each["rule"], tuple(each["rows"]), each["note"])
        for each in _printed()["tables"]
        if each["study"] == name
    ]


def contrast_rows() -> list[dict[str, Any]]:
    """The rows of the paper's Table contrast."""
    rows: list[dict[str, Any]] = _printed()["contrast"]
    return rows


def _printed() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "printed.toml").read_text(encoding="utf-8"))
