"""A gate at another target: any rung that the evidence shows, chosen after looking, also after an abstention.

Mutants killed: a rung above the target used, a threshold between rungs, the registered threshold at another target, a
target that nothing shows, other targets where the mixture moves or no ladder decides, an edited list of targets, a
renewal that no longer shows the target, a status, decision, metric or monitor that names the registered target
instead of the one in use.

Chance of a false alarm: none; the runs are on fixed tables, without privacy.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedsrc import Gate, Run
from fedsrc.common.signing import Key
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.gate.service.metrics import Metrics
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.report.card import card_text
from tests.support.forged import forged, unsigned
from tests.support.gate_certificates import KEY, TRUSTED, Terminal
from tests.support.helpers import registration, table

STRICT = 0.02


@pytest.fixture(scope="module")
def abstained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run at one site that abstains at its target, and shows weaker ones."""
    return ended(tmp_path_factory.mktemp("abstained"), target_risk=STRICT)


def ended(folder: Path, sites: tuple[str, ...] = ("local",), **choices: Any) -> Path:
    records = table(1200, sites=sites)
    reg = registration(records, **{"epsilon": math.inf, "batch": 200, **choices})
    certify_table(reg, records, folder / "run", folder / "ledger", KEY)
    return folder / "run"


def gate_of(path: Path, **how: Any) -> Gate:
    return Gate(path, **{"trusted": TRUSTED, **how})


def said(folder: Path) -> Certificate:
    return Certificate.read(folder / CERTIFICATE)


def test_an_abstention_names_the_strongest_claim_that_its_evidence_carries(abstained: Path) -> None:
    found = said(abstained)
    best = found.strongest
    assert (found.status, found.threshold) == ("ABSTAIN", None)
    assert best is not None
    assert STRICT < best.target_risk == min(row.target_risk for row in found.also_certified)
    assert best.acceptance_lower >= 0.05
    start = "No threshold was shown to keep unsupported answers at or below 2%. The strongest claim that the evidence"
    assert found.statement.startswith(f"{start} carries: of the answers accepted (score >= {best.threshold!r},")
    assert f"at most {100 * best.target_risk:g}% are unsupported" in found.statement
    line = f"Strongest claim shown: risk at most {best.target_risk:g} at score >= {best.threshold!r}, which accepts"
    assert line in card_text(found)
    assert line in str(Run.open(abstained))


def test_a_gate_takes_every_rung_that_is_shown_and_promises_it_everywhere(abstained: Path) -> None:
    rows = said(abstained).also_certified
    assert len(rows) > 5
    for row in rows:
        gate = gate_of(abstained, target=row.target_risk)
        decision, status = gate.decide(row.threshold), gate.status()
        assert (decision.accepted, decision.threshold, decision.target_risk) == (True, row.threshold, row.target_risk)
        assert not gate.accept(math.nextafter(row.threshold, 0))
        assert (status.threshold, status.target_risk) == (row.threshold, row.target_risk)
        label = f'fedsrc_gate_target_risk{{certificate="{status.certificate}"}}'
        assert f"{label} {row.target_risk!r}\n" in Metrics().text(status)
    assert Run.open(abstained).gate(trusted=TRUSTED, target=rows[0].target_risk).accept(1.0)


def test_between_rungs_the_one_below_serves(abstained: Path) -> None:
    rows = said(abstained).also_certified
    for row in (rows[0], rows[-1]):
        status = gate_of(abstained, target=row.target_risk + 0.004).status()
        assert (status.threshold, status.target_risk) == (row.threshold, row.target_risk)
    with pytest.raises(FedsrcError, match=f"does not show a risk of at most .*\nhint: .* {rows[0].target_risk:g} is"):
        gate_of(abstained, target=math.nextafter(rows[0].target_risk, 0))


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_what_is_no_risk_is_no_target(abstained: Path, target: float) -> None:
    with pytest.raises(FedsrcError, match="is not between 0 and 1"):
        gate_of(abstained, target=target)


def test_without_a_target_an_abstention_opens_no_gate_and_says_what_would(abstained: Path) -> None:
    best = said(abstained).strongest
    assert best is not None
    with pytest.raises(FedsrcError, match=f"certifies nothing.*\nhint: .* at most {best.target_risk:g}: name it"):
        gate_of(abstained)
    with pytest.raises(FedsrcError, match=r"does not show a risk of at most 0\.02"):
        gate_of(abstained, target=STRICT)


