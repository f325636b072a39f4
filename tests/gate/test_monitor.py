"""A gate that follows its monitor: an alarm halts it for good, and without a valid status it accepts nothing.

Real certificates, real monitors, without noise and in the table's order, so every outcome is fixed.

Mutants killed: an alarm in memory alone, one that a later status, a missing file or a restart ends, one that a renewal
forgets too early or that halts a renewal which rests on later calibration, a status that is missing, damaged, unsigned,
signed by a stranger, of another certificate, threshold or monitor, dated ahead or going back and still counts, a
silence that is not noticed or that is looked at only when files are, a renewal taken before its monitor, a status that
is written after the account.

Chance of a false alarm: none.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedsrc import Gate
from fedsrc.common import durable
from fedsrc.common.clock import TIME
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import start
from fedsrc.gate.decision import ACCEPTED, EXPIRED, HALTED, UNWATCHED
from fedsrc.gate.following import DAY, FOREIGN, HOUR, OLDER, OTHER
from fedsrc.gate.halt import NOT_LATER
from fedsrc.gate.service.metrics import Metrics
from fedsrc.monitor.fresh import monitor_table, open_monitor
from fedsrc.monitor.monitor import MonitorChoices, register_monitor, state
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.monitor_status import MonitorStatus, read_status
from fedsrc.protocol.names import CERTIFICATE, STATUS
from fedsrc.protocol.succession import Succession
from tests.monitor.test_monitor import GOOD, KEY, WORSE, World, fresh
from tests.support.forged import forged, unsigned
from tests.support.gate_certificates import Terminal

TRUSTED = (public_hex(KEY),)
HEED = Gate._heed
SAID = {"certificate", "threshold", "target_risk", "rounds", "records"}


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A certificate, and statuses of its monitor from before the first label to the alarm."""
    world = World(tmp_path_factory.mktemp("made"))
    open_monitor(world.registered(), world.place, KEY)
    keep(world, "certified")
    world.watch(GOOD)
    keep(world, "still supported")
    world.watch(WORSE)
    keep(world, "alarm")
    return world


def keep(world: World, name: str) -> None:
    shutil.copy(world.place / STATUS, world.folder / name)


class Place:
    """A gate's folder, with the certificate and a status that tests put there."""

    def __init__(self, folder: Path, made: World) -> None:
        self.folder, self.made = folder, made
        shutil.copy(made.run / CERTIFICATE, folder)
        self.file, self.status, self.note = folder / CERTIFICATE, folder / STATUS, folder / f"{CERTIFICATE}.halt"
        self.put("still supported")

    def put(self, name: str) -> None:
        shutil.copy(self.made.folder / name, self.status)

    def say(self, signer: Key = KEY, **fields: Any) -> None:
        """Write a status that says something else, signed."""
        said = read_status(self.made.folder / "still supported")
        plain = said.model_copy(update={"signature": None, "key": public_hex(signer), **fields})
        self.status.write_bytes(plain.signed(signer).to_bytes())

    def gate(self, **how: Any) -> Gate:
        return Gate(self.folder, **{"trusted": TRUSTED, "monitor": self.status, **how})

    def renew(self, seconds: int, **fields: Any) -> str:
        """Put a certificate of a later run there; return its digest."""
        now = Certificate.read(self.file)
        later = datetime.strptime(now.calibrated, TIME).replace(tzinfo=UTC).timestamp() + seconds
        plain = unsigned(self.file.read_text()) | {"transcript": "ab" * 32} | fields
        plain["calibrated"] = datetime.fromtimestamp(later, UTC).strftime(TIME)
        self.file.write_text(forged(plain, KEY))
        return Certificate.read(self.file).digest


@pytest.fixture
def place(tmp_path: Path, made: World) -> Place:
    return Place(tmp_path, made)


# ---------------------------------------------------------------- what a monitor writes


def test_a_monitor_says_where_it_stands_whenever_its_account_is_written(made: World) -> None:
    said = [read_status(made.folder / name) for name in ("certified", "still supported", "alarm")]
    assert [each.state for each in said] == ["certified", "still supported", "alarm"]
    assert (said[0].rounds, said[0].records, said[0].latest) == (0, 0, "")
    account = MonitorAccount.read(made.place / CERTIFICATE)
    assert said[-1].model_dump(include=SAID) == account.model_dump(include=SAID)
    assert (said[-1].monitor, said[-1].latest) == (account.registration, account.calibrated)
    assert all(each.key == TRUSTED[0] and each.signed_by(TRUSTED[0]) for each in said)


