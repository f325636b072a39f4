"""`fedsrc view`: what a card shows of a run, in every form and live; text from outside stays text; nothing is touched.

Mutants killed: a value printed unescaped, a list that is not folded, evidence of another threshold or of another round,
a follower that skips or repeats a line, a page that shows a run that does not verify, a server that answers other
methods or foreign names, a header left out, a file opened for writing.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import http.client
import json
import math
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedsrc.cli.main import cli
from fedsrc.common.local_page import HEADERS, is_loopback, names_us
from fedsrc.common.signing import Key, public_hex
from fedsrc.common.words import plain
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, REFUSED, RELEASE, Frame
from fedsrc.federation.live.log import open_log
from fedsrc.federation.live.play import play
from fedsrc.federation.local import certify_table
from fedsrc.monitor.fresh import monitor_table
from fedsrc.monitor.monitor import MonitorChoices, brief, register_monitor
from fedsrc.monitor.monitor import state as monitor_state
from fedsrc.planning.forecast import Forecast
from fedsrc.protocol.disclosure import noise_words
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Announced, Chain, Closed, Entry, Opened, read_transcript
from fedsrc.report import charts, phrases
from fedsrc.report import live_page as live
from fedsrc.report import view as view_module
from fedsrc.report.card import card_text, view_text
from fedsrc.report.html import fragment, news, page, policy
from fedsrc.report.live_page import LiveView, Server, serving
from fedsrc.report.markdown import card_markdown
from fedsrc.report.view import FORMAT, View, Watched, build_view, estimate, view_json, view_run
from fedsrc.server.folder import LOG, read_registration
from fedsrc.server.follow import Follower
from fedsrc.server.issue import issue
from fedsrc.server.state import Replay
from fedsrc.site.policy import describe_registration
from tests.support import palette
from tests.support.crash_scenarios import files_registration
from tests.support.helpers import changed, registration, table
from tests.support.hostile import HOSTILE, poisoned
from tests.support.live_scenarios import PATIENCE, SERVER, OwnClock, OwnPost, guards

KEY = Key.from_private_bytes(b"v" * 32)
SITES = ("north", "south", "west")
RECORDS = table(3000, sites=SITES)


def certify(folder: Path, reg: Registration, ledger: str = "ledger") -> Path:
    certify_table(reg, RECORDS, folder / "run", folder / ledger, KEY)
    return folder / "run"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds, always. In 25 runs 480 units sufficed; here are 1,200, which puts log-wealth far above its line."""
    reg = registration(RECORDS, batch=100, rounds=4, policy="final", weights=dict.fromkeys(SITES, 1 / 3))
    return certify(tmp_path_factory.mktemp("certified"), reg)


@pytest.fixture(scope="module")
def abstained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without noise, and with too few units for any bets: 240 log(1 + 0.95 * 0.02 / 0.98) is below log 444."""
    reg = registration(RECORDS, batch=40, rounds=2, target_risk=0.02, epsilon=math.inf)
    return certify(tmp_path_factory.mktemp("abstained"), reg)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One site refuses, one babbles, one never comes, a stranger is turned away."""
    folder = tmp_path_factory.mktemp("troubled")
    post = OwnPost(OwnClock())

    def refuses(question: Frame) -> Frame:
        return Frame(REFUSED, b"<i>no</i>") if question.kind == RELEASE else answers["a"](question)

    def babbles(question: Frame) -> Frame:
        return Frame(GIVEN, b"\x1b[31mno release") if question.kind == RELEASE else answers["b"](question)

    with guards(folder) as sites:
        answers = {name: guard.answer for name, guard in sites.items()}
        post.join(1, refuses)
        post.join(2, babbles)
        post.join(3, lambda _: Frame(GIVEN, b"<script>"))
        with open_log(folder / "run" / LOG) as log:
            play(files_registration(), folder / "run", SERVER, post, patience=PATIENCE, clock=post.clock, tell=log)
    return folder / "run"


def copied(run: Path, target: Path, *, lines: int | None = None) -> Path:
    """A copy of a run, cut after so many lines and then without its certificate."""
    shutil.copytree(run, target)
    if lines is not None:
        whole = (run / TRANSCRIPT).read_bytes().splitlines(keepends=True)
        (target / TRANSCRIPT).write_bytes(b"".join(whole[:lines]))
        (target / CERTIFICATE).unlink()
    return target


# What is shown


def test_a_certified_run(certified: Path) -> None:
    view = view_run(certified, version="1.2")
    body = view["certificate"]
    assert (view["format"], view["status"], view["fedsrc"], view["outlook"]) == (FORMAT, "CERTIFIED", "1.2", None)
    assert view["check"]["certificate"]
    assert view["check"]["key"] == public_hex(KEY)
    assert not view["check"]["expired"]
    assert [row["records"] for row in view["sites"]] == [row.records for row in body.sites]
    assert sum(row["asked"] for row in view["sites"]) == body.records
    for text in (view_text(view), page(view), card_markdown(view)):
        for part in ("CERTIFIED", "not checkable", body.registration, body.transcript, "fedsrc verify"):
            assert part in text
    assert set(view) == {
        "format", "fedsrc", "folder", "status", "sentence", "struck", "meaning", "check", "certificate", "noise",
        "evidence", "progress", "sites", "outlook", "outlooks", "monitor", "verify",
    }  # fmt: skip
    assert json.loads(view_json(view))["certificate"]["threshold"] == body.threshold
    assert view_json(view).isascii()


