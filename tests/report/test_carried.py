"""A page that carries its run: saved, verified, refused.

Mutants killed: a notice left out, a name that leads elsewhere, a file twice, a bomb, a changed run that verifies, two
registrations on one page.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedsrc.cli.main import cli
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.monitor.fresh import monitor_table
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import Succession
from fedsrc.report import carried
from fedsrc.report.carried import CANONICAL, LINK, NOTICE, carry, opened
from fedsrc.report.html import page
from fedsrc.report.view import view_run
from tests.monitor.test_monitor import GOOD, KEY, WORSE, World
from tests.support.gate_certificates import copied_run, notice_of, original

FILES = (REGISTRATION, TRANSCRIPT, CERTIFICATE)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return copied_run(tmp_path)


@pytest.fixture
def card(run: Path, tmp_path: Path) -> Path:
    done = invoke("view", run, "-o", tmp_path / "card.html")
    assert done.exit_code == 0
    return tmp_path / "card.html"


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


def archive_of(card: Path) -> zipfile.ZipFile:
    (link,) = re.findall(f'{LINK}([^"]*)"', card.read_text(encoding="utf-8"))
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(link)))


def repacked(card: Path, files: list[tuple[str, bytes]]) -> None:
    """The page, with other files in its link."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    link = LINK + base64.b64encode(packed.getvalue()).decode()
    card.write_text(re.sub(f'{LINK}[^"]*', link, card.read_text(encoding="utf-8")), encoding="utf-8")


def test_a_page_carries_the_bytes_of_its_run(run: Path, card: Path) -> None:
    with archive_of(card) as archive:
        assert archive.namelist() == [*FILES, CANONICAL]
        assert all(archive.read(name) == (run / name).read_bytes() for name in FILES)
        assert hashlib.sha256(archive.read(CANONICAL)).hexdigest() == Registration.read(run / REGISTRATION).digest
    view = view_run(run)
    assert page(view, carried=carry(view)) == page(view, carried=carry(view))
    assert "<script" not in page(view)


def test_a_page_verifies_without_its_folder(run: Path, card: Path) -> None:
    shutil.rmtree(run)
    done = invoke("verify", card)
    assert done.exit_code == 0
    assert "Verified: the certificate follows" in done.stdout
    assert "The page's own words are not checked" in done.stdout
    assert f"Check it: fedsrc verify {card}" in done.stdout
    with opened(card) as folder:
        assert view_run(folder)["status"] == "CERTIFIED"
    assert not folder.exists()


def test_what_was_saved_verifies_too(card: Path, tmp_path: Path) -> None:
    (link,) = re.findall(f'{LINK}([^"]*)"', card.read_text(encoding="utf-8"))
    (tmp_path / "saved.zip").write_bytes(base64.b64decode(link))
    assert invoke("verify", tmp_path / "saved.zip").exit_code == 0
    (tmp_path / "saved.zip").write_bytes(base64.b64decode(link)[:-40])
    assert "is damaged" in invoke("verify", tmp_path / "saved.zip").stderr


def test_the_notice_that_revokes_it_goes_along(run: Path, card: Path, tmp_path: Path) -> None:
    """Wherever it was found."""
    (tmp_path / "notices").mkdir()
    (tmp_path / "notices" / f"x{NOTICE}").write_bytes(notice_of(original(), "labels were wrong"))
    assert invoke("view", run, "-o", card, "--revocations", tmp_path / "notices").exit_code == 1
    done = invoke("verify", card)
    assert done.exit_code == 1
    assert "REVOKED: the certificate was revoked" in done.stdout


@pytest.mark.parametrize("name", FILES)
def test_a_changed_run_does_not_verify(run: Path, card: Path, name: str) -> None:
    """And the message names the page, not the place where it was unpacked."""
    files = [(each, (run / each).read_bytes()) for each in FILES]
    changed = [(each, data.replace(b"1", b"2") if each == name else data) for each, data in files]
    assert changed != files
    repacked(card, changed)
    done = invoke("verify", card)
    assert (done.exit_code, done.stderr.startswith(f"error: {card}")) == (1, True)


