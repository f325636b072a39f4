"""Unlabelled records and exact counts over whole runs: contrasts alone decide, and acceptance follows from a release.

Mutants killed: acceptance read off units that calibrate, the bound of another site's mixture, a threshold between two
points of the grid with the bounds exchanged, noise drawn again for a second registration, a unit in two releases,
drift left out of the line, a missing release that is not charged, other noise than the registered one. Nothing here is
random but noise that a wide margin covers: a false alarm has probability below 1e-6.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import fedsrc
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table, plan_table
from fedsrc.maths.half_line import half_line
from fedsrc.maths.privacy import epsilon_tight
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, development_part, held_together
from fedsrc.planning.renew import renew
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import epsilon_against, replacement_rho
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import histogram
from fedsrc.records.units import Records, units_of
from fedsrc.server import sealed, wording_2
from fedsrc.server.state import Replay
from fedsrc.server.tally import empty, lose
from fedsrc.server.unlabelled import bounded
from fedsrc.server.verify import verify
from fedsrc.site.develop import over_grid
from fedsrc.site.ledger import Ledger
from fedsrc.site.unlabelled import release_unlabelled
from tests.support.helpers import table

SITES = ("north", "south")


def without_labels(count: int = 6_000, *, seed: int = 9, sites: tuple[str, ...] = ("local",)) -> Records:
    """Other records of the same traffic; every loss is unknown."""
    more = table(count, seed=seed, sites=sites)
    return replace(more, loss=np.ones(count), digest="f" * 64, ids=[f"u{seed}-{i}" for i in range(count)])


def planned(
    folder: Path, records: Records, unlabelled: Records | None, wish: Wish | None = None, **choices: Any
) -> Registration:
    picked = held_together(
        Choices(**{"target_risk": 0.2, "epsilon": 4.0, "public_development": True, **choices}), records
    )
    part = development_part(records, picked.unit, 0.2)
    return plan_table(picked, records, part, folder / "ledger", wish or Wish(), unlabelled=unlabelled)[0]


def run(folder: Path, reg: Registration, records: Records) -> Certificate:
    made = certify_table(reg, records, folder / "run", folder / "ledger", Key.generate())
    assert verify(folder / "run").certificate == made
    return made


@pytest.mark.parametrize("sites", [("local",), SITES])
def test_contrasts_alone_certify_where_unlabelled_records_show_acceptance(
    tmp_path: Path, sites: tuple[str, ...]
) -> None:
    records, more = table(1500, ids=True, seed=3, sites=sites), without_labels(sites=sites)
    reg = planned(tmp_path, records, more)
    assert sealed.method_of(reg).free
    assert reg.mechanism.lengths == (len(reg.thresholds.values), 0)
    assert Registration.from_toml(reg.to_toml()) == reg
    made = run(tmp_path, reg, records)
    assert made.status == "CERTIFIED"
    assert made.threshold is not None
    assert made.acceptance_lower is not None
    share = np.mean(more.score >= made.threshold)
    assert share - 0.06 < made.acceptance_lower < share
    said = {each.what: each.how for each in made.assumptions}
    drawn = "unlabelled records are drawn like those that calibrate, and their registered release is what they gave"
    assert said[drawn] == "declared"
    assert any("release of 6,000 unlabelled records, protected like the others" in each for each in said)


def test_what_was_accepted_then_is_not_renewed(tmp_path: Path) -> None:
    records = table(1500, ids=True, seed=3)
    run(tmp_path, planned(tmp_path, records, without_labels()), records)
    with pytest.raises(FedsrcError, match="accepted then, not now"):
        renew(tmp_path / "run")


def test_sources_keep_their_second_moments(tmp_path: Path) -> None:
    records, more = (
        replace(each, source=np.arange(len(each)) // 3, source_names=tuple(f"{name}{i}" for i in range(len(each) // 3)))
        for each, name in ((table(1500, ids=True, seed=3), "a"), (without_labels(), "b"))
    )
    reg = planned(tmp_path, records, more, unit="source", max_answers=3)
    method = sealed.method_of(reg)
    assert (method.free, bool(reg.mechanism.contrasts.second), reg.mechanism.contrasts.accepted) == (False, True, ())
    made = run(tmp_path, reg, records)
    assert made.status == "CERTIFIED"
    assert made.threshold is not None
    assert made.acceptance_lower is not None
    assert abs(made.acceptance_lower - np.mean(more.score >= made.threshold)) < 0.1


def test_a_look_decides_by_the_line_of_its_mixture(tmp_path: Path) -> None:
    """Site counts that are not those of the unlabelled table, drift, and a lost release: as the theory writes it."""
    records, more = table(1500, ids=True, seed=3, sites=SITES), without_labels(sites=SITES)
    reg = planned(tmp_path, records, more, weights={"north": 0.3, "south": 0.7}, drift={"north": 0.01, "south": 0.0},
                  dropout="adversarial")  # fmt: skip
    assert reg.unlabelled is not None
    tally = lose(reg, replace(empty(reg), slots=(100, 300), noises=1), [(0, 20)], 2)
    look = sealed.see(reg, tally, 0, 1.0)
    eta = 0.01 * 0.3 + abs(120 / 420 - 0.3)
    assert look.eta == pytest.approx(eta)
    found = bounded(reg.unlabelled, reg.thresholds.values, (120, 300), 0.5 * sealed.method_of(reg).acceptance_budget)
    assert look.abar == pytest.approx(found.upper)
    assert np.all(look.acceptance <= np.maximum(0.0, found.lower - eta))
    rule, tests = reg.mechanism, sealed.rows(reg)
    D = -0.8 * 20 - sealed.margins(reg, 2, 20).L
    np.testing.assert_allclose(look.L, D - 2 * np.abs(rule.contrasts.inverse).sum(axis=1), atol=1e-6)
    levels = 0.045 * np.asarray(reg.thresholds.weights)
    nu = 2 * rule.scale**2 * (rule.contrasts.inverse**2).sum(axis=1)
    expected = half_line(levels, 0.2, 420, found.upper, nu, eta=eta)
    assert sealed.lines(reg, look, tests.weight) == pytest.approx(expected, rel=1e-9)


def test_thresholds_between_points_take_the_cautious_bound(tmp_path: Path) -> None:
    reg = planned(tmp_path, table(1500, ids=True, seed=3), without_labels())
    assert reg.unlabelled is not None
    on, between, off = (bounded(reg.unlabelled, each, (10,), 0.005) for each in ((0.5, 0.51), (0.505,), (0.0, 1.0)))
    assert (between.upper[0], between.lower[0]) == (on.upper[0], on.lower[1])
    assert (off.upper[0], off.lower[1]) == (1.0, 0.0)
    assert np.all(on.lower < on.middle)
    assert np.all(on.middle < on.upper)


def test_the_release_is_made_once_and_its_units_are_spent(tmp_path: Path) -> None:
    records, more = table(1500, ids=True, seed=3), without_labels()
    first = planned(tmp_path, records, more)
    again = planned(tmp_path, records, more, target_risk=0.15, epsilon=1.0)
    assert first.unlabelled == again.unlabelled
    said = [each.what for each in wording_2.assumptions(again, Replay(again))]
    assert any(
        "unlabelled records, made for an earlier registration: epsilon 4 at delta 1e-06" in each for each in said
    )
    with pytest.raises(FedsrcError, match="its units are spent"):
        planned(tmp_path, replace(more, loss=records.loss[np.arange(len(more)) % len(records)]), None)
    overlapping = replace(more, digest="e" * 64, ids=[*(more.ids or [])[:-1], str((records.ids or ["0"])[0])])
    with pytest.raises(FedsrcError):
        planned(tmp_path, records, overlapping)


@pytest.mark.parametrize("kind", ["file", "frame"])
@pytest.mark.parametrize("loss", ["graded", "none", "empty", "other column"])
def test_a_record_without_an_id_is_in_one_of_the_tables(tmp_path: Path, kind: str, loss: str) -> None:
    """Neither a label that is not known nor one that is in between hides a row that both tables hold."""
    rng = np.random.default_rng(3)
    frame = pl.DataFrame({"score": rng.random(1500), "loss": rng.choice([0.0, 0.25, 0.5], 1500)})
    others = {
        "graded": frame, "none": frame.select("score"), "empty": frame.with_columns(pl.lit(None).alias("loss")),
        "other column": frame.select("score", time=pl.int_range(1500)),
    }  # fmt: skip
    tables: list[Any] = [frame, others[loss]]
    if kind == "file":
        for name, each in zip("ab", tables, strict=True):
            each.write_csv(tmp_path / f"{name}.csv")
        tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(FedsrcError, match="taken in before"):
        fedsrc.certify(
            tables[0], unlabelled=tables[1], target=0.2, epsilon=4.0, public_development=True, output=tmp_path / "run",
            ledger=tmp_path / "ledger", key=tmp_path / "key",
        )  # fmt: skip


def test_tables_share_one_release_of_an_unlabelled_file(tmp_path: Path) -> None:
    """Each table has a ledger of its own, and so has the unlabelled file: its units are released once, for them all."""
    more, releases = tmp_path / "more.csv", []
    rng = np.random.default_rng(3)
    pl.DataFrame({"id": [f"u{i}" for i in range(3000)], "score": rng.random(3000)}).write_csv(more)
    for name in "ab":
        ids, score = [f"{name}{i}" for i in range(1500)], rng.random(1500)
        pl.DataFrame({"id": ids, "score": score, "loss": (rng.random(1500) > 0.9).astype(int)}).write_csv(
            tmp_path / f"{name}.csv"
        )
        made = fedsrc.certify(
            tmp_path / f"{name}.csv", unlabelled=more, target=0.2, epsilon=4.0, public_development=True,
            output=tmp_path / name, key=tmp_path / "key",
        )  # fmt: skip
        releases.append(made.registration.unlabelled)
    assert releases[0] == releases[1] is not None
    labelled = pl.read_csv(more).with_columns(loss=pl.lit(0))
    labelled.write_csv(more)
    with pytest.raises(FedsrcError, match="taken in before"):
        fedsrc.certify(more, target=0.2, epsilon=4.0, output=tmp_path / "c", key=tmp_path / "key")


def test_how_sites_mix_does_not_follow_what_bounds_their_mixture(tmp_path: Path) -> None:
    records = replace(table(1500, ids=True, seed=3, sites=SITES), site=(np.arange(1500) % 10 == 0).astype(np.int64))
    schedules = set()
    for seed in (9, 10, 11):
        (folder := tmp_path / str(seed)).mkdir()
        more = without_labels(300, seed=seed, sites=SITES)
        reg = planned(folder, records, more, Wish(looks=1, objective="records"), epsilon=1.0)
        schedules.add(repr(reg.schedule))
    assert len(schedules) == 1


def test_epsilon_for_the_other_neighbour_covers_unlabelled_records(tmp_path: Path) -> None:
    reg = planned(tmp_path, table(1500, ids=True, seed=3), without_labels(), adjacency="zero-out")
    grid = over_grid(reg)
    assert epsilon_against(reg, "replacement") == epsilon_against(grid, "replacement")
    assert epsilon_against(reg, "replacement") >= epsilon_tight(replacement_rho(grid), reg.privacy.delta)


def test_a_neighbour_moves_an_unlabelled_release_by_its_sensitivity_at_most(tmp_path: Path) -> None:
    """From two tables that differ in one record to the integers before noise, in every change of that record."""
    grid = over_grid(planned(tmp_path, table(1500, ids=True, seed=3), without_labels()))
    rule, more = grid.mechanism, without_labels(200)
    farthest = 0.0
    for score in (-1.0, 0.0, 0.3, 0.55, 0.9995, 1.0):
        other = replace(more, score=np.append(score, more.score[1:]))
        sums = [rule.basis.encode(histogram(grid, units_of(each, "local", "record"))[None]) for each in (more, other)]
        farthest = max(farthest, float(np.linalg.norm((sums[0] - sums[1]).ravel().astype(np.float64))))
    assert 0 < farthest <= rule.sensitivity


def test_what_unlabelled_records_cannot_do_is_refused(tmp_path: Path) -> None:
    records, more = table(1500, ids=True, seed=3, sites=SITES), without_labels()
    for choices, wish, message in (
        ({}, Wish(), "no unlabelled records of site 'north'"),
        ({"epsilon": math.inf}, Wish("sealed"), "certificates with privacy"),
        ({}, Wish("plain"), "planned sealed certificates"),
    ):
        with pytest.raises(FedsrcError, match=message):
            planned(tmp_path, records, more, wish, **choices)
    with pytest.raises(FedsrcError, match="for planned sealed certificates"):
        planned(tmp_path, records, without_labels(sites=SITES), Wish("open"))
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        assert not ledger.accounts("local")  # nothing was released of what was refused
    reg = planned(tmp_path, records, without_labels(sites=SITES))
    one = {"sites": [site.model_dump() for site in reg.sites[:1]]}
    for changes, message in (
        ({"unlabelled": None}, "accepted mass of every threshold"),
        ({"unlabelled": reg.unlabelled[:1] if reg.unlabelled else None}, "for every site, or for none"),
        ({"certificate": {"line": "hybrid"}}, "registers its bets"),
        ({"privacy": {"epsilon": math.inf}}, "sealed certificates with privacy"),
        (one, "for every site"),
        ({"unlabelled": released(reg, scale=1e-6)}, "another noise scale"),
        ({"unlabelled": released(reg, privacy={**reg.privacy.model_dump(), "epsilon": 99.0})}, "another noise scale"),
        (
            {"unlabelled": [released(reg, privacy=reg.privacy.model_copy(update={"delta": 0.1}))[0], released(reg)[1]]},
            "under one privacy",
        ),
    ):
        with pytest.raises(FedsrcError, match=message):
            Registration.of(altered(reg, changes))
    with closing(Ledger(tmp_path / "ledger")) as ledger, pytest.raises(FedsrcError, match="used before as labelled"):
        release_unlabelled(reg, replace(without_labels(seed=8, sites=SITES), digest=_developed(ledger)), ledger)


def altered(reg: Registration, changes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a registration, with some of them changed."""
    fields = reg.model_dump()
    for name, value in changes.items():
        fields[name] = {**fields[name], **value} if isinstance(value, dict) else value
    return fields