def test_the_evidence_is_that_of_the_certified_threshold_round_by_round(certified: Path) -> None:
    """Against the certificates that the same transcript gives when it is cut after each round."""
    reg, (entries, chain) = read_registration(certified), read_transcript(certified / TRANSCRIPT)
    assert isinstance(reg.certificate, Betting)
    evidence = view_run(certified)["evidence"]
    place = reg.thresholds.values.index(evidence["threshold"])
    cuts = [i + 1 for i, entry in enumerate(entries) if isinstance(entry, Closed)]
    cut = [issue(reg, Replay(reg, entries[:count]), chain) for count in cuts]
    assert len(cuts) == 4
    assert [row["value"] for row in evidence["rounds"]] == [body.thresholds[place].log_wealth for body in cut]
    assert [row["records"] for row in evidence["rounds"]] == [body.records for body in cut]
    assert evidence["threshold"] == issue(reg, Replay(reg, entries), chain).threshold
    assert evidence["line"] == pytest.approx(
        math.log(1 / (reg.certificate.risk_budget * reg.thresholds.weights[place])), abs=1e-8
    )
    assert phrases.reached(evidence, evidence["line"])
    assert not phrases.reached(evidence, evidence["line"] - 1e-9)


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_papers_rule_shows_its_contrast(tmp_path: Path, rounds: int) -> None:
    """Of the certified threshold; before there is one, of the closest that accepts enough."""
    reg = registration(RECORDS, batch=200, rounds=rounds, preset="paper", epsilon=math.inf)
    view = view_run(certify(tmp_path, reg))
    evidence, body = view["evidence"], view["certificate"]
    assert (evidence["measure"], evidence["line"]) == ("contrast", 0.0)
    able = [row.contrast_upper for row in body.thresholds if row.acceptance_lower >= 0.05]
    shown = min(able) if body.threshold is None else body.contrast_upper
    assert evidence["rounds"][-1]["value"] == shown
    assert not phrases.reached(evidence, 1e-9)
    for text in (view_text(view), page(view), card_markdown(view)):
        assert "ontrast" in text


def test_an_abstention_says_what_it_would_have_taken(abstained: Path) -> None:
    view = view_run(abstained)
    assert view["status"] == "ABSTAIN"
    assert "too few to tell" in view["outlook"]["words"]
    for text in (view_text(view), page(view), card_markdown(view)):
        assert "ABSTAIN" in text
        assert view["outlook"]["words"] in text


def test_trouble_is_shown(troubled: Path) -> None:
    view = view_run(troubled)
    assert [(row["absent"], row["refused"], row["announced"]) for row in view["sites"]] == [
        (2, 0, 150),
        (0, 2, 150),
        (0, 0, None),
    ]
    assert view["progress"]["turned_away"] == 1
    assert view["progress"]["not_there"] == 1
    text = page(view)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert "has not been there" in text
    assert "in words that are not a site&#39;s" in text
    assert "no bound yet" in news({**view, "evidence": {**view["evidence"], "rounds": []}})


