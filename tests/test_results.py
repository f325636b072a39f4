"""The published results are what their records say, the records are what the studies give, the pages quote the results.

Mutants killed: a figure edited in a page or a table, a trial left out or counted twice, a study changed after it was
run, a result without records, an aggregate computed otherwise, a number in the README or in the documentation that no
result holds, a stream that is no longer the one that was published.

Chance of a false alarm: none, everything is recomputed from fixed seeds.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from fedsrc.audit.engine import run_task, tasks
from fedsrc.audit.study import Binormal, Boundary, Demo, Printed, Setting
from fedsrc.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.studies import figures
from fedsrc.studies.catalogue import FOLDER, LONG, NAMES, missing_tables, path_of, printed, study_of
from fedsrc.studies.reproduce import detector_table, overview, reproduce
from fedsrc.studies.results import compact, read_result, write_result

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results" / "studies"
AGAIN = ("privacy-curve", "redeep", "eta", "ablations", "reuse")  # a block of these is run again in every test run
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?%?")
LINK = re.compile(r"\]\(([^)#\s]+\.md)[^)]*\)")


def test_every_study_is_in_the_catalogue() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*NAMES, *LONG, "printed"}
    assert all(printed(name) is None or study_of(name) for name in NAMES)
    with pytest.raises(FedsrcError, match="there is no study 'magic'"):
        path_of("magic")


@pytest.mark.parametrize("name", NAMES)
def test_a_result_recomputes(name: str) -> None:
    """The table from the records, the page from the table; registration, trial counts and digests as they were run."""
    result = read_result(name, RESULTS)
    assert result.csv() == (RESULTS / f"{name}.csv").read_text(encoding="utf-8")
    assert result.page() == (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def test_the_overview_recomputes() -> None:
    results = {name: read_result(name, RESULTS) for name in NAMES}
    for file, page in overview(results).items():
        assert page == (RESULTS / file).read_text(encoding="utf-8"), file
    published = json.loads((RESULTS / "manifest.json").read_text(encoding="utf-8"))
    assert published["studies"] == {name: result.manifest["digest"] for name, result in results.items()}
    for file, digest in published["files"].items():
        assert file_digest(RESULTS / file) == digest, file
    assert set(figures.all_figures(results)) <= set(published["files"])


@pytest.mark.parametrize("name", AGAIN)
def test_the_records_are_those_of_the_study(name: str) -> None:
    """The first block of the first group of settings, run again: the same records, to the last figure."""
    task = tasks(study_of(name))[0]
    done = run_task(path_of(name).read_text(encoding="utf-8"), "", task)
    again = compact(pl.read_parquet(done.data)).sort("setting", "method", "trial")
    kept = read_result(name, RESULTS).records.filter(
        pl.col("setting").is_in(task.settings) & (pl.col("trial") < task.trials)
    )
    same = kept.sort("setting", "method", "trial").select(again.columns)
    for column in again.columns:
        assert again[column].dtype == same[column].dtype
        if again[column].dtype.is_float():
            apart = (again[column].fill_nan(None) - same[column].fill_nan(None)).abs().max()
            assert apart is None or apart < 1e-6  # type: ignore[operator]
        else:
            assert again[column].equals(same[column]), column


def test_a_changed_record_is_noticed(tmp_path: Path) -> None:
    for path in RESULTS.glob("reuse.*"):
        shutil.copy(path, tmp_path)
    result = read_result("reuse", tmp_path)
    flipped = result.records.with_columns(fired=~pl.col("fired"))
    flipped.write_parquet(tmp_path / "reuse.parquet")
    with pytest.raises(FedsrcError, match="not those of the manifest"):
        read_result("reuse", tmp_path)
    manifest = json.loads((tmp_path / "reuse.json").read_text())
    (tmp_path / "reuse.json").write_text(json.dumps({**manifest, "trials": 199}))
    shutil.copy(RESULTS / "reuse.parquet", tmp_path)
    with pytest.raises(FedsrcError, match="another registration"):
        read_result("reuse", tmp_path)


def test_no_choice_can_see_evaluation_labels() -> None:
    """Thresholds come from development scores, from calibration scores without labels, or from a grid; methods are
    named in the registration. That labels and held-out units do not move thresholds is tested with the cells."""
    assert get_args(Setting.model_fields["thresholds_from"].annotation) == ("development", "support", "grid")
    for name in NAMES:
        study = study_of(name)
        assert read_result(name, RESULTS).manifest["digest"] == study.digest
        assert set(study.methods) == set(read_result(name, RESULTS).records["method"].unique())


def test_surrogates_are_called_so() -> None:
    for name in NAMES:
        study, page = study_of(name), (RESULTS / f"{name}.md").read_text(encoding="utf-8")
        made_up = [each.name for each in study.populations if isinstance(each, Binormal | Printed)]
        assert not any(isinstance(each, Boundary) for each in study.populations)
        assert ("Surrogate populations, not data" in page) == bool(made_up)
        if any(isinstance(each, Demo) for each in study.populations):
            assert "length" in study.about or name in ("heterogeneity", "stress", "reuse", "today-halueval")


# ---------------------------------------------------------------- numbers in prose


def paragraphs(page: Path) -> list[str]:
    """Paragraphs and table rows without code."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        part for block in re.split(r"\n\s*\n", text) for part in (block.split("\n") if "|" in block[:2] else [block])
    ]


