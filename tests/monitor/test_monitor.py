"""The monitor as a whole: registered on a verified certificate, fed table after table, and its alarm for good.

Runs have no noise and keep the table's order, so every outcome is fixed: the chance of a false alarm is zero. The
equalities of the detector itself are in test_detector.py.

Mutants killed: a certificate that was not checked, a table counted twice, spent units released again, an alarm that
goes away, units spent after an alarm, a round lost or repeated by a crash, site weights ignored, a monitor taken for a
certificate, the refusal budget not taken off the false-alarm probability.
"""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.common.canonical import digest, file_digest
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.live.play import live_session
from fedsrc.federation.local import certify_table
from fedsrc.monitor.fresh import monitor_table
from fedsrc.monitor.monitor import MonitorChoices, brief, monitor_alarm, register_monitor, state, words
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.judgements import Monitor
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Announced, Arrived, Asked, Closed, Ended, Transcript, read_transcript
from fedsrc.records.units import Records
from fedsrc.server.alarm import RECENT, log_line, plan_of, round_sample
from fedsrc.server.recruiter import next_slots
from fedsrc.server.state import Replay
from fedsrc.server.tally import empty
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, describe_registration
from tests.support.helpers import changed, registration, table

KEY = Key.generate()
SITES = ("a", "b")
EXACT = {"epsilon": math.inf, "batch": 50}


def fresh(count: int, *, seed: int, bad: float, sites: tuple[str, ...] = SITES) -> Records:
    """Deployed traffic: every answer accepted by any threshold, so many of them unsupported."""
    rng = np.random.default_rng(seed)
    base = table(count, seed=seed, sites=sites)
    ids = [f"{seed}-{i}" for i in range(count)]
    return replace(
        base,
        digest=digest(["fresh", count, seed, bad]),
        score=np.full(count, 1.0),
        loss=(rng.random(count) < bad).astype(np.float64),
        ids=ids,
    )


GOOD, WORSE = fresh(400, seed=1, bad=0.1), fresh(600, seed=2, bad=0.5)


class World:
    """A certificate in its folder, and the ledger of its sites."""

    def __init__(self, folder: Path, **choices: Any) -> None:
        self.folder, self.run = folder, folder / "run"
        self.ledger, self.place = folder / "ledger", folder / "monitor"
        self.records = table(1500, sites=SITES, ids=True)
        self.reg = registration(self.records, **{**EXACT, **choices})
        assert certify_table(self.reg, self.records, self.run, self.ledger, KEY).status == "CERTIFIED"

    def registered(self, **choices: Any) -> Registration:
        return register_monitor(self.run, MonitorChoices(**choices))

    def watch(self, records: Records, reg: Registration | None = None, place: Path | None = None) -> MonitorAccount:
        return monitor_table(
            reg or self.registered(), records, place or self.place, self.ledger, KEY, in_order=True
        )  # fmt: skip

    def spent(self, records: Records, site: str = "a") -> int:
        with closing(Ledger(self.ledger)) as ledger:
            found = [each for each in ledger.accounts(site) if each.intake.content == records.digest]
        return found[0].spent if found else 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_forged_transcript_is_not_signed(world: World) -> None:
    """Whoever can write to the folder cannot make good news of bad: the ledger knows what was released."""
    world.watch(fresh(100, seed=4, bad=0.5))
    path = world.place / TRANSCRIPT
    entries, _ = read_transcript(path)
    path.unlink()
    with closing(Transcript(path)) as transcript:
        for entry in entries:
            if isinstance(entry, Arrived):
                said = entry.release
                best = tuple(a + b for a, b in zip(said.first, said.second, strict=True))
                lie = said.model_copy(update={"first": best, "second": (0,) * len(best)})
                transcript.append(Arrived(release=lie))
            elif not isinstance(entry, Ended):
                transcript.append(entry)
    signed = (world.place / CERTIFICATE).read_bytes()
    with pytest.raises(FedsrcError, match="does not hold the release that site 'a' made for request 1"):
        world.watch(GOOD)
    assert (world.place / CERTIFICATE).read_bytes() == signed
    assert world.spent(GOOD) == 0


# --- registration -----------------------------------------------------------------------------------------------


