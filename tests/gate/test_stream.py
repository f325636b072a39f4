"""A stream at a gate: the least prefix score at the registered checkpoints decides, and none of them may be skipped.

Mutants killed: the last prefix score, the first or the whole answer's instead of the least; a skipped checkpoint that
is accepted, at a later check or at the end; a checkpoint beyond the answer that is asked for, or the one at its end;
a check elsewhere that counts; a score that is none and is forgotten; tokens that go back or are no number; the least of
raw scores on a scale that runs downwards; the first score's scale or checkpoints; a stop that the end forgets; a halt,
an expiry or a renewal that a stream does not see; a stream that shares its least with another; checkpoints of the only
score that are registered nowhere.

Chance of a false alarm: none.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsrc
from fedsrc import Gate
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, BELOW, EXPIRED, HALTED, MISSED, UNUSABLE
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.panels import Scores
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from tests.support.gate_certificates import TRUSTED, Terminal, original
from tests.support.gate_panels import by_group, by_score

POINTS = (20, 40, 80)
DOWN = Scale(worst=100.0, best=0.0)


def text_of(threshold: float = 0.5, points: tuple[int, ...] = POINTS, scale: Scale | None = None, **how: Any) -> str:
    """Two policies, of which the second is picked; the first has another scale and other checkpoints."""
    picked = (scale or Scale(), threshold, points)
    return by_score({"score": (Scale(worst=0.0, best=9.0), 0.1, (7,)), "lift_at": picked}, "lift_at", **how)


def gate_of(folder: Path, text: str, **how: Any) -> Gate:
    (folder / CERTIFICATE).write_text(text)
    return Gate(folder, trusted=TRUSTED, **how)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return gate_of(tmp_path, text_of())


def test_an_answer_that_passes_every_checkpoint_is_accepted(gate: Gate) -> None:
    stream = gate.stream()
    assert [stream.check(score, tokens) for score, tokens in ((0.5, 20), (0.9, 40), (0.6, 80))] == [True] * 3
    assert stream.end(0.5, 99)[:3] == (True, ACCEPTED, 0.5)
    assert gate.status().checkpoints == POINTS


@pytest.mark.parametrize("low", range(4))
def test_the_least_decides_wherever_it_stands(gate: Gate, low: int) -> None:
    stream, scores = gate.stream(), [0.9] * 4
    scores[low] = math.nextafter(0.5, 0)
    going = [stream.check(score, tokens) for score, tokens in zip(scores, POINTS, strict=False)]
    assert going == [i < low for i in range(3)]
    assert stream.end(scores[3], 99)[:2] == (False, BELOW)


@pytest.mark.parametrize("skipped", range(3))
def test_a_skipped_checkpoint_is_not_made_up_for(gate: Gate, skipped: int) -> None:
    stream = gate.stream()
    for i, tokens in enumerate(POINTS):
        if i != skipped:
            assert stream.check(1.0, tokens) == (i < skipped)
    assert stream.end(1.0, 99)[:2] == (False, MISSED)
    late = gate.stream()
    assert [late.check(1.0, tokens) for tokens in POINTS[:skipped]] == [True] * skipped
    assert not late.check(1.0, POINTS[skipped] + 1)
    assert not late.check(1.0, POINTS[skipped])
    assert late.end(1.0, 99).reason == MISSED


def test_only_checkpoints_before_the_end_are_asked_for(gate: Gate) -> None:
    assert gate.stream().end(0.5, 0).accepted
    assert gate.stream().end(0.5, 20).accepted, "the score there is that of the whole"
    assert gate.stream().end(0.5, 21).reason == MISSED
    for length, reason in ((40, ACCEPTED), (41, MISSED)):
        stream = gate.stream()
        assert stream.check(0.7, 20)
        assert stream.end(0.7, length).reason == reason


def test_a_check_elsewhere_counts_for_nothing(gate: Gate) -> None:
    """Neither for nor against: the certificate is about the registered checkpoints."""
    stream = gate.stream()
    for tokens in range(1, 91):
        assert stream.check(0.6 if tokens in POINTS else 0.0, tokens)
    assert stream.end(0.6, 90).accepted
    stream = gate.stream()
    for tokens in range(1, 91):
        assert stream.check(0.4 if tokens == 40 else 1.0, tokens) == (tokens < 40)
    assert stream.end(1.0, 90).reason == BELOW


@pytest.mark.parametrize("score", [math.nan, None, "0.9", True, 1.5, -0.1, math.inf])
def test_what_is_no_score_is_not_forgotten(gate: Gate, score: object) -> None:
    stream = gate.stream()
    assert not stream.check(score, 20)
    assert not stream.check(1.0, 20)
    assert not stream.check(1.0, 40)
    assert stream.end(1.0, 41)[:2] == (False, UNUSABLE)
    assert gate.stream().end(score, 5)[:2] == (False, UNUSABLE)


@pytest.mark.parametrize("tokens", [None, -1, 20.0, "20", True, math.nan, [20], 19])
def test_tokens_that_go_back_or_are_no_number_are_not_accepted(gate: Gate, tokens: object) -> None:
    stream = gate.stream()
    assert stream.check(1.0, np.int64(20))
    assert not stream.check(1.0, tokens)
    assert stream.end(1.0, 30).reason == MISSED
    stream = gate.stream()
    assert stream.check(1.0, 20)
    assert stream.end(1.0, tokens).reason == MISSED


def test_the_least_is_of_scores_and_not_of_raw_values(tmp_path: Path) -> None:
    """On a scale that runs downwards the largest raw value is the least score."""
    gate = gate_of(tmp_path, text_of(scale=DOWN))
    stream = gate.stream()
    assert [stream.check(10.0, 20), stream.check(50.0, 40), stream.check(0.0, 80)] == [True] * 3
    assert stream.end(0.0, 90).accepted
    stream = gate.stream()
    assert [stream.check(10.0, 20), stream.check(50.5, 40)] == [True, False]
    assert stream.end(0.0, 41).reason == BELOW


def test_without_checkpoints_only_the_end_is_checked(tmp_path: Path) -> None:
    for text in (original(), text_of(points=())):
        gate = gate_of(tmp_path, text)
        for score in (0.0, 1.0, None):
            stream = gate.stream(group="anything")
            assert stream.check(0.0, 20)
            assert stream.end(score, 99) == gate.decide(score)
        assert gate.stream().end(1.0, None).accepted


def test_a_stream_has_a_group(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, by_group({"a": 0.5, "b": 0.75}))
    assert [gate.stream(group=name).end(0.6, 9).accepted for name in ("a", "b", None)] == [True, False, False]
    assert [gate.stream(group=name).check(0.6, 9) for name in ("a", "b", None)] == [True, True, False]


def test_a_stream_heeds_what_happens_meanwhile(tmp_path: Path) -> None:
    now = [time.time()]
    gate = gate_of(tmp_path, text_of(), clock=lambda: now[0])
    first, second, third = gate.stream(), gate.stream(), gate.stream()
    assert all(each.check(0.6, 20) for each in (first, second, third))
    (tmp_path / CERTIFICATE).write_text(text_of(0.7, seconds=60))
    assert gate.reload()
    assert not first.check(0.9, 40), "the least so far is below the new threshold"
    assert first.end(0.9, 41)[:3] == (False, BELOW, 0.7)
    now[0] += 500 * 86_400
    assert second.end(0.9, 30).reason == EXPIRED
    now[0] -= 500 * 86_400
    gate.halt()
    assert not third.check(0.9, 40)
    assert third.end(0.9, 41).reason == HALTED


@given(
    points=st.sets(st.integers(1, 30), max_size=5).map(sorted),
    prefix=st.lists(st.integers(0, 16).map(lambda k: k / 16), min_size=31, max_size=31),
    skipped=st.sets(st.integers(1, 30), max_size=1),
    more=st.sets(st.integers(1, 30), max_size=5),
    length=st.integers(0, 30),
    threshold=st.integers(0, 16).map(lambda k: k / 16),
)
def test_a_stream_accepts_what_the_column_of_the_policy_accepts(
    tmp_path_factory: pytest.TempPathFactory,
    points: list[int],
    prefix: list[float],
    skipped: set[int],
    more: set[int],
    length: int,
    threshold: float,
) -> None:
    """As a table has it: the least prefix score at the checkpoints that the answer reaches, and at its end."""
    gate = gate_of(tmp_path_factory.mktemp("any"), text_of(threshold, tuple(points)))
    reached = [point for point in points if point < length]
    column = min([prefix[length], *(prefix[point] for point in reached)])
    stream, missed = gate.stream(), False
    for tokens in sorted(({*points} | more) - skipped):
        if tokens < length:
            missed |= any(point < tokens and point in skipped for point in points)
            so_far = min([1.0, *(prefix[point] for point in reached if point <= tokens and point not in skipped)])
            assert stream.check(prefix[tokens], tokens) == (so_far >= threshold and not missed)
    done = stream.end(prefix[length], length)
    if skipped & {*reached}:
        assert not done.accepted
    else:
        assert done.accepted == gate.accept(column) == (column >= threshold)


# ---------------------------------------------------------------- real runs


def prefixes(count: int = 3000) -> pl.DataFrame:
    """Answers with one score, which tells their losses well."""
    rng = np.random.default_rng(3)
    loss = (rng.random(count) < 0.3).astype(float)
    return pl.DataFrame({"p1": np.clip(0.5 + 0.25 * (1 - 2 * loss) + 0.1 * rng.standard_normal(count), 0, 1),
                         "loss": loss})  # fmt: skip


def check_stops(gate: Gate) -> None:
    """A stream that fails its first checkpoint stops, and is not accepted at its end."""
    assert (gate.status().score, gate.status().checkpoints) == ("p1", (30, 60))
    stream = gate.stream()
    assert not stream.check(0.0, 30)
    assert stream.end(1.0, 90).reason == BELOW
    assert gate.stream().end(1.0, 90).reason == MISSED
    good = gate.stream()
    assert [good.check(1.0, 30), good.check(1.0, 60), good.end(1.0, 90).accepted] == [True] * 3


HOW: dict[str, dict[str, Any]] = {
    "sealed": {"epsilon": 8},
    "open": {"epsilon": 8, "certificate": "open"},
    "plain, on a grid": {"epsilon": 8, "grid": True},
    "without privacy": {"epsilon": math.inf},
}


@pytest.mark.parametrize("name", HOW)
def test_the_only_score_of_a_run_has_its_checkpoints_at_the_gate(tmp_path: Path, name: str) -> None:
    run = fedsrc.certify(
        prefixes(), target=0.2, score_column="p1", checkpoints={"p1": (30, 60)}, output=tmp_path / "run",
        ledger=tmp_path / "ledger", key=tmp_path / "key", **HOW[name],
    )  # fmt: skip
    claims = run.registration.claims
    assert isinstance(claims, Scores)
    assert (claims.shares, claims.others, claims.checkpoints) == ((1.0,), (), (30, 60))
    assert Registration.from_toml(run.registration.to_toml()).digest == run.registration.digest
    assert run.certificate.status == "CERTIFIED"
    run.verify()
    check_stops(run.gate(trusted=[str(run.certificate.key)], claim={"score": "p1", "column": "p1"}))
    said = str(run)
    assert "30, 60 tokens, and the end" in said
    assert "The registered score:" in said
    assert "pick" not in said.replace("PICKED", "")
    with pytest.raises(FedsrcError, match="registered target"):
        run.gate(trusted=[str(run.certificate.key)], target=0.3)
    watched = register_monitor(run.folder, MonitorChoices())
    assert (watched.claim.column, watched.thresholds.values) == ("p1", (run.certificate.threshold,))


def test_the_command_registers_checkpoints_of_its_only_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prefixes().write_csv(tmp_path / "table.csv")
    run, folder, key = Terminal(monkeypatch, capsys), str(tmp_path / "run"), str(tmp_path / "key")
    certify = ("certify", str(tmp_path / "table.csv"), "--target", "0.2", "--epsilon", "inf", "--score-column", "p1")
    done = run(*certify, "--checkpoints", "p1=30,60", "-o", folder, "--key", key)
    assert (done.status, "30, 60 tokens, and the end" in done.out) == (0, True)
    check_stops(Gate(folder, trusted=[str(fedsrc.Run.open(folder).certificate.key)]))
    assert run("verify", folder).status == 0
    status = run("status", folder)
    assert "p1: PICKED, p1 >= " in status.out
    assert run("view", folder, "--format", "markdown").status == 0


def test_one_score_without_checkpoints_is_no_panel() -> None:
    with pytest.raises(ValueError, match="one score without checkpoints is one claim"):
        Scores(shares=(1.0,), others=())