def unsupported(paragraph: str, page: Path) -> list[str]:
    """Numbers of a paragraph that none of the results it links to holds."""
    linked = [page.parent / name for name in LINK.findall(paragraph) if "results/" in name]
    linked = [path for path in linked if path.is_file()]
    if not linked:
        return []
    held = "\n".join(path.read_text(encoding="utf-8") for path in linked)
    known = {number.replace(",", "") for number in NUMBER.findall(held)} | {"0.1", "0.2", "0.3", "0.10", "0.20", "0.30"}
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "", paragraph)
    return [number for number in NUMBER.findall(plain) if number.replace(",", "") not in known]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_in_prose_are_in_a_result(page: Path) -> None:
    for paragraph in paragraphs(page):
        assert not unsupported(paragraph, page), paragraph


def test_the_check_of_prose_can_fail() -> None:
    page = ROOT / "README.md"
    assert unsupported("It fired 123,457 times ([r](docs/results/boundary.md)).", page) == ["123,457"]
    assert unsupported("In 100,000 trials ([r](docs/results/boundary.md)).", page) == []
    assert unsupported("123,457 without a link", page) == []


# ---------------------------------------------------------------- the command's parts


def test_reproduce_leaves_out_what_it_cannot_run(tmp_path: Path) -> None:
    ran = reproduce(("scores-ragtruth", "reuse"), tmp_path / "out", tables=tmp_path, work=tmp_path / "work", jobs=2)
    assert ran.published == ("reuse",)
    assert ran.left_out == {"scores-ragtruth": ["ragtruth.parquet"]}
    assert (tmp_path / "out" / "reuse.csv").read_text() == (RESULTS / "reuse.csv").read_text()
    assert (tmp_path / "out" / "README.md").is_file()
    again = read_result("reuse", tmp_path / "out")
    write_result(again, tmp_path / "twice")
    assert (tmp_path / "twice" / "reuse.md").read_text() == (tmp_path / "out" / "reuse.md").read_text()


def test_detector_tables(tmp_path: Path) -> None:
    assert not detector_table(tmp_path, tmp_path)
    head = "system,split,response_id,source_id,task_type,model,unsupported,hallucination_score\n"
    (tmp_path / "detector_scores.csv.gz").write_bytes(gzip.compress((head + "nli,test,1,2,QA,m,1,0.9\n").encode()))
    assert detector_table(tmp_path, tmp_path)
    row = pl.read_parquet(tmp_path / "detectors.parquet").row(0, named=True)
    assert (row["score"], row["loss"], row["source"]) == (pytest.approx(0.1), 1.0, "2")
    assert missing_tables(study_of("today-ragtruth"), tmp_path) == ["ragtruth.parquet"]