def test_a_monitor_is_registered_on_the_certificate(world: World) -> None:
    reg = world.registered()
    body = verify(world.run).certificate
    method = plan_of(reg)
    assert method.certificate == file_digest(world.run / CERTIFICATE)
    assert reg.thresholds.values == (body.threshold,)
    assert (method.risk, method.guarantee, method.false_alarm) == (0.2, "probability", 0.05)
    assert reg.claim == world.reg.claim
    assert Registration.from_toml(reg.to_toml()).digest == reg.digest


def test_one_threshold_needs_less_noise(tmp_path: Path) -> None:
    world = World(tmp_path, epsilon=4.0)
    rule, many = world.registered().mechanism, world.reg.mechanism
    assert rule.basis.p == 1
    assert rule.rho == pytest.approx(many.rho, rel=1e-6)
    assert rule.scale < 0.8 * many.scale
    assert rule.sensitivity == math.sqrt(2) * rule.basis.unit  # one supported, the other unsupported


def test_the_line_holds_back_the_refusal_budget(world: World) -> None:
    method = plan_of(world.registered(false_alarm=0.1))
    assert method.refusal_budget == pytest.approx(0.0002)
    assert log_line(method) == pytest.approx(-math.log(0.1 - 0.0002))
    assert log_line(plan_of(world.registered(run_length=5000))) == pytest.approx(math.log(5000))


def test_what_cannot_be_registered(world: World, tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="either"):
        world.registered(false_alarm=0.1, run_length=100)
    with pytest.raises(FedsrcError, match="below the certified target"):
        world.registered(risk=0.1)
    with pytest.raises(FedsrcError, match="not a site"):
        world.registered(weights={"a": 0.5, "x": 0.5})
    strict = registration(world.records, **EXACT, target_risk=0.001)
    certify_table(strict, world.records, tmp_path / "none", tmp_path / "other", KEY)
    with pytest.raises(FedsrcError, match="nothing is certified"):
        register_monitor(tmp_path / "none", MonitorChoices())
    world.watch(GOOD)
    with pytest.raises(FedsrcError, match="nothing is certified"):
        register_monitor(world.place, MonitorChoices())


@pytest.mark.parametrize(
    "wrong",
    [
        {"guarantee": "run length"},
        {"run_length": 100},
        {"guarantee": "run length", "run_length": 100, "refusal_budget": 0.01},
        {"refusal_budget": 0.05},
    ],
)
def test_guarantees_that_contradict_themselves(world: World, wrong: dict[str, Any]) -> None:
    fields = {"certificate": "0" * 64, "risk": 0.2, **wrong}
    with pytest.raises(ValueError, match=r"run_length|refusal budget"):
        Monitor.model_validate(fields)


def test_adversarial_dropout_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="adversarial"):
        changed(world.registered(), schedule={"dropout": "adversarial"})


# --- the fold ---------------------------------------------------------------------------------------------------


def evidence_by_hand(reg: Registration, path: Path) -> list[float]:
    """Log evidence after each round, as a sum over starts of products, from the transcript's own releases."""
    entries, _ = read_transcript(path)
    method, b = plan_of(reg), plan_of(reg).bets
    theta = np.geomspace(b.low, b.high / method.risk, b.count)
    x, y = np.log(1 + theta * (1 - method.risk)), np.log(1 - theta * method.risk)
    unit, factors, slots, found = reg.mechanism.basis.unit, [], [], []
    row, n = np.zeros(b.count), 0
    for entry in entries:
        if isinstance(entry, Arrived):
            S, U = entry.release.first[0] / unit, entry.release.second[0] / unit
            row, n = row + x * U + y * S, n + entry.release.slots
        if isinstance(entry, Closed):
            factors.append(row)
            slots.append(n)
            row, n = np.zeros(b.count), 0
            t = len(factors)
            given = slots if method.guarantee == "run length" else [1 / (k * (k + 1)) for k in range(1, t + 1)]
            sums = [given[k] * np.exp(np.sum(factors[k:], axis=0)).mean() for k in range(t)]
            found.append(math.log(sum(sums) + (0 if method.guarantee == "run length" else 1 / (t + 1))))
    return found


@pytest.mark.parametrize("choices", [{}, {"run_length": 100_000}, {"false_alarm": 0.01, "risk": 0.25}])
def test_evidence_is_the_sum_over_starts(world: World, choices: dict[str, Any]) -> None:
    reg = world.registered(**choices)
    world.watch(GOOD, reg)
    body = world.watch(WORSE, reg)
    by_hand = evidence_by_hand(reg, world.place / TRANSCRIPT)
    assert [row.log_evidence for row in body.evidence] == pytest.approx(by_hand, abs=1e-7)
    assert body.status == "ALARM"
    assert body.alarm is not None
    assert body.alarm.round == next(i for i, level in enumerate(by_hand, 1) if level >= log_line(plan_of(reg)))