def test_by_files_the_status_is_there_with_the_first_requests(tmp_path: Path) -> None:
    keys = {name: Key.generate() for name in ("a", "b")}
    world = World(tmp_path)
    reg = world.registered(
        server_key=TRUSTED[0], site_keys={name: public_hex(key) for name, key in keys.items()},
        capacities={"a": 100, "b": 100},
    )  # fmt: skip
    start(reg, world.place, KEY)
    assert read_status(world.place).state == "certified"
    assert Gate(world.run, trusted=TRUSTED, monitor=world.place).accept(1.0)


def test_the_status_is_written_before_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any write of the last step: whoever reads the alarm in the account finds it in the status."""
    world, moved = World(tmp_path), list[str]()

    def move(source: Path, target: Path) -> None:
        moved.append(target.name)
        if moved[-2:] == [STATUS, CERTIFICATE] and target.parent == world.place:
            raise KeyboardInterrupt
        source.replace(target)

    monkeypatch.setattr(durable, "move", move)
    with pytest.raises(KeyboardInterrupt):
        world.watch(fresh(600, seed=2, bad=0.5))
    monkeypatch.undo()
    assert not (world.place / CERTIFICATE).exists()
    gate = Gate(world.run, trusted=TRUSTED, monitor=world.place)
    assert gate.decide(1.0).reason == HALTED
    world.watch(WORSE)
    assert state(world.place).alarm
    assert read_status(world.place).state == "alarm"


# ---------------------------------------------------------------- following it


@pytest.mark.parametrize("name", ["certified", "still supported"])
def test_it_accepts_while_the_monitor_does_not_ring(place: Place, name: str) -> None:
    place.put(name)
    for path in (place.status, place.folder):
        gate = place.gate(monitor=path)
        assert gate.decide(1.0)[:2] == (True, ACCEPTED)
        assert (gate.status().monitor, gate.status().monitor_problem) == (name, None)
    assert not place.note.exists()


def test_an_alarm_halts_for_good(place: Place) -> None:
    """Whatever becomes of the status: gone, an earlier one, none at all, in this process and after a restart."""
    gate = place.gate()
    assert gate.accept(1.0)
    place.put("alarm")
    gate.reload()
    assert gate.decide(1.0)[:2] == (False, HALTED)
    assert gate.status().monitor == "alarm"
    assert json.loads(place.note.read_text())["certificate"] == gate.status().certificate
    ways: dict[str, Callable[[], object]] = {
        "gone": place.status.unlink, "earlier": lambda: place.put("still supported"),
        "first": lambda: place.put("certified"),
    }  # fmt: skip
    for way in ways.values():
        way()
        gate.reload()
        assert gate.decide(1.0)[:2] == place.gate().decide(1.0)[:2] == (False, HALTED)
        assert not Gate(place.folder, trusted=TRUSTED).accept(1.0), "not even without the monitor"


def test_killed_between_alarm_and_halt_a_restart_halts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = place.gate()
    place.put("alarm")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for point in ("write", "sync", "move"):
        with monkeypatch.context() as patch:
            patch.setattr(durable, point, killed)
            with pytest.raises(KeyboardInterrupt):
                gate.reload()
        assert not gate.accept(1.0)
        assert not place.note.exists()
    assert place.gate().decide(1.0).reason == HALTED
    assert place.note.exists()


def test_a_halt_that_cannot_be_written_holds_and_is_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = place.gate()
    place.put("alarm")
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        gate.reload()
    assert (gate.decide(1.0).reason, gate.status().halt_problem is not None) == (HALTED, True)
    place.status.unlink()
    gate.reload()
    assert place.note.exists()
    assert gate.status().halt_problem is None


def damage(place: Place, how: str) -> str:
    """Make the status what it should not be; return what the gate says of it."""
    if how == "gone":
        place.status.unlink()
        return "No such file"
    if how in ("empty", "cut", "edited", "unsigned"):
        text = place.status.read_text()
        changed = {"empty": "", "cut": text[:-20], "edited": text.replace("still supported", "certified")}
        place.status.write_text(changed.get(how) if how in changed else forged_unsigned(text))  # type: ignore[arg-type]
        return "is not the status of a monitor|signature does not fit"
    if how == "a folder":
        place.status.unlink()
        place.status.mkdir()
        return "No such file"
    if how == "a device":
        place.status.unlink()
        place.status.symlink_to(os.devnull)
        return "is a device"
    if how == "out of reach":
        place.status.unlink()
        place.status.symlink_to("a" * 300)  # stat fails, and not because nothing is there
        return "name too long"
    if how == "a stranger's":
        place.say(Key.generate())
        return "which is not trusted"
    said: dict[str, tuple[dict[str, Any], str]] = {
        "of another certificate": ({"certificate": "cd" * 32}, FOREIGN),
        "of another threshold": ({"threshold": 0.123}, "the monitor watches threshold 0.123"),
        "of a higher target": ({"target_risk": 0.21}, "the monitor is of target 0.21, and 0.2 is promised"),
        "dated ahead": ({"time": "2999-01-01T00:00:00Z"}, "after this clock"),
        "of another monitor": ({"monitor": "cd" * 32}, OTHER),
        "an earlier time": ({"time": "2020-01-01T00:00:00Z"}, OLDER),
        "an earlier round": ({"rounds": 1}, OLDER),
        "fewer records": ({"records": 1}, OLDER),
    }
    fields, words = said[how]
    place.say(**fields)
    return words


def forged_unsigned(text: str) -> str:
    return MonitorStatus.model_validate_json(text).model_copy(update={"signature": None}).to_bytes().decode()


WRONG = (
    "gone", "empty", "cut", "edited", "unsigned", "a folder", "a device", "out of reach", "a stranger's",
    "of another certificate", "of another threshold", "of a higher target", "dated ahead",
)  # fmt: skip
BACK = ("of another monitor", "an earlier time", "an earlier round", "fewer records")


@pytest.mark.parametrize("how", [*WRONG, *BACK])
def test_without_a_valid_status_nothing_is_accepted_and_the_gate_says_why(place: Place, how: str) -> None:
    gate = place.gate()
    words = damage(place, how)
    gate.reload()
    assert gate.decide(1.0)[:2] == (False, UNWATCHED)
    found = gate.status()
    assert not found.accepting
    assert found.monitor == "still supported"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.monitor_problem)
    assert 'fedsrc_gate_monitor{state="no valid status"} 1.0' in Metrics().text(found)
    assert (place.gate().decide(1.0).reason == UNWATCHED) == (how in WRONG), "a restart knows nothing of before"
    if how == "a folder":
        place.status.rmdir()
    place.status.unlink(missing_ok=True)
    place.put("still supported")
    gate.reload()
    assert gate.accept(1.0), "it was no halt"
    assert not place.note.exists()


def test_a_monitor_out_of_reach_hides_no_halt(place: Place) -> None:
    gate = place.gate()
    damage(place, "out of reach")
    place.gate(monitor=None).halt()
    gate.reload()
    assert gate.decide(1.0).reason == HALTED


def test_an_alarm_is_never_too_old(place: Place) -> None:
    """Dated before what was seen, or ahead of the clock: it is signed, and of this certificate."""
    for i, dated in enumerate(("2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z")):
        folder = place.folder / str(i)
        folder.mkdir()
        here = Place(folder, place.made)
        gate = here.gate()
        here.say(state="alarm", time=dated)
        gate.reload()
        assert gate.decide(1.0).reason == HALTED


def test_a_successor_may_sign_and_a_succeeded_key_no_more(place: Place) -> None:
    new = Key.generate()
    statement = place.folder / "succession.json"
    statement.write_bytes(Succession.by(KEY, new).to_bytes())
    place.say(new)
    assert place.gate(successions=[statement]).accept(1.0)
    place.say(time=datetime.fromtimestamp(time.time() + 3600, UTC).strftime(TIME))
    gate = place.gate(successions=[statement])
    assert "signed by a key that was succeeded" in str(gate.status().monitor_problem)


def test_a_silent_monitor_stops_the_gate_at_the_second(place: Place) -> None:
    latest = read_status(place.status).latest
    moment = datetime.strptime(latest, TIME).replace(tzinfo=UTC).timestamp()
    clock = Clock(moment)
    days = 0.01
    gate = place.gate(monitor_days=days, clock=clock)
    for now, reason in ((moment + days * DAY, ACCEPTED), (moment + days * DAY + 1, UNWATCHED), (moment, ACCEPTED)):
        clock.now = now
        assert gate.decide(1.0).reason == reason, "no reload in between"
    clock.now = moment + 1.5 * days * DAY
    assert gate.status().monitor_problem == f"the monitor is silent: its latest release is of {latest}"
    later = datetime.fromtimestamp(clock.now, UTC).strftime(TIME)
    place.say(time=later)
    gate.reload()
    assert gate.decide(1.0).reason == UNWATCHED, "written anew without a release is no news"
    place.say(time=later, latest=later, rounds=99, records=9999)
    gate.reload()
    assert gate.decide(1.0).reason == ACCEPTED
    clock.now = moment + 1000 * DAY
    assert gate.decide(1.0).reason == EXPIRED
    place.put("certified")
    said = read_status(place.status).time
    clock.now = datetime.strptime(said, TIME).replace(tzinfo=UTC).timestamp() + 2 * DAY + 1
    assert place.gate(monitor_days=2, clock=clock).status().monitor_problem == (
        "the monitor is silent: it had no release yet"
    )


def test_a_status_that_nobody_looks_at_does_not_count(place: Place) -> None:
    """A gate that is neither watched nor reloaded would not hear of an alarm."""
    clock = Clock(time.time())
    gate = place.gate(clock=clock)
    clock.now += HOUR
    assert gate.accept(1.0)
    clock.now += 1
    assert gate.decide(1.0).reason == UNWATCHED
    assert "more than an hour ago" in str(gate.status().monitor_problem)
    gate.reload()
    assert gate.accept(1.0)


def test_days_need_a_monitor(place: Place) -> None:
    with pytest.raises(FedsrcError, match="is of a monitor"):
        Gate(place.folder, trusted=TRUSTED, monitor_days=2)


# ---------------------------------------------------------------- a renewal


def test_a_renewal_waits_for_its_monitor_and_nothing_stops_meanwhile(place: Place) -> None:
    gate = place.gate()
    before = gate.status().certificate
    digest = place.renew(60)
    with pytest.raises(FedsrcError, match=FOREIGN):
        gate.reload()
    assert (gate.accept(1.0), gate.status().certificate) == (True, before)
    place.say(certificate=digest, monitor="cd" * 32, rounds=0, records=0, state="certified", latest="")
    assert gate.reload()
    assert (gate.accept(1.0), gate.status().certificate) == (True, digest)


def test_an_alarm_of_the_old_certificate_is_remembered_until_later_calibration(place: Place) -> None:
    gate = place.gate()
    place.put("alarm")
    gate.reload()
    digest = place.renew(0)
    place.say(certificate=digest, monitor="cd" * 32, rounds=0, records=0)
    with pytest.raises(FedsrcError, match=NOT_LATER):
        gate.reload()
    assert gate.decide(1.0).reason == place.gate().decide(1.0).reason == HALTED
    digest = place.renew(60)
    place.put("alarm")
    with pytest.raises(FedsrcError, match=FOREIGN):
        gate.reload()
    assert gate.decide(1.0).reason == HALTED
    place.say(certificate=digest, monitor="cd" * 32, rounds=0, records=0)
    assert gate.reload()
    assert gate.decide(1.0).reason == place.gate().decide(1.0).reason == ACCEPTED


def test_the_alarm_of_another_certificate_halts_nothing(place: Place) -> None:
    """It is no valid status of the one in force: nothing is accepted while it lies there, and no halt is written."""
    place.renew(60)
    place.put("alarm")
    gate = place.gate()
    assert gate.decide(1.0).reason == UNWATCHED
    assert not place.note.exists()


def test_a_renewal_whose_monitor_rings_already_is_halted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first moment on: no decision by it is made before."""
    gate = place.gate()
    digest = place.renew(60)
    place.say(certificate=digest, state="alarm")
    seen = list[str]()

    def heed(self: Gate) -> None:
        seen.append(self.decide(1.0).reason)
        HEED(self)

    monkeypatch.setattr(Gate, "_heed", heed)
    assert gate.reload()
    assert seen == [ACCEPTED, HALTED], "by the old one, then by the new one"
    assert gate.decide(1.0).reason == HALTED
    assert json.loads(place.note.read_text())["certificate"] == digest


