"""The published results are what their records say, and the records are what the studies give.

Mutants killed: a figure edited in a page or a table, a trial left out or counted twice, a study changed after it was
run, a result without records, an aggregate computed otherwise, facts of a setting that are not so, a figure drawn from
other records, a stream that is no longer the one that was published. Numbers in prose: tests/research/test_numbers.py.

Chance of a false alarm: none, everything is recomputed from fixed seeds.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.audit.cell import SPLIT, split, thresholds_of
from fedsrc.audit.engine import run_task
from fedsrc.audit.study import Binormal, Printed, StudyTable
from fedsrc.audit.study_folder import Task, source_digest, tasks
from fedsrc.audit.study_records import records_of
from fedsrc.audit.summary import known
from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from research.studies import figures
from research.studies.catalogue import FOLDER, LONG, NAMES, missing_tables, path_of, printed, study_of
from research.studies.reproduce import detector_table, overview, reproduce
from research.studies.results import KEPT_DIGITS, Places, compact, plain, read_result, write_result

pytestmark = pytest.mark.thorough

PAGES, RECORDS = PUBLISHED_IN = Places()
PUBLISHED = [*NAMES, *LONG]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
FREE = [name for name in NAMES if not missing_tables(study_of(name), Path("nowhere"))]  # no table is needed


def test_every_study_is_in_the_catalogue() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*NAMES, *LONG, "printed", "paper_items"}
    for name in NAMES:
        for paper in printed(name):
            assert paper.rule in study_of(name).methods
            for row in paper.rows:
                assert any(
                    all(getattr(each, k) == v for k, v in row["match"].items()) for each in study_of(name).settings
                )
    with pytest.raises(FedsrcError, match="there is no study 'magic'"):
        path_of("magic")


SCORED = {each.score for name in PUBLISHED for each in study_of(name).populations if isinstance(each, StudyTable)}


@pytest.mark.parametrize("score", [*sorted(SCORED), "hallucination_score"])
def test_every_score_of_a_study_can_be_read(tmp_path: Path, score: str) -> None:
    """Also where its name speaks of what is bad, if `fedsrc score` writes it, 1 for the best. Mutants killed: such a
    column refused, so that a study could not be run again; every name taken."""
    pl.DataFrame({score: [0.25, 0.75], "loss": [1, 0]}).write_parquet(tmp_path / "t.parquet")
    population = StudyTable(name="p", table="t.parquet", score=score)
    if score in SCORED:
        assert records_of(population, tmp_path).score.tolist() == [0.25, 0.75]
    else:
        with pytest.raises(FedsrcError, match="less is better"):
            records_of(population, tmp_path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_result_recomputes(name: str) -> None:
    """The table from the records, the page from the table; registration, trial counts and digests as they were run."""
    result = read_result(name, RECORDS)
    assert result.csv() == (RECORDS / f"{name}.csv").read_text(encoding="utf-8")
    assert result.page(PUBLISHED_IN.link) == (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PUBLISHED)
def test_records_keep_few_digits(name: str) -> None:
    """Sums that differ between processors in their last digits hardly ever make another record. Mutant killed: a study
    that was published before digits were cut, whose files a new run would change."""
    records = read_result(name, RECORDS).records
    assert records.equals(records.with_columns(pl.col(pl.Float64).round_sig_figs(KEPT_DIGITS)))


def test_the_overview_recomputes() -> None:
    results = {name: read_result(name, RECORDS) for name in PUBLISHED}
    for file, page in overview(results).items():
        assert page == place(file).read_text(encoding="utf-8"), file
    published = json.loads((RECORDS / "manifest.json").read_text(encoding="utf-8"))
    assert published["studies"] == {name: result.manifest["digest"] for name, result in results.items()}
    there = [path.name for folder in PUBLISHED_IN for path in folder.iterdir()]
    assert sorted(there) == sorted([*published["files"], "manifest.json"])
    for file, digest in published["files"].items():
        assert file_digest(place(file)) == digest, file
    if version("matplotlib") == published["matplotlib"]:
        for file, image in figures.all_figures(results).items():
            assert alike(image.decode(), place(file).read_text(encoding="utf-8")), file


def place(file: str) -> Path:
    """Pages and figures lie with the documentation, what they are made from does not."""
    return (PAGES if file.endswith((".md", ".svg")) else RECORDS) / file


def alike(one: str, other: str) -> bool:
    """The same drawing, up to the last digits of its coordinates, which another processor may round otherwise."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    first, second = (np.array(NUMBER.findall(each), dtype=np.float64) for each in (one, other))
    return bool(np.allclose(first, second, rtol=0, atol=1e-4))


def test_drawings_that_differ_are_noticed() -> None:
    drawing = (PAGES / "records.svg").read_text(encoding="utf-8")
    number = next(each for each in NUMBER.findall(drawing) if "." in each and len(each) > 6)
    assert alike(drawing, drawing.replace(number, f"{float(number) + 1e-6:.6f}"))
    assert not alike(drawing, drawing.replace(number, f"{float(number) + 1e-3:.6f}"))
    assert not alike(drawing, drawing.replace("<path", "<rect", 1))


def chosen(name: str) -> Task:
    """One block of a study, by its digest: every group of settings and every block can be the one."""
    blocks = tasks(study_of(name))
    return blocks[int(study_of(name).digest[:8], 16) % len(blocks)]