def test_it_rings_in_the_first_round_at_the_line(world: World) -> None:
    """A slow change in small rounds, so that the line is crossed and not jumped over."""
    reg = world.registered(batch=10)
    body = world.watch(fresh(1600, seed=3, bad=0.35), reg)
    levels = [row.log_evidence for row in body.evidence]
    line = log_line(plan_of(reg))
    assert body.status == "ALARM"
    assert all(level < line for level in levels[:-1])
    assert line <= levels[-1] < 1.5 * line


def test_certified_then_supported_then_alarm(world: World) -> None:
    good = world.watch(GOOD)
    assert good.status == "STILL SUPPORTED"
    assert good.records == 400
    now = state(world.place, certificate=world.run)
    assert (now.state, now.alarm, now.rounds) == ("still supported", False, 4)
    assert not monitor_alarm(world.place)
    assert now.recent_risk_estimate == pytest.approx(GOOD.loss.mean(), abs=1e-4)

    bad = world.watch(WORSE)
    assert bad.status == "ALARM"
    assert bad.alarm is not None
    assert bad.alarm.likely_since == 5  # the first round of the worse table
    after = state(world.place, trusted=(public_hex(KEY),))
    assert after.state == "alarm"
    assert after.progress == 1.0
    assert monitor_alarm(world.place)


def test_what_is_shown_says_what_it_is_over(world: World) -> None:
    """The rounds of the estimate, what evidence is, and where its line comes from. There is no noise here."""
    world.watch(GOOD)
    world.watch(fresh(200, seed=9, bad=0.1))
    now = state(world.place)
    text = "\n".join(words(now))
    last = now.rounds
    assert (last, now.state) == (6, "still supported")
    recent = [row for row in now.history if row.round > last - RECENT]
    mean = np.mean([row.risk_estimate for row in recent])  # rounds are of one size, and all is accepted
    assert now.recent_risk_estimate == pytest.approx(mean, abs=1e-3)
    assert f"Risk over rounds {recent[0].round} to {last} about {now.recent_risk_estimate:.3g}" in text
    assert "the logarithm of what bets on it have won" in text
    assert "(alarm at 3.00, the logarithm of 20, which the guarantee above fixes)" in text
    rows = [line for line in text.splitlines() if line.startswith("  round")]
    assert rows[-1].endswith(f"risk about {now.history[-1].risk_estimate:.3g}")
    assert f"over rounds {recent[0].round} to {last} about" in brief(now)
    world.watch(WORSE)
    rung = state(world.place)
    assert (rung.alarm_round, (rung.history[-1].risk_estimate or 0) > 0.4) == (rung.rounds, True)
    for shown in ("\n".join(words(rung)), brief(rung)):
        assert f"in round {rung.rounds} about {rung.history[-1].risk_estimate:.3g}" in shown
        assert f"about {rung.recent_risk_estimate:.3g}" not in shown.partition("isk in round")[2]
    long = register_monitor(world.run, MonitorChoices(run_length=5000))
    world.watch(fresh(100, seed=8, bad=0.1), long, world.folder / "long")
    other = "\n".join(words(state(world.folder / "long")))
    assert "the logarithm of 5,000" in other
    assert "Risk in round 1 about" in other


def test_before_any_release_it_says_certified(world: World) -> None:
    """A registered monitor whose sites have nothing yet: one site of two is silent, and rounds wait for it."""
    reg = world.registered(weights={"a": 0.5, "b": 0.5})
    alone = fresh(100, seed=5, bad=0.9, sites=("a",))
    body = world.watch(alone, reg)
    assert (body.status, body.records) == ("NOT MONITORED YET", 0)
    now = state(world.place)
    assert now.state == "certified"
    assert brief(now) == now.sentence
    assert "  no release yet" in words(now)
    assert world.spent(alone) == 0


