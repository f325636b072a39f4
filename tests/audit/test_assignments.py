"""The split of a study, written down: what is there is what its cells are made of.

Chance of a false alarm: none, everything is enumerated.
Mutants killed: held-out rows called calibration, a site off by one, another dealing than the study's, the split of
another seed, rows that nothing uses left out, one split given twice, two splits given once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.audit.assignments import assignments
from fedsrc.audit.cell import build
from fedsrc.audit.study import Study
from fedsrc.cli.main import main

TEXT = """
name = "splits"
seed = 6
trials = 2
methods = ["fed-src-c"]
[[populations]]
name = "P"
table = "t.parquet"
[[populations]]
name = "law"
acceptance = [0.5]
risk = [0.1]
about = "x"
[setting]
rounds = 2
[[cases]]
population = "P"
heldout_share = 0.25
partition = "dirichlet"
sites = 3
[[cases]]
population = "P"
size = 40
[[cases]]
population = "law"
[sweep]
epsilon = [inf, 4.0]
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    source = np.repeat(np.arange(60), 2)
    pl.DataFrame({
        "score": rng.permutation(120) / 120, "loss": rng.integers(0, 2, 120).astype(float),
        "source": [f"q{each}" for each in source],
    }).write_parquet(tmp_path / "t.parquet")  # fmt: skip
    return tmp_path


def test_parts_and_sites_are_those_of_the_cells(tables: Path) -> None:
    study = Study.from_toml(TEXT)
    found = assignments(study, tables)
    table = pl.read_parquet(tables / "t.parquet")
    assert found["setting"].unique(maintain_order=True).to_list() == [0, 2]
    for index in (0, 2):
        here = found.filter(setting=index)
        cell = build(study.settings[index], study.by_name["P"], seed=study.seed, folder=tables)
        assert here["row"].to_list() == list(range(120))
        assert here["source"].to_list() == table["source"].to_list()
        both = pl.concat([here, table.drop("source")], how="horizontal")
        for k, site in enumerate(cell.sites, start=1):
            mine = both.filter(site=k)
            assert mine["part"].unique().to_list() == ["calibration"]
            assert mine.height == site.law.size
            cut = cell.registration.thresholds.values[0]
            expected = mine.filter(pl.col("score") >= cut)["loss"].sum() / mine.height
            assert cell.unsupported[k - 1, 0] == pytest.approx(expected)
        assert both.filter(pl.col("site").is_null())["part"].is_in(["development", "heldout", "unused"]).all()


def test_sources_stay_together_and_nothing_is_lost(tables: Path) -> None:
    found = assignments(Study.from_toml(TEXT), tables)
    first, second = (found.filter(setting=index) for index in (0, 2))
    assert dict(first["part"].value_counts().iter_rows()) == {"development": 24, "heldout": 30, "calibration": 66}
    assert first.group_by("source").agg(pl.col("part").n_unique())["part"].max() == 1
    assert dict(second["part"].value_counts().iter_rows()) == {"development": 24, "calibration": 40, "unused": 56}


def test_another_seed_is_another_split(tables: Path) -> None:
    one, other = (assignments(Study.from_toml(TEXT.replace("seed = 6", f"seed = {n}")), tables) for n in (6, 7))
    assert not one["part"].equals(other["part"])
    assert one.equals(assignments(Study.from_toml(TEXT), tables))


def test_the_command_writes_them_when_asked(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tables / "s.toml").write_text(TEXT)
    for name, more in (("with", ["--splits"]), ("without", [])):
        words = ["audit", str(tables / "s.toml"), "-o", str(tables / name), "--jobs", "1", *more]
        monkeypatch.setattr(sys, "argv", ["fedsrc", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code
        assert (tables / name / "splits.parquet").is_file() == bool(more)


def test_laws_have_no_records(tmp_path: Path) -> None:
    text = TEXT.replace('[[populations]]\nname = "P"\ntable = "t.parquet"\n', "")
    body, sweep = text.split("[[cases]]", 1)[0], text[text.index("[sweep]") :]
    assert assignments(Study.from_toml(body + sweep), tmp_path).height == 0
