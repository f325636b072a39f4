"""Studies are read as written; a cell is what its setting says: who calibrates, at which thresholds, on which facts.

Facts, splits and laws are enumerated here a second time, row by row and atom by atom, in plain Python. Rows have
distinct scores, so a score, or a bin of its own, says which row it is.

Chance of a false alarm: seeds are fixed, so none.
Mutants killed. Studies: a sweep or its cases in another order, cases overruled by the setting, a population swept last,
`varied` without population or case, or with what does not vary, each refusal left out, a digest blind to one field or
to the order of settings. Splits: by rows where there are sources, in table order, parts that overlap, a natural site
that belongs to another unit, a size that takes the first units. Thresholds from calibration, from held-out scores, from
supported answers only. Partitions swapped, concentration or spread ignored, deals that do not depend on the seed. Facts
of calibration in place of deployment, of noisy labels, of held-out rows, with answers at a threshold rejected; drift
halved or from another threshold, weight moved elsewhere, missed and invented swapped, graded losses rounded to 0 and 1,
units that keep their identity though labels change, an oracle floor without its acceptance or its weights. Recruitment
matched by the wrong number of sites. Boundaries: the odd site off the target, spread below in place of above, not
balanced by weights, drift halved, reversed or in another bin, calibration and deployment swapped, halves of a source
never or always equal, graded losses that are binary, either encoding in the other's place. Prints: rejected answers
supported or forgotten, impossible ones let through. Surrogates: the square root of two lost, scores reversed, a share
cut and not rounded, a seed ignored.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from fedsrc.audit import boundary, partition
from fedsrc.audit.cell import DEAL, SPLIT, Cell, Parts, build, split
from fedsrc.audit.methods import METHODS, NATIVE
from fedsrc.audit.study import Binormal, Boundary, Demo, Population, Printed, Setting, Study, StudyTable
from fedsrc.audit.study_records import binormal
from fedsrc.audit.summary import cells
from fedsrc.data.embedded import TASKS, score_table
from fedsrc.errors import FedsrcError
from fedsrc.maths.transfer import eta
from fedsrc.protocol.registration import Registration
from fedsrc.records.table import read_records
from fedsrc.records.units import Units
from fedsrc.simulate.population import Support

SEED = 3
HEAD = 'name = "a study"\ntrials = 4\nmethods = ["fed-src-c"]\n'
BOUNDARY = '[[populations]]\nname = "b"\nboundary = true\n'
TWO = '[[populations]]\nname = "P"\nboundary = true\n[[populations]]\nname = "Q"\nboundary = true\n'
RELEASES = ("paper", "default")
Ways = dict[str, Any]


def near(value: Any) -> Any:
    return pytest.approx(value, abs=1e-12)


# ---------------------------------------------------------------- studies


def read(body: str) -> Study:
    return Study.from_toml(HEAD + body)


def test_what_is_not_said_has_its_default() -> None:
    (setting,) = read(BOUNDARY).settings
    assert setting == Setting(population="b")
    assert math.isinf(setting.epsilon)
    assert (setting.policy, setting.release, setting.thresholds, setting.sites) == ("first", "paper", 20, 5)


def test_the_last_key_of_a_sweep_is_the_fastest() -> None:
    study = read(BOUNDARY + "[setting]\nbatch = 7\n[sweep]\nsites = [2, 3]\nepsilon = [inf, 1.0, 4.0]\n")
    found = [(each.sites, each.epsilon) for each in study.settings]
    assert found == [(2, math.inf), (2, 1.0), (2, 4.0), (3, math.inf), (3, 1.0), (3, 4.0)]
    assert all(each.batch == 7 and each.population == "b" for each in study.settings)


def test_cases_are_slower_than_the_sweep_and_overrule_the_setting() -> None:
    cases = "[[cases]]\ndropout = 0.2\n[[cases]]\nbatch = 9\n"
    study = read(BOUNDARY + "[setting]\nbatch = 7\n[sweep]\nsites = [2, 3]\n" + cases)
    found = [(each.dropout, each.batch, each.sites) for each in study.settings]
    assert found == [(0.2, 7, 2), (0.2, 7, 3), (0.0, 9, 2), (0.0, 9, 3)]


def test_populations_are_swept_first_unless_one_is_named() -> None:
    every = read(TWO + "[sweep]\nsites = [2, 3]\n")
    assert [(each.population, each.sites) for each in every.settings] == [("P", 2), ("P", 3), ("Q", 2), ("Q", 3)]
    assert [each.population for each in read(TWO + '[setting]\npopulation = "Q"\n').settings] == ["Q"]
    swept = read(TWO + '[sweep]\nsites = [2, 3]\npopulation = ["Q", "P"]\n')
    assert [(each.population, each.sites) for each in swept.settings] == [("Q", 2), ("P", 2), ("Q", 3), ("P", 3)]
    cases = read(TWO + '[[cases]]\npopulation = "Q"\n[[cases]]\npopulation = "P"\nsites = 2\n')
    assert [(each.population, each.sites) for each in cases.settings] == [("Q", 5), ("P", 2)]


@pytest.mark.parametrize(
    ("body", "varied"),
    [
        (BOUNDARY, ()),
        (TWO, ("population",)),
        (TWO + "[sweep]\nsites = [2, 3]\nbatch = [5]\n", ("population", "sites")),
        (TWO + '[sweep]\nsites = [2, 3]\npopulation = ["P", "Q"]\n', ("population", "sites")),
        (BOUNDARY + "[sweep]\nepsilon = [inf, 1.0]\n", ("epsilon",)),
        (BOUNDARY + "[[cases]]\ndropout = 0.2\n[[cases]]\nbatch = 9\n", ("dropout",)),
        (BOUNDARY + "[[cases]]\n[[cases]]\nbatch = 9\n[[cases]]\nbatch = 9\nsites = 2\n", ("batch", "sites")),
        (BOUNDARY + '[[cases]]\nsites = 2\ncase = "x"\n[[cases]]\nsites = 3\ncase = "y"\n', ("case",)),
        (BOUNDARY + "[[cases]]\nbatch = 9\nsites = 3\n[[cases]]\nbatch = 9\nsites = 2\n", ("sites",)),
        (TWO + '[[cases]]\npopulation = "P"\ndrift = 0.1\n[[cases]]\npopulation = "Q"\n', ("population",)),
        (BOUNDARY + "[sweep]\nsites = [2, 3]\n[[cases]]\n[[cases]]\nmoved = 0.1\n", ("sites", "moved")),
    ],
)
def test_varied_tells_settings_apart(body: str, varied: tuple[str, ...]) -> None:
    study = read(body)
    assert study.varied == varied
    assert len({tuple(getattr(each, key) for key in varied) for each in study.settings}) == len(study.settings)


def test_settings_alike_are_refused() -> None:
    """Nothing tells two equal settings apart, so nothing could tell their rows apart in a table."""
    for body in ("[sweep]\nepsilon = [1.0, 1.0]\n", "[[cases]]\nsites = 2\n[[cases]]\nsites = 2\n"):
        with pytest.raises(FedsrcError):
            read(BOUNDARY + body)


def many(sites: int, batches: int) -> str:
    return f"[sweep]\nsites = {list(range(1, sites + 1))}\nbatch = {list(range(1, batches + 1))}\n"


REFUSED = {
    "[setting]\nfoo = 1\n": r"foo: Extra inputs are not permitted$",
    "[sweep]\nfoo = [1]\n": r"foo: Extra inputs are not permitted$",
    "[[cases]]\nfoo = 1\n": r"foo: Extra inputs are not permitted$",
    "[other]\nfoo = 1\n": r"other: Extra inputs are not permitted$",
    "[setting]\nsites = 2\n[sweep]\nsites = [2]\n": r"sites is in \[sweep\] and elsewhere too$",
    "[[cases]]\nsites = 2\n[sweep]\nsites = [2]\n": r"sites is in \[sweep\] and elsewhere too$",
    '[setting]\npopulation = "z"\n': r"there is no population 'z'$",
    '[sweep]\npopulation = ["b", "z"]\n': r"there is no population 'z'$",
    '[[cases]]\npopulation = "b"\n[[cases]]\nsites = 2\n': r"population: Field required$",
    many(101, 100): r"there are more than 10,000 settings$",
    "[[cases]]\ndelta = 0.1\n[[cases]]\n" + many(80, 80): r"there are more than 10,000 settings$",
    "[sweep]\nsites = []\n": r"sweep\.sites: ",
    "[setting]\ntarget_risk = 1.5\n": r"target_risk: Input should be less than 1$",
    "[setting]\nepsilon = nan\n": r"epsilon: ",
    "[setting]\nepsilon = 0.0\n": r"epsilon: ",
    "[setting]\nsites = 2.0\n": r"sites: Input should be a valid integer$",
    '[setting]\nweights = "as calibrated"\nmoved = 0.1\n': r"moved weight needs declared weights",
    '[setting]\nrelease = "default"\ndropout = 0.1\nwithheld = 0.1\n': r"give dropout or withheld, not both$",
    '[setting]\nrelease = "paper"\nwithheld = 0.1\n': r"only the default release has a refusal budget",
    "[setting]\nqueries = 2\n": r"without privacy one message says all: queries = 1$",
    BOUNDARY: r"population names must differ$",
    "trials": r"not a TOML file: ",
}


def problem(text: str) -> str:
    """The one line that says what is wrong with a study; what follows are hints."""
    with pytest.raises(FedsrcError) as caught:
        Study.from_toml(text)
    first, *rest = str(caught.value).splitlines()
    assert all(line.startswith("hint: ") for line in rest)
    return first


@pytest.mark.parametrize("body", REFUSED)
def test_a_wrong_study_is_refused_in_one_line(body: str) -> None:
    assert re.match("study: " + REFUSED[body], problem(HEAD + BOUNDARY + body))


def test_what_is_almost_refused_is_read() -> None:
    body = BOUNDARY + '[setting]\nrelease = "default"\nepsilon = 1.0\n'
    for more in ("withheld = 0.1", "dropout = 0.1", "queries = 2", "moved = 0.1", 'weights = "as calibrated"'):
        assert len(read(body + more).settings) == 1
    assert len(read(BOUNDARY + many(100, 100)).settings) == 10_000


def test_methods_are_named_once_and_exist() -> None:
    for names, what in [
        ('["fed-src"]', "there is no method 'fed-src'; methods: "),
        ('["fed-src-c", "fed-src-c"]', "a method is named twice"),
        ("[]", "methods: "),
        *((f'["{name}"]', f"{name} has a guarantee of its own kind: name it under native") for name in NATIVE),
        (
            '["fed-src-c"]\nnative = ["betting"]',
            f"there is no native method 'betting'; native methods: {', '.join(NATIVE)}",
        ),
        (f'["fed-src-c"]\nnative = {2 * [min(NATIVE)]}', "a method is named twice"),
    ]:
        assert problem((HEAD + BOUNDARY).replace('["fed-src-c"]', names)).startswith(f"study: {what}")
    every = f"{list(METHODS)}\nnative = {list(NATIVE)}\nsetting = {{ release = 'default' }}"
    assert len(NATIVE) == len(Study.from_toml((HEAD + BOUNDARY).replace('["fed-src-c"]', every)).native) > 0
    assert all(name in problem((HEAD + BOUNDARY).replace("fed-src-c", "z")) for name in METHODS)


def test_a_misspelt_field_of_a_population_is_named() -> None:
    """Not the fields that populations of other kinds would need."""
    assert "spreda" in problem(HEAD + BOUNDARY + "spreda = 0.1\n")
    assert "populations.0.records.auc" in problem(
        HEAD + '[[populations]]\nname = "b"\nrecords = 9\nunsupported = 0.5\naucc = 0.7\n'
    )


POPULATIONS: dict[str, tuple[Ways, Ways]] = {
    "table": (
        {"table": "a.csv"},
        {"table": "b.csv", "score": "x", "site": "z", "group": "y", "where": {"a": "b"}, "about": "x"},
    ),
    "demo": ({"demo": "qa"}, {"demo": "dialogue", "score": "other", "about": "x"}),
    "binormal": (
        {"records": 9, "unsupported": 0.5, "auc": 0.7, "about": ""},
        {"records": 8, "unsupported": 0.4, "auc": 0.6, "seed": 1, "about": "x"},
    ),
    "printed": (
        {"acceptance": [0.5], "risk": [0.1], "about": ""},
        {"acceptance": [0.4], "risk": [0.2], "about": "x"},
    ),
    "boundary": (
        {"boundary": True},
        {
            "spread": 0.1,
            "answers": 2,
            "graded": True,
            "promised": 0.4,
            "groups": 2,
            "bad": 1,
            "tied": 0.1,
            "about": "x",
        },
    ),
}
OTHER_SETTING: Ways = {
    "case": "x", "charged": False,
    "target_risk": 0.1, "min_acceptance": 0.1, "failure_probability": 0.1, "epsilon": 1.0, "delta": 1e-5,
    "release": "default", "unit": "source", "draw": "once", "thresholds": 3, "thresholds_from": "grid",
    "development_share": 0.3, "heldout_share": 0.1, "partition": "natural", "beta": 2.0, "sigma": 2.0, "sites": 2,
    "size": 5, "weights": "as calibrated", "moved": 0.1, "drift": 0.1, "policy": "final", "matched": True, "batch": 5,
    "rounds": 5, "dropout": 0.1, "reading": "one", "label_missed": 0.1, "label_invented": 0.1, "objective": "records",
    "adjacency": "replacement", "aggregation": "holder", "loss_grid": 4, "group_floor": "group", "group_span": "whole",
}  # fmt: skip
OTHER_STUDY: Ways = {
    "name": "other", "about": "x", "seed": 1, "trials": 5, "block": 5, "methods": ["betting"], "native": ["fcp"],
    "sweep": {"sites": [2, 3]}, "cases": [{"sites": 2}],
}  # fmt: skip


def fields(kind: str = "boundary", population: Ways | None = None, **more: Any) -> Ways:
    """A small study as plain values."""
    one = {"name": "b", **POPULATIONS[kind][0], **(population or {})}
    return {"name": "a", "trials": 4, "methods": ["fed-src-c"], "populations": [one], **more}


def digest(values: Ways) -> str:
    return Study.model_validate(values).digest


def test_the_digest_changes_with_any_field_of_the_study() -> None:
    assert {*OTHER_STUDY, "format", "setting", "populations"} == set(Study.model_fields)
    found = [digest(fields(**{key: value})) for key, value in OTHER_STUDY.items()]
    assert len({digest(fields()), *found}) == len(OTHER_STUDY) + 1


def test_the_digest_changes_with_any_field_of_a_setting() -> None:
    others = {key: {key: value} for key, value in OTHER_SETTING.items()}
    others |= {"queries": {"queries": 2, "epsilon": 1.0}, "withheld": {"withheld": 0.1, "release": "default"}}
    kinds = {"encoding": "moments", "certificate": "sealed", "looks": 2, "groups": "each"}
    assert {*others, *kinds, "population"} == set(Setting.model_fields)
    found = [digest(fields(setting=values)) for values in others.values()]
    found += [
        digest(fields(methods=["registered"], setting={"release": "default", "certificate": "sealed", key: value}))
        for key, value in kinds.items() if key != "encoding"
    ]  # fmt: skip
    found.append(digest(fields(methods=["registered"], setting={"release": "default", "encoding": "moments"})))
    assert len({digest(fields()), *found}) == len(others) + len(kinds) + 1


@pytest.mark.parametrize("kind", POPULATIONS)
def test_the_digest_changes_with_any_field_of_a_population(kind: str) -> None:
    changes = {"name": "other", **POPULATIONS[kind][1]}
    found = [digest(fields(kind, {key: value})) for key, value in changes.items()]
    assert len({digest(fields(kind)), *found}) == len(changes) + 1
    model = type(Study.model_validate(fields(kind)).populations[0])
    assert set(changes) | {"boundary"} >= set(model.model_fields)


def test_the_digest_does_not_see_how_it_is_written() -> None:
    body = BOUNDARY + "[setting]\nsites = 2\nbatch = 5\n"
    assert read(body).digest == read("# a note\n" + BOUNDARY + "[setting]\nbatch=5\nsites=2\n").digest


def test_the_digest_changes_with_the_order_of_a_sweep() -> None:
    """Records are addressed by the setting's number: in another order the same number is another setting."""
    one = read(BOUNDARY + "[sweep]\nsites = [2, 3]\nbatch = [5, 6]\n")
    two = read(BOUNDARY + "[sweep]\nbatch = [5, 6]\nsites = [2, 3]\n")
    assert one.settings != two.settings
    assert one.digest != two.digest


