"""Claims of groups in a study: as the product decides, on facts of the groups, and false no more often than allowed.

Chance of a false alarm: seeds are fixed, so none; counts are held to the 1e-6 point of their binomial law.
Mutants killed: groups in another order or one group's masses in another's block, thresholds of all answers in place of
a group's own, releases encoded at thresholds that are not registered, a plan made on all groups' units, facts of all
the traffic, a threshold for all groups with the mean risk or with one group's acceptance, shares of a group taken of
all the traffic, a run that stops at its first group, a false group that goes unseen behind a true one, groups left out
of what a filter keeps, budgets that are not split, a boundary whose groups are off the target where sites differ or
are tied to groups, good groups that are as bad as the bad one, a withheld release that is told by one group.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, norm

from fedsrc.audit.cell import SPLIT, Cell, build, split
from fedsrc.audit.engine import run_study
from fedsrc.audit.events import happen
from fedsrc.audit.evidence import exact
from fedsrc.audit.looks import looks
from fedsrc.audit.methods import METHODS
from fedsrc.audit.methods.setting import Verdict
from fedsrc.audit.outcomes import Block, rows
from fedsrc.audit.page import page
from fedsrc.audit.study import Binormal, Boundary, Demo, Population, Printed, Setting, Study, StudyTable
from fedsrc.audit.study_records import records_of
from fedsrc.audit.summary import summarise
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.registration import Registration
from fedsrc.records.columns import Columns
from fedsrc.records.table import read_records
from fedsrc.server import bounds
from fedsrc.server.stopping import gains_little

SEED = (5, 0)
READS = {"registered releases"}
TABLE = StudyTable(name="p", table="t.csv", group="ward")


def cell_of(population: Population, folder: Path = Path(), **setting: Any) -> Cell:
    given = {"release": "default", "adjacency": "replacement", "epsilon": 4.0, "sites": 2, **setting}
    return build(Setting(population="p", **given), population, seed=1, folder=folder)


def at_boundary(**fields: Any) -> Boundary:
    return Boundary(name="p", boundary=True, **fields)


def block_of(cell: Cell, trials: int = 40) -> Block:
    return Block(cell, happen(cell, trials=trials, seed=SEED, reads=READS), SEED)


def judged(cell: Cell, trials: int) -> pl.DataFrame:
    return rows(block_of(cell, trials), cell.setting.policy, ("registered",), first=0)


def write_table(folder: Path, answers: int = 1) -> pl.DataFrame:
    """Write answers of three wards whose scores and risks differ; sources have answers of several."""
    rng, n = np.random.default_rng(3), 1800
    ward = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    score = np.round(rng.beta(2 + ward, 2, n), 4)
    loss = (rng.random(n) < np.array([0.5, 0.35, 0.25])[ward] * (1.05 - score)).astype(float)
    found = pl.DataFrame({
        "source": np.arange(n) // answers, "score": score, "loss": loss, "ward": np.array(["b", "a", "c"])[ward],
    })  # fmt: skip
    found.write_csv(folder / "t.csv")
    return found


# ---------------------------------------------------------------- as the product decides

KINDS: dict[str, dict[str, Any]] = {
    "each": {"groups": "each"},
    "all": {"groups": "all"},
    "each, sealed": {"groups": "each", "certificate": "sealed"},
    "all, sealed": {"groups": "all", "certificate": "sealed"},
    "each, open": {"groups": "each", "certificate": "open"},
    "each, within": {"groups": "each", "group_floor": "group"},
    "all, within, planned": {"groups": "all", "group_floor": "group", "certificate": "sealed"},
    "sources in shares": {"groups": "each", "unit": "source", "encoding": "moments"},
    "sources whole": {"groups": "each", "unit": "source", "group_span": "whole", "certificate": "sealed"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_decides_as_a_real_run(kind: str, tmp_path: Path) -> None:
    """Without noise and with all units in one round, a real run on the same units has one outcome."""
    write_table(tmp_path, answers=3 if "unit" in KINDS[kind] else 1)
    more = {"epsilon": math.inf, "sites": 1, "draw": "once", "batch": 2000, "rounds": 1, "thresholds": 6}
    cell = cell_of(TABLE, tmp_path, target_risk=0.3, **more, **KINDS[kind])
    found, m = block_of(cell, 2).judged(METHODS["registered"]), len(cell.registration.thresholds.values)
    units = split(records_of(TABLE, tmp_path), cell.setting, np.random.default_rng([1, SPLIT])).calibration
    assert units.group is not None
    names = np.asarray(units.group_names)[units.group]
    frame = pl.DataFrame({"score": units.score, "loss": units.loss, "group": names})
    owner = np.repeat(units.ids or np.arange(len(units)).astype(str), np.diff(units.start))
    frame.with_columns(source=owner).write_csv(tmp_path / "c.csv")
    records = read_records(tmp_path / "c.csv", columns=Columns(group="group")).at("site 1")
    made = certify_table(cell.played, records, tmp_path / "run", tmp_path / "ledger", Key.generate())
    assert made.panel is not None
    assert (made.status, [each.name for each in made.panel.members]) == ("CERTIFIED", ["a", "b", "c"])
    asked = (cell.setting.groups, cell.setting.group_floor, cell.setting.group_span)
    assert (made.panel.claim, made.panel.floor, made.panel.span) == asked
    own = made.thresholds or tuple(row for each in made.panel.members for row in each.thresholds)
    assert found.certified.shape[-1] == (3 * m if cell.setting.groups == "each" else m)
    assert len(own) == len(cell.kept)
    for name in ("certified", "risk_upper", "acceptance_lower"):
        real = [getattr(each, name) for each in own]
        np.testing.assert_array_equal(getattr(found, name)[:, 0, cell.kept], [real, real])
    values = np.concatenate([each.values for each in cell.registration.cuts])
    np.testing.assert_array_equal(values[cell.kept], [each.threshold for each in own])
    assert found.certified.sum() == 2 * sum(each.certified for each in own)


def test_groups_have_thresholds_of_their_own(tmp_path: Path) -> None:
    """Quantiles of the development answers of each; one threshold for all of them is a quantile of all."""
    write_table(tmp_path)
    for kind, level in itertools.product(("each", "all"), ("traffic", "group")):
        cell = cell_of(TABLE, tmp_path, groups=kind, group_floor=level, thresholds=4)
        part = split(records_of(TABLE, tmp_path), cell.setting, np.random.default_rng([1, SPLIT])).development
        assert part.group is not None
        for i, cut in enumerate(cell.registration.cuts):
            mine = part.score[part.group == i] if kind == "each" else part.score
            exact_ones = np.unique(np.quantile(mine, [0.2, 0.4, 0.6, 0.8])).tolist()
            assert list(cut.values) == ([0.0] if level == "group" else []) + exact_ones
        assert len(cell.registration.cuts) == 3


def test_a_noised_release_holds_every_group(tmp_path: Path) -> None:
    write_table(tmp_path)
    more = {"thresholds_from": "noised", "thresholds": 5, "epsilon": 20.0}
    each, every = (cell_of(TABLE, tmp_path, groups=kind, **more) for kind in ("each", "all"))
    assert each.release is not None
    assert each.release.blocks == ("a", "b", "c")
    assert [cut.values for cut in each.registration.cuts] == [each.release.thresholds(5, i) for i in range(3)]
    assert len({cut.values for cut in each.registration.cuts}) == 3
    assert every.release is not None
    assert every.registration.thresholds.values == every.release.thresholds(5)
    planned = cell_of(TABLE, tmp_path, groups="each", certificate="sealed", **more)
    assert planned.development is not None
    assert replace(planned, development=planned.development[:1]).played == planned.played
    assert planned.release is not None
    first, second, n = planned.release.first, planned.release.second, 2 * len(planned.release.grid)
    worse = planned.release.model_copy(update={"first": first[:n] + second[n:], "second": second[:n] + first[n:]})
    found = [replace(planned, release=each).played.groups for each in (planned.release, worse)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].shares[2] > found[1].shares[2]


def test_a_plan_knows_every_group_by_itself(tmp_path: Path) -> None:
    """Where one group's development units change, its own thresholds or bets do."""
    write_table(tmp_path)
    cell = cell_of(TABLE, tmp_path, groups="each", certificate="open", epsilon=math.inf, thresholds=4)
    assert cell.development is not None
    worse = cell.development.copy()
    worse[:, 2, 1] += worse[:, 2, 0]
    worse[:, 2, 0] = 0
    before, after = cell.played, replace(cell, development=worse).played
    methods = [each.certificate for each in (before, after) if isinstance(each.certificate, Betting)]
    priors = [np.array_split(np.asarray(each.bets.priors), 3) for each in methods]
    assert after.groups is not None
    assert before.groups is not None
    assert after.groups.shares[2] < before.groups.shares[2]
    assert not np.array_equal(priors[0][2], priors[1][2])


