"""The gate: it accepts what its certificate accepts, fails closed, and takes renewals without a wrong decision.

Mutants killed: > instead of >= at the threshold, a comparison in single precision, NaN or a truth value that passes, an
expiry looked at once, a clock that is not looked at, a signature, key, claim or status not checked, a renewal that
speaks of something else, an older certificate put back, a half-written file taken or fatal, a decision that mixes two
certificates, an empty fallback.

Chance of a false alarm: none; threads are waited for, not timed.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc import Gate
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, BELOW, EARLY, EXPIRED, HALTED, REASONS, UNUSABLE, Decision
from fedsrc.gate.following import DAY
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.registration import Registration
from tests.support.gate_certificates import CLAIM, KEY, TRUSTED, Terminal, body, certificate, original, renewed

THRESHOLD: float = body()["threshold"]
EXPIRES = datetime.fromisoformat(body()["expires"]).timestamp()


class Clock:
    """A wall clock that tests set."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / CERTIFICATE
    path.write_text(original())
    return path


def gate_of(path: Path, **how: Any) -> Gate:
    return Gate(path, **{"trusted": TRUSTED, **how})


# ---------------------------------------------------------------- decisions


def test_a_score_at_the_threshold_is_accepted_and_the_next_below_is_not(file: Path) -> None:
    gate = gate_of(file)
    assert gate.accept(THRESHOLD)
    assert gate.accept(math.nextafter(THRESHOLD, 1))
    assert not gate.accept(math.nextafter(THRESHOLD, 0))
    assert (gate.accept(1.0), gate.accept(0.0)) == (True, False)
    assert gate.decide(1) == Decision(True, ACCEPTED, THRESHOLD, gate.status().certificate, 0.2)
    assert gate.decide(0.0).reason == BELOW
    assert gate.decide_all([0.0, 1.0, None]) == [gate.decide(score) for score in (0.0, 1.0, None)]


VALUES: list[float] = [row["threshold"] for row in body()["thresholds"]]


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> list[Gate]:
    """A gate for every threshold that was registered."""
    folder = tmp_path_factory.mktemp("gates")
    for i, threshold in enumerate(VALUES):
        (folder / str(i)).write_text(certificate(threshold=threshold))
    return [gate_of(folder / str(i)) for i in range(len(VALUES))]


@given(score=st.floats(0, 1) | st.sampled_from(VALUES))
def test_accepted_is_what_calibration_counted_as_accepted(gates: list[Gate], score: float) -> None:
    """A release puts a score into the bin after every threshold that it reaches."""
    reached = int(np.searchsorted(np.asarray(VALUES), score, side="right"))
    assert [gate.accept(score) for gate in gates] == [i < reached for i in range(len(VALUES))]


class Broken(float):
    """A number that cannot be read."""

    def __float__(self) -> float:
        raise ValueError


NOT_SCORES = {
    "NaN": float("nan"), "infinity": float("inf"), "negative": -1e-300, "above one": math.nextafter(1, 2),
    "numpy NaN": np.float32("nan"), "nothing": None, "text": "0.9", "bytes": b"0.9", "true": True,
    "numpy's true": np.bool_(True), "decimal": Decimal("0.9"), "list": [0.9], "array": np.array(0.9),
    "complex": 0.9 + 0j, "too large": 10**400, "unreadable": Broken(0.9), "type": float, "percent": 97,
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_SCORES)
def test_what_is_no_score_is_not_accepted(file: Path, name: str) -> None:
    assert gate_of(file).decide(NOT_SCORES[name])[:2] == (False, UNUSABLE)


@pytest.mark.parametrize(
    "score", [1, np.float32(0.999), np.float64(0.999), np.float16(0.999), np.int8(1), Fraction(9, 9)]
)
def test_real_numbers_are_scores(file: Path, score: Real) -> None:
    assert gate_of(file).decide(score)[:2] == (True, ACCEPTED)


def test_single_precision_is_not_rounded_up_to_the_threshold(file: Path) -> None:
    """0.7 in single precision is a little less than 0.7. numpy alone would compare in single precision."""
    file.write_text(certificate(threshold=0.7))
    gate = gate_of(file)
    assert np.float32(0.7) >= 0.7
    assert not gate.accept(np.float32(0.7))
    assert gate.accept(np.float64(0.7))


def test_expiry_and_clock_are_looked_at_in_every_call(file: Path) -> None:
    clock = Clock()
    gate = gate_of(file, clock=clock)
    for now, reason in [
        (EXPIRES, ACCEPTED), (math.nextafter(EXPIRES, math.inf), EXPIRED), (EXPIRES - 1, ACCEPTED),
        (clock.now - 2 * DAY, EARLY), (clock.now, ACCEPTED), (float("nan"), EXPIRED), (math.inf, EXPIRED),
        (-math.inf, EARLY), (0.0, EARLY),
    ]:  # fmt: skip
        clock.now = now
        assert gate.decide(1.0)[:2] == (reason == ACCEPTED, reason)
        assert gate.accept(1.0) == gate.status().accepting == (reason == ACCEPTED)


