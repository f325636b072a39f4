"""A plan without people's labels: from scores alone, or from a judge's verdicts on the development part.

Mutants killed: a label, or a verdict, of a unit that calibrates that moves the plan; missing labels taken for
unsupported answers; a development part labelled in part that is planned on as if it were whole; a release, or a
registration, that does not say whose labels it has; a risk that rises with the score.

Chance of a false alarm: none; draws have fixed seeds, and what noised releases are asked holds for any noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.local import plan_table
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, development_part
from fedsrc.protocol.protection import Development, Noised
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_rows
from fedsrc.records.table import read_records
from fedsrc.records.units import Records
from fedsrc.server.wording_2 import thresholds_words
from fedsrc.simulate.posterior import from_scores

SIZE, SHARE = 1_500, 0.2
CHOICES = Choices(0.2, math.inf, labels="on demand")
DRAW = np.random.default_rng(3)
LOSS = (DRAW.random(SIZE) < 0.35).astype(np.float64)
LOG = pl.DataFrame({"id": [f"a{i}" for i in range(SIZE)], "score": DRAW.beta(np.where(LOSS > 0, 2, 5), 3)})


def log(folder: Path, name: str = "log", **columns: list[float | None]) -> Records:
    path = folder / f"{name}.csv"
    LOG.with_columns(**{each: pl.Series(values, dtype=pl.Float64) for each, values in columns.items()}).write_csv(path)
    return read_records(path, labels="on demand")


def part_of(records: Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return development_rows(records, development_part(records, "record", SHARE), "record")


def planned(records: Records, ledger: Path, choices: Choices = CHOICES) -> Registration:
    return plan_table(choices, records, development_part(records, "record", SHARE), ledger, Wish(objective="rounds"))[0]


def where(
    rows: np.ndarray[tuple[int], np.dtype[np.bool_]], values: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> list[float | None]:
    return [float(value) if here else None for here, value in zip(rows, values, strict=True)]


def test_scores_alone_leave_risks_that_fall() -> None:
    accepted = np.linspace(380, 20, 20)
    found = from_scores(accepted, 400, np.random.default_rng(0), draws=2_000)
    assert found.accepted.mean(axis=0) == pytest.approx(accepted / 400, abs=0.02)
    assert found.laws.sum(axis=1) == pytest.approx(np.ones(2_000))
    risk = (found.laws @ found.unsupported).mean(axis=0) / found.accepted.mean(axis=0)
    assert (np.diff(risk) < 0).all()
    assert 0.2 < risk[0] < 0.4
    assert risk[-1] < 0.15


def test_no_label_of_a_table_is_read_where_people_label_on_demand(tmp_path: Path) -> None:
    plain = planned(log(tmp_path), tmp_path / "1")
    assert plain.development is not None
    assert plain.development.labels == "none"
    assert plain.thresholds.values[0] > 0.3  # not what answers that are all unsupported would ask for
    some = np.arange(SIZE) % 3 > 0
    assert planned(log(tmp_path, loss=where(some, LOSS)), tmp_path / "2") == plain
    assert planned(log(tmp_path, loss=where(some, 1 - LOSS)), tmp_path / "3") == plain
    every = planned(log(tmp_path, loss=list(LOSS)), tmp_path / "4")  # even so: whether all have one shows the last one
    assert every == plain
    assert "(scores alone), without privacy" in thresholds_words(plain)
    assert Registration.from_toml(plain.to_toml()) == plain


def test_a_judge_is_heard_on_the_development_part_alone(tmp_path: Path) -> None:
    judged = replace(CHOICES, judge_column="verdict")
    part = part_of(log(tmp_path))
    found = planned(log(tmp_path, verdict=list(LOSS)), tmp_path / "1", judged)
    other = planned(log(tmp_path, verdict=list(np.where(part, LOSS, 1 - LOSS))), tmp_path / "2", judged)
    few = planned(log(tmp_path, verdict=where(part, 0.2 + 0.6 * LOSS)), tmp_path / "3", judged)
    assert found == other == few
    assert found.development is not None
    assert found.development.labels == "judge"
    poor = planned(log(tmp_path, verdict=where(part, np.ones(SIZE))), tmp_path / "4", judged)
    assert poor.thresholds != found.thresholds
    assert poor.thresholds.values[0] > 0.3  # who calls everything unsupported leaves what scores tell
    assert "with a judge's labels" in thresholds_words(found)
    with pytest.raises(FedsrcError, match="has no column 'jury'"):
        planned(log(tmp_path), tmp_path / "5", replace(CHOICES, judge_column="jury"))
    with pytest.raises(FedsrcError, match="of the development part has no verdict"):
        planned(log(tmp_path, verdict=where(~part, LOSS)), tmp_path / "6", judged)


def test_a_noised_release_says_whose_labels_it_has(tmp_path: Path) -> None:
    private = replace(CHOICES, epsilon=8.0)
    found = planned(log(tmp_path), tmp_path / "ledger", private)
    part = found.development
    assert part is not None
    assert part.release is not None
    assert (part.labels, part.release.labels) == ("none", "none")
    assert "(scores alone), protected like the others" in thresholds_words(found)
    assert b'"labels":"none"' in part.release.to_bytes()
    again = planned(log(tmp_path, loss=list(LOSS)), tmp_path / "ledger", private)  # labelled since: the same release
    assert again.development is not None
    assert (again.development.release, again.development.labels) == (part.release, "none")
    people = Noised(**{**part.release.model_dump(), "labels": "people"})
    assert b"labels" not in people.to_bytes()
    with pytest.raises(ValueError, match="have the same labels"):
        Development(share=part.share, seed=part.seed, release=people, labels="none")
