"""A study's published result: per-trial records small enough to keep, and everything computed from them.

    NAME.parquet   per-trial records: what decides every figure
    NAME.json      manifest: digests of study, tables and code, what is known of each setting, versions, cost
    NAME.csv       the table, computed from the two
    NAME.md        the page, computed from the table

The page lies with the documentation, the rest in research/results. So a reader can recompute the page from the records
alone, without the populations.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fedsrc.audit.page import cost_line, page
from fedsrc.audit.study import Study
from fedsrc.audit.study_folder import read_trials
from fedsrc.audit.summary import Tables, cells, native_summary, summary
from fedsrc.common.canonical import digest_bytes
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from research.pages import FIGURES as RECORDS
from research.pages import RESULTS as PAGES
from research.studies.beside import beside, one_tuple, scores
from research.studies.catalogue import printed, study_of
from research.studies.contrast import contrast
from research.studies.rivals import OURS, losses
from research.studies.selected import selected
from research.studies.sides import AS_PLANNED

WHERE_FIRED = (
    "contrast_upper", "acceptance_lower", "risk_upper", "sampling_width", "privacy_width", "eta",
    "payload_bytes",
)  # fmt: skip
DROPPED = ("slots", "releases", "dropped")
DIGITS = 6  # of a published figure
KEPT_DIGITS = 12  # of a record: another processor's sums may differ in the last ones
HELD_OUT = ("c1", "halueval")  # studies that say on their page what held-out answers show
FIGURES = {
    "privacy-curve": "firing-privacy-curve.svg",
    "redeep": "firing-redeep.svg",
    "stress": "violations.svg",
}


class Places(NamedTuple):
    """Where results are published: pages and figures for readers, and what they are computed from."""

    pages: Path = PAGES / "studies"
    records: Path = RECORDS / "studies"

    @property
    def link(self) -> str:
        """From a page to the records."""
        return Path(relpath(self.records, self.pages)).as_posix()


@dataclass(frozen=True)
class Result:
    """One study's records and manifest, as published."""

    name: str
    study: Study
    records: pl.DataFrame
    manifest: dict[str, Any]

    def tables(self) -> Tables:
        """The tables, recomputed from the records."""
        known = [{key: _number(value) for key, value in each.items()} for each in self.manifest["cells"]]
        return Tables(summary(self.study, self.records, known), native_summary(self.study, self.records))

    def csv(self) -> str:
        """The table as published: figures to six digits."""
        table = self.tables().methods
        return table.with_columns(pl.col(pl.Float64, pl.Float32).round_sig_figs(DIGITS)).write_csv()

    def page(self, link: str) -> str:
        """The page as published; `link` leads from it to the folder of the records."""
        found = self.tables()
        table = f"[{self.name}.csv]({link}/{self.name}.csv)"
        made = f"Made by `python -m research {self.name}`; the table with everything is {table}."
        cost = cost_line(self.manifest["cost"])
        head, rest = page(self.study, found, "\n\n".join([made, cost])).split("\n\n", 1)
        figure = FIGURES.get(self.name)
        extra = [beside(self.study, found.methods, paper) for paper in printed(self.name)]
        if self.name == "stress":
            extra.append(contrast(found.methods))
        if self.name in HELD_OUT:
            extra.append(selected(self.study, found.methods, printed(self.name)))
        if self.name in OURS:
            extra.append(losses(self.name, found.methods))
        if self.name.startswith("scores-"):
            extra.append(scores(found.methods))
        if self.name in AS_PLANNED:
            extra.append(
                "The default now, what a plan registers, stands beside these [on a page of its own](as-planned.md)."
            )
        if self.name == "privacy-curve":
            extra.append(one_tuple(found.methods, self.records.filter(pl.col("trial") == 0)))
        extra += [] if figure is None else [f"![{self.study.name}]({figure})"]
        return "\n\n".join([head, *extra, rest])


def distil(name: str, folder: Path, tables: Path) -> Result:
    """The published result of a study that ran in `folder`."""
    study, frame = read_trials(folder)
    if study.digest != study_of(name).digest:
        raise FedsrcError(f"the folder holds another study than {name!r}", where=str(folder))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    records = compact(frame)
    known = [{key: plain(value) for key, value in each.items()} for each in cells(study, tables)]
    kept = {key: manifest[key] for key in ("digest", "seed", "trials", "tables", "versions", "code", "cost")}
    return Result(name, study, records, {"study": name, **kept, "records": _digest(records), "cells": known})


def compact(frame: pl.DataFrame) -> pl.DataFrame:
    """Records without what no figure needs and without the last digits, which may differ from processor to processor;
    bounds only where a trial fired, and in the first, in single precision."""
    bounds = [name for name in WHERE_FIRED if name in frame.columns]
    fired = pl.col("fired").fill_null(value=False) | (pl.col("trial") == 0)
    kept = frame.drop([name for name in DROPPED if name in frame.columns])
    short = kept.with_columns(pl.when(fired).then(pl.col(name)).cast(pl.Float32).alias(name) for name in bounds)
    return short.with_columns(pl.col(pl.Float64).round_sig_figs(KEPT_DIGITS))


def write_result(result: Result, places: Places) -> None:
    """Publish a result."""
    folder = places.records
    buffer = io.BytesIO()
    result.records.write_parquet(buffer, compression="zstd", compression_level=19)
    write_whole(folder / f"{result.name}.parquet", buffer.getvalue())
    write_whole(folder / f"{result.name}.json", json.dumps(result.manifest, indent=1).encode())
    write_whole(folder / f"{result.name}.csv", result.csv().encode())
    write_whole(places.pages / f"{result.name}.md", result.page(places.link).encode())


def read_result(name: str, folder: Path) -> Result:
    """A published result; records that are not those of the manifest are refused."""
    manifest = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    records = pl.read_parquet(folder / f"{name}.parquet")
    if _digest(records) != manifest["records"]:
        raise FedsrcError("the records are not those of the manifest", where=str(folder / f"{name}.parquet"))
    study = study_of(name)
    if manifest["digest"] != study.digest or manifest["trials"] != study.trials:
        raise FedsrcError(
            "the result belongs to another registration of this study",
            where=name,
            hint="run `python -m research` again",
        )
    return Result(name, study, records, manifest)


def _digest(records: pl.DataFrame) -> str:
    """Of the records themselves, whatever file they lie in."""
    buffer = io.BytesIO()
    records.write_csv(buffer)
    return digest_bytes(buffer.getvalue())


def plain(value: Any) -> Any:
    """JSON has no infinity and no NaN, and other processors other last digits."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{KEPT_DIGITS}g}") if math.isfinite(value) else str(value)


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "nan") else value