def test_the_alarm_is_for_good_and_spends_nothing_more(world: World) -> None:
    world.watch(WORSE)
    before = (world.place / TRANSCRIPT).read_bytes()
    spent = world.spent(WORSE)
    body = world.watch(GOOD)
    assert body.status == "ALARM"
    assert (world.place / TRANSCRIPT).read_bytes() == before
    assert (world.spent(GOOD), world.spent(WORSE)) == (0, spent)
    with closing(Ledger(world.ledger)) as ledger:
        assert GOOD.digest not in [each.intake.content for each in ledger.accounts("a")]  # it can still calibrate


def test_the_same_table_again_changes_nothing(world: World) -> None:
    first = world.watch(GOOD)
    assert world.watch(GOOD) == first
    assert world.spent(GOOD) == 200


def test_an_old_table_can_be_finished_later(world: World) -> None:
    """What a site has is said anew with every table, and is no promise."""
    reg = world.registered(batch=150)
    world.watch(GOOD, reg)
    entries, _ = read_transcript(world.place / TRANSCRIPT)
    said = [(each.site, each.units) for each in entries if isinstance(each, Announced)]
    assert said == [("a", 200), ("b", 200)]
    world.watch(fresh(200, seed=7, bad=0.1), reg)
    assert state(world.place).records == 600


# --- spent units ------------------------------------------------------------------------------------------------


def test_spent_units_are_refused(world: World) -> None:
    mixed = replace(GOOD, digest=digest("mixed"), ids=[f"u{i}" for i in range(400)])  # ids of the certified records
    with pytest.raises(FedsrcError, match="taken in before"):
        world.watch(mixed)
    again = world.watch(GOOD)
    elsewhere = world.registered(run_length=1000)
    with pytest.raises(FedsrcError, match="released before"):
        world.watch(GOOD, elsewhere, world.folder / "second")
    assert again.records == 400


def test_a_site_limit_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path, epsilon=4.0)
    with closing(Ledger(world.ledger)) as ledger:
        ledger.limit(2.0)
    with pytest.raises(FedsrcError, match="allows epsilon 2"):
        world.watch(GOOD)
    assert world.watch(GOOD, world.registered(epsilon=1.0)).privacy.epsilon == 1.0


# --- crashes ----------------------------------------------------------------------------------------------------


class KilledError(Exception):
    """The process is gone."""


def test_killed_at_any_write_it_goes_on_with_the_same_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after every write of the transcript. Evidence and spending are those of an undisturbed run."""
    undisturbed = World(tmp_path / "whole")
    expected = undisturbed.watch(GOOD).evidence
    append, writes = Transcript.append, 0
    deaths = 0
    for when in ("before", "after"):
        for fatal in range(1, 10):
            world = World(tmp_path / f"{when}-{fatal}")
            writes = 0

            def dying(self: Transcript, *entries: Any, fatal: int = fatal, when: str = when) -> None:
                nonlocal writes
                writes += bool(entries)
                if writes == fatal and when == "before":
                    raise KilledError
                append(self, *entries)
                if writes == fatal:
                    raise KilledError

            monkeypatch.setattr(Transcript, "append", dying)
            try:
                world.watch(GOOD)
            except KilledError:
                deaths += 1
            monkeypatch.setattr(Transcript, "append", append)
            assert world.watch(GOOD).evidence == expected
            assert world.spent(GOOD) == 200
    assert deaths >= 16


def test_an_interrupted_round_wants_its_own_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are open, the ledger has not answered, and the user brings another table without that site."""
    append = Transcript.append

    def dying(self: Transcript, *entries: Any) -> None:
        append(self, *entries)
        if any(isinstance(each, Asked) for each in entries):
            raise KilledError

    monkeypatch.setattr(Transcript, "append", dying)
    with pytest.raises(KilledError):
        world.watch(GOOD)
    monkeypatch.setattr(Transcript, "append", append)
    other = fresh(200, seed=8, bad=0.1, sites=("a",))
    with pytest.raises(FedsrcError, match="interrupted round still asks site 'b'"):
        world.watch(other)
    assert world.watch(GOOD).records == 400
    assert world.spent(other) == 0


# --- the protocol -----------------------------------------------------------------------------------------------


def test_a_changed_folder_is_refused(world: World) -> None:
    world.watch(WORSE)
    file = world.place / TRANSCRIPT
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-3]))  # the alarm is cut off
    with pytest.raises(FedsrcError, match="does not follow"):
        monitor_alarm(world.place)
    file.write_bytes(whole.replace(b'"second":[', b'"second":[1', 1))
    with pytest.raises(FedsrcError):
        monitor_alarm(world.place)
    file.write_bytes(whole)
    with pytest.raises(FedsrcError, match="not trusted"):
        monitor_alarm(world.place, trusted=(public_hex(Key.generate()),))
    with pytest.raises(FedsrcError, match="not the folder of a monitor"):
        monitor_alarm(world.run)


