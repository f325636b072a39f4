"""Sealed certificates and second moments by files and live: from the plan to a folder that verifies.

Mutants killed: a plan that a site or a request cannot read, a release of contrasts or second moments that another mode
counts otherwise, a request or a certificate of another kind than was planned, a look before its round is closed, a
missing release that is skipped instead of charged, its noise forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.common.signing import public_hex
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Arrived, read_transcript
from fedsrc.records.units import Records
from fedsrc.server import sealed
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from research.attacks.struck import NAMES, key, play_by_files
from tests.support.gate_certificates import Terminal
from tests.support.helpers import sealed_registration, table
from tests.support.live_scenarios import SERVER, OwnClock, OwnPost, live

UNITS = 600  # of each site


def write_table(path: Path, seed: int, units: int, answers: int) -> None:
    """A table of sources with so many answers each, most of them supported where scores are high."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir()
    lines = ["id,source,score,loss"]
    for i in range(units * answers):
        loss = rng.random() < 0.35
        score = np.clip(rng.normal(0.4 if loss else 0.75, 0.15), 0, 1)
        lines.append(f"{path.parent.name}-{i},{path.parent.name}-s{i // answers},{score:.3f},{loss:d}")
    path.write_text("\n".join(lines) + "\n")


KINDS: dict[str, tuple[int, tuple[str, ...], str, str]] = {
    "sealed": (1, ("--certificate", "sealed", "--looks", "2"), "sealed", "contrasts"),
    "sealed sources": (3, ("--unit", "source", "--max-answers", "3"), "sealed", "contrasts"),
    "moments": (3, ("--unit", "source", "--max-answers", "3", "--certificate", "open"), "betting", "moments"),
}