# ---------------------------------------------------------------- tables


class Row(NamedTuple):
    score: float
    loss: float
    site: str
    source: str


Rows = Sequence[Row]


def made(count: int = 120, *, seed: int = 0, graded: bool = False) -> list[Row]:
    """Rows with distinct scores, in sources of one to five answers; each source lives at one of three sites.

    Scores lie on the thresholds of a grid, where "at least" and "more than" are not the same.
    """
    rng = random.Random(seed)
    ranks = rng.sample(range(count), count)
    sources: list[int] = []
    while len(sources) < count:
        sources += [len(set(sources))] * rng.randint(1, 5)
    losses = (0.0, 0.25, 0.5, 1.0) if graded else (0.0, 0.0, 1.0)
    homes = [rng.choice("AABBBC") for _ in range(count)]
    rows = [
        Row(rank / count, rng.choice(losses), homes[source], f"q{source:03d}")
        for rank, source in zip(ranks, sources[:count], strict=True)
    ]
    rng.shuffle(rows)
    return rows


ROWS = made()
N = len(ROWS)


def written(folder: Path, rows: Rows, *leave_out: str) -> Path:
    frame = pl.DataFrame(rows, schema=Row._fields, orient="row").drop(leave_out)
    frame.write_csv(folder / "t.csv")
    return folder / "t.csv"