def test_it_can_be_asked_while_it_is_at_work(world: World) -> None:
    """The account on disk is of an earlier line; what has come since counts, an alarm above all."""
    world.watch(GOOD)
    account = (world.place / CERTIFICATE).read_bytes()
    world.watch(WORSE)
    (world.place / CERTIFICATE).write_bytes(account)
    assert state(world.place).alarm_round is not None
    (world.place / CERTIFICATE).write_bytes(account.replace(b'"records": 400', b'"records": 401', 1))
    with pytest.raises(FedsrcError, match="does not follow"):
        state(world.place)


def test_a_monitor_is_of_one_certificate(world: World, tmp_path: Path) -> None:
    world.watch(GOOD)
    other = World(tmp_path / "other", target_risk=0.25)
    with pytest.raises(FedsrcError, match="another certificate"):
        state(world.place, certificate=other.run)


def test_no_entry_after_the_alarm(world: World) -> None:
    world.watch(WORSE)
    reg = world.registered()
    entries, _ = read_transcript(world.place / TRANSCRIPT)
    assert isinstance(entries[-1], Ended)
    replay = Replay(reg, entries[:-1])
    assert replay.why_over() == "alarm"
    with pytest.raises(FedsrcError, match="cannot end here"):
        replay.step(Ended(reason="units used"))


def test_rounds_keep_the_weights(world: World) -> None:
    """A monitor does not make up for what a site missed: every round is in proportion, or waits."""
    reg = world.registered(weights={"a": 0.75, "b": 0.25}, batch=100)
    nothing = empty(reg)
    assert next_slots(reg, nothing, [1000, 1000]) == [150, 50]
    assert next_slots(reg, nothing, [1000, 20]) == [60, 20]
    assert next_slots(reg, nothing, [1000, 0]) == [0, 0]
    uneven = replace(nothing, slots=(0, 500))
    assert next_slots(reg, uneven, [1000, 1000]) == [150, 50]
    free = world.registered(batch=100)
    assert next_slots(free, empty(free), [1000, 0]) == [100, 0]
    assert next_slots(free, empty(free), [600, 400]) == [120, 80]
    assert next_slots(free, empty(free), [150, 100]) == [150, 100]  # less than half a round would be left
    assert next_slots(free, empty(free), [0, 0]) == [0, 0]


def test_sites_count_by_weight_in_the_fold(world: World) -> None:
    """Site b is bad and small: by slots the risk is 0.3, by weight 0.14."""
    reg = world.registered(weights={"a": 0.9, "b": 0.1}, batch=100)
    base = fresh(400, seed=4, bad=0.0)
    often, seldom = np.arange(400) % 4 < 2, np.arange(400) % 20 == 0
    loss = np.where(base.site == 1, often, seldom).astype(np.float64)
    body = world.watch(replace(base, loss=loss, digest=digest("weights")), reg)
    assert body.status == "STILL SUPPORTED"
    mean = 0.9 * loss[base.site == 0].mean() + 0.1 * loss[base.site == 1].mean()
    assert body.recent_risk_estimate == pytest.approx(mean, abs=0.05)
    sums = np.zeros((2, 2, 1), dtype=np.int64)
    assert round_sample(reg, [180, 20], sums).by.q == pytest.approx([1.0, 1.0])
    uneven = round_sample(reg, [90, 90], sums).by
    assert uneven.q == pytest.approx([1.0, 1 / 9])
    assert uneven.c == 0.0
    assert round_sample(reg, [90, 0], sums).by.c == pytest.approx(100 * 0.2 * 0.1)  # site b is silent
    assert round_sample(world.registered(), [90, 30], sums).by.q == pytest.approx([1.0, 1.0])


