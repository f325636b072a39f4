"""Recorded lives of certificates count from now on: statuses, successions, notices by a succeeding key, and cards.

Mutants killed: a field of a status or a succession that is renamed, dropped, written otherwise or not signed; one that
is read without its signature, or with one of two; a status that does not follow from the monitor's transcript; an alarm
that no gate heeds; a status of another certificate that one does; a notice by a succeeding key that is taken without
the statement, or refused with it, or taken against the line of keys; a renewal by that key that nobody trusts; a card
whose run is not read, is read in part, or counts although it was changed. Chance of a false alarm: none, nothing is
random.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedsrc import Gate
from fedsrc.cli.main import cli
from fedsrc.common.canonical import canonical_bytes
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, BELOW, HALTED, UNWATCHED
from fedsrc.gate.following import FOREIGN
from fedsrc.monitor.monitor import state
from fedsrc.protocol.certificate import MonitorAccount, read_signed
from fedsrc.protocol.monitor_status import MonitorStatus, read_status
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, STATUS, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import read_succession
from fedsrc.report.carried import CANONICAL, LINK, MONITOR, NOTICE, opened
from fedsrc.server.folder import replay_run
from fedsrc.server.issue import conclude
from fedsrc.server.verify import recompute, verify
from tests.recorded import lives
from tests.recorded.forged_certificates import leaves, otherwise
from tests.recorded.forger import changed
from tests.support.recordings import LIFE_DIGESTS, LIVES, digests, key, public

NOW = datetime(2026, 2, 2, tzinfo=UTC).timestamp()
SERVER, SUCCESSOR = public("server"), public("successor")
FOLDERS = sorted(path.parent.relative_to(LIVES).as_posix() for path in LIVES.rglob(REGISTRATION))
WATCHED = sorted(path.parents[1].name for path in LIVES.rglob(STATUS))
SUCCESSION = LIVES / "succeeded" / "succession.json"
STATES = {"unopened": "certified", "rung": "alarm", "groups-quiet": "still supported", "groups-rung": "alarm"}
ALL_TOGETHER = 900_000  # bytes


def signer(public_key: str | None) -> str:
    """Whose key it is."""
    return {SERVER: "server", SUCCESSOR: "successor"}[public_key or ""]


def invoke(*words: Any) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def test_lives_are_frozen_and_those_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert {path.name for path in LIVES.iterdir()} == set(lives.MADE)
    assert digests(LIVES) == LIFE_DIGESTS.read_text(encoding="utf-8").splitlines()
    assert sum(path.stat().st_size for path in LIVES.rglob("*") if path.is_file()) < ALL_TOGETHER
    with pytest.raises(SystemExit):
        lives.main(["rung"])
    assert "recorded already, and frozen: rung" in capsys.readouterr().err


def test_a_life_is_made_whose_files_count(tmp_path: Path) -> None:
    """And lies nowhere else than where it was asked for."""
    lives.make("succeeded", tmp_path / "life")
    found = {path.relative_to(tmp_path / "life") for path in (tmp_path / "life").rglob("*") if path.is_file()}
    assert found == {path.relative_to(SUCCESSION.parent) for path in SUCCESSION.parent.rglob("*") if path.is_file()}
    statement = tmp_path / "life" / "succession.json"
    assert statement.read_bytes() == SUCCESSION.read_bytes()
    assert verify(tmp_path / "life" / "run", successions=[statement]).revoked is not None


# Runs, monitors and their statuses


@pytest.mark.parametrize("name", FOLDERS)
def test_its_certificates_come_out_the_same(name: str) -> None:
    folder = LIVES / name
    found = verify(folder, trusted=(SERVER,), successions=[SUCCESSION]).signed
    replay, chain = replay_run(folder)
    again = conclude(replay.registration, replay, chain).signed(key(signer(found.key)))
    assert again.text.encode() == (folder / CERTIFICATE).read_bytes()


def test_every_folder_was_verified() -> None:
    assert [name for name in FOLDERS if name.endswith("run")] == [f"{name}/run" for name in sorted(lives.MADE)]
    assert [name for name in FOLDERS if name.endswith("monitor")] == [f"{name}/monitor" for name in WATCHED]
    assert sorted(STATES) == WATCHED


@pytest.mark.parametrize("name", WATCHED)
def test_a_status_follows_from_its_monitor(name: str) -> None:
    """Written again, it is the same but for its time."""
    folder = LIVES / name / "monitor"
    account, _ = recompute(folder)
    assert isinstance(account, MonitorAccount)
    again = MonitorStatus.of(account, key("server")).model_copy(update={"time": read_status(folder).time})
    assert again.signed(key("server")).to_bytes() == (folder / STATUS).read_bytes()
    assert again.certificate == read_signed(LIVES / name / "run" / CERTIFICATE).digest
    assert again.state == STATES[name]
    assert state(folder, trusted=(SERVER,), certificate=LIVES / name / "run").alarm == (STATES[name] == "alarm")


@pytest.fixture
def gate(tmp_path: Path) -> Callable[..., Gate]:
    """A gate on a copy of a life, since an alarm is kept beside the certificate."""

    def made(name: str, run: str = "run", **more: Any) -> Gate:
        place = tmp_path / name
        if not place.exists():
            shutil.copytree(LIVES / name, place)
        return Gate(place / run, trusted=[SERVER], clock=lambda: NOW, **more)

    return made


def test_a_gate_follows_the_recorded_status(gate: Callable[..., Gate], tmp_path: Path) -> None:
    quiet = gate("unopened", monitor=tmp_path / "unopened" / "monitor")
    at = read_status(LIVES / "unopened" / "monitor").threshold
    assert at is not None
    assert [quiet.decide(score).reason for score in (at, at - 1e-9)] == [ACCEPTED, BELOW]
    halted = gate("rung", monitor=tmp_path / "rung" / "monitor" / STATUS)
    assert halted.decide(1.0).reason == HALTED
    other = gate("rung", "../unopened/run", monitor=tmp_path / "rung" / "monitor")
    assert (other.decide(1.0).reason, other.status().monitor_problem) == (UNWATCHED, FOREIGN)


def test_a_gate_follows_groups(gate: Callable[..., Gate], tmp_path: Path) -> None:
    quiet = gate("groups-quiet", monitor=tmp_path / "groups-quiet" / "monitor")
    watched = read_status(LIVES / "groups-quiet" / "monitor").watched
    assert watched is not None
    assert {name: quiet.accept(at, group=name) for name, at in watched.items()} == {"day": True, "night": True}
    assert not any(quiet.accept(at - 1e-9, group=name) for name, at in watched.items())
    rung = gate("groups-rung", monitor=tmp_path / "groups-rung" / "monitor")
    assert rung.decide(1.0, group="day").reason == HALTED


# What is signed in files of their own


def refused(read: Callable[[Path], object], place: Path, data: bytes) -> bool:
    place.write_bytes(data)
    try:
        read(place)
    except FedsrcError:
        return True
    return False


@pytest.mark.parametrize(
    "path", [*sorted(LIVES.rglob(STATUS)), SUCCESSION], ids=lambda path: path.relative_to(LIVES).as_posix()
)
def test_no_value_of_them_can_be_changed(path: Path, tmp_path: Path) -> None:
    """By whoever has no key: each value alone, a field more or less, another text of the same values."""
    read: Callable[[Path], object] = read_succession if path == SUCCESSION else read_status
    data, place = path.read_bytes(), tmp_path / "file"
    plain = json.loads(data)
    assert data == canonical_bytes(plain) + b"\n"
    assert not refused(read, place, data)
    forgeries = [changed(plain, where, otherwise(value)) for where, value in leaves(plain)]
    forgeries += [{name: value for name, value in plain.items() if name != left} for left in plain]
    forgeries += [{**plain, "more": 1}, *({**plain, name: None} for name in plain)]
    texts = [canonical_bytes(each) + b"\n" for each in forgeries if each != plain]
    texts += [data[:-1], data + b"\n", data.replace(b":", b": ", 1), json.dumps(plain).encode() + b"\n", b""]
    assert len(texts) > 20
    assert [text for text in texts if not refused(read, place, text)] == []


# A key that succeeds another


def test_a_notice_by_the_succeeding_key_counts_with_the_statement_alone() -> None:
    run = SUCCESSION.parent / "run"
    for trusted in ((), (SERVER,)):
        with pytest.raises(FedsrcError, match=f"signed by {SUCCESSOR}, not by the certificate's key {SERVER}"):
            verify(run, trusted=trusted)
        found = verify(run, trusted=trusted, successions=[SUCCESSION])
        assert found.revoked is not None
        assert found.revoked.superseded_by == read_signed(SUCCESSION.parent / "renewal" / CERTIFICATE).digest
    with pytest.raises(FedsrcError, match="which is not trusted"):
        verify(run, trusted=(SUCCESSOR,), successions=[SUCCESSION])


def test_a_renewal_by_the_succeeding_key_is_trusted_through_the_statement(gate: Callable[..., Gate]) -> None:
    renewal = SUCCESSION.parent / "renewal"
    with pytest.raises(FedsrcError, match="which is not trusted"):
        verify(renewal, trusted=(SERVER,))
    assert verify(renewal, trusted=(SERVER,), successions=[SUCCESSION]).signed.status == "CERTIFIED"
    assert verify(renewal, trusted=(SUCCESSOR,)).trusted
    with pytest.raises(FedsrcError, match="which is not trusted"):
        gate("succeeded", "renewal")
    assert gate("succeeded", "renewal", successions=[SUCCESSION]).accept(1.0)
    with pytest.raises(FedsrcError, match="revoked"):
        gate("succeeded", successions=[SUCCESSION])


def test_nothing_counts_that_the_old_key_signs_later(tmp_path: Path) -> None:
    """The same status with a date after the succession, signed by the key that was succeeded."""
    later = read_status(LIVES / "unopened" / "monitor").model_copy(update={"time": "2026-02-01T00:00:00Z"})
    (tmp_path / STATUS).write_bytes(later.signed(key("server")).to_bytes())
    shutil.copytree(LIVES / "unopened" / "run", tmp_path / "run")
    trust: dict[str, Any] = {"trusted": [SERVER], "clock": lambda: NOW}
    assert Gate(tmp_path / "run", monitor=tmp_path / STATUS, **trust).accept(1.0)
    heard = Gate(tmp_path / "run", monitor=tmp_path / STATUS, successions=[SUCCESSION], **trust)
    assert heard.decide(1.0).reason == UNWATCHED


# Cards


def archived(card: Path) -> dict[str, bytes]:
    (link,) = re.findall(f'{LINK}([^"]*)"', card.read_text(encoding="utf-8"))
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(link))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def repacked(card: Path, files: dict[str, bytes], place: Path) -> Path:
    """The card with other files in its link."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    link = LINK + base64.b64encode(packed.getvalue()).decode()
    place.write_text(re.sub(f'{LINK}[^"]*', link, card.read_text(encoding="utf-8")), encoding="utf-8")
    return place