def cell_of(folder: Path, rows: Rows = ROWS, *leave_out: str, **setting: Any) -> Cell:
    """The cell of a table with those rows."""
    written(folder, rows, *leave_out)
    return build(Setting(population="t", **setting), StudyTable(name="t", table="t.csv"), seed=SEED, folder=folder)


def parts_of(folder: Path, rows: Rows = ROWS, *leave_out: str, **setting: Any) -> Parts:
    """The split that the same cell has."""
    records = read_records(written(folder, rows, *leave_out))
    return split(records, Setting(population="t", **setting), np.random.default_rng([SEED, SPLIT]))


def rows_in(units: Units, rows: Rows = ROWS) -> list[list[Row]]:
    """The rows of each unit, found by their scores."""
    known = {row.score: row for row in rows}
    found = [known[score] for score in units.score.tolist()]
    return [found[a:b] for a, b in zip(units.start[:-1], units.start[1:], strict=True)]


def flat(units: Iterable[Iterable[Row]]) -> list[Row]:
    return [row for unit in units for row in unit]


def at_sites(cell: Cell, rows: Rows = ROWS) -> list[list[list[Row]]]:
    """The rows of each unit of each site, found by the bin that each row has to itself on a grid of as many bins."""
    ranked = sorted(rows)
    assert len(cell.registration.thresholds.values) == len(rows) - 1
    held = [[np.flatnonzero(atom.any(axis=0)) for atom in site.masses] for site in cell.sites]
    return [[[ranked[place] for place in unit] for unit in site] for site in held]


def accepted_and_unsupported(units: Sequence[Sequence[Row]], threshold: float) -> tuple[float, float]:
    """Shares by enumeration: units weigh alike, and so do the answers of one unit."""
    a = [sum(row.score >= threshold for row in unit) / len(unit) for unit in units]
    z = [sum(row.loss for row in unit if row.score >= threshold) / len(unit) for unit in units]
    return sum(a) / len(a), sum(z) / len(z)


def check_facts(cell: Cell, sites: Sequence[Sequence[Sequence[Row]]]) -> None:
    assert len(sites) == len(cell.acceptance)
    for k, units in enumerate(sites):
        for j, threshold in enumerate(cell.registration.thresholds.values):
            a, z = accepted_and_unsupported(units, threshold)
            assert cell.acceptance[k, j] == near(a)
            assert cell.unsupported[k, j] == near(z)


GRID: Ways = {"thresholds_from": "grid", "thresholds": N - 1}


@pytest.mark.parametrize("unit", ["record", "source"])
@pytest.mark.parametrize(("development", "heldout"), [(0.2, 0.3), (0.5, 0.0), (0.34, 0.33)])
def test_the_parts_of_a_split_hold_every_source_once(
    tmp_path: Path, unit: str, development: float, heldout: float
) -> None:
    parts = parts_of(tmp_path, unit=unit, development_share=development, heldout_share=heldout)
    groups = [rows_in(each) for each in (parts.development, parts.heldout, parts.calibration)]
    assert sorted(row for group in groups for row in flat(group)) == sorted(ROWS)
    sources = [{row.source for row in flat(group)} for group in groups]
    assert sum(len(each) for each in sources) == len(set().union(*sources)) == len({row.source for row in ROWS})
    total = len({row.source for row in ROWS})
    assert [len(each) for each in sources[:2]] == [int(total * development), int(total * heldout)]
    if unit == "source":
        assert all(len({row.source for row in members}) == 1 for group in groups for members in group)
        assert all(len(group) == len(each) for group, each in zip(groups, sources, strict=True))
    else:
        assert all(len(members) == 1 for group in groups for members in group)


