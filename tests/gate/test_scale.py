"""A gate takes scores as production writes them: on the registered scale, which may run downwards.

Mutants killed: a threshold that is moved to the raw scale and rounded there, a scale turned round, a value outside the
scale that is clipped, a truth value or a NaN that the scale makes usable, a renewal on another scale or column, a claim
about the system, the issuer or the column that is not looked at.

Chance of a false alarm: none.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc import Gate
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, BELOW, UNUSABLE
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.scale import Scale
from tests.support.gate_certificates import TRUSTED, Terminal, body, certificate, renewed

THRESHOLD: float = body()["threshold"]
SCALES = [Scale(worst=worst, best=best) for worst, best in ((0.0, 100.0), (1.0, 0.0), (-3.7, 11.3), (100.0, 0.0))]


def claim(**fields: Any) -> dict[str, Any]:
    return {**body()["claim"], **fields}


def text_on(scale: Scale) -> str:
    return certificate(claim=claim(scale=scale.model_dump()))


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> list[Gate]:
    """A gate for every scale."""
    folder = tmp_path_factory.mktemp("scales")
    for i, scale in enumerate(SCALES):
        (folder / str(i)).write_text(text_on(scale))
    return [Gate(folder / str(i), trusted=TRUSTED) for i in range(len(SCALES))]


@given(part=st.floats(0, 1) | st.sampled_from([0.0, 1.0, THRESHOLD]), steps=st.integers(-2, 2))
def test_a_raw_score_decides_as_in_calibration(gates: list[Gate], part: float, steps: int) -> None:
    """To the last bit, near the threshold and at both ends: a table's column goes through the same division."""
    for gate, scale in zip(gates, SCALES, strict=True):
        raw = scale.value(part)
        for _ in range(abs(steps)):
            raw = math.nextafter(raw, math.inf if steps > 0 else -math.inf)
        counted = float(scale.unit(np.array([raw]))[0])
        assert gate.decide(raw).reason == (
            UNUSABLE if not 0 <= counted <= 1 else ACCEPTED if counted >= THRESHOLD else BELOW
        )


@pytest.mark.parametrize("i", range(len(SCALES)))
def test_both_ends_and_what_is_outside(gates: list[Gate], i: int) -> None:
    gate, scale = gates[i], SCALES[i]
    beyond = scale.best - scale.worst
    assert [gate.decide(raw).reason for raw in (scale.best, scale.worst)] == [ACCEPTED, BELOW]
    for raw in (scale.best + 0.001 * beyond, scale.worst - 0.001 * beyond, math.nan, math.inf, True, "66.5", None):
        assert gate.decide(raw)[:2] == (False, UNUSABLE)
    assert gate.decide(scale.best).threshold == THRESHOLD
    assert gate.status().accepting
    assert gate.status().scale == str(scale)
    raw = gate.status().raw_threshold
    assert raw is not None
    assert scale.unit(raw) == pytest.approx(THRESHOLD, abs=1e-12)


OTHERS: dict[str, dict[str, Any]] = {
    "scale": {"scale": Scale(worst=0.0, best=1000.0).model_dump()},
    "column": {"column": "confidence"},
    "system": {"system": "another assistant"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_renewal_reads_the_same_score_on_the_same_scale(tmp_path: Path, name: str) -> None:
    file = tmp_path / CERTIFICATE
    file.write_text(text_on(SCALES[0]))
    gate = Gate(file, trusted=TRUSTED)
    same = {"scale": SCALES[0].model_dump()}
    file.write_text(renewed(60, claim=claim(**{**same, **OTHERS[name]})))
    with pytest.raises(FedsrcError, match=f"its {name} is not that of the one in force"):
        gate.reload()
    file.write_text(renewed(60, claim=claim(**same, issuer="the same company, renamed", contact="elsewhere")))
    assert gate.reload()


def test_a_claim_may_ask_for_system_issuer_and_column(tmp_path: Path) -> None:
    file = tmp_path / CERTIFICATE
    says = {"system": "support bot 3", "issuer": "Quality, ACME", "column": "confidence"}
    file.write_text(certificate(claim=claim(**says)))
    assert Gate(file, trusted=TRUSTED, claim=says).accept(1.0)
    for name in says:
        with pytest.raises(FedsrcError, match=f"its {name} is "):
            Gate(file, trusted=TRUSTED, claim={**says, name: "another"})


def test_the_command_says_where_the_threshold_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CERTIFICATE).write_text(certificate(threshold=0.625, claim=claim(scale=SCALES[0].model_dump())))
    run = Terminal(monkeypatch, capsys)
    check = ("gate", "check", str(tmp_path), "--trust", TRUSTED[0])
    told = run(*check, "--score", "66.5")
    assert (told.status, told.out) == (
        0,
        "accepted: score reaches the threshold (threshold 0.625, which is 62.5 on the scale 0:100, risk at most 0.2)\n",
    )
    assert run(*check, "--score", "0.9").status == 1
    assert '"raw_threshold": 62.5, "reason"' in run(*check, "--score", "66.5", "--format", "json").out
