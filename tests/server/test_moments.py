"""Open certificates on second moments: what is released and refused, what a missing release costs, and validity.

Simulated runs have fixed seeds, so there is no chance of a false alarm. At the boundary null each certificate is false.
Mutants killed: noise ignored (control of the validity test), second moments of a missing release not charged, content
charged without its noise, any one of the seven plausibility checks left out, sums that overflow, counts in floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table, register_table
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.basis import covariance
from fedsrc.maths.betting import Covariance
from fedsrc.maths.moments import MomentCode, Seconds, noise_of_seconds
from fedsrc.maths.sealed import kappa
from fedsrc.planning.forecast import forecast, from_development
from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.protocol.disclosure import epsilon_against, noise_words
from fedsrc.protocol.messages import Release
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.records.units import Records, Units
from fedsrc.server import bounds
from fedsrc.server.bounds import Sample, look
from fedsrc.server.recruiter import make_requests
from fedsrc.server.tally import Charge, Masses, empty, implausible, lose, masses, plausible_margins, suffix_variance
from fedsrc.server.verify import verify
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import simulate
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.release import make_release
from fedsrc.site.site import open_sites
from fedsrc.site.streamed import open_table
from tests.support.helpers import FIRST, changed, gives, registration, single_units, table

ANSWERS, TIME = 4, "2026-01-02T03:04:05Z"


def sources(count: int = 600, seed: int = 0, sites: tuple[str, ...] = ("local",)) -> Records:
    """A table of sources with four answers each; a source's answers share how good they are."""
    rng, rows = np.random.default_rng(seed), count * ANSWERS
    loss = (rng.random((count, ANSWERS)) < rng.beta(0.6, 1.2, count)[:, None]).astype(np.float64)
    score = np.clip(0.5 + 0.3 * (1 - 2 * loss) + 0.15 * rng.standard_normal(loss.shape), 0, 1)
    owner = np.arange(rows) // ANSWERS
    return replace(
        table(rows, seed=seed, sites=sites), score=score.ravel(), loss=loss.ravel(), source=owner,
        source_names=tuple(f"q{i}" for i in range(count)), site=owner % len(sites),
    )  # fmt: skip


def on_sources(records: Records, **choices: Any) -> Registration:
    given = {"unit": "source", "max_answers": ANSWERS, "encoding": "moments", "thresholds": 5, "batch": 100, **choices}
    return registration(records, **given)


def plan(**choices: Any) -> Registration:
    """Sources of four answers at one threshold, on a public grid."""
    given = {
        "target_risk": 0.2, "epsilon": 4.0, "unit": "source", "max_answers": ANSWERS, "encoding": "moments",
        "grid": True, "thresholds": 1, **choices,
    }  # fmt: skip
    return register_grid(Choices(**given), ["a"])


def test_a_run_on_second_moments_certifies_and_verifies(tmp_path: Path) -> None:
    """From the table to the certificate, with noise, thresholds from a noised release, and every step recomputed."""
    records, ledger = sources(2000), tmp_path / "ledger"
    choices = Choices(0.3, 8.0, unit="source", max_answers=ANSWERS, encoding="moments", thresholds=5, batch=300)
    reg = register_table(choices, records, development_part(records, "source", 0.2), ledger)
    certificate = certify_table(reg, records, tmp_path / "run", ledger, Key.generate())
    assert certificate.status == "CERTIFIED"
    assert certificate.privacy.encoding == "moments"
    assert verify(tmp_path / "run").certificate == certificate
    assert Registration.from_toml(reg.to_toml()) == reg