def test_without_sources_rows_are_split(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, ROWS, "source", heldout_share=0.25)
    sizes = [len(each) for each in (parts.development, parts.heldout, parts.calibration)]
    assert sizes == [24, 30, 66]
    scores = [score for each in (parts.development, parts.heldout, parts.calibration) for score in each.score.tolist()]
    assert sorted(scores) == sorted(row.score for row in ROWS)


def test_a_split_is_random(tmp_path: Path) -> None:
    """No part is a run of sources in their order, and every seed splits in its own way."""
    records = read_records(written(tmp_path, ROWS))
    known = sorted({row.source for row in ROWS})
    seen = []
    for seed in range(5):
        parts = split(records, Setting(population="t", heldout_share=0.3), np.random.default_rng(seed))
        for part in (parts.development, parts.heldout, parts.calibration):
            places = sorted({known.index(row.source) for row in flat(rows_in(part))})
            assert places != list(range(places[0], places[-1] + 1))
        seen.append(tuple(parts.development.score.tolist()))
    assert len(set(seen)) == 5


def test_no_development_part_where_none_is_needed(tmp_path: Path) -> None:
    for origin in ("support", "grid"):
        parts = parts_of(tmp_path, thresholds_from=origin, heldout_share=0.2)
        assert len(parts.development) == 0
        assert len(parts.heldout) + len(parts.calibration) == N


def test_splits_and_deals_are_drawn_from_the_seed_alone(tmp_path: Path) -> None:
    """Another privacy, target or policy has the same sites; another seed has not."""
    first = cell_of(tmp_path, **GRID)
    for change in ({"epsilon": 1.0}, {"target_risk": 0.1}, {"policy": "recruit"}, {"dropout": 0.5}):
        assert at_sites(cell_of(tmp_path, **GRID, **change)) == at_sites(first)
    other = build(first.setting, StudyTable(name="t", table="t.csv"), seed=SEED + 1, folder=tmp_path)
    assert at_sites(other) != at_sites(first)


def quantile(values: Sequence[float], level: float) -> float:
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def thresholds(cell: Cell) -> list[float]:
    return list(cell.registration.thresholds.values)


@pytest.mark.parametrize("unit", ["record", "source"])
def test_thresholds_come_from_development_only(tmp_path: Path, unit: str) -> None:
    ways: Ways = {"unit": unit, "thresholds": 4, "heldout_share": 0.2}
    chosen = flat(rows_in(parts_of(tmp_path, **ways).development))
    expected = [quantile([row.score for row in chosen], j / 5) for j in range(1, 5)]
    assert thresholds(cell_of(tmp_path, **ways)) == near(expected)
    elsewhere = [row if row in chosen else row._replace(score=row.score / 3, loss=1 - row.loss) for row in ROWS]
    moved = cell_of(tmp_path, elsewhere, **ways)
    assert thresholds(moved) == near(expected)
    here = [row._replace(score=row.score / 3) if row in chosen else row for row in ROWS]
    assert thresholds(cell_of(tmp_path, here, **ways)) == near([value / 3 for value in expected])
    relabelled = [row._replace(loss=1 - row.loss) for row in ROWS]
    assert thresholds(cell_of(tmp_path, relabelled, **ways)) == near(expected)


def test_thresholds_from_the_support_look_at_no_label(tmp_path: Path) -> None:
    ways: Ways = {"thresholds_from": "support", "thresholds": 7, "heldout_share": 0.3}
    cell = cell_of(tmp_path, **ways)
    chosen = flat(rows_in(parts_of(tmp_path, **ways).calibration))
    assert thresholds(cell) == near([quantile([row.score for row in chosen], j / 8) for j in range(1, 8)])
    losses = [row.loss for row in ROWS]
    random.Random(1).shuffle(losses)
    permuted = cell_of(tmp_path, [row._replace(loss=loss) for row, loss in zip(ROWS, losses, strict=True)], **ways)
    assert thresholds(permuted) == thresholds(cell)
    assert not np.array_equal(permuted.unsupported, cell.unsupported)


def test_thresholds_from_the_support_are_marked_conditional(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    table = '[[populations]]\nname = "t"\ntable = "t.csv"\n[sweep]\n'
    study = read(table + 'thresholds_from = ["development", "support", "grid"]\n')
    assert [each["conditional"] for each in cells(study, tmp_path)] == [False, True, False]


def test_a_public_grid(tmp_path: Path) -> None:
    assert thresholds(cell_of(tmp_path, thresholds_from="grid", thresholds=4)) == near([0.2, 0.4, 0.6, 0.8])


@pytest.mark.parametrize("unit", ["record", "source"])
def test_size_is_the_number_of_units_that_calibrate(tmp_path: Path, unit: str) -> None:
    ways: Ways = {"unit": unit, "heldout_share": 0.2}
    whole, some = parts_of(tmp_path, **ways), parts_of(tmp_path, size=17, **ways)
    assert len(some.calibration) == 17
    assert rows_in(some.development) == rows_in(whole.development)
    assert rows_in(some.heldout) == rows_in(whole.heldout)
    kept, known = ([tuple(members) for members in rows_in(each.calibration)] for each in (some, whole))
    assert len(set(kept)) == 17
    assert set(kept) < set(known)
    assert set(kept) != set(known[:17])  # not those that come first
    cell = cell_of(tmp_path, size=17, sites=3, **ways)
    assert sum(site.law.size for site in cell.sites) == 17
    natural = parts_of(tmp_path, size=17, **ways)
    assert [members[0].site for members in rows_in(natural.calibration)] == ["ABC"[code] for code in natural.site]


def test_a_size_that_the_table_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError):
        cell_of(tmp_path, size=N + 1)


# ---------------------------------------------------------------- partitions


@pytest.mark.parametrize("unit", ["record", "source"])
def test_natural_sites_are_the_table_s(tmp_path: Path, unit: str) -> None:
    cell = cell_of(tmp_path, partition="natural", unit=unit, **GRID)
    for found, name in zip(at_sites(cell), "ABC", strict=True):
        assert {row.site for row in flat(found)} == {name}
        assert sorted(flat(found)) == sorted(row for row in ROWS if row.site == name)
        assert all(len({row.source for row in members}) == 1 for members in found)
    assert [site.name for site in cell.registration.sites] == ["site 1", "site 2", "site 3"]


def test_a_source_at_two_sites_is_refused(tmp_path: Path) -> None:
    """As in a real run: a source that lives at two sites is one unit at neither."""
    twice = max(ROWS, key=lambda row: Counter(each.source for each in ROWS)[row.source])
    rows = [row._replace(site="B" if row.site == "A" else "A") if row == twice else row for row in ROWS]
    with pytest.raises(FedsrcError, match="more than one site"):
        cell_of(tmp_path, rows, partition="natural", unit="source")