def test_where_the_mixture_moves_or_no_ladder_decides_the_registered_target_is_the_only_one(tmp_path: Path) -> None:
    pair = ("north", "south")
    for name, sites, choices, why in (
        ("moves", pair, {"policy": "recruit", "rounds": 60}, "no weights were declared"),
        ("paper", pair[:1], {"preset": "paper", "target_risk": 0.45}, "'contrast' shows no other"),
    ):
        (tmp_path / name).mkdir()
        run = ended(tmp_path / name, sites, **choices)
        target = said(run).target_risk
        assert said(run).status == "CERTIFIED"
        assert said(run).strongest is None
        assert gate_of(run, target=target).decide(1.0) == gate_of(run).decide(1.0)
        for other in (target + 0.01, target - 0.01):
            with pytest.raises(FedsrcError, match=f"registered target {target:g} alone: .*{why}"):
                gate_of(run, target=other)


def test_an_edited_list_of_targets_opens_nothing(abstained: Path, tmp_path: Path) -> None:
    """Whoever edits the list needs the issuer's key; a list where the mixture moves is not read at all."""
    text = (abstained / CERTIFICATE).read_text()
    row = {"target_risk": 0.01, "threshold": 0.1, "acceptance_lower": 0.9}
    edited = {**unsigned(text), "also_certified": [row]}
    file = tmp_path / "c.json"
    signature = json.loads(text)
    whole = {**edited, "key": signature["key"], "signature": signature["signature"]}
    file.write_text(json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    with pytest.raises(DamagedError, match="the signature does not fit"):
        gate_of(file, target=0.01)
    file.write_text(forged(edited, Key.generate()))
    with pytest.raises(FedsrcError, match="which is not trusted"):
        gate_of(file, target=0.01)
    file.write_text(forged({**edited, "every_target": False}, KEY))
    with pytest.raises(FedsrcError, match="no weights were declared"):
        gate_of(file, target=0.01)
    file.write_text(forged({**edited, "status": "OPEN"}, KEY))
    with pytest.raises(FedsrcError, match="still open"):
        gate_of(file, target=0.01)


def test_a_renewal_must_show_the_target_whatever_was_registered(abstained: Path, tmp_path: Path) -> None:
    file = tmp_path / CERTIFICATE
    text = (abstained / CERTIFICATE).read_text()
    file.write_text(text)
    body, rows = unsigned(text), said(abstained).also_certified
    gate = gate_of(file, target=rows[1].target_risk)
    before = gate.status()
    worse = [row.model_dump() for row in rows[2:]]
    file.write_text(forged({**body, "transcript": "ab" * 32, "also_certified": worse}, KEY))
    with pytest.raises(FedsrcError, match="does not show a risk"):
        gate.reload()
    assert gate.status().target_risk == before.target_risk
    claim = {**body["claim"], "target_risk": 0.03}
    better = {**body, "transcript": "cd" * 32, "target_risk": 0.03, "claim": claim}
    file.write_text(forged({**better, "also_certified": [rows[0].model_dump()]}, KEY))
    assert gate.reload()
    assert gate.status().target_risk == rows[0].target_risk


def test_a_gate_at_another_target_is_halted_and_expires_like_any_other(abstained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(abstained, tmp_path / "run"))
    found = said(run)
    assert found.strongest is not None
    assert found.expires is not None
    now = found.expires.timestamp() + 1
    with pytest.raises(FedsrcError, match="expired"):
        gate_of(run, target=0.5, clock=lambda: now)
    with pytest.raises(FedsrcError, match="foreign: its score"):
        gate_of(run, target=0.5, claim={"score": "another"})
    gate_of(run, target=0.5).halt()
    assert not gate_of(run, target=found.strongest.target_risk).accept(1.0)


def test_a_monitor_watches_the_target_that_a_gate_promises(abstained: Path) -> None:
    row = said(abstained).also_certified[0]
    made = register_monitor(abstained, MonitorChoices(target_risk=row.target_risk))
    assert made.monitor is not None
    assert (made.thresholds.values, made.claim.target_risk) == ((row.threshold,), row.target_risk)
    assert made.monitor.risk == row.target_risk
    with pytest.raises(FedsrcError, match="nothing is certified there"):
        register_monitor(abstained, MonitorChoices())
    with pytest.raises(FedsrcError, match="does not show"):
        register_monitor(abstained, MonitorChoices(target_risk=STRICT))


def test_the_command_takes_a_target(
    abstained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fedsrc, row = Terminal(monkeypatch, capsys), said(abstained).also_certified[0]
    base = ("gate", "check", str(abstained), "--trust", TRUSTED[0], "--score", "1")
    words = f"(threshold {row.threshold!r}, risk at most {row.target_risk:g})\n"
    done = fedsrc(*base, "--target", repr(row.target_risk))
    assert done == (0, f"accepted: score reaches the threshold {words}", "")
    refused = fedsrc(*base, "--target", "0.01")
    assert (refused.status, "--target" in refused.err) == (2, True)
    assert "--target" in fedsrc(*base).err
