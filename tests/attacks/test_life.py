"""Attacks on the life of a certificate: revoked ones that serve on, forged notices, keys that put themselves in place.

Mutants killed: a notice that is not looked for at the start or at a reload, or not kept as a halt; one whose signature,
signer, certificate or form is not checked; what cannot be read taken for no notice; a certificate under a new digest
with the same signature; a succession signed by one side, a fork of which one is taken, a line without end, a
predecessor that speaks for its successor, a succeeded key that signs on.

Chance of a false alarm: none; whatever takes time is waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.canonical import canonical_bytes, digest_bytes
from fedsrc.common.clock import TIME
from fedsrc.common.signing import Key, public_hex, sign
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, HALTED
from fedsrc.gate.gate import Gate
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import Revocation, beside, revoke
from fedsrc.protocol.succession import Succession, keys_of
from fedsrc.report.view import view_run
from fedsrc.server.verify import verify
from tests.support.gate_certificates import (
    KEY,
    TRUSTED,
    Terminal,
    body,
    certificate,
    copied_run,
    notice_of,
    original,
    renewed,
)
from tests.support.gate_server import Client, serving

NEXT, LAST, STRANGER = (Key.generate() for _ in range(3))
OTHER = "ab" * 32  # a digest of something else
LONG_AGO = "2020-01-01T00:00:00Z"
REASON = "labels of the north were wrong"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return copied_run(tmp_path)


@pytest.fixture
def file(run: Path) -> Path:
    return run / CERTIFICATE


def gate_of(path: Path, **how: Any) -> Gate:
    return Gate(path, **{"trusted": TRUSTED, **how})


def after(seconds: int) -> str:
    """A time so long after the calibration."""
    moment = datetime.strptime(body()["calibrated"], TIME) + timedelta(seconds=seconds)
    return moment.strftime(TIME)


# ---------------------------------------------------------------- a revoked certificate


def test_a_revoked_certificate_is_not_served(run: Path, file: Path) -> None:
    """Nobody starts on it, and nobody verifies it, shows it as certified or watches over it."""
    assert gate_of(file).accept(1.0)
    assert verify(run).revoked is None
    beside(file).write_bytes(notice_of(original(), REASON))
    for place in (run, file):
        with pytest.raises(FedsrcError, match=f"was revoked on .*: {REASON}"):
            gate_of(place)
    found = verify(run, trusted=TRUSTED).revoked
    assert found is not None
    assert (found.reason, found.certificate) == (REASON, digest_bytes(file.read_bytes()))
    view = view_run(run)
    assert (view["status"], view["check"]["revoked"]["reason"]) == ("REVOKED", REASON)
    with pytest.raises(FedsrcError, match="was revoked on"):
        register_monitor(run, MonitorChoices())


def test_a_running_service_stops_at_its_next_look(file: Path) -> None:
    gate = gate_of(file)
    with serving(gate) as port, contextlib.closing(Client(port)) as client, gate.watch(0.02):
        assert client.decide(1.0).json["reason"] == ACCEPTED
        beside(file).write_bytes(notice_of(original(), REASON))
        end = time.monotonic() + 60
        while client.decide(1.0).json["reason"] != HALTED:
            assert time.monotonic() < end
        health = client.ask("GET", "/healthz")
        assert (health.status, REASON in health.json["revoked"]) == (503, True)


def test_a_notice_that_is_taken_away_ends_nothing(file: Path) -> None:
    """The running gate has written its halt, which a second gate and a restart heed."""
    gate, second = gate_of(file), gate_of(file)
    beside(file).write_bytes(notice_of(original(), REASON))
    gate.reload()
    assert gate.decide(1.0).reason == HALTED
    beside(file).unlink()
    gate.reload()
    second.reload()
    for each in (gate, second, gate_of(file)):
        assert (each.decide(1.0).reason, each.status().halt_problem) == (HALTED, None)


def test_a_notice_is_heeded_though_the_certificate_is_gone(file: Path) -> None:
    gate = gate_of(file)
    beside(file).write_bytes(notice_of(original(), REASON))
    file.unlink()
    with pytest.raises(FedsrcError):
        gate.reload()
    assert gate.decide(1.0).reason == HALTED


def test_the_one_that_supersedes_is_taken_and_the_old_one_does_not_come_back(file: Path) -> None:
    later = renewed(60, transcript=OTHER)
    gate = gate_of(file)
    beside(file).write_bytes(notice_of(original(), REASON, superseded_by=digest_bytes(later.encode())))
    gate.reload()
    assert gate.decide(1.0).reason == HALTED
    file.write_text(later)
    assert gate.reload()
    assert gate.accept(1.0)
    assert gate.status().revoked is None
    file.write_text(original())
    with pytest.raises(FedsrcError):
        gate.reload()
    with pytest.raises(FedsrcError, match="was revoked on"):
        gate_of(file)


def test_a_renewal_that_is_revoked_is_not_taken(file: Path, tmp_path: Path) -> None:
    notices, later = tmp_path / "notices", renewed(60, transcript=OTHER)
    notices.mkdir()
    gate = gate_of(file, revocations=notices)
    (notices / "later.revoked").write_bytes(notice_of(later, REASON))
    file.write_text(later)
    with pytest.raises(FedsrcError, match="was revoked on"):
        gate.reload()
    assert gate.accept(1.0), "the one in force is not the one that was revoked"


RESPELLED: dict[str, Callable[[str], str]] = {
    "in capitals": lambda signature: signature.upper(),
    "one capital": lambda signature: signature.replace("a", "A", 1).replace("b", "B", 1).replace("c", "C", 1),
    "with a space": lambda signature: f"{signature[:2]} {signature[2:]}",
}


@pytest.mark.parametrize("name", RESPELLED)
def test_a_revoked_certificate_does_not_come_back_under_another_digest(file: Path, tmp_path: Path, name: str) -> None:
    """The signature is not itself signed: spelled otherwise it makes another file, which no notice is of."""
    notices, signature = tmp_path / "notices", json.loads(original())["signature"]
    notices.mkdir()
    (notices / "one.revoked").write_bytes(notice_of(original(), REASON))
    file.write_text(original().replace(signature, RESPELLED[name](signature)))
    assert digest_bytes(file.read_bytes()) != digest_bytes(original().encode())
    with pytest.raises(FedsrcError, match="is not a certificate: signature"):
        gate_of(file, revocations=notices)


# ---------------------------------------------------------------- forged notices


def altered(**fields: Any) -> bytes:
    """A notice with fields changed, and nothing signed anew."""
    return canonical_bytes({**json.loads(notice_of(original(), REASON)), **fields}) + b"\n"


def by_stranger_as_issuer() -> bytes:
    """The issuer's key named, a stranger's signature."""
    plain = Revocation.model_validate_json(notice_of(original(), REASON))
    return plain.signed(STRANGER).to_bytes()


def without(name: str) -> bytes:
    fields = json.loads(notice_of(original(), REASON))
    return canonical_bytes({each: value for each, value in fields.items() if each != name}) + b"\n"


def bytes_of(data: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data())


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "by a stranger": (
        bytes_of(lambda: notice_of(original(), REASON, key=STRANGER)), "not by the certificate's key"
    ),
    "by a stranger, as the issuer": (bytes_of(by_stranger_as_issuer), "signature does not fit"),
    "another reason": (bytes_of(lambda: altered(reason="none")), "signature does not fit"),
    "another time": (bytes_of(lambda: altered(time=LONG_AGO)), "signature does not fit"),
    "another successor": (bytes_of(lambda: altered(superseded_by=OTHER)), "signature does not fit"),
    "turned to this one": (
        bytes_of(lambda: altered(certificate=OTHER)), "signature does not fit"
    ),
    "of another certificate": (bytes_of(lambda: notice_of(renewed(60), REASON)), "of another certificate"),
    "that names another successor": (
        bytes_of(lambda: notice_of(renewed(60), REASON, superseded_by=OTHER)), "of another certificate"
    ),
    "unsigned": (bytes_of(lambda: altered(signature=None)), "signature does not fit"),
    "without a signature": (bytes_of(lambda: without("signature")), "as fedsrc writes it"),
    "without a reason": (bytes_of(lambda: without("reason")), "is not a notice"),
    "an empty reason": (bytes_of(lambda: altered(reason="")), "is not a notice"),
    "a reason that turns the line round": (bytes_of(lambda: altered(reason="\u202eok")), "is not a notice"),
    "a signature in capitals": (
        bytes_of(lambda: altered(signature=json.loads(notice_of(original(), REASON))["signature"].upper())),
        "is not a notice",
    ),
    "more": (bytes_of(lambda: notice_of(original(), REASON) + b" "), "as fedsrc writes it"),
    "indented": (
        bytes_of(lambda: json.dumps(json.loads(notice_of(original(), REASON)), indent=1).encode()),
        "as fedsrc writes it",
    ),
    "an unknown field": (bytes_of(lambda: altered(until="tomorrow")), "is not a notice"),
    "another kind": (bytes_of(lambda: altered(kind="succession")), "is not a notice"),
    "another format": (bytes_of(lambda: altered(format=2)), "is not a notice"),
    "a certificate": (bytes_of(lambda: original().encode()), "is not a notice|larger than"),
    "empty": (bytes_of(lambda: b""), "is not a notice"),
    "not UTF-8": (bytes_of(lambda: b"\xff"), "is not a notice"),
    "very deep": (bytes_of(lambda: b"[" * 9_000), "is not a notice"),
    "huge": (bytes_of(lambda: b" " * 30_000), "larger than"),
    "a folder": (Path.mkdir, "is a folder"),
    "a pipe": (os.mkfifo, "is a pipe"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "No such file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a device"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_is_no_notice_stops_a_gate_and_is_told(run: Path, file: Path, name: str) -> None:
    """At the start and at a reload, while it lies there; what was never revoked is then served again."""
    make, words = FORGED[name]
    running = gate_of(file)
    make(beside(file))
    for relies in (lambda: gate_of(file), lambda: verify(run), lambda: view_run(run)):
        with pytest.raises(FedsrcError, match=words) as told:
            relies()
        assert told.value.where == str(beside(file))
    running.reload()
    assert running.decide(1.0).reason == HALTED
    assert running.status().halt_problem is not None
    assert not file.with_name(f"{CERTIFICATE}.halt").exists(), "nobody revoked anything"
    beside(file).rmdir() if beside(file).is_dir() else beside(file).unlink()
    running.reload()
    assert running.accept(1.0)


def test_a_link_to_a_notice_is_one(file: Path, tmp_path: Path) -> None:
    """As mounted secrets are."""
    (tmp_path / "data").write_bytes(notice_of(original(), REASON))
    beside(file).symlink_to(tmp_path / "data")
    with pytest.raises(FedsrcError, match="was revoked on"):
        gate_of(file)


def test_a_folder_of_notices_is_as_good_as_its_worst(file: Path, tmp_path: Path) -> None:
    """Notices of other certificates are passed over, those that are none are not; and the folder must be there."""
    notices = tmp_path / "notices"
    with pytest.raises(FedsrcError, match="No such file"):
        gate_of(file, revocations=notices)
    notices.mkdir()
    (notices / "a.revoked").write_bytes(notice_of(renewed(60), REASON))
    (notices / "README").write_text("what these files are")
    gate = gate_of(file, revocations=notices)
    assert gate.accept(1.0)
    (notices / "b.revoked").write_bytes(b"?")
    gate.reload()
    assert gate.decide(1.0).reason == HALTED
    (notices / "b.revoked").write_bytes(notice_of(original(), REASON))
    gate.reload()
    shutil.rmtree(notices)
    gate.reload()
    assert gate.decide(1.0).reason == gate_of(file).decide(1.0).reason == HALTED


def test_notices_out_of_reach_stop_a_gate(file: Path, tmp_path: Path) -> None:
    """Whatever the system says of the place. Mutant killed: only what is missing counts as an error."""
    notices = tmp_path / "notices"
    notices.mkdir()
    gate = gate_of(file, revocations=notices)
    notices.rmdir()
    notices.symlink_to("a" * 300)
    gate.reload()
    assert gate.decide(1.0).reason == HALTED
    assert "name too long" in str(gate.status().halt_problem)


# ---------------------------------------------------------------- keys in succession


def stated(path: Path, old: Key, new: Key, time: str) -> Path:
    path.write_bytes(Succession.by(old, new, time).to_bytes())
    return path


def test_a_line_of_successions_leads_from_a_trusted_key(file: Path, tmp_path: Path) -> None:
    first, second = stated(tmp_path / "1", KEY, NEXT, after(60)), stated(tmp_path / "2", NEXT, LAST, after(120))
    file.write_text(renewed(180, key=LAST, transcript=OTHER))
    for missing in ([], [first], [second]):
        with pytest.raises(FedsrcError, match="which is not trusted"):
            gate_of(file, successions=missing)
    assert gate_of(file, successions=[second, first]).accept(1.0)
    assert gate_of(file, trusted=[public_hex(NEXT)], successions=[second]).accept(1.0)
    file.write_text(original())
    assert gate_of(file, successions=[first, second]).accept(1.0), "what was signed before stays as it was"
    with pytest.raises(FedsrcError, match="which is not trusted"):
        gate_of(file, trusted=[public_hex(NEXT)], successions=[first])


def test_a_succeeded_key_signs_no_more(run: Path, file: Path, tmp_path: Path) -> None:
    """The gate and `verify` refuse what is dated later, and keep what is dated before, or just then."""
    late = stated(tmp_path / "late", KEY, NEXT, after(-1))
    words = f"signed by a key that was succeeded on {after(-1)}"
    for relies in (
        lambda: gate_of(file, successions=[late]),
        lambda: verify(run, successions=[late]),
        lambda: verify(run, trusted=TRUSTED, successions=[late]),
        lambda: view_run(run, successions=[late]),
    ):
        with pytest.raises(FedsrcError, match=words):
            relies()
    then = stated(tmp_path / "then", KEY, NEXT, after(0))
    assert gate_of(file, successions=[then]).accept(1.0)
    assert verify(run, trusted=TRUSTED, successions=[then]).trusted


def test_a_running_gate_takes_no_late_certificate(file: Path, tmp_path: Path) -> None:
    gate = gate_of(file, successions=[stated(tmp_path / "s", KEY, NEXT, after(30))])
    file.write_text(renewed(60, transcript=OTHER))
    with pytest.raises(FedsrcError, match="signed by a key that was succeeded on"):
        gate.reload()
    file.write_text(renewed(60, transcript=OTHER, key=NEXT))
    assert gate.reload()


def one_sided(who: str) -> Succession:
    """The old key is the issuer's and the new one a stranger's, or the other way round; a stranger signs for both."""
    pair = (KEY, STRANGER) if who == "new" else (STRANGER, KEY)
    whole = Succession.by(*pair, LONG_AGO)
    forged = sign(STRANGER, whole.signed_part())
    return whole.model_copy(update={"by_old": forged, "by_new": forged})


FALSE_SUCCESSIONS: dict[str, tuple[Callable[[], bytes], str]] = {
    "by the new key alone": (lambda: one_sided("new").to_bytes(), "not signed by the old key"),
    "by the old key alone": (lambda: one_sided("old").to_bytes(), "not signed by the new key"),
    "unsigned": (
        lambda: Succession.by(KEY, NEXT).model_copy(update={"by_old": None, "by_new": None}).to_bytes(),
        "not signed by the old key",
    ),
    "dated anew": (
        lambda: Succession.by(KEY, NEXT).model_copy(update={"time": LONG_AGO}).to_bytes(),
        "not signed by the old key",
    ),
    "another heir": (
        lambda: Succession.by(KEY, NEXT).model_copy(update={"new": public_hex(STRANGER)}).to_bytes(),
        "not signed by the old key",
    ),
    "signatures exchanged": (
        lambda: (s := Succession.by(KEY, NEXT)).model_copy(update={"by_old": s.by_new, "by_new": s.by_old}).to_bytes(),
        "not signed by the old key",
    ),
    "more": (lambda: Succession.by(KEY, NEXT).to_bytes() + b"\n", "as fedsrc writes it"),
    "a notice": (lambda: notice_of(original(), REASON), "is not the succession of a key"),
    "empty": (lambda: b"", "is not the succession of a key"),
}


@pytest.mark.parametrize("name", FALSE_SUCCESSIONS)
def test_a_forged_succession_is_refused(file: Path, run: Path, tmp_path: Path, name: str) -> None:
    make, words = FALSE_SUCCESSIONS[name]
    (tmp_path / "s.json").write_bytes(make())
    for relies in (
        lambda: gate_of(file, successions=[tmp_path / "s.json"]),
        lambda: verify(run, successions=[tmp_path / "s.json"]),
    ):
        with pytest.raises(FedsrcError, match=words):
            relies()


def test_forks_and_circles_are_refused(tmp_path: Path) -> None:
    one, other = stated(tmp_path / "1", KEY, NEXT, after(1)), stated(tmp_path / "2", KEY, STRANGER, after(2))
    again, back = stated(tmp_path / "3", KEY, NEXT, after(3)), stated(tmp_path / "4", NEXT, KEY, after(4))
    for pair in ([one, other], [other, one], [one, again]):
        with pytest.raises(FedsrcError, match="is succeeded twice"):
            keys_of(TRUSTED, pair)
    with pytest.raises(FedsrcError, match="go round in a circle"):
        keys_of(TRUSTED, [one, back])
    ahead = stated(tmp_path / "5", STRANGER, KEY, after(0))
    with pytest.raises(FedsrcError, match="go round in a circle"):
        keys_of(TRUSTED, [ahead, one, back])
    assert keys_of(TRUSTED, [one, one]).trusted == set(TRUSTED), "the same statement twice is one"
    with pytest.raises(ValueError, match="does not succeed itself"):
        Succession.by(KEY, KEY)


def test_a_stranger_succeeds_nobody_that_is_trusted(file: Path, tmp_path: Path) -> None:
    """Two keys of a stranger's own may follow each other as they like."""
    mine = stated(tmp_path / "s", STRANGER, NEXT, LONG_AGO)
    file.write_text(certificate(key=NEXT))
    with pytest.raises(FedsrcError, match="which is not trusted"):
        gate_of(file, successions=[mine])


