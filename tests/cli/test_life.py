"""`fedsrc revoke`, `keys succeed` and `register --renew`, and the options that heed them.

Mutants killed: a notice written over, a notice that depends on when it is written, a key made by `revoke`, a statement
written over, an option that a renewal may not change, a command that does not pass its options on.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedsrc.common.canonical import file_digest
from fedsrc.common.signing import Key, load, public_hex
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION
from fedsrc.protocol.notices import beside, read_notice
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import read_succession
from tests.support.gate_certificates import KEY, TRUSTED, Terminal, copied_run, renewed


def save(path: Path, key: Key) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


@pytest.fixture
def fedsrc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Terminal:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "issuer.key", KEY)
    save(tmp_path / "new.key", Key.generate())
    copied_run(tmp_path)
    return Terminal(monkeypatch, capsys)


def test_revoke(fedsrc: Terminal, tmp_path: Path) -> None:
    (tmp_path / "next.json").write_text(renewed(60))
    base = ("revoke", "run", "--key", "issuer.key", "--superseded-by", "next.json", "--reason")
    done = fedsrc(*base, "labels were wrong")
    assert (done.status, "certificate.json.revoked: send it" in done.out) == (0, True)
    file = tmp_path / "run" / CERTIFICATE
    found = read_notice(beside(file))
    assert (found.certificate, found.superseded_by) == (file_digest(file), file_digest(tmp_path / "next.json"))
    written = beside(file).read_bytes()
    again = fedsrc(*base, "labels were wrong", "--format", "json")
    assert (again.status, json.loads(again.out)["time"]) == (0, found.time), "the same again is fine"
    other = fedsrc(*base, "something else")
    assert (other.status, "another notice is there already" in other.err) == (2, True)
    assert beside(file).read_bytes() == written
    assert fedsrc("verify", "run")[:2] != fedsrc("verify", "run", "--trust", "0" * 64)[:2]
    done = fedsrc("verify", "run", "--trust", TRUSTED[0])
    assert (done.status, done.out.startswith("REVOKED: the certificate was revoked on ")) == (1, True)


def test_a_renewal_that_took_the_place_can_be_revoked_too(fedsrc: Terminal, tmp_path: Path) -> None:
    """The notice on its predecessor, which names it as successor, lies where its own must go."""
    (tmp_path / "next.json").write_text(renewed(60))
    base = ("revoke", "run", "--key", "issuer.key", "--reason")
    assert fedsrc(*base, "labels were wrong", "--superseded-by", "next.json").status == 0
    file = tmp_path / "run" / CERTIFICATE
    shutil.copy(tmp_path / "next.json", file)
    assert fedsrc(*base, "and again").status == 0
    assert read_notice(beside(file)).certificate == file_digest(file)


def test_revoke_refuses(fedsrc: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "run" / CERTIFICATE
    for args, words in {
        ("run", "--reason", ""): "reason",
        ("run", "--reason", "two\nlines"): "printable",
        ("run", "--reason", "x", "--superseded-by", "run"): "does not supersede itself",
        ("run", "--reason", "x", "--superseded-by", "issuer.key"): "is not a certificate",
        ("issuer.key", "--reason", "x"): "is not a certificate",
        ("nothing", "--reason", "x"): "No such file",
    }.items():
        done = fedsrc("revoke", *args, "--key", "issuer.key")
        assert (done.status, words in done.err) == (2, True), done.err
    file.write_text(file.read_text().replace('"records"', '"record"'))
    assert fedsrc("revoke", "run", "--reason", "x", "--key", "issuer.key").status == 2
    assert not beside(file).exists()


def test_a_notice_travels(fedsrc: Terminal, tmp_path: Path) -> None:
    fedsrc("revoke", "run", "--key", "issuer.key", "--reason", "x")
    (tmp_path / "notices").mkdir()
    shutil.move(beside(tmp_path / "run" / CERTIFICATE), tmp_path / "notices" / "one.revoked")
    gate = ("gate", "check", "run", "--trust", TRUSTED[0], "--score", "1")
    assert (fedsrc(*gate).status, fedsrc("verify", "run").status, fedsrc("view", "run").status) == (0, 0, 0)
    for place in ("notices", "notices/one.revoked"):
        assert fedsrc("verify", "run", "--revocations", place).status == 1
        assert fedsrc("view", "run", "--revocations", place).status == 1
        done = fedsrc(*gate, "--revocations", place)
        assert (done.status, "was revoked on" in done.err) == (2, True)


def test_keys_succeed(fedsrc: Terminal, tmp_path: Path) -> None:
    done = fedsrc("keys", "succeed", "issuer.key", "new.key", "-o", "s.json")
    assert (done.status, "takes the place of" in done.out) == (0, True)
    found = read_succession(tmp_path / "s.json")
    assert (found.old, found.new) == (TRUSTED[0], public_hex(load(tmp_path / "new.key")))
    again = fedsrc("keys", "succeed", "issuer.key", "new.key", "-o", "s.json")
    assert (again.status, "exists already" in again.err) == (2, True)
    same = fedsrc("keys", "succeed", "issuer.key", "issuer.key", "-o", "t.json")
    assert (same.status, "is the same key" in same.err) == (2, True)
    assert fedsrc("keys", "succeed", "issuer.key", "none.key", "-o", "t.json").status == 2
    assert not (tmp_path / "none.key").exists()
    assert fedsrc("keys", "./succeed").status == 0, "a file of that name"
    key = public_hex(load(tmp_path / "new.key"))
    (tmp_path / "next.json").write_text(renewed(3600, key=load(tmp_path / "new.key")))
    gate = ("gate", "check", "next.json", "--trust", TRUSTED[0], "--score", "1")
    assert (fedsrc(*gate).status, fedsrc(*gate, "--succession", "s.json").status) == (2, 0)
    assert fedsrc("verify", "run", "--trust", TRUSTED[0], "--succession", "s.json").status == 0
    assert fedsrc("verify", "run", "--trust", key, "--succession", "s.json").status == 1
    assert fedsrc("revoke", "run", "--key", "new.key", "--reason", "x").status == 2
    assert fedsrc("revoke", "run", "--key", "new.key", "--reason", "x", "--succession", "s.json").status == 0
    told = fedsrc("verify", "run", "--format", "json")
    assert (told.status, json.loads(told.out)["status"]) == (1, "NOT VERIFIED")
    assert fedsrc("verify", "run", "--succession", "none.json").status == 2
    assert fedsrc("verify", "run", "--succession", "s.json").status == 1
    assert fedsrc("view", "run", "--succession", "s.json").status == 1


def test_register_renew(fedsrc: Terminal, tmp_path: Path) -> None:
    done = fedsrc(
        "register", "--renew", "run", "-o", "r.toml", "--validity-days", "90", "--site-keys", f"north={'0' * 64}"
    )
    assert done.status == 0, done.err
    assert "no record was read" in done.err
    assert "ledgers refuse every unit that was released" in done.err
    assert "About 20% of a table's units are left out as before" in done.err
    new, old = Registration.read(tmp_path / "r.toml"), Registration.read(tmp_path / "run" / REGISTRATION)
    assert new.renews == file_digest(tmp_path / "run" / CERTIFICATE)
    assert (new.claim.validity_days, new.sites[0].key) == (90, "0" * 64)
    assert (new.thresholds, new.schedule, new.development) == (old.thresholds, old.schedule, old.development)
    for args, words in {
        ("--target", "0.1"): "--target is fixed by the certificate that is renewed",
        ("--claim", "score=x"): "--claim is fixed",
        ("--sites", "a"): "no --sites",
        ("-o", "r.toml"): "exists already",
    }.items():
        refused = fedsrc("register", "--renew", "run", "-o", "other.toml", *args)
        assert (refused.status, words in refused.err) == (2, True), refused.err
    assert not (tmp_path / "other.toml").exists()
