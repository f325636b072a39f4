"""Run studies and publish them: pages, tables, figures, one manifest."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import polars as pl

from fedsrc.audit.engine import Progress, run_study
from fedsrc.audit.study import Boundary, Demo, StudyTable
from fedsrc.common.canonical import file_digest
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from research.studies import as_planned, figures, today
from research.studies.catalogue import LONG, NAMES, missing_tables, path_of, study_of
from research.studies.results import Places, Result, distil, read_result, write_result
from research.studies.sides import STUDIES

DETECTORS = "detector_scores.csv.gz"
BEGUN = ".begun"


@dataclass(frozen=True)
class Ran:
    """What a call of `reproduce` did: studies published, and those left out with the tables they lack."""

    published: tuple[str, ...]
    left_out: dict[str, list[str]]


def reproduce(
    names: tuple[str, ...],
    places: Places,
    *,
    tables: Path,
    work: Path,
    jobs: int = -1,
    tell: Callable[[str, Progress], None] | None = None,
) -> Ran:
    """Run the named studies (all short ones by default) into `work` and publish them."""
    chosen = {name: study_of(name) for name in names or NAMES}  # unknown names are refused before anything runs
    for folder in places:  # and so is a folder that cannot be written
        write_whole(folder / BEGUN, b"")
        (folder / BEGUN).unlink()
    published, left_out = [], {}
    for name, study in chosen.items():
        if lacking := missing_tables(study, tables):
            left_out[name] = lacking
            continue
        run_study(path_of(name), work / name, tables=tables, jobs=jobs, progress=_teller(tell, name))
        write_result(distil(name, work / name, tables), places)
        published.append(name)
    publish_overview(places)
    return Ran(tuple(published), left_out)


def _teller(tell: Callable[[str, Progress], None] | None, name: str) -> Callable[[Progress], None] | None:
    return None if tell is None else lambda seen: tell(name, seen)


def publish_overview(places: Places) -> None:
    """What follows from several studies: the page of what can be certified, figures, the manifest, the index."""
    records = places.records
    results = {name: read_result(name, records) for name in (*NAMES, *LONG) if (records / f"{name}.json").is_file()}
    for name, page in overview(results).items():
        write_whole((records if name.endswith(".csv") else places.pages) / name, page.encode())
    for name, image in figures.all_figures(results).items():
        write_whole(places.pages / name, image)
    write_whole(records / "manifest.json", manifest(places, results).encode())


def overview(results: dict[str, Result]) -> dict[str, str]:
    """Pages over several studies, by file name."""
    pages = {"README.md": index(results)}
    if any(name in results for name in STUDIES):
        pages["certified-today.md"] = today.page(results)
        pages["certified-today.csv"] = today.csv(results)
    if as_planned.there(results):
        pages[as_planned.PAGE] = as_planned.page(results)
    return pages


def index(results: dict[str, Result]) -> str:
    """The list of studies."""
    rows = [
        f"| [{result.study.name}]({name}.md) | {len(result.study.settings)} | {result.study.trials} |"
        f" {_kinds(result)} | `python -m research {name}` |"
        for name, result in results.items()
    ]
    head = "| study | settings | trials each | populations | command |\n| --- | --- | --- | --- | --- |"
    lead = (
        "# The paper's experiments, and ours beside them\n\n"
        "Each page is computed from per-trial records (`research/results/studies/NAME.parquet`), which"
        " `python -m research` makes"
        " from a registered study. [What can be certified today](certified-today.md) draws them together;"
        " [as planned](as-planned.md) has the paper's studies under the default of today."
        " `betting-ladder` is the old default, an open certificate without a plan, and `betting` the same for one"
        " target; what is the default now is in the studies *as planned* (`planned-ragtruth` and"
        " `planned-halueval` are of what can be certified today, `planned-curve` and `planned-hecurve` of the paper's"
        " curves). The word"
        " surrogate marks made-up populations that match figures the paper prints, null those at the boundary, on which"
        " every certificate counts as false; all else is real scores of real answers. Links to pages outside this"
        " folder lead to the project's documentation."
    )
    return "\n\n".join([lead, head + "\n" + "\n".join(rows)]) + "\n"


def _kinds(result: Result) -> str:
    """Whether a study's populations are real, surrogates, or nulls."""
    names = {StudyTable: "real", Demo: "real", Boundary: "null"}
    kinds = sorted({names.get(type(each), "surrogate") for each in result.study.populations})
    return " and ".join(kinds)


def manifest(places: Places, results: dict[str, Result]) -> str:
    """Digests of everything published, and what it took."""
    published = [path for folder in places for path in folder.iterdir() if path.name != "manifest.json"]
    files = sorted(path for path in published if path.suffix in (".parquet", ".csv", ".md", ".svg", ".json"))
    return json.dumps(
        {
            "studies": {name: result.manifest["digest"] for name, result in results.items()},
            "files": {path.name: file_digest(path) for path in files},
            "tables": {key: value for each in results.values() for key, value in each.manifest["tables"].items()},
            "matplotlib": version("matplotlib"),
            "wall_seconds": round(sum(each.manifest["cost"]["wall_seconds"] for each in results.values()), 1),
            "peak_bytes": max((each.manifest["cost"]["peak_bytes"] for each in results.values()), default=0),
        },
        indent=1,
    )


def detector_table(data: Path, tables: Path) -> bool:
    """detectors.parquet from the published detector scores of RAGTruth, where they are; score is 1 - their score."""
    path = data / DETECTORS
    if not path.is_file():
        return False
    try:
        frame = pl.read_csv(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, pl.exceptions.PolarsError) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error
    made = frame.select(
        pl.col("response_id").cast(pl.String).alias("id"), pl.col("source_id").cast(pl.String).alias("source"),
        (1.0 - pl.col("hallucination_score")).clip(0.0, 1.0).alias("score"),
        pl.col("unsupported").cast(pl.Float64).alias("loss"), "system", "split", "model", "task_type",
    )  # fmt: skip
    buffer = io.BytesIO()
    made.drop("id").write_parquet(buffer)
    write_whole(tables / "detectors.parquet", buffer.getvalue())
    return True
