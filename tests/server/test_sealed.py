"""Sealed certificates over whole runs: registered looks decide, charges and refusals are the worst that passes.

Mutants killed: a look that is not registered, a share used twice, weights passed between looks of a mixture that moves,
noise of a missing release forgotten, a charge without its margin, the line of other weights, second moments with the
wrong sign, accepted mass taken from the wrong coordinates, a site that joins after the first release.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.gate.gate import Gate
from fedsrc.maths import sealed as maths
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.privacy import epsilon_tight
from fedsrc.maths.tail import critical, critical_hybrid
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import epsilon_against, replacement_rho
from fedsrc.protocol.messages import Release
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Asked, Closed, read_entries
from fedsrc.records.masses import counted
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.records.units import Records, Units, units_of
from fedsrc.server import sealed
from fedsrc.server.recruiter import make_requests
from fedsrc.server.state import Replay
from fedsrc.server.tally import empty, lose
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.release import make_release
from fedsrc.site.site import open_sites
from fedsrc.site.streamed import open_table
from tests.support.helpers import (
    FIRST,
    changed,
    gives,
    registration,
    release_of,
    sealed_registration,
    single_units,
    table,
)


def run(tmp_path: Path, reg: Registration, records: Records) -> Certificate:
    made = certify_table(reg, records, tmp_path / "run", tmp_path / "ledger", Key.generate())
    assert verify(tmp_path / "run").certificate == made
    return made


def sources(count: int = 500, *, seed: int = 0, graded: bool = False) -> Records:
    """A table of sources with one to four answers."""
    one, rng = table(count * 3, seed=seed), np.random.default_rng(seed)
    source = np.sort(rng.integers(0, count, count * 3))
    loss = np.where(one.loss > 0, rng.choice([0.5, 1.0], one.loss.size), 0.0) if graded else one.loss
    return replace(one, source=source, source_names=tuple(f"s{i}" for i in range(count)), loss=loss)


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_a_table_is_certified_by_one_look(tmp_path: Path, epsilon: float) -> None:
    records = table(1200, seed=3)
    made = run(tmp_path, sealed_registration(records, epsilon=epsilon, batch=1200), records)
    assert (made.status, made.method, made.rounds, made.every_target) == ("CERTIFIED", "sealed", 1, False)
    assert made.threshold == 0.45
    assert (made.risk_upper, made.contrast_upper) == (0.2, 0.0)
    assert made.acceptance_lower is not None
    assert 0.35 < made.acceptance_lower < np.mean(records.score >= 0.45)
    assert [row.target_risk for row in made.also_certified] == [0.2]
    said = [each.what for each in made.assumptions]
    assert "a round was closed before any of its releases was read" in said
    assert any("nor on the noise of any release" in each for each in said)
    assert Gate(tmp_path / "run", trusted=[str(made.key)]).accept(0.46)


@pytest.mark.parametrize("graded", [False, True])
def test_sources_are_certified(tmp_path: Path, graded: bool) -> None:
    records = sources(graded=graded)
    reg = sealed_registration(records, unit="source", batch=500, max_answers=4, loss_grid=2 if graded else 1)
    made = run(tmp_path, reg, records)
    assert made.status == "CERTIFIED"
    assert made.acceptance_lower is not None
    assert made.acceptance_lower > 0.3


def test_several_targets_are_shown_at_once(tmp_path: Path) -> None:
    records = table(3000, seed=1, base=0.2)
    reg = sealed_registration(
        records, batch=3000, targets=((0.1, 0.5), (0.3, 0.5)), values=(0.3, 0.5), weights=(0.5, 0.5), bets=(0.3, 0.3)
    )  # fmt: skip
    made = run(tmp_path, reg, records)
    assert [row.target_risk for row in made.also_certified] == [0.1, 0.3]
    assert made.also_certified[1].threshold <= made.also_certified[0].threshold


def test_nothing_is_decided_between_looks(tmp_path: Path) -> None:
    records = table(4000, seed=3)
    reg = sealed_registration(records, looks=((2, 0.5), (4, 0.5)), policy="final")
    made = run(tmp_path, reg, records)
    assert [row.round for row in made.evidence] == [2, 4]
    assert made.rounds == 4


def test_where_units_run_out_the_remaining_shares_join(tmp_path: Path) -> None:
    records = table(700, seed=3)
    reg = sealed_registration(records, batch=280, looks=((1, 0.25), (3, 0.25), (9, 0.5)), policy="final")
    made = run(tmp_path, reg, records)
    assert [row.round for row in made.evidence] == [1, 2]
    assert sealed.due(reg, 1, over=False) == 0.25
    assert sealed.due(reg, 2, over=False) is None
    assert sealed.due(reg, 2, over=True) == 0.75
    assert sealed.due(reg, 1, over=True) == 1.0


def test_no_site_joins_after_the_first_request(tmp_path: Path) -> None:
    records = table(900, seed=3, sites=("a", "b"))
    reg = sealed_registration(records, looks=((3, 1.0),))
    run(tmp_path, reg, records)
    entries = [entry for entry, _ in read_entries(tmp_path / "run" / TRANSCRIPT)]
    late = [each for each in entries if isinstance(each, Announced) and each.site == "b"]
    others = [each for each in entries if each not in late]
    closed = next(i for i, each in enumerate(others) if isinstance(each, Asked))
    replay = Replay(reg, others[:closed])
    request = make_requests(reg, [200, 0], number=0, round=1)[0]
    for entry in (
        Asked(request=request),
        Absent(request=request.digest, reason="silent", refused=False),
        Closed(round=1),
    ):
        replay.step(entry)
    with pytest.raises(FedsrcError, match="after the first request of a sealed run"):
        replay.step(late[0])


def seen(reg: Registration, L: Floats, *, share: float = 1.0, before: int = 0, last: int = 1) -> sealed.Seen:
    nothing, all_of_it = np.zeros(L.size), np.ones(len(reg.thresholds.values))
    return sealed.Seen(share, 400, 0.0, L, nothing, nothing, nothing, before, last, all_of_it, all_of_it)


@pytest.mark.parametrize("looks", [((1, 1.0),), ((1, 0.4), (3, 0.6))])
def test_rejections_are_those_of_the_weight_table(looks: tuple[tuple[int, float], ...]) -> None:
    """Weight by weight, as `lines` goes, is the same as the table of all sets of rejections, look by look."""
    reg = sealed_registration(looks=looks)
    tests, rng = sealed.rows(reg), np.random.default_rng(0)
    table_of = maths.passed_on(tests.weight)
    for _ in range(60):
        taken = [seen(reg, rng.uniform(1.0, 8.0, 3), share=share, before=round - 1) for round, share in looks]
        lines = [
            np.array([[critical(0.045 * look.share * w, tests.variance[j] * (look.before + 1)) if w else np.inf
                       for j, w in enumerate(row)] for row in table_of])
            for look in taken
        ]  # fmt: skip
        expected = maths.recycled_looks(np.stack([look.L for look in taken]), np.ceil(np.stack(lines) * 1e9) / 1e9)[-1]
        assert sealed.reject(reg, taken).tolist() == expected.tolist()


def test_a_mixture_that_moves_keeps_each_look_to_itself() -> None:
    """Two sites without weights: what an earlier look rejected is neither kept nor passed on."""
    records = table(900, sites=("a", "b"))
    moving = sealed_registration(records, looks=((1, 0.5), (2, 0.5)))
    fields = moving.model_dump()
    fields["sites"] = [{**site, "weight": 0.5} for site in fields["sites"]]
    declared = Registration.model_validate(fields)
    early, late = seen(moving, np.full(3, 30.0), share=0.5), seen(moving, np.full(3, -1.0), share=0.5, before=1)
    assert not sealed.decide(moving, [early, late]).certified.any()
    assert sealed.decide(declared, [early, late]).certified.all()


def test_the_hybrid_line_counts_noise_before_the_last_round_in_full() -> None:
    reg = sealed_registration(line="hybrid", looks=((4, 1.0),), epsilon=1.0)
    look, tests = seen(reg, np.zeros(3), before=3), sealed.rows(reg)
    none = tests.weight
    expected = [critical_hybrid(0.045 * w, 3 * v, v) for w, v in zip(tests.weight, tests.variance, strict=True)]
    assert sealed.lines(reg, look, none) == pytest.approx(expected, abs=2e-9)
    exact, within = (sealed.lines(changed(reg, certificate={"line": line}), look, none) for line in ("exact", "within"))
    assert np.all(exact < sealed.lines(reg, look, none))
    assert within == pytest.approx(np.maximum(exact, np.log(1 / (0.045 * tests.weight))), abs=2e-9)


@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_a_very_large_honest_release_without_noise_is_not_refused(loss: float) -> None:
    """Ten million alike units lie on the bounds of what is plausible, up to what floats add over so many."""
    n = 9_999_991
    reg = sealed_registration(epsilon=math.inf, batch=n, targets=((0.2137, 1.0),))
    request = make_requests(reg, [n], number=0, round=1)[0]
    for score in (0.5, 0.6, 0.9):
        counts = counted(reg, single_units([score], [loss])) * n
        release = make_release(reg, request, counts, FIRST, order="shuffled", time="2026-01-02T03:04:05Z")
        assert sealed.implausible(reg, gives(release), 1) is None


def worst_units(slots: int) -> Units:
    return single_units([0.9] * slots, [1.0] * slots)


def test_a_missing_release_is_charged_what_the_worst_honest_one_adds() -> None:
    """All slots accepted and unsupported, and the noise at its margin: L of the charge is that, to the last digit."""
    reg = sealed_registration(epsilon=1.0, dropout="adversarial", capacities={"local": 400})
    tests = sealed.rows(reg)
    lost = sealed.see(reg, lose(reg, empty(reg), [(0, 50)], 1), 0, 1.0)
    worst = 50 * np.log1p(-tests.theta * 0.8) - sealed.margins(reg, 1, 50).L - tests.shift
    assert pytest.approx(worst, abs=5e-9) == lost.L
    exact = tests.slope @ counted(reg, worst_units(50)).astype(np.float64)
    assert exact == pytest.approx(50 * tests.least, abs=1e-6)  # d = -(1-r) is where the bound is reached


@pytest.mark.parametrize("records", [table(600, seed=2), sources(300, seed=2), sources(300, seed=2, graded=True)])
def test_honest_releases_are_plausible_and_invented_ones_are_not(records: Records) -> None:
    """300 honest releases at epsilon 1 pass, by a fixed seed; each is refused with probability at most 1e-4."""
    more: dict[str, Any] = {} if records.source is None else {"unit": "source", "max_answers": 4, "loss_grid": 2}
    reg = sealed_registration(records, epsilon=1.0, **more)
    units = units_of(records, "local", reg.privacy.unit, max_answers=reg.privacy.max_answers)
    request = make_requests(reg, [40], number=0, round=1)[0]
    exact = counted(reg, units.take(np.arange(40)))
    rng, rule = np.random.default_rng(1), reg.mechanism
    length = rule.lengths[0]

    def held(values: Ints | Floats) -> Release:
        whole = np.rint(values).astype(np.int64).tolist()
        base = release_of(reg, request, units.take(np.arange(40)))
        return base.model_copy(update={"first": tuple(whole[:length]), "second": tuple(whole[length:])})

    refused = sum(
        sealed.implausible(reg, gives(held(exact + rng.normal(0, rule.scale, exact.size))), 1) is not None
        for _ in range(300)
    )
    assert refused == 0
    for place in range(exact.size):
        for sign in (-1, 1):
            forged = exact.astype(np.float64)
            forged[place] += sign * 60 * rule.scale
            assert sealed.implausible(reg, gives(held(forged)), 1) is not None


def test_streamed_and_whole_tables_count_alike(tmp_path: Path) -> None:
    path, one = tmp_path / "t.csv", table(300)
    path.write_text(
        "score,loss\n" + "".join(f"{s!r},{int(x)}\n" for s, x in zip(one.score.tolist(), one.loss, strict=True))
    )
    fields = sealed_registration().model_dump()
    fields["sites"], fields["development"] = [{"name": "a"}], None
    fields["thresholds"]["origin"] = "declared"
    reg = Registration.model_validate(fields)
    ledger = Ledger(tmp_path / "ledger")
    streamed = open_table(reg, "a", Table(path, batch=7), ledger)
    whole = open_sites(reg, read_records(path).at("a"), ledger)[0]
    assert streamed.count(10, 100).tolist() == whole.count(10, 100).tolist()


BROKEN: dict[str, dict[str, dict[str, Any]]] = {
    "go together": {"encoding": {"kind": "complementary"}},
    "the last look": {"schedule": {"rounds": 2}},
    "recruits": {"schedule": {"policy": "recruit"}},
    "first target": {"claim": {"target_risk": 0.3}},
    "too coarse": {"encoding": {"matrix": ((5, 0, 0), (0, 5, 0), (0, 0, 5)), "second": (1, 1, 1)}},
    "close to singular": {"encoding": {"matrix": ((10**7, 10**7 - 1, 0), (10**7 + 1, 10**7, 0), (0, 0, 10**7))}},
    "could overflow": {"schedule": {"batch": 10_000_000}, "encoding": {"second": (1 << 45,) * 3}},
    "square matrix": {"encoding": {"second": (1, 1)}},
    "positive integers": {"encoding": {"second": (1, 0, 1)}},
}


@pytest.mark.parametrize("why", BROKEN)
def test_what_is_not_covered_is_refused_with_a_sentence(why: str) -> None:
    fields = sealed_registration().model_dump()
    for section, values in BROKEN[why].items():
        fields[section] = values if "kind" in values else {**fields[section], **values}
    with pytest.raises(ValueError, match=why):
        Registration.model_validate(fields)


def test_heavy_second_moments_of_sources_are_refused() -> None:
    records = sources(300)
    fields = sealed_registration(records, unit="source", max_answers=4).model_dump()
    fields["encoding"]["second"] = tuple(10 * each for each in fields["encoding"]["second"])
    with pytest.raises(ValueError, match="twice its least contrast"):
        Registration.model_validate(fields)


def test_an_open_certificate_has_no_contrasts() -> None:
    fields = registration().model_dump()
    fields["encoding"] = sealed_registration().model_dump()["encoding"]
    with pytest.raises(ValueError, match="go together"):
        Registration.model_validate(fields)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0, 7.7, 8.0])
def test_a_limit_of_the_registered_epsilon_allows_it(epsilon: float) -> None:
    """To the last digit: a site that allows epsilon 2 answers a registration of epsilon 2."""
    reg = sealed_registration(epsilon=epsilon)
    assert epsilon_tight(replacement_rho(reg), reg.privacy.delta) <= epsilon
    assert epsilon_against(reg, "zero-out") <= epsilon + 1e-6