def test_open_runs_are_shown_at_every_line(certified: Path, tmp_path: Path) -> None:
    """From nothing to the end, with the last line torn: as a fresh reading of the same folder, and never certified."""
    lines = (certified / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    run = copied(certified, tmp_path / "run", lines=0)
    (run / TRANSCRIPT).unlink()
    follower = Follower(run)
    assert follower.update()
    assert build_view(follower)["status"] == "OPEN"
    for count in range(len(lines) - 1):
        (run / TRANSCRIPT).write_bytes(b"".join(lines[:count]) + lines[count][: len(lines[count]) // 2])
        follower.update()
        assert follower.chain.lines == count
        view = build_view(follower)
        fresh = Follower(run)
        fresh.update()
        assert view == build_view(fresh)
        assert view["status"] == "OPEN"
        if count in (0, 5, len(lines) - 2):
            for text in (view_text(view), page(view), card_markdown(view)):
                assert "OPEN" in text
    waiting = copied(certified, tmp_path / "asked", lines=6)
    progress = view_run(waiting)["progress"]
    assert (progress["open_round"], progress["waiting"], progress["answered"]) == (1, 3, 0)
    assert not follower.update()


def test_what_is_missing_is_estimated(certified: Path, abstained: Path, tmp_path: Path) -> None:
    run = copied(abstained, tmp_path / "run", lines=11)
    view = view_run(run)
    assert view["progress"]["rounds"] == 1
    assert view["outlook"]["used"] == view["certificate"].records == 120
    assert view["outlook"]["words"] in page(view)
    assert estimate(Follower(copied(certified, tmp_path / "none", lines=0))) is None
    follower = Follower(run)
    follower.update()
    assert estimate(follower) is not None
    follower.registration = changed(follower.registration, schedule={"rounds": 101})
    assert estimate(follower) is None
    reached = view_run(copied(certified, tmp_path / "reached", lines=25))  # three rounds of four
    assert reached["outlook"] is None
    follower = Follower(run)
    follower.update()
    told = Forecast(0.02, math.inf, 620, 950, 3, 270, 1.0, 0.4, 100.0, 9000)
    for change, missing, words in (
        ({}, 500, "about 500 records are still missing"),
        ({"records": 90, "records_90": None}, 0, "about as many as needed are there"),
        ({"records": None, "records_90": None}, None, "more than 9,000 records"),
        ({"records": None, "limit": math.inf}, None, "out of reach"),
        ({"records": None, "limit": math.inf, "too_few": True}, None, "records so far are too few to tell"),
    ):
        outlook = build_view(follower, outlook=replace(told, **change))["outlook"]
        assert outlook["missing"] == missing
        assert words in outlook["words"]


def test_beyond_the_line_the_registered_rounds_go_on(certified: Path, tmp_path: Path) -> None:
    """Every form says so, in the round that it was, and none says that nothing is shown."""
    reg, (entries, _) = read_registration(certified), read_transcript(certified / TRANSCRIPT)
    view = view_run(copied(certified, tmp_path / "run", lines=25))  # three rounds of four
    cuts = [i + 1 for i, entry in enumerate(entries) if isinstance(entry, Closed)]
    first = next(k for k, cut in enumerate(cuts, start=1) if Replay(reg, entries[:cut]).choice is not None)
    assert view["status"] == "OPEN"
    assert view["progress"]["reached"] == first
    for text in (view_text(view), page(view), card_markdown(view)):
        assert f"has shown the target since round {first}; the registered rounds go on" in text
        assert "No threshold" not in text
        assert "nothing is certified yet" not in text
    before = view_run(copied(certified, tmp_path / "before", lines=6))
    assert before["progress"]["reached"] is None
    assert before["sentence"] == before["certificate"].statement


def test_at_the_line_a_run_that_stops_there_is_about_to_end(tmp_path: Path) -> None:
    """The moment between its last round and its end, which the live page may see."""
    reg = registration(RECORDS, batch=400, epsilon=math.inf, weights=dict.fromkeys(SITES, 1 / 3))
    run = certify(tmp_path, reg)
    lines = (run / TRANSCRIPT).read_bytes().count(b"\n")
    view = view_run(copied(run, tmp_path / "cut", lines=lines - 1))
    assert (view["status"], view["progress"]["reached"]) == ("OPEN", view["progress"]["rounds"])
    assert view["sentence"].endswith("; the run is about to end.")
    assert "registered rounds go on" not in page(view)


def test_what_the_sites_have_before_they_are_there(certified: Path, tmp_path: Path) -> None:
    """What is registered, or that it is not known; never nothing."""
    run = copied(certified, tmp_path / "run", lines=0)
    for lines, capacity, words, each in (
        (1, 500, "no site is there yet; 1,500 records registered", "500 registered"),
        (1, None, "no site is there yet; an unknown number", "not known"),
        (2, 500, "left at the sites that are there, 1,000 records registered at the others", "500 registered"),
    ):
        follower = Follower(run)
        sites = [{**site.model_dump(), "capacity": capacity} for site in follower.registration.sites]
        follower.registration = Registration.model_validate({**follower.registration.model_dump(), "sites": sites})
        follower._begin()
        entries: list[Entry] = [
            Opened(registration=follower.registration.digest),
            Announced(site=SITES[0], units=500),
        ]
        for entry in entries[:lines]:
            follower.replay.step(entry)
            follower.sites.step(entry)
        view = build_view(follower)
        for text in (view_text(view), page(view), card_markdown(view).lower()):
            assert words.lower() in text.lower()
        assert each in page(view)
        assert phrases.state_at(view["sites"][-1]) == f"has not been there, {each}"


def test_the_line_of_the_bets_is_explained(certified: Path) -> None:
    view = view_run(certified)
    found = re.search(r"1 / \(([\d.]+) x ([\d.]+)\)", phrases.line_words(view["evidence"]))
    assert found is not None
    line = 1 / (float(found[1]) * float(found[2]))
    assert line == pytest.approx(math.exp(view["evidence"]["line"]), rel=0.01)
    for text in (view_text(view), page(view), card_markdown(view)):
        assert "times this threshold" in text


@pytest.mark.parametrize(
    ("privacy", "noun", "steps"),
    [
        ({}, "record", 256),
        ({"encoding": {"basis": "bins"}}, "record", 1),
        ({"loss_grid": 10}, "record", 2560),
        ({"unit": "source", "max_answers": 3}, "source", 6 * 256),
        ({"unit": "source", "max_answers": 3, "answer_weight": "answer"}, "answer", 256),
    ],
)
def test_noise_is_said_in_one_unit_everywhere(privacy: dict[str, Any], noun: str, steps: int) -> None:
    """What a site allows, what the card says, and the integers of the file: the same noise.

    Mutants killed: a grid or a basis left out of the unit, the file's scale shown as if in records.
    """
    encoding = privacy.get("encoding", {})
    rest = {key: value for key, value in privacy.items() if key != "encoding"}
    reg = changed(registration(RECORDS, batch=100), privacy=rest, encoding=encoding)
    scale = reg.mechanism.scale
    words = noise_words(reg)
    assert words.startswith(f"noise of scale {scale / steps:.4g} {noun}s")
    assert (f"({scale:g} in the release's integers, which count 1/{steps:,} of a" in words) == (steps > 1)
    assert any(words in line for line in describe_registration(reg, SITES[0]))
    body = issue(reg, Replay(reg), Chain())
    assert words in card_text(body, registration=reg)
    assert f"{scale:g} in the release's integers" in card_text(body)


def test_no_noise_is_said_so() -> None:
    assert noise_words(registration(RECORDS, batch=100, epsilon=math.inf)) == "no noise at all"


@pytest.mark.parametrize(
    ("mixture", "eta", "words"),
    [
        ("as calibrated", 0.0, "mixture as calibrated"),
        ("as calibrated", 0.02, "mixture as calibrated, declared drift 0.02 allowed for"),
        ("declared", None, "declared weights"),
        ("declared", 0.0, "declared weights, met exactly"),
        ("declared", 0.0125, "off by 0.0125"),
    ],
)
def test_the_mixture_in_words(mixture: str, eta: float | None, words: str) -> None:
    reg = registration(RECORDS, batch=100)
    plain = issue(reg, Replay(reg), Chain())
    found = phrases.mixture_words(plain.model_copy(update={"mixture": mixture, "eta": eta}))
    assert found.endswith(words) if words.startswith(("mixture", "declared")) else words in found


def test_bounds_that_speak_of_one_target_say_so(certified: Path, abstained: Path) -> None:
    for run, said in ((certified, False), (abstained, True)):
        view = view_run(run)
        for text in (view_text(view), card_text(view["certificate"]), page(view), card_markdown(view)):
            assert ("Each round speaks of the sites as mixed up to it" in text) is said


def test_expiry_and_trust(certified: Path) -> None:
    run = Follower(certified)
    run.update()
    late = build_view(run, now=datetime.now(UTC) + timedelta(days=366))
    assert late["check"]["expired"]
    for text in (view_text(late), page(late), card_markdown(late)):
        assert "EXPIRED" in text
        assert "CERTIFIED" not in text
        assert "no longer stands" in text
    assert view_run(certified, trusted=(public_hex(KEY),))["check"]["trusted"]
    with pytest.raises(FedsrcError, match="not trusted"):
        view_run(certified, trusted=("0" * 64,))


@pytest.mark.parametrize("state", ["certified", "still supported", "alarm"])
def test_a_place_for_the_monitor(certified: Path, state: Any) -> None:
    view = view_run(certified, monitor=Watched(state, "since <b>Monday</b>"))
    for text in (view_text(view), page(view), card_markdown(view)):
        assert state in text.lower()
    assert "<b>" not in page(view)


def test_a_monitors_folder(certified: Path, abstained: Path, tmp_path: Path) -> None:
    """Its state is shown on the card of its own certificate; it has no card itself."""
    ledger, folder = tmp_path / "ledger", tmp_path / "monitor"
    shutil.copy(certified.parent / "ledger", ledger)
    fresh = table(600, seed=9, sites=SITES)
    monitor_table(register_monitor(certified, MonitorChoices()), fresh, folder, ledger, KEY, fresh=True)
    done = CliRunner().invoke(cli, ["view", str(certified), "--monitor", str(folder), "--format", "json"])
    told = json.loads(done.stdout)["monitor"]
    assert told == json.loads(json.dumps(monitor_words(folder)._asdict()))
    assert done.exit_code == (1 if told["state"] == "alarm" else 0)
    for wrong in (["view", str(folder)], ["view", str(abstained), "--monitor", str(folder)]):
        assert isinstance(CliRunner().invoke(cli, wrong).exception, FedsrcError)


def test_the_live_page_follows_the_monitor(certified: Path, abstained: Path, tmp_path: Path) -> None:
    """From no folder at all, to fresh units without an alarm, to the alarm; a monitor of another run hides the card."""
    ledger, folder = tmp_path / "ledger", tmp_path / "monitor"
    shutil.copy(certified.parent / "ledger", ledger)
    watch = live.LiveView(certified, monitor=folder)
    watch.look()
    assert json.loads(watch.shown.state)["monitor"] is None
    registration = register_monitor(certified, MonitorChoices())
    seen = list[str]()
    for seed, base in ((9, 0.1), (10, 0.95)):
        fresh = table(2000, seed=seed, sites=SITES, base=base)
        flat = replace(fresh, score=np.ones_like(fresh.score))
        monitor_table(registration, flat, folder, ledger, KEY, fresh=True)
        watch.look()
        seen.append(json.loads(watch.shown.state)["monitor"]["state"])
        assert seen[-1] in watch.shown.card.decode().lower()
    assert seen == ["still supported", "alarm"]
    watch.close()
    card = tmp_path / "card.html"
    for command in (["view", certified, "--monitor", folder, "-o", card], ["verify", card]):
        done = CliRunner().invoke(cli, list(map(str, command)))
        assert (done.exit_code, "ALARM" in done.output) == (1, True)
    other = live.LiveView(abstained, monitor=folder)
    other.look()
    assert "watches over another certificate" in other.shown.card.decode()
    other.close()


def test_the_live_page_sees_its_certificate_expire(certified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the folder changes then."""
    watch = live.LiveView(certified)
    watch.look()
    assert b">EXPIRED<" not in watch.shown.page

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Later:
            return cls.fromtimestamp(datetime.now(tz).timestamp() + 40_000 * 86_400, tz)

    for module in (live, view_module):
        monkeypatch.setattr(module, "datetime", Later)
    watch.look()
    assert b">EXPIRED<" in watch.shown.page
    before = watch.shown
    watch.look()
    assert watch.shown is before, "rendered once"
    watch.close()


def monitor_words(folder: Path) -> Watched:
    found = monitor_state(folder)
    return Watched(found.state, brief(found))


def test_a_run_that_does_not_verify_is_not_shown(certified: Path, tmp_path: Path) -> None:
    forged = copied(certified, tmp_path / "forged")
    text = (forged / CERTIFICATE).read_text()
    (forged / CERTIFICATE).write_text(text.replace('"target_risk": 0.2', '"target_risk": 0.1'))
    with pytest.raises(FedsrcError, match="certificate"):
        view_run(forged)
    cut = copied(certified, tmp_path / "cut")
    lines = (cut / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    (cut / TRANSCRIPT).write_bytes(b"".join([*lines[:7], *lines[8:]]))
    with pytest.raises(FedsrcError, match="does not continue"):
        view_run(cut)


# The page


class Parsed(HTMLParser):
    """Start tags with their attributes, in order, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.depth: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        if tag not in ("meta", "link"):
            self.depth.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.depth.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value or "" for _, attrs in self.tags for key, value in attrs if key == name]


def test_the_page_is_whole_and_loads_nothing(certified: Path) -> None:
    text = page(view_run(certified))
    parsed = Parsed(text)
    names = {tag for tag, _ in parsed.tags}
    assert not parsed.depth
    assert not names & {"script", "img", "iframe", "object", "embed", "form", "input", "base", "a"}
    assert len(text.encode()) < 300_000
    assert parsed.values("src") == []
    assert [link for link in parsed.values("href") if not link.startswith("#")] == ["data:,"]
    assert parsed.values("style") == []
    assert "http:" not in text.replace("http-equiv", "")
    assert "https:" not in text
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    ids = parsed.values("id")
    assert len(set(ids)) == len(ids)
    labels = [name for value in parsed.values("aria-labelledby") for name in value.split()]
    assert set(labels) <= set(ids)
    assert {link[1:] for link in parsed.values("href") if link.startswith("#")} <= set(ids)
    assert [tag for tag, _ in parsed.tags if tag in ("h1", "main")] == ["main", "h1"]
    assert sum(tag == "svg" for tag, _ in parsed.tags) == 2


@pytest.mark.parametrize("on", [False, True])
def test_the_policy_allows_only_what_is_ours(certified: Path, on: bool) -> None:
    text = page(view_run(certified), live=on)
    rules = dict(rule.split(" ", 1) for rule in policy(live=on).split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert set(rules) == {"default-src", "style-src", "img-src", "base-uri", "form-action"} | (
        {"script-src", "connect-src"} if on else set()
    )
    assert "unsafe" not in policy(live=on)
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        digests = [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in found]
        assert digests == ([rules[rule]] if rule in rules else [])
    contents = dict(zip(Parsed(text).values("http-equiv"), Parsed(text).values("content"), strict=False))
    assert contents["Content-Security-Policy"] == policy(live=on)
    assert "frame-ancestors 'none'" in policy(live=on, header=True)


def test_charts_take_the_pages_colours_and_nothing_by_colour_alone(certified: Path) -> None:
    view = view_run(certified)
    for chart in (charts.round_chart(view), charts.threshold_chart(view)):
        assert re.findall(r"#[0-9a-fA-F]{3,6}\b", chart) == []
        assert "var(--accent)" in chart
        assert 'role="img"' in chart
        assert "<desc" in chart
        assert "stroke-dasharray" in chart  # lines are told apart by their shape
        assert "font-family" not in chart
    assert ">chosen: " in charts.threshold_chart(view)
    assert ">chosen: " not in charts.threshold_chart({**view, "monitor": Watched("alarm")._asdict()})


def test_every_text_colour_has_enough_contrast() -> None:
    """4.5 to 1, as WCAG's level AA asks; a checker in a browser does not see into charts."""
    assert set(palette.schemes()) == {"light", "dark", "print"}
    assert palette.contrast("#000", "#ffffff") == pytest.approx(21)
    assert palette.lowest() >= 4.5


def large(view: View) -> View:
    """A thousand sites with the longest and widest names and reasons, many rounds, thresholds and rungs."""
    found = copy.deepcopy(view)
    reason = '"' * 500
    found["sites"] = [
        {**found["sites"][0], "name": f"{i:04}" + '"' * 96, "reason": reason, "absent": 3} for i in range(1000)
    ]
    row, body = found["evidence"]["rounds"][-1], found["certificate"]
    found["evidence"]["rounds"] = [{**row, "round": i + 1, "records": 1000 * (i + 1)} for i in range(1000)]
    row, other = body.thresholds[0], body.also_certified[0]
    words = {"score": '"' * 2000, "loss": "<" * 2000, "population": "&" * 2000}
    long = {
        "thresholds": tuple(row.model_copy(update={"threshold": i / 10_000}) for i in range(10_000)),
        "also_certified": tuple(other.model_copy(update={"target_risk": (i + 1) / 1000}) for i in range(999)),
        "claim": body.claim.model_copy(update=words),
        "threshold": 0.5,
    }
    found["certificate"] = body.model_copy(update=long)
    found["progress"] = {**found["progress"], "latest": ['"' * 500] * 5, "turned_away": 5}
    return found


def test_a_card_stays_small(certified: Path) -> None:
    view = large(view_run(certified))
    text = page(view)
    assert len(text.encode()) < 300_000
    assert "and 950 more sites with" in text
    assert "976 more rounds" in text
    assert len(card_markdown(view)) < 300_000
    assert len(view_text(view).splitlines()) < 300
    assert len(json.loads(view_json(view))["sites"]) == 1000


def test_long_lists_keep_what_matters(certified: Path) -> None:
    view = large(view_run(certified))
    view["evidence"]["threshold"] = 0.5
    assert [row["chosen"] for row in phrases.threshold_rows(phrases.block_of(view)).rows].count(True) == 1
    for i, site in enumerate(view["sites"]):
        site["absent"] = int(i == 999)
    assert phrases.site_rows(view).rows[0]["name"].startswith("0999")
    numbers = [row["round"] for row in phrases.evidence_rows(view).rows]
    assert (numbers[:3], numbers[-1], len(numbers)) == ([1, 2, 3], 1000, phrases.ROUNDS)
    assert phrases.thinned(list(range(1000)), 200)[-1] == 999
    assert phrases.thinned([], 200) == []


@pytest.mark.parametrize(("log", "words"), [(0.0, "1"), (6.1, "446"), (2.0, "7.4"), (40.0, "10^17"), (-20.0, "10^-9")])
def test_wealth_in_words(log: float, words: str) -> None:
    assert phrases.wealth_words(log) == words


# Text from outside


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shape(text: str) -> list[tuple[str, str]]:
    """What Markdown makes of a text, without its words."""
    return [
        (token.type, token.tag)
        for outer in MARKDOWN.parse(text)
        for token in (outer, *(outer.children or []))
        if token.type != "text"
    ]


def check_inert(view: View, text: str) -> None:
    """The same structure as with a harmless word, and the text itself is there to be read."""
    bad, good = poisoned(view, text), poisoned(view, "word")
    for render in (page, fragment):
        seen, fine = Parsed(render(bad)), Parsed(render(good))
        assert seen.tags == fine.tags
        assert plain(text[:200]).strip() in seen.text
        assert all(letter.isprintable() or letter == "\n" for letter in seen.text)
    assert shape(card_markdown(bad)) == shape(card_markdown(good))
    for form in (view_text(bad), card_markdown(bad), view_json(bad)):
        assert all(letter.isprintable() or letter == "\n" for letter in form)
    assert len(view_text(bad).splitlines()) == len(view_text(good).splitlines())


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_inert(certified: Path, troubled: Path, text: str) -> None:
    check_inert(view_run(certified), text)
    open_view = view_run(troubled)
    open_view["status"] = "OPEN"
    open_view["certificate"] = open_view["certificate"].model_copy(update={"status": "OPEN"})
    check_inert(open_view, text)


@given(text=st.text(min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_text_is_inert(certified: Path, text: str) -> None:
    check_inert(view_run_once(certified), text)


_views: dict[Path, View] = {}


def view_run_once(run: Path) -> View:
    return _views.setdefault(run, view_run(run)) if run not in _views else _views[run]


def test_hostile_names_through_a_whole_run(tmp_path: Path) -> None:
    """Names that a registration accepts, and a folder that is called like an attack; others are refused before."""
    names = ("<script>alert(1)</script>", "שלום | ](x)", "`a` **b** {{c}}")
    records = table(900, sites=names)
    reg = registration(records, batch=40, rounds=2)
    run = tmp_path / "<b>\u202e$(touch x)" / "run"
    certify_table(reg, records, run, tmp_path / "ledger", KEY)
    view = view_run(run)
    text = page(view)
    assert "<script" not in text
    assert "<b>" not in text
    assert "\u202e" not in text
    assert "שלום" in text
    assert "\\u{202e}" in view_text(view)
    assert "'" in view["verify"]  # quoted for the shell
    with pytest.raises(FedsrcError, match="printable"):
        registration(table(900, sites=("a\u202eb",)))


# Live


def requested(server: Server, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), int(port), timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def settle(watch: LiveView) -> None:
    """Look, with the estimate that comes beside."""
    watch.look()
    if watch._estimate is not None:
        watch._estimate.result(timeout=60)
    watch.look()


@pytest.fixture
def served(certified: Path, tmp_path: Path) -> Iterator[Server]:
    watch = LiveView(copied(certified, tmp_path / "run"))
    settle(watch)
    server = Server(watch, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
    watch.close()


def test_answers_and_their_headers(served: Server) -> None:
    for path, kind in (("/", "text/html"), ("/card", "text/html"), ("/state.json", "application/json"), ("/x", "text")):
        status, headers, text = requested(served, path)
        assert status == (404 if path == "/x" else 200)
        assert headers["Content-Type"].startswith(kind)
        for name, value in {"Content-Security-Policy": policy(live=True, header=True), **HEADERS}.items():
            assert headers[name] == value
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers
        short = requested(served, path, "HEAD")
        assert (short[0], short[2]) == (status, "")
        assert short[1]["Content-Length"] == str(len(text.encode()))
    assert json.loads(requested(served, "/state.json")[2])["status"] == "CERTIFIED"
    assert "CERTIFIED" in requested(served)[2]
    status, headers, _ = requested(served, "/card")
    assert requested(served, "/card", **{"If-None-Match": headers["ETag"]})[0] == 304
    assert requested(served, "/card", **{"If-None-Match": '"other"'})[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_it_only_reads(served: Server, method: str) -> None:
    status, headers, text = requested(served, "/", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert headers["Content-Security-Policy"]
    assert method not in text


@pytest.mark.parametrize("path", ["/../registration.toml", "/%2e%2e/", "/transcript.jsonl", "//evil.example/", "/<b>"])
def test_no_other_file_is_served_and_nothing_is_echoed(served: Server, path: str) -> None:
    status, _, text = requested(served, path)
    assert status == 404
    assert text == "not here\n"


def test_foreign_names_are_turned_away(served: Server) -> None:
    assert requested(served, Host="evil.example")[0] == 421
    assert requested(served, Host="127.0.0.1.evil.example:80")[0] == 421
    assert requested(served, Host="localhost:1234")[0] == 200
    names = {"localhost", "here"}
    for header, loopback, ok in (
        ("127.0.0.1:80", True, True), ("[::1]:80", True, True), ("[::1]", True, True), ("LOCALHOST", True, True),
        ("10.0.0.1:80", True, False), ("here", True, False), ("", True, False), ("evil", True, False),
        ("10.0.0.1:80", False, True), ("here:80", False, True), ("evil:80", False, False), ("", False, False),
    ):  # fmt: skip
        assert names_us(header, names, loopback=loopback) is ok
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_run_is_followed_from_nothing_to_its_certificate(certified: Path, tmp_path: Path) -> None:
    lines = (certified / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    run = tmp_path / "run"
    watch = LiveView(run)
    watch.look()
    assert f"Waiting for a run in {run}; the page shows it as soon as it begins." in watch.shown.page.decode()
    before = watch.shown
    run.mkdir()
    watch.look()
    assert watch.shown is before
    assert b"WAITING" in watch.shown.page
    shutil.copy(certified / "registration.toml", run)
    watch.look()
    tags, statuses = [watch.shown.tag], []
    with (run / TRANSCRIPT).open("ab") as file:
        for line in lines:
            for part in (line[:10], line[10:]):
                file.write(part)
                file.flush()
                watch.look()
            tags.append(watch.shown.tag)
            statuses.append(json.loads(watch.shown.state)["status"])
    assert len(set(tags)) > len(lines) / 2
    assert statuses == ["OPEN"] * (len(lines) - 1) + ["CERTIFIED"]
    assert b"not yet written" in watch.shown.page
    shutil.copy(certified / CERTIFICATE, run)
    watch.look()
    assert b"signature fits" in watch.shown.page
    watch._estimates.shutdown(wait=True)


def test_estimates_come_beside(abstained: Path, tmp_path: Path) -> None:
    watch = LiveView(copied(abstained, tmp_path / "run", lines=11))
    watch.look()
    assert json.loads(watch.shown.state)["outlook"] is None
    assert watch._estimate is not None
    watch._estimate.result(timeout=60)
    watch.look()
    assert json.loads(watch.shown.state)["outlook"]["used"] == 120
    watch.close()


def test_a_damaged_run_shows_why_and_no_card(certified: Path, tmp_path: Path) -> None:
    run = copied(certified, tmp_path / "run")
    watch = LiveView(run)
    watch.look()
    good, data = watch.shown.card, (run / TRANSCRIPT).read_bytes()
    (run / TRANSCRIPT).write_bytes(data.replace(b'"units":', b'"unitz":', 1))
    watch.look()
    assert b"CERTIFIED" not in watch.shown.page
    assert b"CERTIFIED" not in watch.shown.state
    assert b"line 2" in watch.shown.page
    before = watch.shown
    watch.look()
    assert watch.shown is before  # not read again until it changes
    (run / TRANSCRIPT).write_bytes(data)
    watch.look()
    watch.look()
    assert b"CERTIFIED" in watch.shown.card
    assert re.sub(rb"<dd>2[^<]*Z</dd>", b"", watch.shown.card) == re.sub(rb"<dd>2[^<]*Z</dd>", b"", good)
    watch.close()


def test_another_run_in_the_same_place_is_read_anew(certified: Path, abstained: Path, tmp_path: Path) -> None:
    run = copied(certified, tmp_path / "run")
    follower = Follower(run)
    follower.update()
    (run / TRANSCRIPT).write_bytes((certified / TRANSCRIPT).read_bytes()[:3000])
    follower.update()
    assert follower.replay.status == "OPEN"
    (run / TRANSCRIPT).unlink()
    with pytest.raises(FedsrcError, match="is missing"):
        follower.update()
    (run / CERTIFICATE).unlink()
    follower.update()
    assert (follower.chain.lines, follower.rounds) == (0, [])


def test_many_readers_cost_one_rendering(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(live, "build_view", fail)
    monkeypatch.setattr(live, "page", fail)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(requested(served)[2])) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served.watch.look()
    assert found == [served.watch.shown.page.decode()] * 30


def test_nothing_in_the_folder_is_touched(certified: Path, tmp_path: Path) -> None:
    run = copied(certified, tmp_path / "run")
    for path in run.iterdir():
        path.chmod(0o400)
    run.chmod(0o500)
    before = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in run.iterdir()
    }
    with serving(run, "127.0.0.1", 0, every=0.01) as server:
        while "CERTIFIED" not in requested(server)[2]:
            pass
    view_run(run)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in run.iterdir()}
    run.chmod(0o700)
    assert before == after


def test_a_taken_port_is_an_error_with_a_hint(served: Server) -> None:
    with pytest.raises(FedsrcError, match="`port=0`"):
        Server(served.watch, "127.0.0.1", int(served.server_address[1]))


# The command


def test_the_command(certified: Path, abstained: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    for name, start in (("c.html", "<!doctype html>"), ("c.md", "**"), ("c.json", "{"), ("c.txt", "Status: CERT")):
        done = runner.invoke(cli, ["view", str(certified), "-o", str(tmp_path / name)])
        assert (done.exit_code, done.stdout) == (0, "")
        assert (tmp_path / name).read_text().startswith(start)
    shown = runner.invoke(cli, ["view", str(certified), "--format", "json"])
    assert json.loads(shown.stdout)["format"] == FORMAT
    assert runner.invoke(cli, ["view", str(abstained)]).exit_code == 1
    assert "threshold" in runner.invoke(cli, ["view", str(abstained)]).stdout
    for name in ("c.pdf", "c"):
        odd = runner.invoke(cli, ["view", str(certified), "-o", str(tmp_path / name)])
        assert "use one of .html, .htm, .md, .json, .txt" in str(odd.exception)
        assert not (tmp_path / name).exists()
    assert runner.invoke(cli, ["view", str(certified), "--format", "text", "-o", str(tmp_path / "c")]).exit_code == 0
    for bad in (["view", str(tmp_path / "none")], ["view", str(certified), "--live", "-o", "x.html"]):
        assert isinstance(runner.invoke(cli, bad).exception, FedsrcError)


def test_the_live_page_names_a_run_one_level_below(certified: Path) -> None:
    watch = LiveView(certified.parent)
    watch.look()
    assert f"There is one in {certified}." in watch.shown.page.decode()
    watch.close()


def test_the_live_command_waits_for_a_run(certified: Path, tmp_path: Path) -> None:
    """Started before there is a folder, the page shows the run once it is there."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "fedsrc.cli", "view", str(run), "--live", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = re.search(r"http://[\d.]+:(\d+)/", process.stdout.readline())
        assert found is not None
        assert process.stderr.readline() == f"Waiting for a run in {run}.\n"
        seen = list[str]()
        while "CERTIFIED" not in seen:
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
            connection.request("GET", "/")
            text = connection.getresponse().read().decode()
            connection.close()
            word = next(word for word in ("WAITING", "CERTIFIED", "NO CARD") if f"<strong>{word}" in text)
            if word == "WAITING" and not run.exists():
                shutil.copytree(certified, tmp_path / "made")
                (tmp_path / "made").rename(run)
            seen.append(word)
        process.terminate()
    assert set(seen) == {"WAITING", "CERTIFIED"}


@pytest.mark.parametrize(("how", "host"), [("INT", "127.0.0.1"), ("TERM", "0.0.0.0")])
def test_the_live_command_ends_cleanly(certified: Path, how: str, host: str) -> None:
    """On a signal; and it warns when other machines can read the page."""
    command = [sys.executable, "-m", "fedsrc.cli", "view", str(certified), "--live", "--port", "0", "--host", host]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://[\d.]+:(\d+)/", line)
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    connection.close()
    subprocess.run(["kill", f"-{how}", str(process.pid)], check=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert ("other machines can read this page" in err) == (host == "0.0.0.0")
    assert len(err.splitlines()) == (host == "0.0.0.0")