# ---------------------------------------------------------------- an attack


def test_who_writes_the_folder_without_a_key_cannot_make_a_halted_gate_accept(place: Place) -> None:
    """They have every status that was ever signed, of this monitor and of others, and may put anything beside
    the certificate; the halt's file is the gate's own. Gates that run and gates that start accept nothing."""
    halt = place.folder / "own" / "halt"
    running = place.gate(halt_file=halt)
    place.put("alarm")
    running.reload()
    stolen = {name: (place.made.folder / name).read_bytes() for name in ("certified", "still supported", "alarm")}
    good = stolen["still supported"]
    weapons = [None, *stolen.values(), b"", good[:-1], good.replace(b'"records":', b'"records":1'), good + good]
    for first, second in itertools.product(weapons, repeat=2):
        for weapon in (first, second):
            place.status.unlink(missing_ok=True)
            if weapon is not None:
                place.status.write_bytes(weapon)
            running.reload()
            assert running.decide(1.0)[:2] == (False, HALTED)
        assert place.gate(halt_file=halt).decide(1.0)[:2] == (False, HALTED)


# ---------------------------------------------------------------- another target, and the commands


def test_a_gate_with_a_target_needs_a_monitor_of_that_target(tmp_path: Path) -> None:
    world = World(tmp_path, weights={"a": 0.5, "b": 0.5})
    how: dict[str, Any] = {"trusted": TRUSTED, "monitor": world.place, "target": 0.3}
    open_monitor(world.registered(), world.place, KEY)
    assert "the monitor watches threshold" in str(Gate(world.run, **how).status().monitor_problem)
    reg = register_monitor(world.run, MonitorChoices(target_risk=0.3))
    monitor_table(reg, GOOD, tmp_path / "second", world.ledger, KEY, in_order=True)
    assert Gate(world.run, **how | {"monitor": tmp_path / "second"}).accept(1.0)


