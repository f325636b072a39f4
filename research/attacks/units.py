"""Attacks on units (P1, P3): one unit of a table changes, and what that moves in the integers before the noise.

From two neighbouring files through reading, capping, the split, binning and encoding, over every encoding, basis,
adjacency, cap, weight and reader. The old cap (by row number) and the old split (by alphabetical rank) are controls.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.records import development, units
from fedsrc.records.development import development_rows
from fedsrc.records.masses import histogram
from fedsrc.records.table import read_records
from fedsrc.records.units import units_of
from research.attacks.neighbours import Measured, case, measure
from research.attacks.old_rules import by_row_number, first_by_rank, instead
from research.attacks.sections import Record, Row, Section, control, in_blocks, recorded, some
from research.pages import markdown

PAIRS, CONTROLS, BLOCK = 10_000, 1_000, 50
SOURCES = (500, 1_000, 4_000)


class Kind(NamedTuple):
    """What a pair of tables is counted under."""

    encoding: str
    basis: str
    adjacency: str
    unit: str
    reader: str


def block(first: int, count: int, folder: Path) -> list[tuple[Kind, Measured]]:
    """So many pairs, each with its kind."""
    return [(kind_of(number), measure(1, folder, first=number)) for number in range(first, first + count)]


def block_by_row_number(first: int, count: int, folder: Path) -> list[tuple[Kind, Measured]]:
    with instead(units, "_by_source", by_row_number):
        return block(first, count, folder)


def block_by_rank(first: int, count: int, folder: Path) -> list[tuple[Kind, Measured]]:
    with instead(development, "in_development", first_by_rank):
        return block(first, count, folder)


def kind_of(number: int) -> Kind:
    made = case(number)
    reg = made.registration
    adjacency, unit = reg.privacy.adjacency, reg.privacy.unit
    return Kind(reg.histograms.kind, reg.histograms.basis, adjacency, unit, made.reader)


def run(scale: float = 1.0) -> Record:
    """Random pairs under the rules of now and of then, and the two attacks at their size."""
    pairs, few = some(PAIRS, scale), some(CONTROLS, scale)
    now = [each for part in in_blocks(block, pairs, BLOCK) for each in part]
    old_cap = [each for part in in_blocks(block_by_row_number, few, BLOCK) for each in part]
    old_split = [each for part in in_blocks(block_by_rank, few, BLOCK) for each in part]
    return {
        "pairs": _worst([found for _, found in now]),
        "by_kind": _by_kind(now),
        "old_cap": _worst([found for _, found in old_cap]),
        "old_split": _worst([found for _, found in old_split]),
        "one_answer_more": [_one_answer_more(some(n, scale)) for n in SOURCES],
        "renamed": [_renamed(max(300, some(n, scale))) for n in SOURCES[:2]],
    }


def _worst(found: list[Measured]) -> Record:
    return {
        "pairs": len(found),
        "most": max(each.release for each in found),
        "together": max(each.together for each in found),
        "beyond": sum(each.release > 1 + 1e-12 for each in found),
        "others": sum(each.others for each in found),
        "renamed": sum(each.renamed for each in found),
        "others_renamed": sum(each.others_renamed for each in found),
    }


def _by_kind(found: list[tuple[Kind, Measured]]) -> list[Record]:
    """The worst per encoding, basis and adjacency; and per unit and reader."""
    rows = []
    for parts in ((0, 1, 2), (3, 4)):
        for kind in sorted({tuple(each[i] for i in parts) for each, _ in found}):
            mine = [m for each, m in found if tuple(each[i] for i in parts) == kind]
            rows.append({"kind": list(kind), "pairs": len(mine), "most": max(m.release for m in mine)})
    return rows


def _one_answer_more(sources: int) -> Record:
    """One source has one answer, or two alike: what the release moves by, in sensitivities, by both rules."""
    rng = np.random.default_rng(3)
    body = []
    for source in range(sources):
        for loss in (rng.random(10) < 0.5).astype(int):
            body.append(f"s{source:05d},{rng.uniform(0, 0.3) if loss else rng.uniform(0.7, 1):.4f},{loss}")
    moved = {}
    for old in (False, True):
        with instead(units, "_by_source", by_row_number) if old else nullcontext():
            moved["old" if old else "now"] = _moved(body)
    return {"sources": sources, **moved}


def _moved(body: list[str]) -> float:
    reg = register_grid(Choices(0.2, 1.0, adjacency="zero-out", grid=True, unit="source", max_answers=3), ["local"])
    rule, exact = reg.mechanism, []
    with tempfile.TemporaryDirectory() as folder:
        for answers in (1, 2):
            path = Path(folder, "t.csv")
            path.write_text("\n".join(["source,score,loss", *["aaaa,0.9,0"] * answers, *body]) + "\n")
            exact.append(
                rule.basis.encode(histogram(reg, units_of(read_records(path), "local", "source", max_answers=3)))
            )
    return float(np.linalg.norm((exact[0] - exact[1]).astype(float)) / rule.sensitivity)


def _renamed(sources: int) -> Record:
    """One source gets another name: how many others change between development and calibration, by both rules."""
    changed = {}
    for old in (False, True):
        with instead(development, "in_development", first_by_rank) if old else nullcontext():
            changed["old" if old else "now"] = _changed(sources)
    return {"sources": sources, **changed}


def _changed(sources: int) -> int:
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("aaaa", "zzzz"):
            path, rng = Path(folder, f"{name}.csv"), np.random.default_rng(3)
            rows = [f"s{i:04d},{rng.random():.3f},{int(rng.random() < 0.3)}" for i in range(sources)]
            path.write_text("\n".join(["source,score,loss", f"{name},0.9,0", *rows]) + "\n")
            records = read_records(path)
            parts.append(development_rows(records, development_part(records, "source", 0.2), "source")[1:])
    return int((parts[0] != parts[1]).sum())


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    now, cap, split = record["pairs"], record["old_cap"], record["old_split"]
    more, named = record["one_answer_more"], record["renamed"]
    sizes = ", ".join(f"{each['sources']:,}" for each in more)
    return [
        Row(
            "P1: one unit's rows change, in any way its own; random tables and registrations",
            control(f"up to {cap['most']:.1f} sensitivities, {cap['beyond']:,} of {cap['pairs']:,} pairs beyond 1"),
            f"at most {now['most']:.3f}, {now['beyond']} of {now['pairs']:,} pairs beyond 1",
            "How far the exact integers of one release move, over the registered sensitivity. Noise is made for 1.",
        ),
        Row(
            "P1: masses or part (development or calibration) of any other unit",
            control(f"{cap['others']:,} units changed"),
            f"{now['others']:,} changed in {now['pairs']:,} pairs",
            "A unit's contribution is a function of that unit alone.",
        ),
        Row(
            f"P1: one source has two answers instead of one, among {sizes} sources",
            control(", ".join(f"{each['old']:.1f}" for each in more) + " sensitivities") + "; " + recorded("10 to 27"),
            ", ".join(f"{each['now']:.1f}" for each in more),
            "The victim's own share is the same either way, so nothing may move.",
        ),
        Row(
            "P3: one unit is renamed; random tables",
            control(f"{split['others_renamed']:,} other units changed in {split['renamed']:,} renamings"),
            f"{now['others_renamed']:,} in {now['renamed']:,}",
            "Other units whose masses or part (development or calibration) changed.",
        ),
        Row(
            "P3: one source is renamed, among " + ", ".join(f"{each['sources']:,}" for each in named),
            control(", ".join(f"{each['old']:,}" for each in named) + " others changed sides"),
            ", ".join(f"{each['now']:,}" for each in named),
            "Before, the part of a source went by its rank in the alphabet.",
        ),
    ]


def more(record: Record) -> list[str]:
    """The worst per kind of table."""
    shown = [(", ".join(e["kind"]), f"{e['pairs']:,}", f"{e['most']:.3f}") for e in record["by_kind"]]
    return ["The same by kind of registration and table:", markdown(("kind", "pairs", "most, in sensitivities"), shown)]


SECTION = Section("units", "What one unit moves", run, rows, more)
