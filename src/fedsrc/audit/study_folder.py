"""The folder of a study that is run: what it was run on, its blocks of records, and what they cost.

study.toml        the study, as run
inputs.json       digests of the study, its tables and the code
blocks/*.parquet  per-trial records, a file for each group of settings and block of trials
cost.json         what the runs took so far
manifest.json     all of it together, when the study is complete
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from fedsrc.audit.methods import METHODS
from fedsrc.audit.study import Boundary, Setting, Study, StudyTable
from fedsrc.common.canonical import digest, file_digest
from fedsrc.common.durable import unwritable, write_whole
from fedsrc.common.locks import hold
from fedsrc.errors import FedsrcError

# fields that events do not depend on: settings that differ in these alone share their events
SHARED = (
    "case", "epsilon", "failure_probability", "min_acceptance", "queries", "reading", "delta", "adjacency",
    "aggregation",
)  # fmt: skip
PACKAGE = Path(__file__).parent.parent
LIBRARIES = ("fedsrc", "numpy", "scipy", "polars", "joblib")


@dataclass(frozen=True)
class Task:
    """One block of trials of settings that share their events."""

    group: int
    settings: tuple[int, ...]
    block: int
    first: int
    trials: int

    @property
    def file(self) -> str:
        return f"g{self.group:04d}-b{self.block:05d}.parquet"


@dataclass(frozen=True)
class Cost:
    """What a study took, all its runs together."""

    wall_seconds: float = 0.0
    block_seconds: float = 0.0
    peak_bytes: int = 0
    blocks: int = 0

    def plus(self, wall_seconds: float, block_seconds: float, peak_bytes: int) -> Cost:
        """Add one block."""
        wall, busy = self.wall_seconds + wall_seconds, self.block_seconds + block_seconds
        return Cost(wall, busy, max(self.peak_bytes, peak_bytes), self.blocks + 1)


def tasks(study: Study) -> list[Task]:
    """Return all blocks of a study, those of one group together."""
    groups: dict[str, list[int]] = {}
    for index, setting in enumerate(study.settings):
        groups.setdefault(_events_key(study, setting), []).append(index)
    return [
        Task(group, tuple(settings), block, first, min(study.block, study.trials - first))
        for group, settings in enumerate(groups.values())
        for block, first in enumerate(range(0, study.trials, study.block))
    ]


def _events_key(study: Study, setting: Setting) -> str:
    alone = setting.certificate != "plain" or setting.thresholds_from == "noised"  # then privacy decides them too
    fields = setting.model_dump(exclude={"case"} if alone else set(SHARED))
    fields["policy"] = "recruit" if setting.policy == "recruit" else "all sites"
    if not alone and not isinstance(study.by_name[setting.population], Boundary) and not setting.withheld:
        del fields["target_risk"]
    return json.dumps(fields, sort_keys=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder: one run at a time."""
    with (folder / ".lock").open("w") as file:
        try:
            hold(file)
        except OSError as error:
            raise FedsrcError("another run is writing to this folder", where=str(folder)) from error
        yield


def open_folder(folder: Path, text: str, study: Study, tables: Path) -> str:
    """Prepare a folder for blocks, and return a stamp of what decides them. Refuse the folder of another study, of
    other tables or of other code."""
    try:
        (folder / "blocks").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    note, manifest = folder / "study.toml", folder / "inputs.json"
    known = {"study": study.digest, "tables": _tables(study, tables), "code": source_digest()}
    inputs = json.dumps(known, indent=1, sort_keys=True)
    if note.exists() and manifest.exists() and manifest.read_text(encoding="utf-8") != inputs:
        raise FedsrcError(
            "the folder holds blocks of another study, of other tables, or of another version of fedsrc",
            where=str(folder), hint="give a new folder",
        )  # fmt: skip
    write_whole(note, text.encode())
    write_whole(manifest, inputs.encode())
    return digest(known)


@lru_cache(maxsize=1)
def source_digest(package: Path = PACKAGE) -> str:
    """Return the digest of the package, its code and its embedded tables: others may give other records."""
    files = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".parquet"))
    return digest({str(path.relative_to(package)): file_digest(path) for path in files})


def _tables(study: Study, folder: Path) -> dict[str, str]:
    found = {}
    for each in study.populations:
        if isinstance(each, StudyTable):
            path = folder / each.table
            if not path.is_file():
                raise FedsrcError(f"there is no table {path}", where=f"population {each.name}")
            found[each.name] = file_digest(path)
    return found


def read_cost(folder: Path) -> Cost:
    """Return what the study took so far."""
    path = folder / "cost.json"
    return Cost(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Cost()


def write_cost(folder: Path, cost: Cost) -> None:
    """Note what the study took so far."""
    write_whole(folder / "cost.json", json.dumps(vars(cost)).encode())


def write_manifest(folder: Path, study: Study, tables: Path) -> None:
    """Write down what the records are made from and by."""
    settings = [setting.model_dump() for setting in study.settings]
    manifest = {
        "study": study.name,
        "digest": study.digest,
        "seed": study.seed,
        "trials": study.trials,
        "settings": [{k: "inf" if v == math.inf else v for k, v in each.items()} for each in settings],
        "methods": {name: _about(name) for name in study.methods},
        "tables": _tables(study, tables),
        "blocks": {path.name: file_digest(path) for path in sorted((folder / "blocks").glob("*.parquet"))},
        "versions": {name: version(name) for name in LIBRARIES},
        "cost": vars(read_cost(folder)),
        "code": source_digest(),
    }
    write_whole(folder / "manifest.json", json.dumps(manifest, indent=1).encode())


def _about(name: str) -> dict[str, Any]:
    return {key: getattr(METHODS[name], key) for key in ("role", "reads", "assumptions", "provenance")}


def read_trials(folder: Path) -> tuple[Study, pl.DataFrame]:
    """Return the study in a folder and all its per-trial records, those of native methods too."""
    path = folder / "study.toml"
    if not path.is_file():
        raise FedsrcError("this folder holds no study", where=str(folder), hint="run `fedsrc audit STUDY.toml` first")
    study = Study.read(path)
    files = [folder / "blocks" / task.file for task in tasks(study)]
    if missing := sum(not file.is_file() for file in files):
        raise FedsrcError(
            f"{missing} blocks are missing", where=str(folder), hint="run `fedsrc audit` again: it resumes"
        )
    return study, pl.concat(map(pl.read_parquet, files), how="diagonal").sort("setting", "method", "trial")