# ---------------------------------------------------------------- facts


def by_hand(frame: pl.DataFrame, cell: Cell) -> tuple[list[float], list[float]]:
    """Return acceptance and risk, row after row, of the records that calibrate."""
    n, found = frame.height, []
    for name, cut in zip(("a", "b", "c"), cell.registration.cuts, strict=True):
        mine = [(s, x) for s, x, w in frame.select("score", "loss", "ward").iter_rows() if w == name]
        for value in cut.values:
            losses = [x for s, x in mine if s >= value]
            found.append((len(losses), sum(losses), len(mine)))
    within = cell.setting.group_floor == "group"
    m = len(cell.registration.thresholds.values)
    a = [count / (size if within else n) for count, _, size in found]
    risk = [bad / count if count else 0.0 for count, bad, _ in found]
    if cell.setting.groups == "each":
        return a, risk
    return [min(a[j::m]) if within else sum(a[j::m]) for j in range(m)], [max(risk[j::m]) for j in range(m)]


@pytest.mark.parametrize("kind", ["each", "all"])
@pytest.mark.parametrize("level", ["traffic", "group"])
def test_facts_are_those_of_the_groups(kind: str, level: str, tmp_path: Path) -> None:
    frame = write_table(tmp_path)
    cell = cell_of(TABLE, tmp_path, groups=kind, group_floor=level, thresholds_from="grid", thresholds=5, sites=3,
                   weights="equal")  # fmt: skip
    a, risk = by_hand(frame, cell)
    facts = block_of(cell, 2).facts
    np.testing.assert_allclose(facts.acceptance, a, atol=1e-9)
    np.testing.assert_allclose(facts.risk, risk, atol=1e-9)
    able = [each for each, share in zip(risk, a, strict=True) if share >= 0.05]
    assert cell.oracle_floor() == pytest.approx(min(able), abs=1e-9)


