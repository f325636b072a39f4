"""Recorded runs of format 2 verify from now on, byte for byte, and forgeries of them do not.

Mutants killed: a field renamed, dropped or with another default, another canonical text or digest, a bound computed or
rounded otherwise, a sentence of a certificate in other words, a word of the registration that no run was recorded with,
a recording replaced, a kind of release that no site was recorded to sign. In `verify`: no comparison of the
certificate, of its words, of its numbers, or of what is registered to the last bit; no signature, any signer where a
server is registered; no canonical form of lines, of certificates or of notices; a release without its site's signature,
of other slots, scale, length, request or labels, out of its site's chain, or implausible; a plausible one, or a sum,
refused; a sum that is not its members', of others or in another order, or whose masks do not cancel; a member's release
by itself; an absence that is not charged, or where every round must be answered; units announced for a site, twice,
late, or beyond its capacity; requests, rounds and ends other than the schedule's; an entry after the end; a transcript
of another registration; a notice by another key, or unsigned. Chance of a false alarm: none, nothing is random.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import Certificate, MonitorAccount, read_signed
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.monitor_status import MonitorStatus
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.notices import Revocation
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import Succession
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Asked, Closed, Ended, Opened, Summed
from fedsrc.server.folder import replay_run
from fedsrc.server.issue import conclude
from fedsrc.server.verify import recompute
from tests.recorded import export, make
from tests.recorded.forged_certificates import leaves, otherwise
from tests.recorded.forger import changed, original
from tests.recorded.forgeries import FAULTS, FORGERIES, HARMLESS, forgeries_of, harmless, sample
from tests.support.alternatives import Alternative, allowed, shown
from tests.support.forged import forged
from tests.support.recordings import (
    DIGESTS,
    RUNS,
    digests,
    life_values,
    read_files,
    recorded,
    signer_of,
    values_of,
    verdict,
    write_files,
)

LARGEST, TIMED, ALL_TOGETHER = 60_000, 600_000, 2_000_000  # bytes
WITHOUT = ("open",)  # runs without a certificate
SIGNED = "what is not signed does not verify"
UNRECORDED = {
    Alternative("MaskKey", "signature", "None"): "a registration of cohorts has mask keys that are proved",
    Alternative("Certificate", "key", "None"): SIGNED,
    Alternative("Certificate", "signature", "None"): SIGNED,
    Alternative("MonitorAccount", "key", "None"): SIGNED,
    Alternative("MonitorAccount", "signature", "None"): SIGNED,
    Alternative("Revocation", "signature", "None"): SIGNED,
    Alternative("MonitorStatus", "signature", "None"): SIGNED,
    Alternative("Succession", "by_old", "None"): SIGNED,
    Alternative("Succession", "by_new", "None"): SIGNED,
    Alternative("Hello", "signature", "None"): "an unsigned word is not kept: its number stands alone",
    Alternative("MonitorAccount", "expires", "a plain value"): "the account of a monitor does not expire",
}  # fmt: skip
UNSIGNED = {
    Alternative("Registration", "renews", "a plain value"): "a digest by itself, which no release names",
    Alternative("OtherScore", "checkpoints", "an empty list"): "a score with checkpoints is signed for in its place",
}
WRITTEN = (
    Registration, Opened, Announced, Asked, Arrived, Summed, Absent, Closed, Ended, Certificate, MonitorAccount,
    Revocation, Succession, MonitorStatus,
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in recorded() if name not in WITHOUT])
def test_a_recorded_run_verifies_and_its_certificate_comes_out_the_same(name: str) -> None:
    folder = RUNS / name
    assert verdict(folder).word == "verified"
    replay, chain = replay_run(folder)
    found = read_signed(folder / CERTIFICATE)
    again = conclude(replay.registration, replay, chain).signed(signer_of(found.key or ""))
    assert again.text.encode() == (folder / CERTIFICATE).read_bytes()


@pytest.mark.parametrize("name", WITHOUT)
def test_a_recorded_run_that_is_open_has_nothing_to_verify(name: str) -> None:
    assert verdict(RUNS / name).why == "the run is still open: it has no certificate yet"


def test_revoked_runs_say_so() -> None:
    assert [name for name in recorded() if verdict(RUNS / name).revoked] == ["revoked", "superseded"]
    assert verdict(RUNS / "expired", export.NOW).expired
    assert not verdict(RUNS / "files", export.NOW).expired


def test_recordings_are_frozen_small_and_those_of_the_table() -> None:
    assert set(recorded()) == set(make.MADE)
    assert digests() == DIGESTS.read_text(encoding="utf-8").splitlines()
    sizes = {name: sum(map(len, read_files(RUNS / name).values())) for name in recorded()}
    assert sizes.pop("hundred-rounds") < TIMED
    assert max(sizes.values()) < LARGEST
    assert sum(path.stat().st_size for path in RUNS.rglob("*") if path.is_file()) < ALL_TOGETHER


def test_every_word_and_kind_of_the_format_is_recorded() -> None:
    """What a registration, a transcript, a certificate, a notice, a succession or a status may hold, read from their
    fields."""
    values = [*(value for name in recorded() for value in values_of(name)), *life_values()]
    missing = allowed(*WRITTEN) - {each for value in values for each in shown(value)}
    assert missing == set(UNRECORDED)


def site_signed(name: str) -> bool:
    """Whether sites signed what a run released; a cohort's sum is of members that did."""
    values = list(values_of(name))
    signed = [value.release.signature is not None for value in values if isinstance(value, Arrived)]
    return all(signed) and (bool(signed) or any(isinstance(value, Summed) for value in values))