@pytest.mark.parametrize("unit", ["record", "source"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [("iid", {}), ("dirichlet", {"beta": 0.3}), ("dirichlet", {"beta": 30.0}), ("log-normal", {"sigma": 1.5})],
)
def test_units_are_dealt_as_asked(tmp_path: Path, unit: str, kind: str, more: dict[str, float]) -> None:
    ways: Ways = {"partition": kind, "unit": unit, "sites": 4, **GRID, **more}
    units, rng = rows_in(parts_of(tmp_path, **ways).calibration), np.random.default_rng([SEED, DEAL])
    if kind == "iid":
        dealt = partition.iid(len(units), 4, rng)
    elif kind == "log-normal":
        dealt = partition.log_normal(len(units), 4, more["sigma"], rng)
    else:
        wrong = np.asarray([int(max(row.loss for row in members) >= 0.5) for members in units])
        dealt = partition.dirichlet(wrong, 4, more["beta"], rng)
    found = [[sorted(members) for members in site] for site in at_sites(cell_of(tmp_path, **ways))]
    assert found == [[sorted(units[i]) for i in positions] for positions in dealt]


def test_partitions_differ_in_what_they_are_named_for(tmp_path: Path) -> None:
    def sites(**ways: Any) -> list[list[Row]]:
        return [flat(each) for each in at_sites(cell_of(tmp_path, sites=3, **GRID, **ways))]

    assert [len(each) for each in sites(partition="iid")] == [40, 40, 40]
    assert [len(each) for each in sites(partition="log-normal", sigma=0.0)] == [40, 40, 40]
    assert max(len(each) for each in sites(partition="log-normal", sigma=2.0)) > 60
    apart = [sum(row.loss for row in each) / len(each) for each in sites(partition="dirichlet", beta=0.1)]
    alike = [sum(row.loss for row in each) / len(each) for each in sites(partition="dirichlet", beta=300.0)]
    assert max(apart) - min(apart) > 0.5 > 0.2 > max(alike) - min(alike)


# ---------------------------------------------------------------- facts


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("unit", ["record", "source"])
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("kind", ["iid", "natural"])
def test_facts_are_the_enumeration(tmp_path: Path, release: str, unit: str, graded: bool, kind: str) -> None:
    rows = made(graded=graded)
    cell = cell_of(tmp_path, rows, release=release, unit=unit, partition=kind, sites=3, **GRID)
    check_facts(cell, at_sites(cell, rows))
    assert cell.registration.privacy.loss_grid == (100 if graded else 1)
    assert cell.binary == (unit == "record" and not graded)
    assert (cell.items, cell.surrogate) == (True, False)


@pytest.mark.parametrize("unit", ["record", "source"])
def test_facts_are_of_calibration_rows_at_development_thresholds(tmp_path: Path, unit: str) -> None:
    ways: Ways = {"partition": "natural", "unit": unit, "thresholds": 5, "heldout_share": 0.2}
    units = rows_in(parts_of(tmp_path, **ways).calibration)
    check_facts(cell_of(tmp_path, **ways), [[u for u in units if u[0].site == name] for name in "ABC"])


def test_sources_of_many_answers_keep_ten(tmp_path: Path) -> None:
    rows = [row._replace(source="q000", site="A") if i < 14 else row for i, row in enumerate(sorted(ROWS))]
    rows = [row._replace(source=row.source + row.site) for row in rows]
    cell = cell_of(tmp_path, rows, unit="source", **GRID)
    assert max(len(members) for site in at_sites(cell, rows) for members in site) == 10
    assert cell.registration.privacy.max_answers == 10
    check_facts(cell, at_sites(cell, rows))


def test_the_law_of_a_site_is_uniform_on_its_units(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, partition="natural", **GRID)
    sizes = Counter(row.site for row in ROWS)
    assert [site.law.tolist() for site in cell.sites] == [[1 / sizes[name]] * sizes[name] for name in "ABC"]


@pytest.mark.parametrize("release", RELEASES)
def test_drift_changes_the_deployment_as_stated(tmp_path: Path, release: str) -> None:
    """The unsupported share among accepted answers, at the lowest threshold, is greater by the drift at every site."""
    ways: Ways = {"partition": "natural", "release": release, "thresholds": 5}
    still, cell = cell_of(tmp_path, **ways), cell_of(tmp_path, drift=0.1, **ways)
    a, z, after = still.acceptance, still.unsupported, cell.unsupported
    np.testing.assert_allclose(cell.acceptance, a, atol=1e-12)
    np.testing.assert_allclose(after[:, 0] / a[:, 0] - z[:, 0] / a[:, 0], 0.1, atol=1e-12)
    flipped = 0.1 * a[:, :1] / (a - z)[:, :1]
    np.testing.assert_allclose(after - z, flipped * (a - z), atol=1e-12)
    np.testing.assert_array_equal(cell.sites[0].masses, still.sites[0].masses)
    assert [site.drift for site in cell.registration.sites] == [0.1] * 3
    assert cell.items


def test_the_declared_drift_covers_the_distance_of_the_laws(tmp_path: Path) -> None:
    """Scores stay and losses flip upwards, so the distance of the laws is the unsupported mass that is added."""
    ways: Ways = {"partition": "natural", "thresholds": 5, "thresholds_from": "grid"}
    still, cell = cell_of(tmp_path, **ways), cell_of(tmp_path, drift=0.1, **ways)
    distance = (cell.unsupported - still.unsupported)[:, 0]
    shift = eta(cell.weights, np.ones(3), np.asarray([site.drift for site in cell.registration.sites]))
    assert 0.05 < float(cell.weights @ distance) <= shift == near(0.1)


def test_moved_weights_change_the_mixture_and_no_site(tmp_path: Path) -> None:
    still, cell = cell_of(tmp_path), cell_of(tmp_path, moved=0.3)
    assert cell.weights.tolist() == near([0.5] + [0.5 / 4] * 4)
    assert list(cell.registration.weights or ()) == cell.weights.tolist()
    np.testing.assert_array_equal(cell.acceptance, still.acceptance)
    np.testing.assert_array_equal(cell.unsupported, still.unsupported)
    assert eta(cell.weights, np.full(5, 7.0), np.zeros(5)) == near(0.3)
    with pytest.raises(FedsrcError, match=r"cannot be moved: the other sites hold 0\.8"):
        cell_of(tmp_path, moved=0.9)


def test_weights_as_calibrated_are_not_declared(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, weights="as calibrated", sites=4)
    assert cell.registration.weights is None
    assert cell.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize("release", RELEASES)
def test_label_noise_changes_what_is_drawn_and_no_fact(tmp_path: Path, release: str) -> None:
    ways: Ways = {"partition": "natural", "release": release, "thresholds": 5}
    clean, cell = cell_of(tmp_path, **ways), cell_of(tmp_path, label_missed=0.3, label_invented=0.1, **ways)
    np.testing.assert_array_equal(cell.acceptance, clean.acceptance)
    np.testing.assert_array_equal(cell.unsupported, clean.unsupported)
    for k, site in enumerate(cell.sites):
        seen = shares(cell.registration, site)
        a, z = clean.acceptance[k], clean.unsupported[k]
        assert [each[0] for each in seen] == near(a)
        assert [each[1] for each in seen] == near(0.7 * z + 0.1 * (a - z))
    assert (clean.items, cell.items) == (True, False)
    assert not cell_of(tmp_path, label_missed=0.3, **ways).items
    assert not cell_of(tmp_path, label_invented=0.1, **ways).items


def test_drift_and_label_noise_need_binary_records(tmp_path: Path) -> None:
    changes: list[Ways] = [{"drift": 0.1}, {"label_missed": 0.1}, {"label_invented": 0.1}]
    for change in changes:
        with pytest.raises(FedsrcError, match="single answers with loss 0 or 1"):
            cell_of(tmp_path, unit="source", **change)
        graded = "single answers with loss 0 or 1" if "drift" in change else "has graded losses"
        with pytest.raises(FedsrcError, match=graded):
            cell_of(tmp_path, made(graded=True), **change)


@pytest.mark.parametrize("unit", ["record", "source"])
def test_held_out_answers_are_counted(tmp_path: Path, unit: str) -> None:
    ways: Ways = {"unit": unit, "thresholds_from": "grid", "thresholds": 11, "heldout_share": 0.3}
    rows = made(graded=True)
    cell = cell_of(tmp_path, rows, **ways)
    apart = flat(rows_in(parts_of(tmp_path, rows, **ways).heldout, rows))
    assert cell.heldout is not None
    for j, threshold in enumerate(thresholds(cell)):
        accepted = [row.loss for row in apart if row.score >= threshold]
        assert any(row.score == threshold for row in rows)
        assert cell.heldout[:, j].tolist() == near([len(accepted), sum(accepted)])
    assert cell_of(tmp_path, thresholds=6).heldout is None


@pytest.mark.parametrize("unit", ["record", "source"])
def test_the_auc_is_that_of_the_answers_that_calibrate(tmp_path: Path, unit: str) -> None:
    ways: Ways = {"unit": unit, "heldout_share": 0.3}
    rows = [row._replace(score=round(row.score, 1)) for row in ROWS]  # with ties, which count half
    chosen = flat(rows_in(parts_of(tmp_path, **ways).calibration))
    right, wrong = ([round(row.score, 1) for row in chosen if row.loss == loss] for loss in (0.0, 1.0))
    pairs = [(a > b) + (a == b) / 2 for a in right for b in wrong]
    assert cell_of(tmp_path, rows, **ways).auc == near(sum(pairs) / len(pairs))
    assert cell_of(tmp_path, made(graded=True), **ways).auc is None


@pytest.mark.parametrize("setting", [{}, {"moved": 0.4}, {"weights": "as calibrated"}, {"drift": 0.05}])
def test_the_oracle_floor_is_the_least_risk_with_enough_acceptance(tmp_path: Path, setting: Ways) -> None:
    cell = cell_of(tmp_path, min_acceptance=0.25, partition="natural", thresholds_from="grid", **setting)
    risks = []
    for j in range(len(thresholds(cell))):
        a, z = (sum(w * x for w, x in zip(cell.weights, facts[:, j], strict=True)) for facts in facts_of(cell))
        risks += [z / a] if a >= 0.25 else []
    assert 2 < len(risks) < 20
    assert cell.oracle_floor() == near(min(risks))


def facts_of(cell: Cell) -> tuple[Any, Any]:
    return cell.acceptance, cell.unsupported


def test_no_threshold_with_enough_acceptance_has_no_floor(tmp_path: Path) -> None:
    grid: Ways = {"thresholds_from": "grid", "thresholds": 1}
    assert math.isnan(cell_of(tmp_path, min_acceptance=0.9, **grid).oracle_floor())


# ---------------------------------------------------------------- registrations


def test_the_registration_is_the_setting_s(tmp_path: Path) -> None:
    cell = cell_of(
        tmp_path, target_risk=0.15, min_acceptance=0.07, failure_probability=0.02, epsilon=2.0, delta=1e-5, batch=11,
        rounds=13, policy="final", drift=0.03, sites=2,
    )  # fmt: skip
    reg = cell.registration
    assert (reg.claim.target_risk, reg.claim.min_acceptance, reg.claim.failure_probability) == (0.15, 0.07, 0.02)
    assert (reg.privacy.epsilon, reg.privacy.delta, reg.privacy.unit) == (2.0, 1e-5, "record")
    assert (reg.schedule.batch, reg.schedule.rounds, reg.schedule.policy) == (11, 13, "final")
    assert reg.weights == (0.5, 0.5)
    assert reg.certificate.spent == near(0.02)
    assert math.fsum(reg.thresholds.weights) == near(1)
    assert Registration.model_validate(reg.model_dump()) == reg


def test_releases_are_those_of_the_presets(tmp_path: Path) -> None:
    for release, encoding, basis, conversion in [
        ("paper", "paired", "bins", "paper"),
        ("default", "complementary", "suffix", "tight"),
    ]:
        reg = cell_of(tmp_path, release=release).registration
        assert (reg.histograms.kind, reg.histograms.basis, reg.privacy.conversion) == (encoding, basis, conversion)


def test_matched_recruitment_has_as_many_releases(tmp_path: Path) -> None:
    def rounds(**setting: Any) -> int:
        return cell_of(tmp_path, rounds=6, **setting).registration.schedule.rounds

    assert rounds(policy="recruit") == rounds(policy="first", matched=True) == rounds(policy="final", matched=True) == 6
    assert rounds(policy="recruit", matched=True) == 30
    assert rounds(policy="recruit", matched=True, sites=4) == 24
    assert rounds(policy="recruit", matched=True, partition="natural") == 18


NO_CELL: list[tuple[Ways, str]] = [
    ({"development_share": 0.6, "heldout_share": 0.6}, "no units are left to calibrate with"),
    ({"development_share": 0.001}, "no units are set apart for the thresholds"),
    ({"sites": 200}, "too few for 200 sites"),
    ({"drift": 0.9}, "cannot change by"),
]


@pytest.mark.parametrize(("setting", "what"), NO_CELL)
def test_cells_that_cannot_be_are_refused(tmp_path: Path, setting: Ways, what: str) -> None:
    with pytest.raises(FedsrcError, match=what):
        cell_of(tmp_path, **setting)


def test_sources_need_a_source_column(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="needs a source column"):
        cell_of(tmp_path, ROWS, "source", unit="source")


def test_a_population_may_be_some_rows_of_a_table(tmp_path: Path) -> None:
    """Rows are chosen by columns of any kind, missing values choose nothing, and every score has its column."""
    frame = pl.DataFrame(ROWS, schema=Row._fields, orient="row")
    frame = frame.with_columns(
        pl.Series("task", [("a", "b", None)[i % 3] for i in range(N)]), pl.Series("year", [i % 2 for i in range(N)]),
        (1 - pl.col("score")).alias("other"),
    )  # fmt: skip
    frame.write_parquet(tmp_path / "t.parquet")

    def cell(**names: Any) -> Cell:
        population = StudyTable(name="t", table="t.parquet", **names)
        setting = Setting(population="t", partition="natural", **GRID)
        return build(setting, population, seed=SEED, folder=tmp_path)

    chosen = [row for i, row in enumerate(ROWS) if i % 3 == 0 and i % 2 == 1]
    found = at_sites(cell(where={"task": "a", "year": "1"}))
    assert sorted(row for site in found for row in flat(site)) == sorted(chosen)
    assert [{row.site for row in flat(site)} for site in found] == [{"A"}, {"B"}, {"C"}]
    mirrored = [[[row._replace(score=1 - row.score) for row in unit] for unit in site] for site in at_sites(cell())]
    check_facts(cell(score="other"), mirrored)
    for names, what in [({"where": {"task": "z"}}, "no row is left"), ({"where": {"z": "a"}}, "no column 'z'")]:
        with pytest.raises(FedsrcError, match=what):
            cell(**names)
    with pytest.raises(FedsrcError, match="no column 'z'"):
        cell(score="z")


def demo(demo: str, *, score: str = "lift", **setting: Any) -> Cell:
    population = Demo(name="d", demo=demo, score=score)
    return build(Setting(population="d", thresholds=3, **setting), population, seed=0, folder=Path())


def test_embedded_tables() -> None:
    cell = demo("qa", thresholds_from="grid")
    assert (cell.surrogate, cell.items, cell.binary, len(cell.sites)) == (False, True, True, 5)
    assert sum(site.law.size for site in cell.sites) == score_table("qa").height
    with pytest.raises(FedsrcError, match="there is no embedded table 'poems'"):
        demo("poems")
    with pytest.raises(FedsrcError, match="no score 'guess'"):
        demo("qa", score="guess")


def test_all_embedded_tables_are_a_site_each() -> None:
    cell = demo("all", partition="natural", thresholds_from="grid")
    sizes = [score_table(task).height for task in TASKS]
    assert [site.law.size for site in cell.sites] == sizes
    sources = demo("all", partition="natural", thresholds_from="grid", unit="source")
    assert [site.law.size for site in sources.sites] == [score_table(task)["source"].n_unique() for task in TASKS]
    for k, task in enumerate(TASKS):
        frame = score_table(task).filter(pl.col("lift") >= 0.5)
        facts = (cell.acceptance[k, 1], cell.unsupported[k, 1])
        assert facts == near((frame.height / sizes[k], float(frame["loss"].sum()) / sizes[k]))


# ---------------------------------------------------------------- laws at the boundary


Law = dict[tuple[tuple[int, ...], ...], float]


def law_of(site: Support) -> Law:
    """Probability of each atom, alike ones together."""
    law: Law = defaultdict(float)
    for atom, probability in zip(site.masses.tolist(), site.law.tolist(), strict=True):
        law[tuple(map(tuple, atom))] += probability
    return law


def shares(registration: Registration, site: Support) -> list[tuple[float, float]]:
    """Accepted and unsupported share at each threshold, atom by atom."""
    grid, paired = registration.privacy.mass_grid, registration.histograms.kind == "paired"
    found = []
    for j in range(1, len(registration.thresholds.values) + 1):
        a = z = 0.0
        for (first, second), probability in law_of(site).items():
            z += probability * sum(second[j:]) / grid
            a += probability * (sum(first[j:]) + (0 if paired else sum(second[j:]))) / grid
        found.append((a, z))
    return found


def boundary_cell(*, spread: float = 0.0, answers: int = 1, graded: bool = False, **setting: Any) -> Cell:
    population = Boundary.model_validate(
        {"name": "b", "boundary": True, "spread": spread, "answers": answers, "graded": graded}
    )
    ways: Ways = {"thresholds": 4, "unit": "source" if answers > 1 else "record", **setting}
    return build(Setting(population="b", **ways), population, seed=0, folder=Path())


VARIANTS: dict[str, Ways] = {
    "homogeneous": {},
    "one site": {"sites": 1, "spread": 0.1},
    "heterogeneous": {"spread": 0.15},
    "even number of sites": {"spread": 0.15, "sites": 4},
    "another target": {"spread": 0.1, "target_risk": 0.1},
    "moved weight": {"spread": 0.15, "moved": 0.05},
    "much moved weight": {"spread": 0.15, "moved": 0.35},
    "drift": {"drift": 0.005},
    "drift and spread": {"spread": 0.15, "drift": 0.005},
    "drift and moved weight": {"spread": 0.15, "drift": 0.005, "moved": 0.1},
    "graded": {"graded": True},
    "graded and spread": {"graded": True, "spread": 0.15, "moved": 0.1},
    "two answers": {"answers": 2, "spread": 0.1},
    "four answers": {"answers": 4, "moved": 0.1, "spread": 0.1},
    "six answers": {"answers": 6, "spread": 0.1},
}


def both_laws(cell: Cell, variant: Ways) -> boundary.Laws:
    return boundary.laws(
        cell.registration, spread=variant.get("spread", 0.0), graded=variant.get("graded", False),
        drift=variant.get("drift", 0.0),
    )  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_deployed_risk_is_the_target_at_every_threshold(name: str, release: str) -> None:
    variant = VARIANTS[name]
    cell = boundary_cell(release=release, **variant)
    deployed = [shares(cell.registration, site) for site in both_laws(cell, variant).deployed]
    target, bins = cell.setting.target_risk, 5
    for j in range(4):
        a, z = (sum(w * site[j][i] for w, site in zip(cell.weights, deployed, strict=True)) for i in (0, 1))
        assert a == near((bins - 1 - j) / bins)
        assert z == near(target * a)
        for k, site in enumerate(deployed):
            assert (cell.acceptance[k, j], cell.unsupported[k, j]) == near(site[j])
    assert all(min(site.law) >= 0 and math.fsum(site.law) == near(1) for site in cell.sites)
    assert (cell.surrogate, cell.items, cell.heldout) == (True, False, None)
    assert cell.binary == (variant.get("answers", 1) == 1 and not variant.get("graded", False))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", VARIANTS)
def test_calibration_is_better_by_exactly_the_drift(name: str, release: str) -> None:
    """At each site the laws are the declared drift apart, and the contrast shows all of it at every threshold."""
    variant = VARIANTS[name]
    cell, drift = boundary_cell(release=release, **variant), variant.get("drift", 0.0)
    laws = both_laws(cell, variant)
    for k, (before, after) in enumerate(zip(laws.calibrated, laws.deployed, strict=True)):
        p, q = law_of(before), law_of(after)
        assert sum(abs(p.get(atom, 0.0) - q.get(atom, 0.0)) for atom in {*p, *q}) / 2 == near(drift)
        assert law_of(cell.sites[k]) == p
        seen, true = shares(cell.registration, before), shares(cell.registration, after)
        assert [z for _, z in seen] == near([z - drift for _, z in true])
        assert [a for a, _ in seen] == near([a for a, _ in true])
        assert cell.registration.sites[k].drift == drift


def test_sites_lie_as_far_from_the_target_as_asked() -> None:
    def risks(**ways: Any) -> list[float]:
        cell = boundary_cell(**ways)
        return [float(z[0] / a[0]) for a, z in zip(cell.acceptance, cell.unsupported, strict=True)]

    assert risks(spread=0.15) == near([0.35, 0.05, 0.35, 0.05, 0.2])
    assert risks(spread=0.15, sites=4) == near([0.35, 0.05, 0.35, 0.05])
    assert risks(spread=0.15, sites=1) == near([0.2])
    assert risks(spread=0.15, moved=0.05) == near([0.35] + [0.15] * 4)  # a quarter of the weight lies 0.15 above
    assert risks(spread=0.15, moved=0.1, answers=2) == near([0.35] + [0.2 - 0.15 * 3 / 7] * 4)


def test_graded_losses_are_graded() -> None:
    for release in RELEASES:
        cell = boundary_cell(graded=True, release=release)
        grid = cell.registration.privacy.mass_grid
        found: dict[int, float] = defaultdict(float)
        for (_, second), probability in law_of(cell.sites[0]).items():
            found[sum(second)] += probability
        assert found == {0: near(0.7), grid // 2: near(0.2), grid: near(0.1)}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("answers", [2, 4, 6])
def test_half_of_the_sources_agree_with_themselves(answers: int, release: str) -> None:
    """Both halves fall into one bin with one loss in half of the sources, and by chance in the others."""
    cell = boundary_cell(answers=answers, release=release)
    single = [0.8 / 5] * 5 + [0.2 / 5] * 5
    grid = cell.registration.privacy.mass_grid
    whole = 0.0
    for (first, second), probability in law_of(cell.sites[0]).items():
        count = first if release == "paper" else [a + b for a, b in zip(first, second, strict=True)]
        assert sum(count) == grid
        whole += probability * (grid in count and sum(second) in (0, grid))
    assert whole == near(0.5 + 0.5 * sum(p * p for p in single))
    assert cell.registration.privacy.max_answers == answers


def test_a_boundary_has_no_negative_probabilities() -> None:
    """With most of the weight on a bad first site, no risk of the others brings the mixture to the target."""
    for more in ({"graded": True}, {"answers": 2}, {}):
        with pytest.raises(FedsrcError, match=r"leave \[0, 1\]"):
            boundary_cell(spread=0.15, moved=0.5, **more)


def test_a_boundary_with_all_weight_on_one_site() -> None:
    """The first site alone is deployed: it is at the target, or there is no such boundary."""
    cell = boundary_cell(moved=0.8)
    assert cell.unsupported[0] == near(0.2 * cell.acceptance[0])
    with pytest.raises(FedsrcError):
        boundary_cell(moved=0.8, spread=0.1)


def test_graded_sources_are_graded_or_refused() -> None:
    try:
        cell = boundary_cell(graded=True, answers=2)
    except FedsrcError:
        return
    assert len({sum(second) for _, second in law_of(cell.sites[0])}) > 3  # more than both, one or no half unsupported


NO_BOUNDARY: list[tuple[Ways, str]] = [
    ({"spread": 0.25}, r"risks 0\.25 from the target 0\.2 leave \[0, 1\]"),
    ({"drift": 0.05}, "more than the top bin's unsupported mass"),
    ({"drift": 0.001, "graded": True}, "drift at the boundary is for records with losses 0 and 1"),
    ({"drift": 0.001, "answers": 2}, "drift at the boundary is for records with losses 0 and 1"),
    ({"graded": True, "target_risk": 0.7}, "need a mean of at most 2/3"),
    ({"answers": 2, "unit": "record"}, "is made of sources"),
    ({"unit": "source"}, "is made of records"),
    ({"partition": "natural"}, "no partition and no end"),
    ({"draw": "once"}, "no partition and no end"),
]


@pytest.mark.parametrize(("ways", "what"), NO_BOUNDARY)
def test_boundaries_that_cannot_be_are_refused(ways: Ways, what: str) -> None:
    with pytest.raises(FedsrcError, match=what):
        boundary_cell(**ways)


# ---------------------------------------------------------------- surrogates


def printed_cell(acceptance: Sequence[float], risk: Sequence[float], **setting: Any) -> Cell:
    population = Printed(name="p", acceptance=tuple(acceptance), risk=tuple(risk), about="")
    return build(Setting(population="p", **setting), population, seed=0, folder=Path())


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("acceptance", "risk"),
    [
        ((0.9, 0.5, 0.2), (0.4, 0.3, 0.1)),
        ((1.0, 1.0, 0.3), (0.5, 0.5, 1.0)),
        ((0.05,), (0.0,)),
        ((0.3, 0.0), (0.2, 0.0)),
    ],
)
def test_a_printed_law_has_the_printed_acceptance_and_risk(
    acceptance: tuple[float, ...], risk: tuple[float, ...], release: str
) -> None:
    cell = printed_cell(acceptance, risk, release=release, sites=3)
    unsupported = [a * r for a, r in zip(acceptance, risk, strict=True)]
    assert len(cell.sites) == 3
    for k, site in enumerate(cell.sites):
        found = shares(cell.registration, site)
        assert [a for a, _ in found] == near(acceptance)
        assert [z for _, z in found] == near(unsupported)
        assert (cell.acceptance[k].tolist(), cell.unsupported[k].tolist()) == (near(acceptance), near(unsupported))
    assert (cell.surrogate, cell.items, cell.binary, cell.heldout) == (True, False, True, None)


def test_what_a_printed_law_rejects_is_unsupported() -> None:
    cell = printed_cell((0.6, 0.2), (0.1, 0.1))
    rejected = {second[0]: p for (_, second), p in law_of(cell.sites[0]).items() if not any(second[1:]) and p}
    assert rejected[1] == near(0.4)


def test_impossible_prints_are_refused() -> None:
    for acceptance, risk in [
        ((1.1,), (0.5,)),
        ((0.5, 0.6), (0.5, 0.1)),  # acceptance rises
        ((0.5, 0.4), (0.1, 0.2)),  # unsupported mass rises
        ((0.5, 0.4), (0.5, 0.1)),  # more is lost than was accepted
        ((0.5,), (1.2,)),
        ((0.5,), (-0.1,)),
    ]:
        with pytest.raises(FedsrcError, match="no law has that acceptance and risk"):
            printed_cell(acceptance, risk)
    with pytest.raises(FedsrcError, match="no partition and no end"):
        printed_cell((0.5,), (0.1,), draw="once")
    with pytest.raises(ValueError, match="one acceptance and one risk per threshold"):
        Printed(name="p", acceptance=(0.5,), risk=(0.1, 0.2), about="")


@pytest.mark.parametrize(("unsupported", "auc"), [(0.3, 0.9), (0.67, 0.631), (0.5, 0.5)])
def test_a_binormal_has_its_share_and_nearly_its_auc(unsupported: float, auc: float) -> None:
    """The standard deviation of this AUC is about 0.004."""
    records = binormal(Binormal(name="n", records=20_001, unsupported=unsupported, auc=auc, seed=2, about=""))
    wrong = round(unsupported * 20_001)
    assert Counter(records.loss.tolist()) == {1.0: wrong, 0.0: 20_001 - wrong}
    ordered = sorted(zip(records.score.tolist(), records.loss.tolist(), strict=True))
    below = pairs = 0
    for _, loss in ordered:
        below, pairs = below + (loss == 1), pairs + (below if loss == 0 else 0)
    assert pairs / (wrong * (20_001 - wrong)) == pytest.approx(auc, abs=0.01)
    assert 0 < ordered[0][0] < ordered[-1][0] < 1


def test_binormal_cells_are_surrogates_with_units() -> None:
    def cell(**changes: Any) -> Cell:
        values = {"name": "n", "records": 400, "unsupported": 0.4, "auc": 0.8, "about": "", **changes}
        population: Population = Binormal.model_validate(values)
        return build(Setting(population="n", thresholds=4), population, seed=0, folder=Path())

    first = cell()
    assert (first.surrogate, first.items, sum(site.law.size for site in first.sites)) == (True, True, 320)
    assert cell().registration.thresholds == first.registration.thresholds != cell(seed=1).registration.thresholds