# ---------------------------------------------------------------- who may revoke


def test_a_successor_revokes_what_its_predecessor_signed_and_not_the_other_way_round(
    run: Path, file: Path, tmp_path: Path
) -> None:
    line = [stated(tmp_path / "1", KEY, NEXT, after(1)), stated(tmp_path / "2", NEXT, LAST, after(120))]
    beside(file).write_bytes(notice_of(original(), REASON, key=LAST))
    with pytest.raises(FedsrcError, match="not by the certificate's key"):
        verify(run)
    assert verify(run, successions=line).revoked is not None
    with pytest.raises(FedsrcError, match="was revoked on"):
        gate_of(file, successions=line)
    file.write_text(later := renewed(60, key=NEXT, transcript=OTHER))
    beside(file).write_bytes(notice_of(later, REASON, key=KEY))
    with pytest.raises(FedsrcError, match="not by the certificate's key"):
        gate_of(file, successions=line)


def test_the_command_writes_no_strangers_notice(
    run: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fedsrc, key = Terminal(monkeypatch, capsys), tmp_path / "stranger.key"
    fedsrc("keys", str(key))
    done = fedsrc("revoke", str(run), "--reason", REASON, "--key", str(key))
    assert (done.status, "not by the certificate's key" in done.err) == (2, True)
    assert not beside(file).exists()
    done = fedsrc("revoke", str(run), "--reason", REASON, "--key", str(tmp_path / "none.key"))
    assert (done.status, (tmp_path / "none.key").exists()) == (2, False), "no key is made to revoke with"


def test_a_notice_signs_no_certificate_and_no_succession() -> None:
    """What a key signs says what it is: no signature can be carried from one kind of file to another."""
    notice = revoke(OTHER, REASON, KEY)
    statement = Succession.by(KEY, NEXT)
    kinds = {json.loads(each.signed_part())["kind"] for each in (notice, statement)}
    assert kinds == {"revocation", "succession"}
    assert "kind" not in body()