def test_a_canonical_registration_that_says_something_else_is_refused(run: Path, card: Path) -> None:
    """Whoever reads only one of both must not be told another run than whoever reads the other."""
    files = [(each, (run / each).read_bytes()) for each in FILES]
    with archive_of(card) as archive:
        stated = archive.read(CANONICAL)
    repacked(card, [*files, (CANONICAL, stated)])
    assert invoke("verify", card).exit_code == 0
    repacked(card, [*files, (CANONICAL, stated.replace(b'"batch":', b'"batch": '))])
    done = invoke("verify", card)
    assert (done.exit_code, "does not say what its registration.toml says" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "files",
    [
        [("../evil", b"x")],
        [("/etc/evil", b"x")],
        [("monitor/../../evil", b"x")],
        [("readme.txt", b"x")],
        [(TRANSCRIPT, b"x"), (TRANSCRIPT, b"y")],
        [(TRANSCRIPT, bytes(carried.MOST + 1))],
    ],
    ids=["up", "root", "roundabout", "unknown", "twice", "bomb"],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_anything_but_a_run_is_refused(card: Path, files: list[tuple[str, bytes]]) -> None:
    repacked(card, files)
    done = invoke("verify", card)
    assert (done.exit_code, "something else than a run" in done.stderr) == (1, True)


@pytest.mark.parametrize("link", ["", "AAAA", "UEsDBA==", "====", "A"])
def test_a_damaged_page_is_refused(card: Path, link: str) -> None:
    card.write_text(re.sub(f'{LINK}[^"]*', LINK + link, card.read_text(encoding="utf-8")), encoding="utf-8")
    assert "is damaged" in invoke("verify", card).stderr


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_the_packing_that_pages_use_is_unpacked(run: Path, tmp_path: Path, how: int) -> None:
    """Others can ask for much memory, and fail in ways of their own."""
    with zipfile.ZipFile(tmp_path / "saved.zip", "w", how) as archive:
        for name in FILES:
            archive.writestr(name, (run / name).read_bytes())
    done = invoke("verify", tmp_path / "saved.zip")
    assert (done.exit_code, "something else than a run" in done.stderr) == (1, True)


def test_a_page_with_two_runs_is_refused(card: Path) -> None:
    card.write_text(2 * card.read_text(encoding="utf-8"), encoding="utf-8")
    assert "carries more than one run" in str(invoke("verify", card).exception)


def test_an_alarm_that_a_page_carries_stands_in_every_form(tmp_path: Path) -> None:
    """Mutants killed: an alarm told beside a sentence that still seems to stand, in words or as JSON; a monitor that is
    looked at after "Verified" was said; the key's successor not known to be the monitor's."""
    world, card, new = World(tmp_path), tmp_path / "card.html", Key.generate()
    statement = Certificate.read(world.run / CERTIFICATE).statement
    stated = tmp_path / "succession"
    stated.write_bytes(Succession.by(KEY, new, "2999-01-01T00:00:00Z").to_bytes())
    registered = world.registered(server_key=public_hex(new))
    monitor_table(registered, GOOD, world.place, world.ledger, new, in_order=True)
    trust = ("--trust", public_hex(KEY), "--succession", stated)
    assert invoke("view", world.run, "--monitor", world.place, "-o", card, *trust).exit_code == 0
    assert invoke("verify", card, *trust).exit_code == 0
    done = invoke("verify", card, *trust[:2])
    assert (done.exit_code, done.stdout) == (1, "It does not verify: do not rely on it.\n")
    monitor_table(registered, WORSE, world.place, world.ledger, new, in_order=True)
    assert invoke("view", world.run, "--monitor", world.place, "-o", card).exit_code == 1
    done = invoke("verify", card, *trust)
    assert (done.exit_code, "Status: CERTIFIED" in done.stdout) == (1, False)
    assert f"Status: ALARM  (target risk 0.2)\n\nNo longer stands: {statement}\n" in done.stdout
    assert "Also shown" not in done.stdout
    assert json.loads(invoke("verify", card, "--format", "json").stdout)["status"] == "ALARM"


def test_a_page_without_a_run_is_refused(run: Path, tmp_path: Path) -> None:
    for text in (page(view_run(run)), "", "<html>"):
        (tmp_path / "other.html").write_text(text, encoding="utf-8")
        assert "carries no run" in str(invoke("verify", tmp_path / "other.html").exception)
    assert isinstance(invoke("verify", tmp_path / "none").exception, FedsrcError)


def test_a_run_that_is_too_large_is_not_carried(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "MOST", 1_000)
    view = view_run(run)
    text = page(view, carried=carry(view))
    assert "more than a page carries" in text
    assert LINK not in text


def test_an_open_run_is_not_carried(run: Path) -> None:
    (run / CERTIFICATE).unlink()
    lines = (run / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    (run / TRANSCRIPT).write_bytes(b"".join(lines[:2]))
    assert carry(view_run(run)) is None