def test_a_filter_keeps_the_groups_of_its_rows(tmp_path: Path) -> None:
    frame = write_table(tmp_path).with_columns(kept=(pl.col("source") % 2).cast(pl.Int32))
    frame.filter(pl.col("ward") == "a").head(9).with_columns(kept=pl.lit(2, dtype=pl.Int32)).vstack(frame).write_csv(
        tmp_path / "t.csv"
    )
    odd = TABLE.model_copy(update={"where": {"kept": "1"}})
    cell = cell_of(odd, tmp_path, groups="each", thresholds_from="grid", thresholds=3, sites=1)
    mine = frame.filter(pl.col("kept") == 1)
    np.testing.assert_allclose(cell.facts(cell.weights).acceptance, by_hand(mine, cell)[0], atol=1e-9)
    few = TABLE.model_copy(update={"where": {"kept": "2"}})
    alone = cell_of(few, tmp_path, groups="each", thresholds_from="grid", thresholds=3, sites=1)
    assert alone.registration.block_names == ("a",)


def test_embedded_tables_are_groups() -> None:
    cell = cell_of(Demo(name="p", demo="all", score="lift"), groups="each", thresholds=2, size=3000)
    assert cell.registration.block_names == ("qa", "dialogue", "summarization")
    share = np.array([each[:, i].any(axis=(1, 2)).sum() for each in (s.masses for s in cell.sites) for i in range(3)])
    np.testing.assert_allclose(share.reshape(-1, 3).sum(axis=0) / 3000, [20 / 44, 20 / 44, 4 / 44], atol=0.04)


# ---------------------------------------------------------------- at the boundary