def test_of_two_targets_with_one_threshold_the_higher_ones_monitor_is_not_enough(tmp_path: Path) -> None:
    """It would not ring while the risk is above what the gate promises. Mutant killed: only thresholds compared."""
    world = World(tmp_path, weights={"a": 0.5, "b": 0.5})
    rungs = Certificate.read(world.run / CERTIFICATE).also_certified
    low, high = next(pair for pair in itertools.pairwise(rungs) if pair[0].threshold == pair[1].threshold)
    open_monitor(world.registered(target_risk=high.target_risk), world.place, KEY)
    how: dict[str, Any] = {"trusted": TRUSTED, "monitor": world.place}
    gate = Gate(world.run, **how, target=low.target_risk)
    assert gate.decide(1.0).reason == UNWATCHED
    assert f"is of target {high.target_risk}, and {low.target_risk} is promised" in str(gate.status().monitor_problem)
    assert Gate(world.run, **how, target=high.target_risk).accept(1.0)


def test_from_the_command_line(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A monitor is opened before there are labels; the gate follows its folder."""
    fedsrc = Terminal(monkeypatch, capsys)
    run, folder, key = str(place.made.run), tmp_path / "monitor", tmp_path / "key"
    key.write_bytes(pem(KEY))
    opened = fedsrc("monitor", "--certificate", run, "-o", str(folder), "--key", str(key), "--format", "json")
    assert (opened.status, json.loads(opened.out)["state"]) == (0, "certified")
    again = fedsrc("monitor", "-o", str(folder))
    assert (again.status, "CERTIFIED" in again.out) == (0, True)
    check = ("gate", "check", run, "--trust", TRUSTED[0], "--score", "1", "--halt-file", str(tmp_path / "halt"))
    assert fedsrc(*check, "--monitor", str(folder), "--monitor-days", "7").status == 0
    told = fedsrc(*check, "--monitor", str(tmp_path / "nowhere"))
    assert (told.status, told.out.partition(" (")[0]) == (1, f"abstained: {UNWATCHED}")
    shutil.copy(place.made.folder / "alarm", folder / STATUS)
    assert fedsrc(*check, "--monitor", str(folder)).out.startswith("abstained: gate halted")
    assert fedsrc(*check).out.startswith("abstained: gate halted")


def pem(key: Key) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
