"""Label errors from the registration to the gate: everything speaks of the answers, and decides on their labels.

Mutants killed: a target tested as it is promised, a bound, rung or round that shows labels for answers, a gate,
monitor, renewal or forecast that mixes the two, a declaration that the card does not name, options that are ignored.

Chance of a false alarm: none; runs here have no noise, and seeds are fixed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedsrc
from fedsrc.common.signing import load_or_make, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.gate.gate import Gate
from fedsrc.maths.label_error import of_answers
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.registration import OnDemand, Registration
from fedsrc.server.status import run_state
from fedsrc.site.policy import describe_registration

MISSED = 0.1
NO_PRIVACY = float("inf")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("label-errors")


@pytest.fixture(scope="module")
def runs(home: Path) -> dict[str, fedsrc.Run]:
    """The same records: at most 20% of answers where labels miss one in ten, and 18% where they miss none."""
    draw = np.random.default_rng(0)
    loss = (draw.random(2_000) < 0.3).astype(np.int64)
    table = pl.DataFrame({"score": np.clip(draw.normal(0.75 - 0.3 * loss, 0.12), 0, 1), "loss": loss})
    wanted: dict[str, dict[str, Any]] = {"declared": {"target": 0.2, "missed": MISSED}, "plain": {"target": 0.18}}
    return {
        name: fedsrc.certify(
            table, epsilon=NO_PRIVACY, key=home / "key", ledger=home / f"{name}.ledger", output=home / name, **options
        )
        for name, options in wanted.items()
    }


def test_labels_decide_and_answers_are_promised(runs: dict[str, fedsrc.Run]) -> None:
    declared, plain = runs["declared"].certificate, runs["plain"].certificate
    assert (declared.status, declared.threshold) == ("CERTIFIED", plain.threshold)
    assert (declared.claim.target_risk, declared.target_risk, declared.missed) == (0.18, 0.2, MISSED)
    assert declared.acceptance_lower == plain.acceptance_lower
    assert [row.contrast_upper for row in declared.thresholds] == [row.contrast_upper for row in plain.thresholds]
    rungs = {row.target_risk for row in declared.also_certified}
    assert 0.2 in rungs
    assert {round(100 * rung, 9) % 1 for rung in rungs} == {0.0}  # hundredths of answers, not of labels
    for mine, theirs in zip(declared.thresholds, plain.thresholds, strict=True):
        assert mine.risk_upper >= of_answers(theirs.risk_upper, MISSED) - 0.01 / (1 - MISSED) - 1e-9
    assert declared.risk_upper is not None
    assert declared.risk_upper <= 0.2
    assert declared.evidence[-1].risk_upper <= declared.risk_upper


def test_the_card_says_how_it_comes_about(runs: dict[str, fedsrc.Run]) -> None:
    found = runs["declared"].certificate
    share = "labels show at most 18%; by declaration they miss at most 10% of what is unsupported"
    assert f"at most 20% are unsupported ({share})" in found.statement
    note = "at or above any threshold, at any site and in deployment, at most 10% is labelled supported"
    assert any(note in each.what and each.how == "declared" for each in found.assumptions)
    assert any("labelling errors beyond the declared ones carry over" in each for each in found.does_not_say)
    plain = runs["plain"].certificate
    assert "label" not in plain.statement
    assert plain.missed is None
    assert "missed" not in plain.text
    assert run_state(runs["declared"].folder).target_risk == 0.2
    purpose = "\n".join(describe_registration(runs["declared"].registration, "local"))
    assert "at most 20% of accepted answers are unsupported" in purpose


def test_verify_and_the_gate_speak_of_answers(runs: dict[str, fedsrc.Run], home: Path) -> None:
    run, key = runs["declared"], public_hex(load_or_make(home / "key"))
    assert run.verify(trusted=[key]).certificate.target_risk == 0.2
    gate = Gate(run.folder, trusted=[key], claim={"target_risk": 0.2})
    assert gate.status().target_risk == 0.2
    least = run.certificate.strongest
    assert least is not None
    other = Gate(run.folder, trusted=[key], target=least.target_risk)
    assert other.status().threshold == least.threshold
    assert Gate(run.folder, trusted=[key], target=0.25).status().target_risk == 0.25
    with pytest.raises(FedsrcError, match=f"does not show a risk of at most {least.target_risk - 0.005:g}"):
        Gate(run.folder, trusted=[key], target=least.target_risk - 0.005)


def test_a_monitor_rings_where_labels_no_longer_show_it(runs: dict[str, fedsrc.Run]) -> None:
    watch = register_monitor(runs["declared"].folder, MonitorChoices())
    assert watch.monitor is not None
    assert (watch.monitor.risk, watch.claim.target_risk, watch.promised_risk) == (0.18, 0.18, 0.2)
    assert watch.labelling.missed == MISSED
    other = register_monitor(runs["declared"].folder, MonitorChoices(target_risk=0.3))
    assert other.monitor is not None
    assert (other.monitor.risk, other.promised_risk) == (0.27, 0.3)
    with pytest.raises(FedsrcError, match="below the certified target risk"):
        register_monitor(runs["declared"].folder, MonitorChoices(risk=0.15))
    assert "more than 18% are labelled unsupported" in "\n".join(describe_registration(watch, "local"))


def test_a_renewal_and_a_forecast_keep_the_promise(runs: dict[str, fedsrc.Run]) -> None:
    again = fedsrc.register(renew=runs["declared"].folder)
    assert (again.claim.target_risk, again.promised_risk, again.labelling.missed) == (0.18, 0.2, MISSED)
    asked: dict[str, Any] = {"acceptance": 0.4, "risk": 0.1}
    grid = {name: register_grid(Choices(target, NO_PRIVACY, grid=True, missed=missed), ["local"])
            for name, target, missed in (("declared", 0.2, MISSED), ("plain", 0.18, 0.0))}  # fmt: skip
    mine, theirs = (fedsrc.forecast(registration=grid[name], **asked) for name in ("declared", "plain"))
    assert (mine.target_risk, theirs.target_risk) == (0.2, 0.18)
    assert (mine.records, mine.records_90, mine.limit) == (theirs.records, theirs.records_90, theirs.limit)
    assert mine.sentence().startswith("target 0.2 at epsilon inf")


def test_what_is_registered_of_labels() -> None:
    def made(**options: Any) -> Registration:
        return register_grid(Choices(0.2, 4.0, grid=True, **options), ["north"])

    there = made()
    assert there.labelling.model_dump() == {"kind": "there"}
    assert "missed" not in there.to_toml()
    wanted = made(labels="on demand", label_hours=8.0, label_twice=0.25, disagreement="third", missed=0.05)
    assert wanted.labelling == OnDemand(hours=8.0, twice=0.25, disagreement="third", missed=0.05)
    assert wanted.schedule.dropout == "independent"
    assert made(labels="on demand").must_answer
    assert Registration.from_toml(wanted.to_toml()) == wanted


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"label_hours": 8.0}, "are for labels that are made on demand"),
        ({"label_twice": 0.1}, "are for labels that are made on demand"),
        ({"disagreement": "third"}, "are for labels that are made on demand"),
        ({"labels": "on demand", "label_hours": 8.0, "label_twice": 1.5}, "labelling.on demand.twice"),
        ({"target": 0.12345678912, "missed": 0.1}, "too many decimals for labels that miss 0.1"),
        ({"missed": 1.0}, "`missed=` 1 is no share"),
        ({"missed": -0.1}, "`missed=` -0.1 is no share"),
    ],
)
def test_what_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(FedsrcError, match=what):
        fedsrc.register(**{"target": 0.2, "epsilon": 4, "grid": True, "sites": ["north"], **options})