@pytest.mark.parametrize("name", FREE)
def test_the_records_are_those_of_the_study(name: str) -> None:
    """A block of every study that needs no table, run again: the same records, and the same facts of its settings.

    Decisions, thresholds, looks and counts are equal, and so is which bounds there are. Bounds may differ by 1e-6: the
    server rounds them outward at the ninth decimal, and records keep them in single precision.
    """
    result, task = read_result(name, RECORDS), chosen(name)
    done = run_task(path_of(name).read_text(encoding="utf-8"), "", task)
    again = compact(pl.read_parquet(done.data)).sort("setting", "method", "trial")
    last = task.first + task.trials
    here = pl.col("setting").is_in(task.settings) & pl.col("trial").is_between(task.first, last, closed="left")
    kept = result.records.filter(here).sort("setting", "method", "trial")
    for column in again.columns:
        assert again[column].dtype == kept[column].dtype
        if again[column].dtype.is_float():
            new, old = again[column].fill_nan(None), kept[column].fill_nan(None)
            assert new.is_null().equals(old.is_null()), column
            apart = (new - old).abs().max()
            assert apart is None or apart < 1e-6, column  # type: ignore[operator]
        else:
            assert again[column].equals(kept[column]), column
    index = task.settings[0]
    for key, value in known(study_of(name), index, Path()).items():
        kept_value = result.manifest["cells"][index][key]
        assert kept_value == (
            pytest.approx(value) if isinstance(value, float) and math.isfinite(value) else plain(value)
        )


def test_a_changed_record_is_noticed(tmp_path: Path) -> None:
    for path in RECORDS.glob("reuse.*"):
        shutil.copy(path, tmp_path)
    result = read_result("reuse", tmp_path)
    flipped = result.records.with_columns(fired=~pl.col("fired"))
    flipped.write_parquet(tmp_path / "reuse.parquet")
    with pytest.raises(FedsrcError, match="not those of the manifest"):
        read_result("reuse", tmp_path)
    manifest = json.loads((tmp_path / "reuse.json").read_text())
    (tmp_path / "reuse.json").write_text(json.dumps({**manifest, "trials": 199}))
    shutil.copy(RECORDS / "reuse.parquet", tmp_path)
    with pytest.raises(FedsrcError, match="another registration"):
        read_result("reuse", tmp_path)


@pytest.mark.parametrize("name", ["halueval", "today-halueval"])
def test_no_choice_can_see_evaluation_labels(name: str) -> None:
    """Thresholds stay where they are when every held-out label is turned, or (from the support) every label."""
    study = study_of(name)
    setting, population = study.settings[0], study.populations[0]
    assert setting.heldout_share > 0
    records = records_of(population, Path())  # type: ignore[arg-type]
    parts = split(records, setting, np.random.default_rng([study.seed, SPLIT]))
    held = np.isin(records.score, parts.heldout.score) & ~np.isin(records.score, parts.calibration.score)
    every = setting.thresholds_from == "support"
    turned = replace(records, loss=np.where(held | every, 1.0 - records.loss, records.loss))
    again = split(turned, setting, np.random.default_rng([study.seed, SPLIT]))
    assert held.any()
    assert thresholds_of(parts, setting) == thresholds_of(again, setting)


def test_surrogates_are_called_so() -> None:
    for name in PUBLISHED:
        study, page = study_of(name), (PAGES / f"{name}.md").read_text(encoding="utf-8")
        made_up = [each.name for each in study.populations if isinstance(each, Binormal | Printed)]
        assert ("Surrogate populations, not data" in page) == bool(made_up)
        assert all("surrogate" in each for each in made_up)
        for each in study.populations:
            assert each.about
            assert each.about in page


# ---------------------------------------------------------------- the command's parts


def test_reproduce_leaves_out_what_it_cannot_run(tmp_path: Path) -> None:
    out, twice, none = (Places(tmp_path / each / "a", tmp_path / each / "b") for each in ("out", "twice", "none"))
    ran = reproduce(("scores-ragtruth", "reuse"), out, tables=tmp_path, work=tmp_path / "work", jobs=2)
    assert ran.published == ("reuse",)
    assert ran.left_out == {"scores-ragtruth": ["ragtruth-scores.parquet"]}
    with pytest.raises(FedsrcError, match="there is no study"):
        reproduce(("reuse", "typo"), none, tables=tmp_path, work=tmp_path / "work")
    assert not (tmp_path / "none").exists()
    assert (out.records / "reuse.csv").read_text() == (RECORDS / "reuse.csv").read_text()
    assert {path.name for path in out.pages.iterdir()} == {"README.md", "reuse.md"}
    assert "(../b/reuse.csv)" in (out.pages / "reuse.md").read_text()
    assert json.loads((out.records / "reuse.json").read_text())["code"] == source_digest()
    write_result(read_result("reuse", out.records), twice)
    assert (twice.pages / "reuse.md").read_text() == (out.pages / "reuse.md").read_text()


def test_detector_tables(tmp_path: Path) -> None:
    assert not detector_table(tmp_path, tmp_path)
    head = "system,split,response_id,source_id,task_type,model,unsupported,hallucination_score\n"
    (tmp_path / "detector_scores.csv.gz").write_bytes(gzip.compress((head + "nli,test,1,2,QA,m,1,0.9\n").encode()))
    assert detector_table(tmp_path, tmp_path)
    row = pl.read_parquet(tmp_path / "detectors.parquet").row(0, named=True)
    assert (row["score"], row["loss"], row["source"]) == (pytest.approx(0.1), 1.0, "2")
    assert missing_tables(study_of("today-ragtruth"), tmp_path) == ["ragtruth.parquet"]
    pl.DataFrame({"score": [0.1], "loss": [0.0]}).write_parquet(tmp_path / "ragtruth.parquet")
    lacking = missing_tables(study_of("today-ragtruth"), tmp_path)
    assert lacking == ["ragtruth.parquet with the columns familiarity, generator, split"]
    (tmp_path / "detector_scores.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(FedsrcError, match="cannot be read"):
        detector_table(tmp_path, tmp_path)