def test_second_moments_need_fewer_sources() -> None:
    """Sources whose answers are of about the same quality, at a risk below the target."""
    rng, laws = np.random.default_rng(1), {}
    for kind in ("histograms", "moments"):
        reg = plan(epsilon=math.inf, encoding=kind, batch=20, rounds=150)
        bad = rng.binomial(ANSWERS, 0.15, 500) * (reg.privacy.mass_grid // ANSWERS)
        masses = np.zeros((500, 2, 2), dtype=np.int64)
        masses[:, 0, 1], masses[:, 1, 1] = reg.privacy.mass_grid - bad, bad
        runs = simulate(reg, [Support(masses, np.full(500, 1 / 500))], trials=20, seed=1)
        assert runs.certified.all()
        laws[kind] = runs.records.mean()
    assert laws["moments"] < 0.75 * laws["histograms"]


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_a_forecast_counts_second_moments(epsilon: float) -> None:
    """Answers of a source fail by themselves, so that sources differ little: totals need twice as many of them."""
    records, told = sources(500, sites=("a",)), dict[str, int]()
    loss = (np.random.default_rng(1).random(len(records)) < 0.15).astype(np.float64)
    records = replace(records, loss=loss, score=np.full(len(records), 0.9))
    for kind in ("histograms", "moments"):
        reg = plan(epsilon=epsilon, encoding=kind, batch=20, rounds=150)
        found = forecast(reg, from_development(reg, records), 0.2, epsilon)
        assert found.records is not None
        told[kind] = found.records
    assert 0.3 * told["histograms"] < told["moments"] < 0.65 * told["histograms"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one binary answer": ({"unit": "record", "max_answers": None}, "no moments to release"),
    "the paper's": ({"preset": "paper"}, "belong to the betting certificate"),
    "overflow": ({"max_answers": 16}, "could overflow"),
    "overflow by rounds": ({"max_answers": 12, "rounds": 100_000_000 // 100}, "could overflow"),
    "overflow by growth": ({"max_answers": 10, "rounds": 60, "growth": 2.0}, "could overflow"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_second_moments_say_nothing_or_overflow_they_are_refused(name: str) -> None:
    choices, message = REFUSED[name]
    growth = choices.pop("growth", 1.0) if "growth" in choices else 1.0
    with pytest.raises((FedsrcError, ValueError), match=message):
        changed(plan(**choices), schedule={"growth": growth})


def test_a_monitor_keeps_histograms() -> None:
    reg = plan()
    watch = {"method": "monitor", "certificate": "0" * 64, "risk": 0.3}
    with pytest.raises(ValueError, match="belong to the betting certificate"):
        Registration.model_validate({**reg.model_dump(), "certificate": watch})


def test_as_many_units_as_are_registered_are_counted_exactly() -> None:
    """Sixteen answers a source: a sum in floats would be wrong after 17,000 slots, one in words after 35,000."""
    reg = changed(plan(max_answers=16, batch=30, rounds=70), privacy={"epsilon": math.inf})
    count = 1_000
    score, loss = np.full(16 * count, 0.9), np.zeros(16 * count)
    loss[::16] = 1.0
    units = Units(16 * np.arange(count + 1), score, loss, None)
    code, g = reg.mechanism.code, reg.privacy.mass_grid
    assert isinstance(code, MomentCode)
    exact = [2 * g * 15 * (g // 16), 2 * g * (g // 16), (g // 16) ** 2, 6 * 15 * (g // 16) ** 2, (15 * (g // 16)) ** 2]
    lattice = code.encode(counted(reg, units))
    assert lattice[:, 0].tolist() == [count * code.basis.unit * each for each in exact]
    assert reg.most_units * 2 * code.largest() < 1 << 61
    request = make_requests(reg, [10_000], number=0, round=1)[0]
    with pytest.raises(FedsrcError, match="too many to count exactly"):
        make_release(reg, request, counted(reg, units), FIRST, order="shuffled", time=TIME)


def test_units_are_counted_alike_in_blocks_and_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many masses are held at a time, and whether the table is read whole or in a stream."""
    rng, file = np.random.default_rng(4), tmp_path / "t.csv"
    rows = [f"r{i},{rng.random():.3f},{rng.integers(0, 5) / 4}" for i in range(300)]
    file.write_text("\n".join(["id,score,loss", *rows]) + "\n")
    reg = plan(unit="record", max_answers=None, loss_grid=4, epsilon=math.inf, thresholds=3)
    request, found = make_requests(reg, [300], number=0, round=1)[0], []
    for block, streamed in ((10**6, False), (7, False), (7, True)):
        monkeypatch.setattr("fedsrc.records.masses.BLOCK", block)
        with closing(Ledger(tmp_path / f"ledger-{block}-{streamed}")) as ledger:
            if streamed:
                site = open_table(reg, "a", replace(Table(file), batch=50), ledger, in_order=True)
            else:
                site = open_sites(reg, read_records(file).at("a"), ledger, in_order=True)[0]
            allow(ledger, "a", reg)
            release = Release.model_validate_json(site.answer(request))
        found.append((release.first, release.second))
    assert found[0] == found[1] == found[2]
    assert counted(reg, single_units([], [])).shape == (5, 4)


@pytest.mark.parametrize("weight", ["source", "answer"])
def test_tables_that_differ_in_one_source_are_no_farther_than_stated(weight: str) -> None:
    """From rows to lattice: any two sources, one of no answer above any threshold among them."""
    rng = np.random.default_rng(8)
    reg = plan(max_answers=3, thresholds=4, answer_weight=weight, epsilon=1.0)
    code, best = reg.mechanism.code, {"zero-out": 0, "replacement": 0}
    assert isinstance(code, MomentCode)
    kept = [(rng.random(3), rng.integers(0, 2, 3).astype(float)) for _ in range(5)]
    ends = [(np.full(3, 0.99), np.full(3, loss)) for loss in (0.0, 1.0)]
    others = [(rng.random(n), rng.integers(0, 2, n).astype(float)) for n in rng.integers(1, 4, 40)] + ends
    none = (np.zeros(3), np.ones(3))

    def lattice(last: tuple[Floats, Floats]) -> Ints:
        parts = [*kept, last]
        start = np.concatenate([[0], np.cumsum([score.size for score, _ in parts])])
        units = Units(start, np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]), None)
        return code.encode(counted(reg, units))

    points = [lattice(each) for each in others]
    for adjacency, against in (("zero-out", [lattice(none)]), ("replacement", points)):
        best[adjacency] = max(int(((a - b) ** 2).sum()) for a in points for b in against)
    assert best == {name: code.sensitivity_squared(name) for name in best}  # type: ignore[arg-type]


def test_graded_records_have_second_moments() -> None:
    reg = plan(unit="record", max_answers=None, loss_grid=10, epsilon=math.inf)
    units = single_units([0.9, 0.9, 0.1], [0.3, 1.0, 0.5])
    request = make_requests(reg, [3], number=0, round=1)[0]
    release = make_release(reg, request, counted(reg, units), FIRST, order="shuffled", time=TIME)
    assert (len(release.first), len(release.second)) == reg.mechanism.lengths == (2, 3)
    seen = masses(reg, np.asarray([*release.first, *release.second]).reshape(5, 1), 1)
    assert seen.second is not None
    assert [float(each[0]) for each in (seen.supported, seen.unsupported)] == pytest.approx([0.7, 1.3])
    assert [float(each[0]) for each in seen.second[:3]] == pytest.approx([1.09, 0.21, 0.49])


def test_the_privacy_of_a_release_is_stated() -> None:
    reg = plan(epsilon=1.0)
    assert epsilon_against(changed(reg, privacy={"adjacency": "zero-out"}), "replacement") > 1.0
    assert epsilon_against(reg, "zero-out") < 1.0
    assert "source" in noise_words(reg)
    plain = plan(epsilon=1.0, encoding="histograms")
    ratio = suffix_variance(reg.mechanism) / suffix_variance(plain.mechanism)
    assert ratio == pytest.approx(1.25, rel=1e-5)  # one and a quarter times the noise of totals alone


SEVEN = ("U", "S", "A", "UU", "US", "SS", "T")


@pytest.mark.parametrize("which", SEVEN)
def test_each_of_the_seven_events_is_refused(which: str) -> None:
    """A release just inside its margin is accepted, and one just outside refused; nothing else is out of bounds."""
    reg, n = changed(plan(epsilon=1.0), claim={}), 1000
    margin = plausible_margins(reg, 3)
    base = {"S": 300.0, "U": 300.0, "UU": 100.0, "US": 100.0, "SS": 100.0}
    moved = {
        "U": ({"U": 0.0}, -float(margin.low_unsupported[0])),
        "S": ({"S": 0.0}, -float(margin.low_supported[0])),
        "A": ({"S": n - base["U"]}, float(margin.high[0])),
        "UU": ({"UU": 0.0}, -float(margin.square[0])),
        "US": ({"US": 0.0}, -float(margin.cross[0])),
        "SS": ({"SS": 0.0}, -float(margin.square[0])),
        "T": ({"SS": n - base["UU"] - 2 * base["US"]}, float(margin.total[0])),
    }[which]
    place, reach = next(iter(moved[0])), moved[1]

    def release(share: float) -> Release:
        seen = {**base, **moved[0]}
        seen[place] += share * reach
        g, unit = reg.privacy.mass_grid, reg.mechanism.basis.unit
        whole = [seen[name] * unit * g * g * factor for name, factor in
                 (("S", 2), ("U", 2), ("UU", 1), ("US", 6), ("SS", 1))]  # fmt: skip
        request = make_requests(reg, [n], number=2, round=1)[0]
        made = make_release(reg, request, np.zeros((5, 2), dtype=np.int64), FIRST, order="shuffled", time=TIME)
        numbers = [round(each) for each in whole]
        return made.model_copy(update={"first": tuple(numbers[:2]), "second": tuple(numbers[2:])})

    assert implausible(reg, gives(release(0.999)), 3) is None
    assert implausible(reg, gives(release(1.001)), 3) is not None


def null_law(reg: Registration, r: float, kind: str, share: float = 0.0) -> Support:
    """Units all of whose accepted mass has mean risk r (shifted by `share`), every one accepted at each threshold.

    pure: all or nothing. split: half-bad sources and good ones. mild: every source has about the same share.
    """
    g, m = reg.privacy.mass_grid, len(reg.thresholds.values)
    bad = {"pure": [0, g], "split": [0, g // 2, 3 * g // 4], "mild": [0, g // 4, g]}[kind]
    target = (r + share) * g
    law = np.zeros(len(bad))
    over = [each for each in bad if each > target]
    for each in over:  # each value above the mean is balanced by units without loss
        law[bad.index(each)] = target / each / len(over)
    law[0] = 1 - law.sum()
    found = np.zeros((len(bad), 2, m + 1), dtype=np.int64)
    found[:, 1, m], found[:, 0, m] = bad, [g - each for each in bad]
    assert law @ np.asarray(bad) == pytest.approx(target)
    return Support(found, law)


NULLS = [
    ("pure", 0.2, math.inf, 0.0), ("split", 0.1, math.inf, 0.0), ("mild", 0.2, 4.0, 0.0), ("split", 0.2, 1.0, 0.0),
    ("mild", 0.1, 0.1, 0.0), ("split", 0.4, 0.3, 0.0), ("split", 0.2, math.inf, 0.1), ("mild", 0.2, 1.0, 0.1),
]  # fmt: skip


def false_share(kind: str, r: float, epsilon: float, unlike: float, policy: str = "first") -> float:
    """Share of runs that certify although the risk is the target's; two sites, alike or as far from it as `unlike`."""
    given = {"unit": "source", "max_answers": 4, "encoding": "moments", "grid": True, "thresholds": 3}
    weights = {"a": 0.5, "b": 0.5}
    choices = Choices(r, epsilon, batch=20, rounds=40, policy=policy, weights=weights, **given)  # type: ignore[arg-type]
    reg = register_grid(choices, ["a", "b"])
    sites = [null_law(reg, r, kind, shift) for shift in (unlike, -unlike)]
    return float(simulate(reg, sites, trials=400, seed=5).certified.mean())


@pytest.mark.parametrize("setting", NULLS)
def test_false_certificates_stay_within_the_failure_probability(setting: tuple[str, float, float, float]) -> None:
    assert false_share(*setting) <= 0.05


def test_recruitment_changes_nothing() -> None:
    assert false_share("split", 0.2, 4.0, 0.1, "recruit") <= 0.05


def test_noise_that_is_ignored_gives_false_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same runs without the noise term."""

    def silent(reg: Registration, sums: Ints | Floats, releases: float | Floats) -> Masses:
        return replace(masses(reg, sums, releases), noise=Covariance(*(np.zeros(3) for _ in range(3))))

    monkeypatch.setattr("fedsrc.simulate.trials.masses", silent)
    assert false_share("split", 0.2, 1.0, 0.0) > 0.3


SLOTS, RELEASES, RUNS, TARGET = 1, 1500, 200, 0.2
Missing = Callable[[Charge], Charge]


def honest(charge: Charge) -> Charge:
    return charge


def totals_only(charge: Charge) -> Charge:
    """The mutant: second moments of a missing release count as nothing."""
    return replace(charge, second=Seconds(*[np.zeros(1)] * 6))


def content_only(_: Charge) -> Charge:
    """The mutant: all slots accepted and unsupported, noise forgotten."""
    n, none = np.full(1, float(SLOTS)), np.zeros(1)
    return Charge(n, none, none, Seconds(none, none, none, n, none, none))


def withheld_runs(missing: Missing, epsilon: float) -> float:
    """Share of runs that ever claim a risk of at most 0.2 when every release worse than its charge is withheld.

    One source a release, all or nothing, at the boundary null; whoever withholds sees the noise too.
    """
    reg = plan(epsilon=epsilon, dropout="adversarial", capacities={"a": RELEASES})
    v = float(suffix_variance(reg.mechanism)[0])
    sd = np.sqrt([v, v, *(float(each[0]) for each in noise_of_seconds(np.array([v]))[:2])])
    rng, theta = np.random.default_rng(0), 0.3
    b, r = kappa(theta * (1 - TARGET)) * theta**2, TARGET
    total, charged = np.zeros((5, RUNS, 1)), np.zeros((9, RUNS, 1))
    ever = np.zeros(RUNS, dtype=bool)
    for number in range(1, RELEASES + 1):
        bad = (rng.random((RUNS, 1)) < TARGET).astype(float)
        scales = np.array([sd[0], sd[1], sd[2], sd[3], sd[2]])[:, None, None]
        U, S, UU, US, SS = np.stack([bad, 1 - bad, bad, 0 * bad, 1 - bad]) + scales * rng.normal(size=(5, RUNS, 1))
        gone = missing(lose(reg, empty(reg), [(0, SLOTS)], number).charge)
        assert gone.second is not None
        two, R = gone.second, 1 - r
        D = r * gone.supported - (1 - r) * gone.unsupported
        cost = theta * D - b * (R * R * two.total + 2 * R * two.cross + (1 - 2 * r) * two.side)
        gain = theta * (r * S - (1 - r) * U) - b * ((1 - r) ** 2 * UU - 2 * r * (1 - r) * US + r * r * SS)
        lost: Bools = gain < cost
        total += np.where(lost, 0.0, np.stack([U, S, UU, US, SS]))
        parts = np.stack([gone.unsupported, gone.supported, gone.accepted, *two])[:, None, :]
        charged += np.where(lost, parts, 0.0)
        if number % 50 == 0:
            second = Seconds(*total[2:], *charged[6:])
            noise = covariance("complementary", np.full(1, v * number))
            seen = Masses(total[0] + charged[0], total[1] + charged[1], total[0] + total[1] + charged[2], noise, second)
            ever |= look(reg, Sample(seen, number * SLOTS, 0.0)).risk_upper[:, 0] <= TARGET
    return float(ever.mean())


def test_withholding_what_looks_bad_does_not_pay() -> None:
    assert withheld_runs(honest, math.inf) <= 0.05
    assert withheld_runs(honest, 1.0) == 0


def test_a_charge_for_totals_alone_is_exploited() -> None:
    assert withheld_runs(totals_only, math.inf) > 0.15


def test_a_charge_without_the_noise_is_exploited() -> None:
    assert withheld_runs(content_only, 1.0) > 0.5


def test_a_missing_release_is_charged_at_every_rung() -> None:
    """The tally's charge is what `bounds` subtracts: wealth falls by the worst plausible release, rung by rung."""
    reg = plan(epsilon=1.0, dropout="adversarial", capacities={"a": 100})
    tally = lose(reg, empty(reg), [(0, 20)], 1)
    margin = plausible_margins(reg, 1)
    second = tally.charge.second
    assert second is not None
    assert (second.total, second.cross, second.side) == (20 + margin.total, margin.cross, margin.square)
    assert not any(part.any() for part in second[:3])
    seen = bounds.sample(reg, tally)
    assert seen.masses.second == second
    assert look(reg, seen).risk_upper.tolist() == [1.0]
