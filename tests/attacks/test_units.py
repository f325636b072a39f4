"""What a unit adds to a release is a function of that unit alone: from two neighbouring files to the exact integers.

The attacks: one source with one answer more made every later source keep other answers (a release moved by 10 to 27
times its sensitivity), and one source renamed moved others between the development part and calibration.

Mutants killed, and run here: answers kept by the number of the row in the whole table, development as the first so many
of the units (by alphabetical rank, or by key), names of JSON lines that another row's decimals change. Chance of a
false alarm: none, cases are numbered.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.maths.arrays import Ints
from fedsrc.maths.panels import Layout
from fedsrc.planning.register import Choices, development_part, register, register_grid
from fedsrc.protocol.mechanism import mechanism, sealed_mechanism
from fedsrc.records import development, scan, table, units
from fedsrc.records.development import calibrating, development_rows
from fedsrc.records.masses import histogram
from fedsrc.records.table import read_records
from fedsrc.records.units import units_of
from research.attacks.neighbours import Measured, measure, panel_case
from research.attacks.old_rules import by_row_number, first_by_key, first_by_rank

PAIRS, MANY, FEW = 250, 3000, 60
EXACTLY = 1 + 1e-12  # integers over a square root


def holds(found: Measured) -> bool:
    """Releases move by the sensitivity at most, one of them only, and no other unit moves at all."""
    alone = (found.others, found.places, found.others_renamed) == (0, 0, 0) and found.releases <= 1
    return alone and found.release <= EXACTLY and found.together <= EXACTLY


def test_one_unit_moves_a_release_by_the_sensitivity_at_most(tmp_path: Path) -> None:
    """And by all of it in some pair: the measurement sees what there is to see."""
    found = measure(PAIRS, tmp_path)
    assert holds(found), found
    assert found.release == pytest.approx(1.0)
    assert found.releases == 1
    assert found.renamed > PAIRS / 2


def test_one_unit_moves_a_panel_by_the_sensitivity_at_most(tmp_path: Path) -> None:
    """Groups, which a unit may change, and further scores; in one table of both readers, sources or records."""
    found = measure(PAIRS, tmp_path, make=panel_case)
    assert holds(found), found
    assert found.release == pytest.approx(1.0)


def test_a_panel_that_is_counted_as_one_block_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a single claim does not hide a unit that changes its group, or stands in several scores."""
    monkeypatch.setattr(
        Layout, "sensitivity_squared", lambda _, zero, apart, kind: zero if kind == "zero-out" else apart
    )
    mechanism.cache_clear()
    sealed_mechanism.cache_clear()
    found = measure(FEW, tmp_path, make=panel_case)
    mechanism.cache_clear()
    sealed_mechanism.cache_clear()
    assert found.release > 1.2


@pytest.mark.thorough
def test_one_unit_moves_a_release_by_the_sensitivity_at_most_in_many_pairs(tmp_path: Path) -> None:
    found = measure(MANY, tmp_path, first=PAIRS)
    assert holds(found), found
    found = measure(MANY // 3, tmp_path, first=PAIRS, make=panel_case)
    assert holds(found), found


def test_answers_kept_by_row_number_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_by_source", by_row_number)
    found = measure(FEW, tmp_path)
    assert found.others > 100
    assert found.release > 2


@pytest.mark.parametrize("rule", ["rank", "key"])
def test_the_first_so_many_as_development_are_caught(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same names nothing shows; renaming one unit moves others."""
    monkeypatch.setattr(development, "in_development", first_by_rank if rule == "rank" else first_by_key)
    found = measure(FEW, tmp_path)
    assert (found.others, found.places) == (0, 0)
    assert found.others_renamed > 0


def test_names_that_depend_on_other_rows_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one name has decimals, all were read as floats, and 7 became 7.0."""
    monkeypatch.setattr(scan, "_words", lambda *_: {})
    monkeypatch.setattr(table, "as_text", lambda column: column.cast(pl.String))
    assert measure(FEW, tmp_path).others_renamed > 10


# The attacks themselves, at their size.


def exact_of(path: Path, sources: int, answers: int) -> tuple[Ints, float]:
    """The integers before the noise of a table of sources; the first has so many answers, and the sensitivity."""
    rng = np.random.default_rng(3)
    lines = ["source,score,loss", *["aaaa,0.9,0"] * answers]
    for source in range(sources):
        for loss in (rng.random(10) < 0.5).astype(int):
            lines.append(f"s{source:04d},{rng.uniform(0, 0.3) if loss else rng.uniform(0.7, 1):.4f},{loss}")
    path.write_text("\n".join(lines) + "\n")
    reg = register_grid(Choices(0.2, 1.0, adjacency="zero-out", grid=True, unit="source", max_answers=3), ["local"])
    rule = reg.mechanism
    counts = histogram(reg, units_of(read_records(path), "local", "source", max_answers=3))
    return rule.basis.encode(counts), rule.sensitivity


@pytest.mark.parametrize(("old", "most"), [(False, 1e-12), (True, np.inf)])
def test_one_answer_more(tmp_path: Path, old: bool, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five hundred sources of ten answers, of which three count; one of them has one answer, or two alike.

    Its own share is the same either way, so nothing may change at all. It was twelve times the sensitivity.
    """
    if old:
        monkeypatch.setattr(units, "_by_source", by_row_number)
    (one, sensitivity), (two, _) = (exact_of(tmp_path / "t.csv", 500, answers) for answers in (1, 2))
    moved = float(np.linalg.norm((one - two).astype(float))) / sensitivity
    assert moved <= most
    assert moved > 5 or not old


@pytest.mark.parametrize("old", [False, True])
def test_one_source_renamed(tmp_path: Path, old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand other sources none changes sides. It was a third of them."""
    if old:
        monkeypatch.setattr(development, "in_development", first_by_rank)
    parts, calibrated = list[list[bool]](), list[set[str]]()
    for name in ("aaaa", "zzzz"):
        path, rng = tmp_path / f"{name}.csv", np.random.default_rng(3)
        rows = [f"s{i:04d},{rng.random():.3f},{int(rng.random() < 0.3)}" for i in range(1000)]
        path.write_text("\n".join(["source,score,loss", f"{name},0.9,0", *rows]) + "\n")
        records = read_records(path)
        part = development_part(records, "source", 0.2)
        reg = register(Choices(0.2, 1.0, unit="source", grid=True, max_answers=1), records, part)
        parts.append(development_rows(records, part, "source")[1:].tolist())
        calibrated.append(set(calibrating(reg, records)["local"].ids or ()) - {name})
    changed = sum(one != other for one, other in zip(*parts, strict=True))
    assert (changed > 100) if old else (changed == 0 and calibrated[0] == calibrated[1])
