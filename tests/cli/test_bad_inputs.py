"""The written list of bad inputs: each is refused with a clear message and exit status 2 (1 for a run that does not
verify), and changes nothing.

Files that a stranger, a site or a server may hand over: of another registration, site, request or run; edited,
reordered, replayed, forged, expired or signed by a foreign key; NaN, gigantic or deeply nested. And circumstances: a
full disk, a folder that cannot be written, another process on the same ledger or run. A release that is the site's own
but absurd is recorded as refused, and the run goes on.
"""

from __future__ import annotations

import json
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedsrc.cli import main
from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key
from fedsrc.federation.airgap import start
from fedsrc.protocol.messages import Release, read_request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.transcript import Absent, Transcript, read_transcript
from fedsrc.records.units import Records
from fedsrc.site import ledger
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.struck import NAMES, key
from tests.support.crash_scenarios import answer, by_files, files_registration
from tests.support.forged import forge, unsigned
from tests.support.helpers import table

Call = Callable[..., tuple[int, str]]
Change = Callable[[bytes], bytes]


def save_key(path: Path, private: Key) -> None:
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_csv(path: Path, records: Records) -> None:
    rows = zip(records.ids or [], records.score.tolist(), records.loss.tolist(), strict=True)
    path.write_text("id,score,loss\n" + "".join(f"{i},{s!r},{b!r}\n" for i, s, b in rows))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: `run` waits for its first round, whose releases are on the stick; `done` has its certificate."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "done").mkdir()
    by_files(folder / "done")
    reg = files_registration()
    save_key(folder / "server.key", key(9))
    for i, name in enumerate(NAMES):
        save_key(folder / f"{name}.key", key(i))
        write_csv(folder / f"{name}.csv", table(200, seed=i + 50, ids=True))
        for place in (folder / f"{name}.ledger", folder / f"{name}.csv.ledger"):
            with closing(Ledger(place)) as book:
                allow(book, name, reg)
    for path in start(reg, folder / "run", key(9)).waiting:
        answer(folder, path)
    return folder


