"""The monitor per group: a detector for each, one line raised by the share of each, and an alarm that names its group.

Runs are in the table's order and, where not said otherwise, without noise: every outcome is fixed. The null test
simulates 20 groups at the line, allowed to ring in 5% of runs: it fails a right rule with probability at most 1e-6, and
its control, without the shares, must fail it.

Mutants killed: a group that is not certified watched, another group's threshold, blocks taken for one another, the
share left out of the evidence or counted twice, units of no listed group counted in one, slots counted per group, a
likely start of another group, an alarm that names the closest group alone or the wrong one, a column of a score that
was not picked, groups stripped off a signed account, mass of a source shared where it counts whole.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from scipy.stats import binom

from fedsrc.cli.main import cli
from fedsrc.cli.monitor import write_registration
from fedsrc.common.canonical import digest
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.maths.arrays import Floats
from fedsrc.monitor.fresh import monitor_table, open_monitor
from fedsrc.monitor.monitor import MonitorChoices, brief, register_monitor, state, words
from fedsrc.protocol.monitor_status import read_status
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.panels import Groups
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.protocol.transcript import Arrived, Asked, Closed, read_transcript
from fedsrc.records.units import Records
from fedsrc.report.card import view_text
from fedsrc.report.carried import carry
from fedsrc.report.html import page
from fedsrc.report.markdown import card_markdown
from fedsrc.report.view import build_view, watched_by
from fedsrc.server.alarm import evidence, fold, log_line, plan_of, round_sample
from fedsrc.server.follow import Follower
from fedsrc.server.status import run_state
from fedsrc.server.status import words as status_words
from fedsrc.server.verify import verify
from tests.monitor.test_monitor import EXACT, KEY, SITES, World, call, fresh
from tests.support.helpers import changed, registration, table

NAMES = ("x", "y", "w", "z")  # z is not listed
LISTED = {"groups": NAMES[:3], "group_column": "ward"}
HALVES = dict.fromkeys(SITES, 0.5)
FALSE_ALARM, UNLIKELY = 0.05, 1e-6


def grouped(records: Records, seed: int = 5, shares: Sequence[float] = (0.3, 0.3, 0.3, 0.1)) -> Records:
    """The same records, each in a group."""
    group = np.random.default_rng(seed).choice(len(NAMES), len(records), p=shares)
    return replace(records, group=group, group_names=NAMES, digest=digest([records.digest, seed, *shares]))


def traffic(count: int, risks: Sequence[float], *, seed: int = 3, **how: Any) -> Records:
    """Deployed traffic in groups of such risks; scores at random."""
    rng = np.random.default_rng([seed, 1])
    base = grouped(fresh(count, seed=seed, bad=0.0), seed, **how)
    assert base.group is not None
    loss = (rng.random(count) < np.asarray(risks)[base.group]).astype(np.float64)
    return replace(base, loss=loss, score=rng.random(count), digest=digest([base.digest, *risks]))


class Wards(World):
    """A certificate with groups in its folder: 'w', which is bad throughout, is not certified."""

    def __init__(self, folder: Path, **choices: Any) -> None:
        self.folder, self.run = folder, folder / "run"
        self.ledger, self.place = folder / "ledger", folder / "monitor"
        base = grouped(table(4000, sites=SITES, ids=True))
        rng = np.random.default_rng(8)
        lost = (base.group == 2) & (rng.random(len(base)) < 0.6)
        self.records = replace(base, loss=np.where(lost, 1.0, base.loss), digest=digest("wards"))
        self.reg = registration(self.records, **{**EXACT, **LISTED, **choices})
        self.body = certify_table(self.reg, self.records, self.run, self.ledger, KEY, in_order=True)
        assert self.body.status == "CERTIFIED"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Wards:
    return Wards(tmp_path_factory.mktemp("wards"))


@pytest.fixture
def wards(made: Wards, tmp_path: Path) -> Wards:
    """The certificate of all tests, with a ledger and a monitor of its own."""
    mine = Wards.__new__(Wards)
    mine.__dict__ |= {**made.__dict__, "folder": tmp_path, "ledger": tmp_path / "ledger", "place": tmp_path / "monitor"}
    mine.ledger.write_bytes(made.ledger.read_bytes())
    return mine


def claims_of(reg: Registration) -> Groups:
    assert reg.groups is not None
    return reg.groups


# --- registration -----------------------------------------------------------------------------------------------


def test_the_certified_groups_are_watched_each_at_its_threshold(wards: Wards, tmp_path: Path, capsys: Any) -> None:
    reg, panel = wards.registered(), wards.body.panel
    assert panel is not None
    shown = {each.name: each.threshold for each in panel.members if each.threshold is not None}
    assert list(shown) == ["x", "y"]
    claims = claims_of(reg)
    assert (claims.names, claims.column, claims.shares) == (("x", "y"), "ward", (0.5, 0.5))
    assert [each.values for each in reg.cuts] == [(value,) for value in shown.values()]
    assert reg.mechanism.lengths == (2, 2)  # two numbers for each group
    assert Registration.from_toml(reg.to_toml()).digest == reg.digest
    with pytest.raises(FedsrcError, match="its registered target"):
        wards.registered(target_risk=0.25)
    write_registration(tmp_path / "monitor.toml", reg, "text")
    assert "watches 2 groups at 2 sites" in capsys.readouterr().out


def test_one_threshold_in_all_groups_is_watched_in_each(tmp_path: Path) -> None:
    world = Wards(tmp_path, group_claim="all", groups=NAMES[:2], weights=HALVES)
    reg = world.registered(sample="accepted")
    assert (claims_of(reg).names, claims_of(reg).own, claims_of(reg).claim) == (NAMES[:2], None, "each")
    assert {each.values for each in reg.cuts} == {(world.body.threshold,)}
    body = world.watch(traffic(800, (0.1, 0.6, 0.0, 0.0)), reg)
    assert (body.status, body.threshold) == ("ALARM", world.body.threshold)
    assert body.alarm is not None
    assert body.alarm.groups == ("y",)
    assert {each.threshold for each in body.groups or ()} == {world.body.threshold}
    assert any("draws from its accepted answers" in each.what for each in body.assumptions)
    assert read_status(world.place).threshold == world.body.threshold


def test_of_several_scores_the_picked_one_is_watched(tmp_path: Path, capsys: Any) -> None:
    """The second score orders losses, the first does not; it is written from 10 down to 0."""
    base = table(3000, sites=SITES, ids=True)
    noise = np.random.default_rng(4).random(len(base))
    records = replace(base, score=noise, others=base.score[:, None], digest=digest("scores"))
    scale = Scale(worst=10.0, best=0.0)
    reg = registration(records, **EXACT, also_scores=(("lift", scale),))
    body = certify_table(reg, records, tmp_path / "run", tmp_path / "ledger", KEY, in_order=True)
    assert body.panel is not None
    assert body.panel.picked == "lift"
    watched = register_monitor(tmp_path / "run", MonitorChoices())
    assert (watched.claim.column, watched.claim.score, watched.claim.scale) == ("lift", "lift", scale)
    assert (watched.thresholds.values, watched.panel) == ((body.threshold,), None)
    write_registration(tmp_path / "monitor.toml", watched, "text")
    assert f"watches one threshold for the score 'lift', {body.threshold!r}, at 2 sites" in capsys.readouterr().out
    better = replace(records, score=base.score, others=noise[:, None], digest=digest("first"))
    again = registration(better, **EXACT, also_scores=(("lift", scale),), claim={"score": "entailment"})
    first = certify_table(again, better, tmp_path / "first", tmp_path / "other", KEY, in_order=True)
    assert first.panel is not None
    assert first.panel.picked == "score"
    assert register_monitor(tmp_path / "first", MonitorChoices()).claim == again.claim


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"claim": "all", "own": None}, "every group by itself"),
        ({"own": [{"values": (0.2, 0.4), "weights": (0.5, 0.5)}] * 2}, "as many thresholds"),
        ({"span": "whole", "most": 2}, "only sources count whole"),
    ],
)
def test_what_a_monitor_of_groups_refuses(made: Wards, claims: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        changed(made.registered(weights=HALVES), claims=claims)


# --- the fold ---------------------------------------------------------------------------------------------------


def counted_by_hand(reg: Registration, records: Records, path: Path) -> list[dict[str, NDArray[np.float64]]]:
    """Unsupported and supported answers of every round and site, per group, counted in the table itself."""
    entries, _ = read_transcript(path)
    place, rounds, now = dict.fromkeys(SITES, 0), [], dict[str, NDArray[np.float64]]()
    assert records.group is not None
    for entry in entries:
        if isinstance(entry, Asked):
            site, slots = entry.request.site, entry.request.slots
            rows = np.flatnonzero(records.site == SITES.index(site))[place[site] : place[site] + slots]
            place[site] += slots
            taken = [rows[records.group[rows] == NAMES.index(name)] for name in reg.block_names]
            held = [each[records.score[each] >= value] for each, value in zip(taken, reg.row_values, strict=True)]
            now[site] = np.array([[records.loss[each].sum(), (1 - records.loss[each]).sum()] for each in held])
        if isinstance(entry, Closed):
            rounds.append(now)
            now = {}
    return rounds


def released(reg: Registration, path: Path) -> list[dict[str, NDArray[np.float64]]]:
    """The same from the releases: group after group, supported before unsupported."""
    entries, _ = read_transcript(path)
    rounds, now = [], dict[str, NDArray[np.float64]]()
    for entry in entries:
        if isinstance(entry, Arrived):
            numbers = np.array((*entry.release.first, *entry.release.second)).reshape(-1, 2)
            now[entry.release.site] = numbers[:, ::-1] / reg.mechanism.basis.unit
        if isinstance(entry, Closed):
            rounds.append(now)
            now = {}
    return rounds


def evidence_by_hand(
    reg: Registration, rounds: Sequence[Mapping[str, NDArray[np.float64]]], slots: Mapping[str, int]
) -> list[list[float]]:
    """After each round the log evidence of every group, as a sum over starts of products; without the share."""
    method, b = plan_of(reg), plan_of(reg).bets
    theta, v = np.geomspace(b.low, b.high / method.risk, b.count), (reg.mechanism.scale / reg.mechanism.basis.unit) ** 2
    least = min(slots[site.name] / (site.weight or 1.0) for site in reg.sites)
    found = []
    for t in range(1, len(rounds) + 1):
        levels = []
        for g in range(len(reg.block_names)):
            logs = []
            for seen in rounds[:t]:
                log = np.zeros(b.count)
                for site in reg.sites:
                    bet = theta * (1.0 if site.weight is None else least * site.weight / slots[site.name])
                    x, y = np.log(1 + bet * (1 - method.risk)), np.log(1 - bet * method.risk)
                    U, S = seen[site.name][g]
                    log += x * U + y * S - v * (x**2 + y**2) / 2
                logs.append(log)
            long = method.guarantee == "run length"
            starts = [sum(slots.values()) if long else 1 / (s * (s + 1)) for s in range(1, t + 1)]
            sums = [given * np.exp(np.sum(logs[s:], axis=0)).mean() for s, given in enumerate(starts)]
            levels.append(math.log(sum(sums) + (0 if long else 1 / (t + 1))))
        found.append(levels)
    return found


@pytest.mark.parametrize(
    ("choices", "slots"),
    [
        ({}, {"a": 50, "b": 50}),
        ({"run_length": 100_000}, {"a": 50, "b": 50}),
        ({"weights": {"a": 0.8, "b": 0.2}, "false_alarm": 0.01, "batch": 100}, {"a": 160, "b": 40}),
        ({"epsilon": 4.0, "run_length": 100_000}, {"a": 50, "b": 50}),  # no release is refused by chance
    ],
)
def test_every_group_has_the_detector_of_its_own_answers(
    wards: Wards, choices: dict[str, Any], slots: dict[str, int]
) -> None:
    shares = (0.7, 0.3)
    reg = changed(wards.registered(**choices), claims={"shares": shares})
    records = traffic(1600, (0.1, 0.45, 0.9, 0.9))
    body = wards.watch(records, reg)
    rounds = released(reg, wards.place / TRANSCRIPT)
    if "epsilon" not in choices:
        by_table = counted_by_hand(reg, records, wards.place / TRANSCRIPT)
        assert all((a[site] == b[site]).all() for a, b in zip(rounds, by_table, strict=True) for site in SITES)
    by_hand = [[*(np.array(row) + np.log(shares))] for row in evidence_by_hand(reg, rounds, slots)]
    assert body.groups is not None
    assert [each.log_evidence for each in body.groups] == pytest.approx(by_hand[-1], abs=1e-7)
    assert [row.log_evidence for row in body.evidence] == pytest.approx([max(row) for row in by_hand], abs=1e-7)
    assert [row.group for row in body.evidence] == [("x", "y")[int(np.argmax(row))] for row in by_hand]
    line = log_line(plan_of(reg))
    assert body.log_line == pytest.approx(line)
    rung = [(i, [*np.array(["x", "y"])[np.array(row) >= line]]) for i, row in enumerate(by_hand, 1) if max(row) >= line]
    assert rung == ([] if body.alarm is None else [(body.alarm.round, [*(body.alarm.groups or ())])])
    assert rung or "epsilon" in choices
    if "epsilon" not in choices and "weights" not in choices:
        bad, good = np.sum([rounds[-1][site][1] for site in SITES], axis=0)
        assert body.evidence[-1].risk_estimate == pytest.approx(bad / (bad + good), abs=1e-4)
        for g, each in enumerate(body.groups):
            bad, good = np.sum([seen[site][g] for seen in rounds[-5:] for site in SITES], axis=0)
            assert each.recent_risk_estimate == pytest.approx(bad / (bad + good), abs=1e-4)


def test_a_bad_group_rings_where_the_whole_traffic_does_not(wards: Wards, tmp_path: Path) -> None:
    """All other groups got better. The change begins with the second table, in round 5 of the group."""
    reg, other = wards.registered(), tmp_path / "another"
    other.write_bytes(wards.ledger.read_bytes())
    alike, worse = traffic(400, (0.1, 0.1, 0.0, 0.0), seed=11), traffic(1200, (0.02, 0.6, 0.0, 0.0), seed=12)
    assert wards.watch(alike, reg).status == "STILL SUPPORTED"
    body = wards.watch(worse, reg)
    assert body.status == "ALARM"
    assert body.alarm is not None
    assert (body.alarm.groups, body.alarm.likely_since) == (("y",), 5)
    one = Registration.of({**reg.model_dump(), "claims": {"kind": "one"}})
    for records in (alike, worse):
        overall = monitor_table(one, records, tmp_path / "overall", other, KEY, in_order=True)
        assert overall.status == "STILL SUPPORTED"


def test_an_answer_of_no_watched_group_counts_in_none(wards: Wards) -> None:
    """Group z was not listed, and w not certified: both are all bad here."""
    body = wards.watch(traffic(1600, (0.1, 0.1, 1.0, 1.0), shares=(0.25, 0.25, 0.25, 0.25)))
    assert (body.status, body.records) == ("STILL SUPPORTED", 1600)
    assert [each.name for each in body.groups or ()] == ["x", "y"]
    others = replace(traffic(400, (1.0, 1.0, 1.0, 1.0), seed=9), group_names=("p", "q", "r", "y"))
    assert others.group is not None
    few = replace(others, group=np.where(np.arange(400) == 7, 3, others.group % 3), digest=digest("one y"))
    with pytest.warns(UserWarning, match=r"no row has the group 'x' in column 'ward'; nothing is watched there"):
        after = wards.watch(few)
    assert (after.status, after.records) == ("STILL SUPPORTED", 2000)
    assert all((each.log_evidence or 0.0) < 0 for each in after.groups or ())


def test_a_table_without_any_watched_group_is_refused_before_it_is_spent(wards: Wards) -> None:
    """A renamed group would otherwise leave a monitor that hears nothing, and says so of no one."""
    alone = replace(traffic(400, (0.1, 0.1, 1.0, 1.0), seed=9), group_names=("X-ray", "Y", "w", "z"))
    before = wards.ledger.read_bytes()
    with pytest.raises(FedsrcError, match="no row has the group 'x', 'y' in column 'ward'"):
        wards.watch(alone)
    assert wards.ledger.read_bytes() == before
    assert not (wards.place / TRANSCRIPT).exists()
    named = replace(alone, group_names=NAMES, digest=digest("named"))
    assert wards.watch(named).records == 400
    with pytest.raises(FedsrcError, match="no row has the group"):
        wards.watch(replace(alone, digest=digest("begun")))
    assert state(wards.place).records == 400


def test_the_status_of_a_monitor_counts_no_groups_that_are_shown(wards: Wards) -> None:
    """A monitor shows no target and bounds no risk: it has an alarm, and an account of its own."""
    wards.watch(traffic(400, (0.1, 0.1, 1.0, 1.0)))
    said = run_state(wards.place)
    assert (said.shown, said.panel) == ("", None)
    line = next(line for line in status_words(said) if line.startswith("Round "))
    assert line == f"Round {said.rounds} of at most 1000000: 400 units in {said.releases} releases"


def test_groups_that_ring_together_are_all_named(wards: Wards) -> None:
    body = wards.watch(traffic(1600, (0.95, 0.9, 0.0, 0.0)), wards.registered(batch=400))
    assert body.alarm is not None
    assert body.alarm.groups == ("x", "y")
    x, y = (repr(each.threshold) for each in body.groups or ())
    assert body.statement == (
        f"ALARM after 800 fresh records: among answers in group 'x' with a score of at least {x}, and in group 'y' with"
        f" a score of at least {y}, the share of unsupported ones has risen above 20%. Do not rely on the certificate"
        " any longer."
    )
    assert read_status(wards.place).groups == ("x", "y")


def test_a_source_counts_whole_in_each_of_its_groups(tmp_path: Path) -> None:
    """Sources of two answers, one in x and one in y: whole, each is a supported unit of both."""
    base = table(4000, ids=True)
    names = tuple(f"s{i}" for i in range(2000))
    records = replace(
        base, source=np.arange(4000) // 2, source_names=names, group=np.arange(4000) % 2, group_names=("x", "y"),
        digest=digest("sources"),
    )  # fmt: skip
    sources = {"unit": "source", "max_answers": 2, "answer_weight": "source", "groups": ("x", "y")}
    for span, mass in (("whole", 1.0), ("shares", 0.5)):
        place = tmp_path / span
        reg = registration(records, **EXACT, **sources, group_span=span, min_acceptance=0.02)
        assert certify_table(reg, records, place / "run", place / "ledger", KEY).status == "CERTIFIED"
        watched = register_monitor(place / "run", MonitorChoices())
        claims = claims_of(watched)
        assert (claims.span, claims.most, watched.privacy.unit) == (span, 2 if span == "whole" else 1, "source")
        unit = watched.mechanism.grid * watched.mechanism.basis.unit
        assert watched.mechanism.sensitivity == pytest.approx(math.sqrt(2 * claims.most) * unit)
        week = replace(
            records, score=np.ones(4000), loss=np.zeros(4000), ids=[f"n{i}" for i in range(4000)],
            source_names=tuple(f"n{i}" for i in range(2000)), digest=digest(["week", span]),
        )  # fmt: skip
        monitor_table(watched, week, place / "monitor", place / "ledger", KEY)
        entries, _ = read_transcript(place / "monitor" / TRANSCRIPT)
        first = next(each.release for each in entries if isinstance(each, Arrived))
        numbers = np.array((*first.first, *first.second)).reshape(2, 2)
        assert (numbers / unit).tolist() == [[mass * first.slots, 0.0]] * 2


# --- false alarms -----------------------------------------------------------------------------------------------


def twenty(**method: Any) -> Registration:
    """A monitor of twenty groups with uneven shares, without noise."""
    shares = np.arange(1, 21) / 210
    return Registration.of({
        "claim": {"target_risk": 0.2},
        "thresholds": {"values": (0.5,), "weights": (1.0,)},
        "certificate": {"method": "monitor", "certificate": "0" * 64, "risk": 0.2, **method},
        "privacy": {"epsilon": math.inf},
        "claims": {"kind": "groups", "names": [f"g{i}" for i in range(20)], "shares": shares.tolist()},
        "sites": [{"name": "s"}],
    })  # fmt: skip


def evidence_at_the_line(reg: Registration, runs: int, rounds: int) -> Floats:
    """The largest log evidence of each group (runs, groups), all groups having exactly the risk of the line."""
    rng, unit, slots = np.random.default_rng(17), reg.mechanism.basis.unit, 400
    log_M, best = np.full((runs, 20, plan_of(reg).bets.count), -np.inf), np.full((runs, 20), -np.inf)
    for t in range(1, rounds + 1):
        accepted = rng.binomial(rng.multinomial(slots, np.full(20, 0.05), runs), 0.9)
        bad = rng.binomial(accepted, plan_of(reg).risk)
        sums = np.stack([accepted - bad, bad], axis=-1)[:, None, :, :, None] * unit  # one site, one threshold
        log_M, _ = fold(reg, log_M, round_sample(reg, [slots], sums), t)
        best = np.maximum(best, evidence(reg, log_M, t))
    return best


def test_twenty_groups_at_the_line_seldom_ring_and_more_often_without_their_shares() -> None:
    """False alarms in 3,000 runs of 30 rounds, against the exact tail of 5%. The control has every group's line as low
    as that of a single one."""
    reg, runs = twenty(false_alarm=FALSE_ALARM), 3000
    best, line = evidence_at_the_line(reg, runs, 30), log_line(plan_of(reg))
    rung = int((best >= line).any(axis=1).sum())
    too_low = int((best - np.log(claims_of(reg).shares) >= line).any(axis=1).sum())
    assert binom.sf(rung - 1, runs, FALSE_ALARM) > UNLIKELY
    assert binom.sf(too_low - 1, runs, FALSE_ALARM) < UNLIKELY
    assert rung > 0  # the line is tried


# --- what is said -----------------------------------------------------------------------------------------------


def test_what_is_said_of_groups(wards: Wards) -> None:
    reg, thresholds = wards.registered(), [repr(each.values[0]) for each in wards.registered().cuts]
    opened = open_monitor(reg, wards.place, KEY)
    assert (opened.status, opened.threshold) == ("NOT MONITORED YET", None)
    assert [each.log_evidence for each in opened.groups or ()] == [None, None]
    assert f"  group 'x', score >= {thresholds[0]}" in words(state(wards.place))
    assert (read_status(wards.place).threshold, read_status(wards.place).groups) == (None, None)
    good = wards.watch(traffic(400, (0.1, 0.1, 0.0, 0.0), seed=11), reg)
    assert good.statement == (
        "Still supported: 400 fresh records do not show more than 20% unsupported among answers in group 'x' with a"
        f" score of at least {thresholds[0]}, or in group 'y' with a score of at least {thresholds[1]}."
    )
    together = "all of them taken together."
    assert good.guarantee == (
        "In groups in which at most 20% of accepted answers are unsupported, the probability that an alarm is ever"
        f" raised is at most 5%, {together}"
    )
    assert "It says nothing of answers in no listed group" in good.does_not_say[-1]
    wards.watch(traffic(1200, (0.02, 0.6, 0.0, 0.0), seed=12), reg)
    now = state(wards.place, certificate=wards.run)
    assert (now.alarm_groups, now.threshold, now.progress) == (("y",), None, 1.0)
    last = now.history[-1]
    assert now.sentence == (
        f"ALARM after {now.alarm_records:,} fresh records: among answers in group 'y' with a score of at least"
        f" {thresholds[1]}, the share of unsupported ones has risen above 20%. Do not rely on the certificate any"
        " longer."
    )
    assert f"Risk in group 'y' in round {last.round} about {last.risk_estimate:.3g}" in brief(now)
    text = "\n".join(words(now))
    assert "in the group closest to the line, times its share" in text
    assert f"  group 'y', score >= {thresholds[1]}  evidence {last.log_evidence:.2f}" in text
    long = wards.watch(traffic(100, (0.1,) * 4, seed=13), wards.registered(run_length=5000), wards.folder / "long")
    assert long.guarantee.endswith(f"an alarm comes after 5,000 monitored records or more on average, {together}")


def test_the_card_names_the_group(wards: Wards, tmp_path: Path) -> None:
    """As text, as Markdown, and where the page that carries run and monitor is verified."""
    wards.watch(traffic(1200, (0.02, 0.6, 0.0, 0.0), seed=12))
    run, said = Follower(wards.run), "Its monitor has raised the alarm for group 'y'. What it said no longer stands."
    run.update()
    view = build_view(run, monitor=watched_by(wards.place, wards.run))
    assert view_text(view).startswith(f"Status: ALARM: {said}\n  The monitor: ALARM after")
    assert html.unescape(card_markdown(view).splitlines()[0]).endswith(f"**: {said}")
    carrying = tmp_path / "card.html"
    carrying.write_text(page(view, carried=carry(view, wards.place)))
    told = CliRunner().invoke(cli, ["verify", str(carrying)])
    assert (told.exit_code, f"{said}\n\nStatus: ALARM" in told.stdout) == (1, True)


def test_an_account_whose_groups_were_changed_is_refused(wards: Wards) -> None:
    """Signed anew, as only the server could: what is left out, or added, is noticed all the same."""
    body = wards.watch(traffic(1200, (0.02, 0.6, 0.0, 0.0), seed=12))
    assert body.alarm is not None
    assert verify(wards.place).signed == body
    for lie in (
        {"groups": None},
        {"alarm": body.alarm.model_copy(update={"groups": ("x",)})},
        {"alarm": body.alarm.model_copy(update={"groups": None})},
    ):
        body.model_copy(update=lie).signed(KEY).save(wards.place / CERTIFICATE)
        with pytest.raises(DamagedError, match=f"its signature fits: {next(iter(lie))} differs"):
            verify(wards.place)
    single = World(wards.folder / "single")
    told = single.watch(fresh(100, seed=4, bad=0.1))
    told.model_copy(update={"groups": body.groups}).signed(KEY).save(single.place / CERTIFICATE)
    with pytest.raises(DamagedError, match="its signature fits: groups differs"):
        verify(single.place)


def test_the_command_line_names_the_group(wards: Wards, tmp_path: Path) -> None:
    records = traffic(1200, (0.02, 0.6, 0.0, 0.0), seed=12)
    assert records.group is not None
    rows = zip(records.ids or [], records.site, records.score, records.loss, records.group, strict=True)
    lines = [f"{name},{SITES[site]},{score},{int(loss)},{NAMES[group]}" for name, site, score, loss, group in rows]
    path = tmp_path / "week.csv"
    path.write_text("\n".join(["id,site,score,loss,ward", *lines]) + "\n")
    run, ledger = ("--certificate", str(wards.run)), ("--ledger", str(wards.ledger))
    told = json.loads(call(wards, str(path), *run, *ledger, "--in-order", "--format", "json", code=1))
    assert (told["alarm_groups"], told["threshold"]) == (["y"], None)
    assert [each["name"] for each in told["groups"]] == ["x", "y"]
    assert told["history"][-1]["group"] == "y"
    assert "ALARM after" in call(wards, code=1)
    assert "in group 'y' with a score" in call(wards, code=1)