@pytest.mark.parametrize("name", KINDS)
def test_from_a_plan_to_a_verified_certificate_by_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command by command, as docs/air-gapped.md does it with `plan` in the place of `register`.

    In 20 plans of each sealed kind, the surest threshold of the last look stood at least 25 standard deviations of its
    noise above its line. The margin of second moments was not measured.
    """
    answers, options, method, encoding = KINDS[name]
    fedsrc = Terminal(monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)

    def done(*words: str) -> str:
        found = fedsrc(*words)
        assert found.status == 0, found.err
        return found.out.strip()

    write_table(tmp_path / "dev" / "dev.csv", 9, 400, answers)
    for number, site in enumerate(NAMES):
        write_table(tmp_path / site / "records.csv", number, UNITS, answers)
    keys = ",".join(f"{site}={done('keys', f'{site}/site.key')}" for site in NAMES)
    server, rooms = done("keys", "server.key"), ",".join(f"{site}={UNITS}" for site in NAMES)
    plan = ("plan", "dev/dev.csv", "-o", "registration.toml", "--target", "0.2", "--epsilon", "4", "--sites", "a,b,c")
    done(*plan, "--capacities", rooms, "--site-keys", keys, "--server-key", server, *options)
    registration = Registration.read(tmp_path / "registration.toml")
    assert (registration.judgement.method, registration.encoding.kind) == (method, encoding)
    for site in NAMES:
        ledger = f"{site}/records.csv.ledger"
        done("allow", "registration.toml", "--site", site, "--ledger", ledger, "--max-epsilon", "4")
    done("request", "registration.toml", "-o", "run", "--key", "server.key")
    found: dict[str, Any] = {"status": "OPEN", "rounds": 0}
    while found["status"] == "OPEN":
        releases = []
        for path in sorted((tmp_path / "run" / "requests").glob(f"round-{found['rounds'] + 1:04d}-*.request.json")):
            site = read_request(path).request.site
            releases.append(f"{site}/{path.name}.release")
            done("release", str(path), f"{site}/records.csv", "--key", f"{site}/site.key", "-o", releases[-1])
        assert len(releases) == len(NAMES)
        found = json.loads(done("collect", "run", *releases, "--key", "server.key", "--format", "json"))
    body = json.loads(done("verify", "run", "--trust", server, "--format", "json"))
    assert (body["status"], body["registration"]) == ("CERTIFIED", registration.digest)
    assert body["risk_upper"] <= 0.2
    assert body["records"] == registration.units_in(body["rounds"])


ROOMS = (600, 600, 20)


def own(number: int) -> Records:
    return table(ROOMS[number], seed=number + 70, ids=True)


def two_looks(dropout: str) -> Registration:
    """A sealed registration of two sites that answer twice, and a small one that is asked once."""
    base = sealed_registration(
        table(300, sites=NAMES), values=(0.5, 0.6), weights=(0.4, 0.6), bets=(0.5, 0.5), looks=((1, 0.4), (2, 0.6)),
        batch=300, policy="final",
    )  # fmt: skip
    fields = base.model_dump()
    fields |= {"development": None, "server_key": public_hex(SERVER)}
    fields["thresholds"]["origin"] = "declared"
    fields["schedule"]["dropout"] = dropout
    fields["sites"] = [
        {"name": name, "key": public_hex(key(i)), "capacity": ROOMS[i]} for i, name in enumerate(NAMES)
    ]  # fmt: skip
    return Registration.model_validate(fields)


@pytest.mark.parametrize("dropout", ["independent", "adversarial"])
def test_live_and_by_files_a_sealed_run_is_the_same(tmp_path: Path, dropout: str) -> None:
    """Transcript and certificate, byte for byte, on the same ledgers."""
    reg = two_looks(dropout)
    body = live(tmp_path, reg=reg, find=own)
    assert (body.status, body.method, body.releases) == ("CERTIFIED", "sealed", 5)
    assert [row.round for row in body.evidence] == [1, 2]
    play_by_files(reg, tmp_path, "files", own)
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (tmp_path / "files" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_a_sealed_live_run_charges_a_release_that_never_arrives(tmp_path: Path) -> None:
    """Site c spends its units and its answer is lost: both looks count its slots as unsupported, at the margin of its
    noise, and the noise itself. Played again, the run stays as it is."""
    reg, post = two_looks("adversarial"), OwnPost(OwnClock())
    post.mischief = lambda letter, reply: [] if letter.kind == "release" and letter.node == 3 else [reply]
    body = live(tmp_path, post=post, reg=reg, find=own)
    assert verify(tmp_path / "run").certificate == body == live(tmp_path, reg=reg, find=own)
    assert (body.status, body.absent, body.records, body.releases) == ("CERTIFIED", 1, 1200, 4)
    entries = read_transcript(tmp_path / "run" / TRANSCRIPT)[0]
    assert [entry.reason for entry in entries if isinstance(entry, Absent)] == [
        "no answer of site 'c' before the round was closed"
    ]
    tests, margin = sealed.rows(reg), sealed.margins(reg, 3, 20)
    for number, look in enumerate(Replay(reg, entries).sealed or (), start=1):
        releases = [entry.release for entry in entries if isinstance(entry, Arrived)][: 2 * number]
        there = sum(tests.slope @ np.array([*each.first, *each.second], dtype=np.float64) for each in releases)
        charge = 20 * np.log1p(-tests.theta * 0.8) - margin.L
        assert (look.N, look.before + look.last) == (600 * number + 20, 2 * number + 1)
        assert pytest.approx(there + charge - tests.shift * (2 * number + 1), abs=1e-7) == look.L


@pytest.mark.parametrize("option", [("--policy", "final"), ("--grid",), ("--certificate", "plain")])
def test_options_that_leave_nothing_to_plan_spend_no_development_record(
    option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path / "dev" / "dev.csv", 9, 400, 1)
    fedsrc, dev = Terminal(monkeypatch, capsys), str(tmp_path / "dev" / "dev.csv")
    found = fedsrc("plan", dev, "--target", "0.2", "--epsilon", "4", "--units", "local=600", *option)
    assert (found.status, "this leaves nothing to plan" in found.err) == (2, True)
    assert [path.name for path in (tmp_path / "dev").iterdir()] == ["dev.csv"]