@pytest.fixture
def world(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "w")
    return tmp_path / "w"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    def run(*args: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fedsrc", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main.main()
        code = left.value.code
        return code if isinstance(code, int) else 0, capsys.readouterr().err

    return run


def state(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()}


RUN_FILES = (REGISTRATION, TRANSCRIPT, CERTIFICATE)


def status_of(command: str | Path, place: str | Path) -> int:
    """A run that is whole and does not verify is 1, to whoever asked for that; everything else that is wrong is 2."""
    return 1 if command == "verify" and all((Path(place) / name).exists() for name in RUN_FILES) else 2


def refused(call: Call, world: Path, message: str, *args: str | Path) -> None:
    before, expected = state(world), status_of(*args[:2])
    code, err = call(*args)
    assert code == expected, err
    assert message in err
    assert state(world) == before


def test_the_next_step_names_the_key(world: Path) -> None:
    """The command that `request` and `collect` name next can be run as it stands."""
    for name, first in (("server.key", "request"), ("my server.key", "collect")):
        place, run = world / name, world / "run"
        save_key(place, key(9))
        given = [str(world / "run" / "registration.toml"), "-o", str(run)] if first == "request" else [str(run)]
        done = CliRunner().invoke(main.cli, [first, *given, "--key", str(place)])
        assert done.exit_code == 0  # still open, with a next step
        line = next(line for line in done.stdout.splitlines() if line.startswith("Next: "))
        words = shlex.split(line.partition("then ")[2])
        assert words == ["fedsrc", "collect", str(run), "RELEASE...", "--key", str(place)]


def test_an_open_run_is_no_failure(world: Path) -> None:
    """Nor is a sound abstention, to whoever asks whether it verifies; to `status` and `view` it is."""
    for command in ("status", "view"):
        assert CliRunner().invoke(main.cli, [command, str(world / "run")]).exit_code == 0
    done = str(world / "done" / "run")
    found = CliRunner().invoke(main.cli, ["verify", done, "--format", "json"])
    assert found.exit_code == 0
    for command in ("status", "view"):
        code = CliRunner().invoke(main.cli, [command, done]).exit_code
        assert code == (1 if json.loads(found.stdout)["status"] == "ABSTAIN" else 0)


def edit(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(data: bytes) -> bytes:
        value = json.loads(data)
        change(value)
        return canonical_bytes(value)

    return apply


RELEASES: dict[str, tuple[Change, str]] = {
    "wrong digest": (edit(lambda f: f.update(request="0" * 64)), "answers no open request"),
    "wrong site": (edit(lambda f: f.update(site="b")), "not signed by site 'a'"),
    "wrong noise": (edit(lambda f: f.update(scale=1.0)), "not signed by site 'a'"),
    "wrong length": (edit(lambda f: f["first"].pop()), "not signed by site 'a'"),
    "absurd total, not signed again": (edit(lambda f: f["first"].__setitem__(0, 10**9)), "not signed by site 'a'"),
    "negative slots": (edit(lambda f: f.update(slots=-60)), "not a release"),
    "NaN": (lambda d: d.replace(b'"slots":60', b'"slots":NaN'), "not a release"),
    "deeply nested": (lambda _: b'{"first":' + b"[" * 100_000, "not a release"),
    "gigantic": (lambda d: d + b" " * 21_000_000, "larger than"),
    "empty": (lambda _: b"", "not a release"),
    "binary": (lambda _: bytes(range(256)) * 10, "not a release"),
}


def stick(world: Path) -> list[Path]:
    return sorted((world / "stick").glob("*.json"))


@pytest.mark.parametrize("name", RELEASES)
def test_releases(call: Call, world: Path, name: str) -> None:
    change, message = RELEASES[name]
    path = stick(world)[0]
    path.write_bytes(change(path.read_bytes()))
    refused(call, world, message, "collect", world / "run", *stick(world), "--key", world / "server.key")


def test_a_foreign_release(call: Call, world: Path) -> None:
    path = sorted((world / "done" / "stick").glob("*.json"))[-1]
    refused(call, world, "answers no open request", "collect", world / "run", path, "--key", world / "server.key")


def test_a_replayed_release(call: Call, world: Path) -> None:
    code, err = call("collect", world / "run", *stick(world), "--key", world / "server.key")
    assert code == 0, err
    refused(call, world, "no release was new", "collect", world / "run", stick(world)[0], "--key", world / "server.key")


def test_an_absurd_release_of_the_site_itself_is_recorded(call: Call, world: Path) -> None:
    path = stick(world)[1]
    release = Release.model_validate_json(path.read_bytes())
    wild = release.model_copy(update={"first": tuple(v - 10**7 for v in release.first), "signature": None})
    path.write_bytes(wild.signed(key(1)).to_bytes())
    code, err = call("collect", world / "run", *stick(world), "--key", world / "server.key")
    assert code == 0, err
    entries = read_transcript(world / "run" / TRANSCRIPT)[0]
    assert [e.reason for e in entries if isinstance(e, Absent)] == [
        "its masses are more negative than the noise explains"
    ]


REQUESTS: dict[str, tuple[Change, str]] = {
    "another registration": (
        edit(lambda f: f["request"].update(registration="0" * 64)),
        "has not allowed registration",
    ),
    "another site": (edit(lambda f: f["request"].update(site="b")), "has not allowed registration"),
    "less noise": (edit(lambda f: f["request"].update(scale=0.0)), "not signed by the registered server"),
    "unsigned": (edit(lambda f: f.update(signature=None)), "not signed by the registered server"),
    "NaN": (lambda d: d.replace(b'"slots":60', b'"slots":NaN'), "is not a request"),
    "deeply nested": (lambda _: b"[" * 100_000, "is not a request"),
    "gigantic": (lambda d: d + b" " * 21_000_000, "larger than"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(call: Call, world: Path, name: str) -> None:
    change, message = REQUESTS[name]
    path = sorted((world / "run" / "requests").glob("*.json"))[0]
    path.write_bytes(change(path.read_bytes()))
    refused(call, world, message, "release", path, world / "a.csv", "--key", world / "a.key")


def test_a_site_with_the_wrong_key(call: Call, world: Path) -> None:
    path = sorted((world / "run" / "requests").glob("*.json"))[0]
    assert read_request(path).request.site == "a"
    refused(call, world, "needs the private key", "release", path, world / "a.csv", "--key", world / "b.key")


def test_a_table_with_nan(call: Call, world: Path) -> None:
    path = sorted((world / "run" / "requests").glob("*.json"))[0]
    (world / "a.csv").write_text("score,loss\n0.5,1\nNaN,0\n")
    refused(call, world, "line 3: score is missing or NaN", "release", path, world / "a.csv", "--key", world / "a.key")


def rewrite(world: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = world / "done" / "run" / TRANSCRIPT
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


TRANSCRIPTS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "edited": (lambda x: [*x[:5], x[5].replace(b'"slots":60', b'"slots":61'), *x[6:]], "line 7"),
    "reordered": (lambda x: [*x[:5], x[6], x[5], *x[7:]], "line 6"),
    "a line left out": (lambda x: [*x[:5], *x[6:]], "line 6"),
    "cut short": (lambda x: x[:-2], "the transcript was cut short"),
    "deeply nested": (lambda x: [*x[:5], b"[" * 100_000 + b"\n"], "line 6"),
    "NaN": (lambda x: [*x[:5], x[5].replace(b'"slots":60', b'"slots":NaN'), *x[6:]], "line 6"),
    "empty": (lambda _: [b""], "the transcript was cut short: it ends after 0 of the"),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcripts(call: Call, world: Path, name: str) -> None:
    change, message = TRANSCRIPTS[name]
    rewrite(world, change)
    refused(call, world, message, "verify", world / "done" / "run")


def of_run(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda run: (run / name).write_text(change((run / name).read_text()))


def last_line_changed(run: Path) -> None:
    """An end that says another reason, in canonical form: nothing in the chain comes after it."""
    path = run / TRANSCRIPT
    text = path.read_text()
    other = text.replace('"reason":"rounds used"', '"reason":"units used"')
    path.write_text(other if other != text else text.replace('"reason":"certified"', '"reason":"units used"'))


CHANGED_TRANSCRIPT = "the transcript was changed after it was written: line 6 does not continue line 5"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "transcript, a digit": (of_run(TRANSCRIPT, lambda x: x.replace('"slots":60', '"slots":61', 1)), CHANGED_TRANSCRIPT),
    "transcript, its last line": (last_line_changed, "the transcript was changed after it was signed ("),
    "transcript, missing": (lambda run: (run / TRANSCRIPT).unlink(), "transcript.jsonl: is missing"),
    "registration, invalid": (
        of_run(REGISTRATION, lambda x: x.replace("target_risk = 0.", "target_risk = 7.")),
        "is not the registration that was signed: it was changed or damaged since (claim.target_risk",
    ),
    "registration, valid": (
        of_run(REGISTRATION, lambda x: x.replace("min_acceptance = 0.05", "min_acceptance = 0.06")),
        "registration.toml: is not the registration that was signed: its digest is",
    ),
    "registration, missing": (lambda run: (run / REGISTRATION).unlink(), "registration.toml: is missing"),
    "certificate, a word": (
        of_run(CERTIFICATE, lambda x: x.replace('"every request followed', '"no request followed')),
        "the certificate was changed after it was signed: it does not follow from the transcript (assumptions differs)",
    ),
}


@pytest.mark.parametrize("command", ["verify", "view"])
@pytest.mark.parametrize("name", DAMAGE)
def test_the_kind_of_damage_is_said_first(call: Call, world: Path, name: str, command: str) -> None:
    """By both commands, in their first line, with a hint and no word cut in two."""
    damage, message = DAMAGE[name]
    damage(world / "done" / "run")
    code, err = call(command, world / "done" / "run")
    first, hint = err.splitlines()
    assert code == status_of(command, world / "done" / "run")
    assert message in first
    assert hint.startswith("hint: ")


@pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")
@pytest.mark.parametrize("command", ["verify", "view"])
def test_a_cut_transcript_is_said_to_be_cut(call: Call, world: Path, command: str) -> None:
    """Between lines or within one, and not as a list of what differs."""
    for cut in (lambda x: x[:-1], lambda x: [*x[:-3], x[-3][:40]]):
        rewrite(world, cut)
        code, err = call(command, world / "done" / "run")
        line = next(line for line in err.splitlines() if line.startswith("error: "))
        assert code == status_of(command, world / "done" / "run")
        assert "the transcript was cut short: it ends after" in line
        assert "differ" not in line


@pytest.mark.parametrize("command", ["verify", "view", "status"])
def test_the_folder_above_a_run_names_it(call: Call, world: Path, command: str) -> None:
    """With a registration of its own or without."""
    above = world / "done"
    below = f"there is no run in this folder; there is one below it, in {above / 'run'}"
    refused(call, world, below, command, above)
    shutil.copy(above / "run" / REGISTRATION, above)
    refused(call, world, below, command, above)


def test_a_report_in_a_file_says_verified(world: Path) -> None:
    """On stdout with the card; where JSON is asked for, stdout is one object."""
    run = str(world / "done" / "run")
    text = CliRunner().invoke(main.cli, ["verify", run])
    assert text.stdout.startswith("Verified: ")
    assert "not compared with one you trust" in text.stdout
    assert text.stderr == ""
    found = CliRunner().invoke(main.cli, ["verify", run, "--format", "json"])
    assert json.loads(found.stdout)["status"] in ("CERTIFIED", "ABSTAIN")
    assert found.stderr.startswith("Verified: ")


def test_a_gigantic_transcript(call: Call, world: Path) -> None:
    with (world / "done" / "run" / TRANSCRIPT).open("r+b") as file:
        file.truncate(5_000_000_000)  # sparse
    code, err = call("verify", world / "done" / "run")
    assert (code, "larger than" in err) == (1, True)


def certificate(world: Path, change: Callable[[dict[str, Any]], object], private: Key | None = None) -> None:
    folder = world / "done" / "run"
    text = (folder / CERTIFICATE).read_text()
    plain = json.loads(text) if private is None else unsigned(text)
    change(plain)
    forge(folder, plain, private)


def test_forged_and_foreign_certificates(call: Call, world: Path) -> None:
    folder = world / "done" / "run"
    shown = {"contrast_upper": -0.1, "acceptance_lower": 0.5, "risk_upper": 0.1}
    certificate(world, lambda b: b.update(status="CERTIFIED", threshold=0.0, **shown))
    refused(call, world, "does not follow from the transcript", "verify", folder)
    shutil.copy(world / "done" / "run" / CERTIFICATE, folder / "kept.json")
    certificate(world, lambda b: None)
    text = "{" + '"a":' * 50_000
    (folder / CERTIFICATE).write_text(text)
    refused(call, world, "is not a certificate", "verify", folder)


def test_a_certificate_by_another_key(call: Call, world: Path) -> None:
    folder = world / "done" / "run"
    certificate(world, lambda b: None, Key.generate())
    refused(call, world, "not by the registered server", "verify", folder)
    certificate(world, lambda b: None, key(9))
    assert call("verify", folder)[0] in (0, 1)
    refused(call, world, "not trusted", "verify", folder, "--trust", "0" * 64)


def test_an_expired_certificate(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsrc.site.site.utc_now", lambda: "2020-01-01T00:00:00Z")
    by_files(tmp_path)
    refused(call, tmp_path, "expired on 2020-12-31", "verify", tmp_path / "run")


def test_registrations(call: Call, world: Path) -> None:
    path = world / "r.toml"
    for text, message in [
        ("a = " + "[" * 100_000, "r.toml: "),
        ("#" * 5_000_000, "larger than"),
        (files_registration().to_toml().replace("target_risk = 0.2", "target_risk = nan"), "target_risk"),
        (files_registration().to_toml().replace("format = 2", "format = 3"), "format"),
        (files_registration().to_toml().replace("format = 2", "format = 1"), "releases were not chained"),
    ]:
        path.write_text(text)
        refused(call, world, message, "request", path, "-o", world / "new", "--key", world / "server.key")
        refused(call, world, message, "allow", path, "--site", "a", "--ledger", world / "a.ledger")


def test_another_registration_for_a_run(call: Call, world: Path) -> None:
    text = files_registration().to_toml().replace("batch = 60", "batch = 50")
    (world / "r.toml").write_text(text)
    refused(
        call, world, "another registration",
        "request", world / "r.toml", "-o", world / "run", "--key", world / "server.key",
    )  # fmt: skip


def test_another_servers_key(call: Call, world: Path) -> None:
    refused(call, world, "run by the server with key", "collect", world / "run", "--key", world / "a.key")


def test_places_that_cannot_be_written(call: Call, world: Path) -> None:
    reg = world / "run" / "registration.toml"
    refused(
        call, world, "cannot be written", "request", reg, "-o", world / "a.csv" / "run", "--key", world / "server.key"
    )
    path = sorted((world / "run" / "requests").glob("*.json"))[0]
    target = world / "a.csv" / "x.json"
    code, err = call("release", path, world / "a.csv", "--key", world / "a.key", "-o", target)
    assert (code, "cannot be written" in err) == (2, True)
    code, err = call("release", path, world / "a.csv", "--key", world / "a.key", "-o", world / "x.json")
    assert code == 0, err  # the units were spent once: the same bytes, now in a place that can be written


def test_another_process_on_the_ledger(call: Call, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "WAIT_SECONDS", 0.1)
    path = sorted((world / "run" / "requests").glob("*.json"))[0]
    with closing(sqlite3.connect(world / "a.csv.ledger", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(call, world, "locked", "release", path, world / "a.csv", "--key", world / "a.key")
        other.execute("ROLLBACK")


def test_another_process_on_the_run(call: Call, world: Path) -> None:
    with closing(Transcript(world / "run" / TRANSCRIPT)):
        refused(call, world, "another process", "collect", world / "run", *stick(world), "--key", world / "server.key")


def limit_file_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Real failing writes: no file may grow beyond 30 kB. Then the limit goes, and the run continues."""
    write_csv(tmp_path / "t.csv", table(900, ids=True))
    command = [
        sys.executable, "-m", "fedsrc.cli", "certify", "t.csv", "--target", "0.01", "--epsilon", "4", "-o", "run",
        "--batch", "10", "--key", "k.pem",
    ]  # fmt: skip
    full = subprocess.run(
        command, cwd=tmp_path, preexec_fn=limit_file_size, capture_output=True, text=True, check=False
    )
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stderr
    assert "Status: ABSTAIN" in again.stdout