def test_a_monitor_is_no_certificate(world: World) -> None:
    with pytest.raises(FedsrcError, match="registration of a monitor"):
        certify_table(world.registered(), GOOD, world.folder / "wrong", world.ledger, KEY)
    with pytest.raises(FedsrcError, match="does not run live"):
        live_session(world.registered(), world.folder / "wrong", KEY)
    body = world.watch(GOOD)
    assert body.kind == "monitor"
    assert not isinstance(body, Certificate)
    with pytest.raises(FedsrcError, match="account of a monitor"):
        _ = verify(world.place).certificate
    assert not hasattr(body, "acceptance_lower")
    assert "watches a deployed certificate" in "\n".join(describe_registration(world.registered(), "a"))


# --- files mode -------------------------------------------------------------------------------------------------


def test_by_files_it_rings_as_well(world: World, tmp_path: Path) -> None:
    """Sites with their own tables and ledgers answer request files; each week's table is new."""
    keys = {name: Key.generate() for name in SITES}
    reg = world.registered(
        server_key=public_hex(KEY), site_keys={n: public_hex(k) for n, k in keys.items()},
        capacities=dict.fromkeys(SITES, 1000), batch=100,
    )  # fmt: skip
    place, answered = tmp_path / "by-files", 0
    ledgers = {name: Ledger(tmp_path / f"{name}.ledger") for name in SITES}
    for name, ledger in ledgers.items():
        allow(ledger, name, reg)
    done = start(reg, place, KEY)
    week = 0
    while done.certificate is None:
        week += 1
        files = []
        for path in done.waiting:
            site = read_request(path).request.site
            found = fresh(100, seed=100 * week + SITES.index(site), bad=0.1 if week < 3 else 0.5, sites=(site,))
            data = answer_file(path, partial(replace, found), ledgers[site], keys[site])
            files.append(tmp_path / f"{week}-{site}.json")
            files[-1].write_bytes(data)
            answered += 100
        done = collect(place, files, KEY)
        assert state(place).records == answered
        assert week < 10
    for ledger in ledgers.values():
        ledger.close()
    assert done.certificate.status == "ALARM"
    assert week > 2
    assert monitor_alarm(place, trusted=(public_hex(KEY),))


# --- the command ------------------------------------------------------------------------------------------------


def write(path: Path, records: Records) -> str:
    lines = [
        f"{name},{records.site_names[site]},{score},{int(loss)}"
        for name, site, score, loss in zip(records.ids or [], records.site, records.score, records.loss, strict=True)
    ]
    path.write_text("\n".join(["id,site,score,loss", *lines]) + "\n")
    return str(path)


def call(world: World, *args: str, code: int = 0) -> str:
    key = world.folder / "key.pem"
    done = CliRunner().invoke(cli, ["monitor", *args, "-o", str(world.place), "--key", str(key)])
    assert done.exit_code == code or (code == 2 and isinstance(done.exception, FedsrcError)), done.output
    return done.stdout if not isinstance(done.exception, FedsrcError) else str(done.exception)


def test_the_command_line(world: World, tmp_path: Path) -> None:
    good, worse = write(tmp_path / "good.csv", GOOD), write(tmp_path / "worse.csv", WORSE)
    run, ledger = ("--certificate", str(world.run)), ("--ledger", str(world.ledger))
    assert "--certificate is needed" in call(world, good, *ledger, code=2)
    assert "--ledger is needed" in call(world, good, *run, code=2)
    text = call(world, good, *run, *ledger, "--in-order", "--run-length", "100000")
    assert "Monitor: STILL SUPPORTED" in text
    assert "100,000 monitored records or more" in text
    assert "is fixed by" in call(world, good, *ledger, "--false-alarm", "0.1", code=2)
    shown = json.loads(call(world, "--format", "json"))
    assert (shown["state"], shown["records"]) == ("still supported", 400)
    rung = json.loads(call(world, worse, *run, *ledger, "--in-order", "--format", "json", code=1))
    assert rung["state"] == "alarm"
    assert rung["alarm_records"] > 400
    assert "Monitor: ALARM" in call(world, code=1)


def test_a_registration_alone(world: World, tmp_path: Path) -> None:
    target = tmp_path / "monitor.toml"
    text = call(world, "--certificate", str(world.run), "--register", str(target), "--sample", "accepted")
    reg = Registration.read(target)
    assert reg.digest in text
    assert plan_of(reg).sample == "accepted"
    assert "exists already" in call(world, "--certificate", str(world.run), "--register", str(target), code=2)
    good = write(tmp_path / "good.csv", GOOD)
    call(world, good, "--registration", str(target), "--ledger", str(world.ledger))
    assert state(world.place).registration == reg.digest