def released(reg: Registration, **changes: Any) -> list[dict[str, Any]]:
    """The releases of unlabelled records as fields, with some of them changed."""
    return [each.model_dump() | changes for each in reg.unlabelled or ()]


def _developed(ledger: Ledger) -> str:
    """A table that was a development table of its own before."""
    ledger.develop("d" * 64, "", 0.0, lambda: b"")
    return "d" * 64


def test_exact_counts_are_tested_by_the_binomial_tail(tmp_path: Path) -> None:
    records = table(900, ids=True, seed=3)
    reg = planned(tmp_path, records, None, Wish("sealed"), epsilon=math.inf)
    assert (sealed.method_of(reg).free, reg.unlabelled) == (True, None)
    made = run(tmp_path, reg, records)
    assert made.status == "CERTIFIED"
    look = verify(tmp_path / "run").replay.sealed
    assert look
    accepted, unsupported = look[0].accepted, 0.2 * look[0].accepted - look[0].contrast
    p = binom.cdf(np.rint(unsupported), np.rint(accepted), 0.2)
    np.testing.assert_allclose(look[0].L, -np.log(p), rtol=1e-6)
    lost = sealed.see(reg, lose(reg, replace(empty(reg), slots=(10,), noises=1), [(0, 4)], 2), 0, 1.0)
    np.testing.assert_allclose(lost.L, 0.0, atol=1e-6)  # four answers, all accepted and unsupported
    supported = reg.mechanism.contrasts.encode(np.zeros(len(p), dtype=np.int64), np.full(len(p), 100))
    tally = lose(reg, replace(empty(reg), slots=(100,), noises=1, sums=supported), [(0, 100)], 2)
    half = sealed.see(reg, tally, 0, 1.0)
    shown = sealed.report(reg, half, sealed.decide(reg, [half])).contrast_upper
    assert np.all(shown > 0.5 - 0.2)  # half of the units may be unsupported
    for changes in ({"sites": [{"name": "a"}, {"name": "b"}]}, {"sites": [{"name": "local", "drift": 0.01}]}):
        with pytest.raises(FedsrcError, match="or exact counts"):
            Registration.of(altered(reg, changes))