CARRIED = {
    "unopened": (REGISTRATION, TRANSCRIPT, CERTIFICATE),
    "rung": (
        REGISTRATION, TRANSCRIPT, CERTIFICATE,
        *(f"{MONITOR}/{name}" for name in (REGISTRATION, TRANSCRIPT, CERTIFICATE, STATUS)),
    ),
    "succeeded": (REGISTRATION, TRANSCRIPT, CERTIFICATE, NOTICE),
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIED)
def test_a_card_carries_the_files_of_its_life(name: str) -> None:
    files = archived(LIVES / name / "card.html")
    stated = files.pop(CANONICAL)
    assert stated == canonical_bytes(Registration.read(LIVES / name / "run" / REGISTRATION).model_dump())
    places = {each: each if each.startswith(MONITOR) else f"run/{each}" for each in CARRIED[name]}
    assert files == {each: (LIVES / name / place).read_bytes() for each, place in places.items()}
    with opened(LIVES / name / "card.html") as folder:
        assert recompute(folder)[0] == recompute(LIVES / name / "run")[0]


VERDICTS = {
    ("unopened",): (0, "Status: CERTIFIED"),
    ("rung",): (1, "Its monitor, as far as the page carries it: ALARM after"),
    ("succeeded",): (1, "It does not verify: do not rely on it."),
    ("succeeded", "--succession", SUCCESSION): (1, "REVOKED: the certificate was revoked on 2026-02-01T00:00:00Z"),
}