def test_a_fallback_answers_instead(file: Path) -> None:
    gate = gate_of(file)
    assert gate.answer("Paris", 0.999, "I do not know") == "Paris"
    assert gate.answer("Paris", 0.001, "I do not know") == "I do not know"
    assert gate.answer("Paris", None, lambda decision: f"held back: {decision.reason}") == f"held back: {UNUSABLE}"
    for empty in ("", None, lambda _: "", lambda _: None):
        with pytest.raises(FedsrcError, match="fallback is empty"):
            gate.answer("Paris", 0.001, empty)  # type: ignore[arg-type]

    def fails(_: Decision) -> str:
        raise RuntimeError("no reviewer")

    with pytest.raises(RuntimeError, match="no reviewer"):
        gate.answer("Paris", 0.001, fails)


# ---------------------------------------------------------------- what is refused


def reshaped(change: Callable[[dict[str, Any]], Any]) -> str:
    """A certificate with fields changed, and nothing signed anew."""
    found = json.loads(original())
    change(found)
    return json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


CLAIMED: dict[str, Any] = body()["claim"]
REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "unsigned": (lambda: reshaped(lambda b: b.pop("signature")), "not signed"),
    "without a key": (lambda: reshaped(lambda b: b.pop("key")), "not signed"),
    "edited": (lambda: reshaped(lambda b: b.update(threshold=0.5)), "signature does not fit"),
    "prolonged": (lambda: reshaped(lambda b: b.update(expires="2999-01-01T00:00:00+00:00")), "signature does not fit"),
    "signed by a stranger": (lambda: certificate(key=Key.generate()), "not trusted"),
    "a stranger's signature under a trusted key": (
        lambda: reshaped(lambda b: b.update(signature="0" * 128)), "signature does not fit"
    ),
    "other white space": (lambda: original() + " ", "as fedsrc writes it"),
    "a second value": (lambda: original().replace("{", '{"threshold": 0.01,', 1), "as fedsrc writes it"),
    "abstained": (lambda: certificate(status="ABSTAIN", threshold=None), "certifies nothing"),
    "open": (lambda: certificate(status="OPEN", threshold=None), "certifies nothing"),
    "open with a threshold": (lambda: certificate(status="OPEN"), "status OPEN has no threshold"),
    "expired": (lambda: certificate(expires="2020-01-01T00:00:00+00:00"), "expired on 2020"),
    "calibrated in the future": (
        lambda: certificate(calibrated="2999-01-01T00:00:00Z", expires="2999-02-01T00:00:00+00:00"), "after this clock"
    ),
    "no expiry": (lambda: certificate(expires=""), "CERTIFIED needs expires"),
    "no time of calibration": (lambda: certificate(calibrated=""), "CERTIFIED needs calibrated"),
    "a time of calibration in another form": (lambda: certificate(calibrated="2026-1-2T3:4:5Z"), "te: calibrated"),
    "no transcript": (lambda: certificate(transcript=""), "is not a certificate: transcript"),
    "no threshold": (lambda: certificate(threshold=None), "CERTIFIED needs threshold"),
    "a threshold in words": (lambda: certificate(threshold="0.5"), "is not a certificate: threshold"),
    "a threshold out of range": (lambda: certificate(threshold=-0.1), "is not a certificate: threshold"),
    "a threshold that is true": (lambda: certificate(threshold=True), "is not a certificate: threshold"),
    "no claim": (lambda: certificate(claim={}), "is not a certificate: claim"),
    "another format": (lambda: certificate(format=3), "known format"),
    "empty": (lambda: "", "not valid JSON"),
    "a list": (lambda: "[]", "known format"),
    "the first format": (lambda: certificate(format=1), "a server's unsigned word could decide"),
    "very deep": (lambda: '{"format":2,"a":' + "[" * 900 + "]" * 900 + "}", "certificate"),
    "deeper": (lambda: "[" * 100_000, "not valid JSON"),
    "not a number": (lambda: original().replace(f'"threshold": {THRESHOLD!r}', '"threshold": NaN'), "threshold: "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_start_and_as_a_renewal(tmp_path: Path, name: str) -> None:
    make, words = REFUSED[name]
    path = tmp_path / CERTIFICATE
    path.write_text(make())
    with pytest.raises(FedsrcError, match=words):
        gate_of(path)
    path.write_text(original())
    gate = gate_of(tmp_path)
    before = gate.decide(1.0)
    path.write_text(make())
    for _ in range(2):
        with pytest.raises(FedsrcError, match=words):
            gate.reload()
    assert gate.decide(1.0) == before
    assert (gate.status().renewals, gate.status().refused) == (0, 1)
    assert gate.status().problem is not None
    path.write_text(original())
    assert not gate.reload()
    assert gate.status().problem is None


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(FedsrcError, match="No such file"):
            gate_of(place)


def test_somebody_must_be_trusted(file: Path) -> None:
    with pytest.raises(FedsrcError, match="no key is trusted"):
        Gate(file, trusted=())
    for key in ("", "KEY", public_hex(KEY).upper(), public_hex(KEY)[:-1]):
        with pytest.raises(FedsrcError, match="64 hexadecimal digits"):
            Gate(file, trusted=[key])
    assert Gate(file, trusted=public_hex(KEY)).accept(1.0)
    assert Gate(file, trusted=[public_hex(Key.generate()), public_hex(KEY)]).accept(1.0)


def test_a_foreign_certificate_is_refused_at_the_start(file: Path) -> None:
    says = {**CLAIM, "target_risk": 0.2, "failure_probability": 0.05, "unit": "record"}
    says["registration"] = body()["registration"]
    assert gate_of(file, claim=says).accept(1.0)
    for name in says:
        with pytest.raises(FedsrcError, match=f"foreign: its {name} is"):
            gate_of(file, claim={**says, name: "another"})
    with pytest.raises(FedsrcError, match="'sites' is nothing that a claim says"):
        gate_of(file, claim={"sites": []})


FOREIGN: dict[str, tuple[dict[str, Any], str]] = {
    "score": ({"claim": {**CLAIMED, "score": "entropy"}}, "score"),
    "loss": ({"claim": {**CLAIMED, "loss": "impolite"}}, "loss"),
    "population": ({"claim": {**CLAIMED, "population": "other questions"}}, "population"),
    "target risk": ({"target_risk": 0.3}, "target_risk"),
    "what labels miss": ({"missed": 0.1}, "missed"),
    "failure probability": ({"claim": {**CLAIMED, "failure_probability": 0.1}}, "failure_probability"),
    "unit": ({"privacy": {**body()["privacy"], "unit": "source"}}, "unit"),
    "a site less": ({"sites": body()["sites"][:1]}, "sites"),
    "other weights": ({"sites": [{**site, "weight": 0.9} for site in body()["sites"]]}, "sites"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_renewal_speaks_of_the_same(file: Path, name: str) -> None:
    fields, what = FOREIGN[name]
    gate = gate_of(file)
    file.write_text(renewed(60, **fields))
    with pytest.raises(FedsrcError, match=f"foreign: its {what} is not that of the one in force"):
        gate.reload()
    assert gate.status().certificate == gate.decide(1.0).certificate
    assert Gate(file, trusted=TRUSTED).accept(1.0)


def test_what_may_change_in_a_renewal(file: Path) -> None:
    gate = gate_of(file, claim=CLAIM)
    registered = "ab" * 32
    claim = {**CLAIMED, "validity_days": 30, "min_acceptance": 0.1}
    sites = [{**site, "records": 7, "share": 0.4} for site in body()["sites"]]
    file.write_text(renewed(60, claim=claim, registration=registered, sites=sites, threshold=0.9))
    assert gate.reload()
    assert (gate.status().registration, gate.status().threshold, gate.status().renewals) == (registered, 0.9, 1)
    assert gate.text == file.read_text()


def test_a_pinned_registration_stays(file: Path) -> None:
    gate = gate_of(file, claim={"registration": body()["registration"]})
    file.write_text(renewed(60, registration="ab" * 32))
    with pytest.raises(FedsrcError, match="foreign: its registration"):
        gate.reload()


def test_an_older_certificate_does_not_come_back(file: Path) -> None:
    gate = gate_of(file)
    file.write_text(renewed(60))
    assert gate.reload()
    file.write_text(original())
    with pytest.raises(FedsrcError, match="older than the one in force"):
        gate.reload()


# ---------------------------------------------------------------- renewal while it works


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_watched_file_may_be_written_in_pieces(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    new = renewed(60, threshold=0.9)
    with gate_of(file).watch(0.002) as gate:
        before = gate.decide(1.0)
        refusals = 0
        for cut in range(0, len(new), len(new) // 20):
            file.write_text(new[:cut])
            wait_until(lambda: gate.status().problem is not None)
            refusals = max(refusals, gate.status().refused)
            assert gate.decide(1.0) == before
        file.write_text(new)
        wait_until(lambda: gate.status().threshold == 0.9)
        file.unlink()
        wait_until(lambda: gate.status().problem == "No such file or directory")
        assert gate.decide(0.95).accepted
    assert refusals >= 1
    assert not [each for each in threading.enumerate() if each.name == "fedsrc-gate"]
    words = [record.getMessage() for record in caplog.records]
    assert any("renewed: " in each for each in words)
    assert sum("No such file" in each for each in words) == 1


def test_watching_survives_a_fault_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def broken(*_: Any) -> str:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("disk on fire")
        return renewed(60, threshold=0.9)

    with gate_of(file) as gate:
        monkeypatch.setattr("fedsrc.gate.gate.read_text", broken)
        gate.watch(0.002)
        wait_until(lambda: gate.status().threshold == 0.9)


def test_threads_decide_while_certificates_are_swapped(file: Path) -> None:
    """Every decision is one certificate's own: threshold, outcome and digest belong together."""
    gate, thresholds = gate_of(file), (0.25, 0.75)
    made = [renewed(60 + i, threshold=thresholds[i % 2]) for i in range(40)]
    found: list[set[tuple[float, Decision]]] = [set() for _ in range(4)]
    stop, counted = threading.Event(), [0] * 4

    def work(k: int) -> None:
        scores = (0.1, 0.25, 0.5, 0.75, 0.9)
        while not stop.is_set():
            for score in scores:
                found[k].add((score, gate.decide(score)))
                counted[k] += 1

    file.write_text(made[0])
    gate.reload()
    first = gate.decide(1.0).certificate
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    try:
        for worker in workers:
            worker.start()
        digests: dict[str, float | None] = {first: 0.25}
        for text in made[1:]:
            file.write_text(text)
            assert gate.reload()
            status = gate.status()
            digests[status.certificate] = status.threshold
            enough = sum(counted) + 300
            wait_until(lambda: sum(counted) > enough)  # noqa: B023
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        sys.setswitchinterval(interval)
    decided = set().union(*found)
    assert sum(counted) > 10_000
    assert {decision.threshold for _, decision in decided} == set(thresholds)
    for score, decision in decided:
        assert decision.threshold == digests[decision.certificate]
        assert decision.threshold is not None
        assert decision.accepted == (score >= decision.threshold)
        assert decision.reason == (ACCEPTED if decision.accepted else BELOW)


def test_a_halted_gate_accepts_nothing_until_it_is_renewed(file: Path) -> None:
    gate = gate_of(file)
    gate.halt()
    assert not gate.reload()
    assert gate.decide(1.0)[:2] == (False, HALTED)
    assert (gate.status().accepting, gate.status().reason) == (False, HALTED)
    file.write_text(renewed(60, transcript="ab" * 32))
    assert gate.reload()
    assert gate.accept(1.0)


def test_the_time_to_renew_is_told(file: Path) -> None:
    clock = Clock()
    gate = gate_of(file, clock=clock)
    assert not gate.status().renew_soon
    clock.now = EXPIRES - 29 * DAY
    assert gate.status().renew_soon
    assert gate.status().seconds_left == 29 * DAY
    assert len(set(REASONS)) == 11


# ---------------------------------------------------------------- the command


@pytest.fixture
def fedsrc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


def test_the_command_decides_on_a_score(fedsrc: Terminal, file: Path) -> None:
    base = ("gate", "check", str(file.parent), "--trust", TRUSTED[0])
    done = fedsrc(*base, "--score", repr(THRESHOLD), "--claim", "score=lift", "--claim", "target_risk=0.20")
    assert done == (0, f"accepted: {ACCEPTED} (threshold {THRESHOLD!r}, risk at most 0.2)\n", "")
    done = fedsrc(*base, "--score", "0.01", "--format", "json")
    assert (done.status, json.loads(done.out)) == (
        1, {**gate_of(file).decide(0.01)._asdict(), "scale": "0:1", "raw_threshold": THRESHOLD}
    )  # fmt: skip
    assert fedsrc(*base, "--score", "nan").status == 1
    for wrong in (("--claim", "score=x"), ("--claim", "target_risk=x"), ("--claim", "x"), ("--trust", "x")):
        assert fedsrc(*base, "--score", "1", *wrong)[:2] == (2, "")
    assert fedsrc(*base[:3], "--score", "1")[:2] == (2, "")


def test_a_claim_in_words_is_registered(fedsrc: Terminal, tmp_path: Path) -> None:
    target = tmp_path / "r.toml"
    options = ["--grid", "--sites", "a,b", "--target", "0.2", "--epsilon", "4", "-o", str(target)]
    claims = ["--claim", "score=lift, small model", "--claim", "population=questions, 2026"]
    assert fedsrc("register", *options, *claims).status == 0
    claim = Registration.read(target).claim
    assert (claim.score, claim.loss, claim.population) == ("lift, small model", "unsupported", "questions, 2026")