LONG: dict[str, Any] = {"batch": 400, "rounds": 6, "thresholds": 3, "min_acceptance": 0.005, "failure_probability": 0.2}
FALSE: dict[str, tuple[Boundary, dict[str, Any]]] = {
    "each": (at_boundary(groups=20), {"groups": "each"}),
    "each, tied to sites, recruited": (
        at_boundary(groups=3, tied=0.8, spread=0.1),
        {"groups": "each", "policy": "recruit", "matched": True, "sites": 4},
    ),
    "each, sealed": (at_boundary(groups=6), {"groups": "each", "certificate": "sealed"}),
    "each, as calibrated": (at_boundary(groups=6), {"groups": "each", "weights": "as calibrated"}),
    "each, withheld": (at_boundary(groups=3), {"groups": "each", "withheld": 0.3}),
    "one of twenty": (at_boundary(groups=20, bad=1, promised=0.1), {"groups": "each"}),
    "all, one of six": (at_boundary(groups=6, bad=1, promised=0.0), {"groups": "all", "epsilon": math.inf}),
    "all, sealed, one of six": (at_boundary(groups=6, bad=1, promised=0.0), {"groups": "all", "certificate": "sealed"}),
    "sources": (at_boundary(groups=3, answers=4), {"groups": "each", "unit": "source", "encoding": "moments"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_at_the_boundary(name: str) -> None:
    """Of any group, at any look, together."""
    population, setting = FALSE[name]
    cell = cell_of(population, **{**LONG, **({"rounds": 2} if "certificate" in setting else {}), **setting})
    assert false_claims(cell, 150) <= binom.isf(1e-6, 150, 0.2)


def false_claims(cell: Cell, trials: int) -> int:
    """Count trials in which any row with a risk at the target is ever shown to be below it."""
    block = block_of(cell, trials)
    shown = block.judged(METHODS["registered"]).risk_upper <= cell.setting.target_risk
    wrong = np.asarray((shown & (block.facts.risk >= cell.setting.target_risk - 1e-9)).any(axis=(1, 2)))
    found = rows(block, "final", ("registered",), first=0)["at_boundary"].to_numpy()
    assert not (found & ~wrong).any()
    return int(wrong.sum())


def test_false_claims_where_the_budget_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above says nothing: the first of its settings, every row with the whole budget."""
    own = bounds.plan_of

    def whole(registration: Registration) -> bounds.Plan:
        found = own(registration)
        return replace(found, weights=(1.0,) * len(found.weights))

    monkeypatch.setattr(bounds, "plan_of", whole)
    assert false_claims(cell_of(at_boundary(groups=20), groups="each", **LONG), 150) > binom.isf(1e-6, 150, 0.2)


def test_groups_lie_at_the_boundary() -> None:
    """Every bad group at every threshold, whatever sites and groups have to do with each other."""
    for tied, spread, moved in itertools.product((0.0, 0.6), (0.0, 0.05), (0.0, 0.3)):
        law = at_boundary(groups=3, bad=2, promised=0.25, tied=tied, spread=spread)
        cell = cell_of(law, groups="each", sites=4, moved=moved, thresholds=4)
        risk = cell.facts(cell.weights).risk.reshape(3, 4)
        np.testing.assert_allclose(risk[:2], 0.2, atol=1e-12)
        np.testing.assert_allclose(risk[2], 0.05, atol=1e-12)
        own = np.array([site.law @ site.masses.sum(axis=(2, 3)) for site in cell.sites])
        np.testing.assert_allclose(own, [[(1 - tied) / 3 + tied * (k % 3 == g) for g in range(3)] for k in range(4)])
        apart = np.ptp([cell.unsupported[k, 0] / cell.acceptance[k, 0] for k in range(4)])
        assert apart >= spread
    pooled = cell_of(at_boundary(groups=4, bad=1, promised=0.5), thresholds=4)
    np.testing.assert_allclose(pooled.facts(pooled.weights).risk, 0.2 / 4 + 0.1 * 3 / 4)
    every = cell_of(at_boundary(groups=4, bad=1, promised=0.5), groups="all", thresholds=4)
    np.testing.assert_allclose(every.facts(every.weights).risk, 0.2)
    assert every.development is not None
    assert every.development.shape == (800, 4, 2, 5)
    np.testing.assert_allclose(every.development[..., 1, :].sum() / 800, 0.1, atol=0.04)


# ---------------------------------------------------------------- one group, and several


def as_one(cell: Cell, **changes: Any) -> Cell:
    """Return the same cell with one claim on all the traffic, of the target alone."""
    plain = cell_of(at_boundary(), **changes)
    made = {**cell.played.model_dump(), "claims": {"kind": "one"}}
    vars(plain)["played"] = Registration.of(made)
    return plain


@pytest.mark.parametrize("more", [{"weights": "as calibrated"}, {"certificate": "sealed", "looks": 2}])
def test_one_group_of_everything_is_one_claim(more: dict[str, Any]) -> None:
    """On the same events with the same noise, what is decided is the same, where weights are passed on alike."""
    given = {"batch": 200, "rounds": 4, "thresholds": 5, "target_risk": 0.2, **more}
    cell = cell_of(at_boundary(), groups="each", **given)
    assert cell.played.groups is not None
    claims = cell.played.groups.model_copy(update={"keep": 1.0})
    vars(cell)["played"] = cell.played.model_copy(update={"claims": claims})
    plain = as_one(cell, **given)
    assert isinstance(plain.played.judgement, Betting) == ("weights" in more)
    one, panel = block_of(plain, 60), block_of(cell, 60)
    np.testing.assert_array_equal(one.events.masses, panel.events.masses[:, :, 0])
    assert panel.events.released is not None
    assert one.events.released is not None
    np.testing.assert_array_equal(one.events.released, panel.events.released[:, :, 0])
    for name, value in vars(one.judged(METHODS["registered"])).items():
        np.testing.assert_array_equal(value, getattr(panel.judged(METHODS["registered"]), name))
    np.testing.assert_array_equal(one.facts.risk, panel.facts.risk)
    alike = [rows(each, "first", ("registered",), first=0) for each in (one, panel)]
    assert alike[0].equals(alike[1])


def crafted(cell: Cell, trials: int) -> Block:
    """Return a block with a verdict that is drawn at random: rows of every group, certified now and then."""
    block, rng = block_of(cell, trials), np.random.default_rng(8)
    shape = block.evidence("registered releases").accepted.shape
    ever = np.maximum.accumulate(rng.random(shape) < 0.04, axis=1)
    lower = np.where(rng.random(shape) < 1e-3, 1.0, rng.choice([0.02, 0.04, 0.06], shape))
    none = np.full(shape, np.nan)
    block._verdicts["registered"] = Verdict(ever, np.where(ever, 0.2, 1.0), none, lower)
    block.aim = replace(block.aim, target_risk=0.19)
    return block


@pytest.mark.parametrize("policy", ["first", "enough", "final"])
def test_a_run_ends_when_every_group_is_certified(policy: str) -> None:
    law = at_boundary(groups=3, bad=1, promised=0.9)
    block = crafted(cell_of(law, groups="each", thresholds=4, rounds=8, batch=50, min_acceptance=0.1), 200)
    found, verdict = rows(block, policy, ("registered",), first=0), block.judged(METHODS["registered"])
    risk, a = block.facts.risk, block.facts.acceptance
    wrong = [risk[j] > 0.19 or a[j] < 0.1 for j in range(12)]
    records, seen = block.events.records, {"whole": 0, "part": 0, "none": 0, "false": 0}
    for trial, row in enumerate(found.iter_rows(named=True)):
        picks, look, shown = [-1] * 3, 0, list[list[float]]()
        for look in range(8):
            picks = []
            for g in range(3):
                able = [j for j in range(4 * g, 4 * g + 4) if verdict.certified[trial, look, j]]
                best = max((verdict.acceptance_lower[trial, look, j] for j in able), default=0.0)
                picks.append(min((j for j in able if verdict.acceptance_lower[trial, look, j] == best), default=-1))
            shown.append([verdict.acceptance_lower[trial, look, j] if j >= 0 else 0.0 for j in picks])
            may = policy == "first" or bool(gains_little(records[trial, : look + 1].tolist(), shown).all())  # type: ignore[arg-type]
            if policy != "final" and min(picks) >= 0 and may:
                break
        some = [j for j in picks if j >= 0]
        assert (row["look"], row["fired"], row["groups_certified"]) == (look + 1, bool(some), len(some))
        false = any(wrong[j] for j in some)
        assert row["failed"] == false
        assert row["at_boundary"] == any(j < 4 for j in some)
        bad = [verdict.certified[trial, :, j] & wrong[j] | (verdict.acceptance_lower[trial, :, j] > a[j])
               for j in range(12)]  # fmt: skip
        assert row["missed"] == np.any(bad)
        if some:
            assert row["acceptance"] == pytest.approx(sum(a[j] for j in some))
            assert row["risk"] == pytest.approx(max(risk[j] for j in some))
        else:
            assert np.isnan(row["acceptance"])
        seen["whole" if len(some) == 3 else "part" if some else "none"] += 1
        seen["false"] += false
    assert min(seen.values()) > 0
    assert 0 < found["missed"].sum() < 200
    assert 0 < found["failed"].sum() < found["fired"].sum()


def test_acceptance_within_groups_is_their_mean() -> None:
    law = at_boundary(groups=3)
    block = crafted(cell_of(law, groups="each", group_floor="group", thresholds=4, rounds=4, batch=50), 50)
    row = rows(block, "final", ("registered",), first=0)
    verdict, a = block.judged(METHODS["registered"]), block.facts.acceptance
    at = verdict.certified[:, -1].reshape(50, 3, 5)
    lower = np.where(at, verdict.acceptance_lower[:, -1].reshape(50, 3, 5), -1.0)
    picked = np.where(
        at.any(axis=-1), np.take_along_axis(a.reshape(3, 5)[None], lower.argmax(-1)[..., None], -1)[..., 0], 0
    )
    there = row["fired"].to_numpy()
    np.testing.assert_allclose(row["acceptance"].to_numpy()[there], picked.mean(axis=-1)[there])


def test_withheld_releases_are_told_by_all_groups() -> None:
    """What is withheld is high in contrast over all groups together, and what arrives adds up."""
    cell = cell_of(at_boundary(groups=3), groups="each", withheld=0.4, batch=40, rounds=3, thresholds=3)
    found = happen(cell, trials=200, seed=SEED, reads=READS, per_site=True)
    assert 0.3 < found.withheld.mean() < 0.5
    assert found.by_site is not None
    np.testing.assert_array_equal(found.by_site.sum(axis=2), found.masses)
    first = found.by_site[:, 0]  # (trials, sites, groups, 2, bins)
    above = first[..., 1:].sum(axis=(2, 4))
    contrast = above[..., 1] - 0.2 * above.sum(axis=-1)
    arrived = found.answered[:, 0]
    sd = math.sqrt(0.75 * 0.2 * 0.8)  # three bins of four are accepted
    assert contrast[arrived].max() <= norm.isf(0.4) * sd * math.sqrt(40)
    np.testing.assert_array_equal(found.masses.sum(axis=(2, 3, 4)), found.records)


def test_sums_of_one_threshold_for_all_add_up() -> None:
    each, every = (cell_of(at_boundary(groups=3), groups=kind, rounds=2, thresholds=4) for kind in ("each", "all"))
    found, one = (exact(cell, happen(cell, trials=5, seed=SEED), seed=SEED) for cell in (each, every))
    assert one.accepted.shape == (5, 2, 4)
    np.testing.assert_allclose(one.accepted, found.accepted.reshape(5, 2, 3, 4).sum(axis=2))
    np.testing.assert_allclose(one.unsupported, found.unsupported.reshape(5, 2, 3, 4).sum(axis=2))


# ---------------------------------------------------------------- studies


def test_a_study_of_groups(tmp_path: Path) -> None:
    write_table(tmp_path)
    text = """
name = "groups"
trials = 10
methods = ["registered"]
populations = [
  { name = "wards", table = "t.csv", group = "ward" },
  { name = "one of three", boundary = true, groups = 3, bad = 1, promised = 0.1 },
]
[setting]
release = "default"
epsilon = 8.0
batch = 300
rounds = 3
sites = 2
thresholds = 4
target_risk = 0.25
[sweep]
groups = ["none", "each", "all"]
"""
    (tmp_path / "s.toml").write_text(text)
    study = run_study(tmp_path / "s.toml", tmp_path / "out", jobs=1)
    found = summarise(tmp_path / "out", tmp_path)[1]
    table = found.methods
    assert table["violations"].sum() == 0
    certified = table.filter(pl.col("groups") == "each")["groups_certified"].to_list()
    assert certified[0] > 1
    assert 1.5 < certified[1] <= 2
    assert table.filter(pl.col("groups") != "each")["groups_certified"].null_count() == 4
    assert table.filter(pl.col("groups") == "none")["information_limit"].null_count() == 0
    words = page(study, found, "")
    assert "a violation or failure in any counts" in words
    assert "At the boundary of the null every certificate is false" not in words
    kept = looks(study, tmp_path, trials=1)
    sizes = dict(zip(range(6), [4, 12, 4, 4, 12, 4], strict=True))
    for index, part in kept.partition_by("setting", as_dict=True).items():
        assert set(part["certified"].list.len()) == set(part["true_risk"].list.len()) == {sizes[int(index[0])]}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "betting-ladder", "betting-ladder speaks of all the traffic: of groups only 'registered' does"),
    ({}, "ltt-hb-bonferroni", "ltt-hb-bonferroni speaks of all the traffic"),
    ({"release": "paper"}, "registered", "groups belong to the default release"),
    ({"certificate": "open", "objective": "records"}, "registered", "groups are planned for acceptance alone"),
    ({"label_missed": 0.1}, "registered", "held-out answers and label errors are of one claim"),
    ({"label_invented": 0.1}, "registered", "held-out answers and label errors are of one claim"),
    ({"heldout_share": 0.1}, "registered", "held-out answers and label errors are of one claim"),
]


@pytest.mark.parametrize("kind", ["each", "all"])
@pytest.mark.parametrize(("setting", "method", "what"), REFUSED)
def test_what_groups_do_not_go_with_is_refused(setting: dict[str, Any], method: str, what: str, kind: str) -> None:
    given = {"release": "default", "groups": kind, **setting}
    fields = {"name": "a", "trials": 4, "populations": [{"name": "p", "boundary": True}], "setting": given}
    with pytest.raises(ValueError, match=what):
        Study.model_validate({**fields, "methods": [method]})
    with pytest.raises(ValueError, match="fcp speaks of all the traffic"):
        Study.model_validate({**fields, "setting": {"release": "default", "groups": kind},
                              "methods": ["registered"], "native": ["fcp"]})  # fmt: skip


@pytest.mark.parametrize(
    ("population", "setting", "what"),
    [
        (Binormal(name="p", records=300, unsupported=0.3, auc=0.9, about=""), {}, "population 'p': no group is said"),
        (Printed(name="p", acceptance=(0.8, 0.5), risk=(0.1, 0.05), about=""), {}, "has no groups"),
        (at_boundary(groups=2, graded=True), {"encoding": "levels", "loss_grid": 2}, "a panel releases complementary"),
        (at_boundary(groups=2), {"groups": "all", "weights": "as calibrated"}, "needs site weights, or one site"),
    ],
)
def test_populations_that_have_no_groups_are_refused(
    population: Population, setting: dict[str, Any], what: str
) -> None:
    with pytest.raises(FedsrcError, match=what):
        judged(cell_of(population, **{"groups": "each", **setting}), 1)


def test_tables_say_their_groups(tmp_path: Path) -> None:
    frame = write_table(tmp_path)
    with pytest.raises(FedsrcError, match="no group is said"):
        cell_of(StudyTable(name="p", table="t.csv"), tmp_path, groups="each")
    with pytest.raises(FedsrcError, match="'wing'"):
        cell_of(TABLE.model_copy(update={"group": "wing"}), tmp_path, groups="each")
    with pytest.raises(FedsrcError, match="records with binary loss"):
        cell_of(TABLE, tmp_path, groups="each", drift=0.01)
    frame.rename({"ward": "group"}).write_csv(tmp_path / "t.csv")
    cell = cell_of(StudyTable(name="p", table="t.csv"), tmp_path, groups="each", thresholds=3)
    assert cell.registration.block_names == ("a", "b", "c")
    with pytest.raises(ValueError, match="of 2 groups, 3 cannot be bad"):
        at_boundary(groups=2, bad=3)