@pytest.mark.parametrize("words", VERDICTS, ids=lambda words: " ".join(map(str, words[:2])))
def test_a_card_is_verified(words: tuple[str, ...]) -> None:
    name, *more = words
    status, said = VERDICTS[words]
    done = invoke("verify", LIVES / name / "card.html", "--trust", SERVER, *more)
    assert (done.exit_code, said in done.stdout) == (status, True)
    assert ("Verified: the certificate follows" in done.stdout) == (words != ("succeeded",))


def last_digit_changed(data: bytes) -> bytes:
    """Another value: in a registration, what stands first is a comment."""
    place = [each.start() for each in re.finditer(rb"[1-8]", data)][-1]
    return data[:place] + bytes([data[place] + 1]) + data[place + 1 :]


@pytest.mark.parametrize("name", ["unopened", "rung"])
def test_a_card_with_a_changed_file_is_refused(name: str, tmp_path: Path) -> None:
    """Whichever it is, but for the status: of a monitor, `verify` recomputes the transcript."""
    card, place = LIVES / name / "card.html", tmp_path / "card.html"
    files = archived(card)
    assert "Verified: the certificate" in invoke("verify", repacked(card, files, place)).stdout
    for each in [each for each in files if not each.endswith(STATUS)]:
        done = invoke("verify", repacked(card, {**files, each: last_digit_changed(files[each])}, place))
        assert (done.exit_code, "Verified: the certificate" in done.stdout) == (1, False), each
