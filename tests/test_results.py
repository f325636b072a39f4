"""The published results are what their records say, and the records are what the studies give.

Mutants killed: a figure edited in a page or a table, a trial left out or counted twice, a study changed after it was
run, a result without records, an aggregate computed otherwise, facts of a setting that are not so, a figure drawn from
other records, a stream that is no longer the one that was published. Numbers in prose: tests/test_numbers.py.

Chance of a false alarm: none, everything is recomputed from fixed seeds.
"""

from __future__ import annotations

import gzip
import json
import math
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.audit.cell import SPLIT, _records, _values, split
from fedsrc.audit.engine import Task, run_task, tasks
from fedsrc.audit.study import Binormal, Printed
from fedsrc.audit.summary import known
from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.studies import figures
from fedsrc.studies.catalogue import FOLDER, LONG, NAMES, missing_tables, path_of, printed, study_of
from fedsrc.studies.reproduce import detector_table, overview, reproduce
from fedsrc.studies.results import _text, compact, read_result, write_result

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results" / "studies"
PUBLISHED = [*NAMES, *LONG]
FREE = [name for name in NAMES if not missing_tables(study_of(name), Path("nowhere"))]  # no table is needed


def test_every_study_is_in_the_catalogue() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*NAMES, *LONG, "printed"}
    for name in NAMES:
        for paper in printed(name):
            assert paper.rule in study_of(name).methods
            for row in paper.rows:
                assert any(
                    all(getattr(each, k) == v for k, v in row["match"].items()) for each in study_of(name).settings
                )
    with pytest.raises(FedsrcError, match="there is no study 'magic'"):
        path_of("magic")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_result_recomputes(name: str) -> None:
    """The table from the records, the page from the table; registration, trial counts and digests as they were run."""
    result = read_result(name, RESULTS)
    assert result.csv() == (RESULTS / f"{name}.csv").read_text(encoding="utf-8")
    assert result.page() == (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def test_the_overview_recomputes() -> None:
    results = {name: read_result(name, RESULTS) for name in PUBLISHED}
    for file, page in overview(results).items():
        assert page == (RESULTS / file).read_text(encoding="utf-8"), file
    published = json.loads((RESULTS / "manifest.json").read_text(encoding="utf-8"))
    assert published["studies"] == {name: result.manifest["digest"] for name, result in results.items()}
    assert {path.name for path in RESULTS.iterdir()} == {*published["files"], "manifest.json"}
    for file, digest in published["files"].items():
        assert file_digest(RESULTS / file) == digest, file
    if version("matplotlib") == published["matplotlib"]:
        for file, image in figures.all_figures(results).items():
            assert image == (RESULTS / file).read_bytes(), file


def chosen(name: str) -> Task:
    """One block of a study, by its digest: every group of settings and every block can be the one."""
    blocks = tasks(study_of(name))
    return blocks[int(study_of(name).digest[:8], 16) % len(blocks)]


@pytest.mark.parametrize("name", FREE)
def test_the_records_are_those_of_the_study(name: str) -> None:
    """A block of every study that needs no table, run again: the same records, and the same facts of its settings."""
    result, task = read_result(name, RESULTS), chosen(name)
    done = run_task(path_of(name).read_text(encoding="utf-8"), "", task)
    again = compact(pl.read_parquet(done.data)).sort("setting", "method", "trial")
    last = task.first + task.trials
    here = pl.col("setting").is_in(task.settings) & pl.col("trial").is_between(task.first, last, closed="left")
    kept = result.records.filter(here).sort("setting", "method", "trial")
    for column in again.columns:
        assert again[column].dtype == kept[column].dtype
        if again[column].dtype.is_float():
            apart = (again[column].fill_nan(None) - kept[column].fill_nan(None)).abs().max()
            assert apart is None or apart < 1e-6  # type: ignore[operator]
        else:
            assert again[column].equals(kept[column]), column
    index = task.settings[0]
    for key, value in known(study_of(name), index, Path()).items():
        kept_value = result.manifest["cells"][index][key]
        assert kept_value == (
            pytest.approx(value) if isinstance(value, float) and math.isfinite(value) else _text(value)
        )


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


@pytest.mark.parametrize("name", ["halueval", "today-halueval"])
def test_no_choice_can_see_evaluation_labels(name: str) -> None:
    """Thresholds stay where they are when every held-out label is turned, or (from the support) every label."""
    study = study_of(name)
    setting, population = study.settings[0], study.populations[0]
    assert setting.heldout_share > 0
    records = _records(population, Path())  # type: ignore[arg-type]
    parts = split(records, setting, np.random.default_rng([study.seed, SPLIT]))
    held = np.isin(records.score, parts.heldout.score) & ~np.isin(records.score, parts.calibration.score)
    every = setting.thresholds_from == "support"
    turned = replace(records, loss=np.where(held | every, 1.0 - records.loss, records.loss))
    again = split(turned, setting, np.random.default_rng([study.seed, SPLIT]))
    assert held.any()
    assert _values(parts, setting) == _values(again, setting)


def test_surrogates_are_called_so() -> None:
    for name in PUBLISHED:
        study, page = study_of(name), (RESULTS / f"{name}.md").read_text(encoding="utf-8")
        made_up = [each.name for each in study.populations if isinstance(each, Binormal | Printed)]
        assert ("Surrogate populations, not data" in page) == bool(made_up)
        assert all("surrogate" in each for each in made_up)
        for each in study.populations:
            assert each.about
            assert each.about in page


# ---------------------------------------------------------------- the command's parts


def test_reproduce_leaves_out_what_it_cannot_run(tmp_path: Path) -> None:
    ran = reproduce(("scores-ragtruth", "reuse"), tmp_path / "out", tables=tmp_path, work=tmp_path / "work", jobs=2)
    assert ran.published == ("reuse",)
    assert ran.left_out == {"scores-ragtruth": ["ragtruth-scores.parquet"]}
    with pytest.raises(FedsrcError, match="there is no study"):
        reproduce(("reuse", "typo"), tmp_path / "none", tables=tmp_path, work=tmp_path / "work")
    assert not (tmp_path / "none").exists()
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
    pl.DataFrame({"score": [0.1], "loss": [0.0]}).write_parquet(tmp_path / "ragtruth.parquet")
    lacking = missing_tables(study_of("today-ragtruth"), tmp_path)
    assert lacking == ["ragtruth.parquet with the columns familiarity, generator, split"]
    (tmp_path / "detector_scores.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(FedsrcError, match="cannot be read"):
        detector_table(tmp_path, tmp_path)