def test_every_kind_of_registration_is_recorded_where_sites_sign() -> None:
    """Whatever kinds its parts may be of: encodings, claims, groups, labelling, aggregation, plans, monitors."""
    listed = ("claim", "kind", "checkpoints")
    kinds = {each for each in allowed(Registration) if each.model == "Registration" or each.field in listed}
    signed = [Registration.read(RUNS / name / REGISTRATION) for name in recorded() if site_signed(name)]
    assert kinds - {each for value in signed for each in shown(value)} == set(UNSIGNED)


def test_a_recording_is_not_made_again_unless_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make.main(["abstain"])
    assert "recorded already, and frozen: abstain" in capsys.readouterr().err
    assert digests() == DIGESTS.read_text(encoding="utf-8").splitlines()


def test_a_run_is_made_that_verifies(tmp_path: Path) -> None:
    make.make("expired", tmp_path / "run")
    assert verdict(tmp_path / "run", export.NOW)[:2] == ("CERTIFIED", None)
    assert (tmp_path / "run" / TRANSCRIPT).read_bytes() != (RUNS / "expired" / TRANSCRIPT).read_bytes()


def accepted(folder: Path, name: str, forgery: str, files: dict[str, bytes]) -> bool:
    """Whether a forgery of a run verifies; one that must not fails the test."""
    place = write_files(folder / name, files)
    found = verdict(place).word == "verified"
    assert not found or harmless(forgery, original(name)), f"{name}: {forgery} verifies"
    shutil.rmtree(place)
    return found


def test_every_forgery_is_refused_of_one_run(tmp_path: Path) -> None:
    tried = set()
    for name, forgery, files in sample():
        accepted(tmp_path, name, forgery, files)
        tried.add(forgery)
    assert tried == set(FORGERIES)
    assert len(tried) >= 400


@pytest.mark.parametrize("name", ["files", "on-demand", "groups-on-demand"])
def test_forgeries_are_refused_where_sites_have_keys_and_where_they_have_none(name: str, tmp_path: Path) -> None:
    found = [accepted(tmp_path, name, forgery, files) for forgery, files in forgeries_of(name)]
    assert len(found) > 100 > 2 * sum(found) > 0


@pytest.mark.thorough
def test_every_forgery_is_refused_of_every_run(tmp_path: Path) -> None:
    """And what is listed as harmless does verify somewhere: a list that says more would hide something."""
    found, tried = set[str](), set[str]()
    for name in recorded():
        for forgery, files in forgeries_of(name):
            found |= {forgery} if accepted(tmp_path, name, forgery, files) else set()
            tried.add(forgery)
    assert found == set(HARMLESS) | set(FAULTS)
    assert tried == set(FORGERIES)


def changed_values(name: str) -> Iterator[tuple[str, str]]:
    """Every value of a run's certificate changed by itself and signed by the right key: its place, and the text."""
    run = original(name)
    assert run.certificate is not None
    for path, value in leaves(run.certificate):
        yield "/".join(map(str, path)), forged(changed(run.certificate, path, otherwise(value)), run.signer)


def values_refused(name: str, every: int = 1) -> int:
    """Count changed values, one of so many, all of which what `verify` compares at its end must refuse."""
    expected, replay = recompute(RUNS / name)
    texts = list(changed_values(name))[::every]
    taken = [place for place, text in texts if follows(text, expected, replay.registration.server_key)]
    assert taken == []
    return len(texts)


def follows(text: str, expected: Certificate | MonitorAccount, server_key: str | None) -> bool:
    try:
        check_same(type(expected).parse(text, ""), expected, "", server_key=server_key)
    except FedsrcError:
        return False
    return True


def test_no_value_of_a_certificate_can_be_changed_by_its_own_signer() -> None:
    assert follows((RUNS / "groups" / CERTIFICATE).read_text(encoding="utf-8"), recompute(RUNS / "groups")[0], None)
    assert sum(map(values_refused, ("groups", "monitor-groups-alarm"))) > 250


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in recorded() if name not in WITHOUT])
def test_no_value_of_any_certificate_can_be_changed_by_its_own_signer(name: str) -> None:
    """One value of three, which is another one in another run."""
    assert values_refused(name, 10 if name == "hundred-rounds" else 3) > 15


def test_verdicts_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All forgeries of one run; of a sample, the runs themselves at least."""
    export.main([str(tmp_path / "all"), "monitor-unopened"])
    index = json.loads((tmp_path / "all" / "index.json").read_text(encoding="utf-8"))
    assert [each["forgery"] for each in index] == [None, *(name for name, _ in forgeries_of("monitor-unopened"))]
    for each in index:
        said = verdict(tmp_path / "all" / each["folder"])
        assert (each["verdict"], each["status"], each["why"]) == (said.word, said.status, said.why)
    assert {each["verdict"] for each in index} == {"verified", "refused"}
    export.main([str(tmp_path / "some"), "--sample", "files", "open"])
    index = json.loads((tmp_path / "some" / "index.json").read_text(encoding="utf-8"))
    assert [each["status"] for each in index if each["forgery"] is None] == ["CERTIFIED", None]
    with pytest.raises(SystemExit):
        export.main([str(tmp_path / "all")])
    assert "is not empty" in capsys.readouterr().err
