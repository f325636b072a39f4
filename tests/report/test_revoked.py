"""Cards of certificates that were revoked or renew another: said on top, in every form; the reason stays text.

Mutants killed: a revoked claim that is still stated, a threshold or another target still called certified, a reason
printed unescaped, a live page that does not notice, a renewal that is not said.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from fedsrc.cli.main import cli
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import Revocation, beside
from fedsrc.report import live_page
from fedsrc.report.card import card_text, view_text
from fedsrc.report.html import page
from fedsrc.report.markdown import card_markdown
from fedsrc.report.view import View, view_run
from fedsrc.server.status import run_state, words
from tests.support.gate_certificates import body, copied_run, notice_of, original
from tests.support.hostile import HOSTILE

REASON = "labels of the north were wrong"
NEW = "cd" * 32
ON_TOP = "What it said no longer stands"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return copied_run(tmp_path)


@pytest.fixture
def revoked(run: Path) -> Path:
    beside(run / CERTIFICATE).write_bytes(notice_of(original(), REASON, superseded_by=NEW))
    return run


def forms(view: View) -> dict[str, str]:
    notice = view["check"]["revoked"]
    given = None if notice is None else Revocation.model_validate(notice)
    return {
        "terminal": view_text(view), "page": page(view), "markdown": card_markdown(view),
        "verify": card_text(view["certificate"], revoked=given),
    }  # fmt: skip


def test_a_revoked_card_says_so_first_and_claims_nothing(run: Path, revoked: Path) -> None:
    before = body()["statement"].split(";")[0].replace(">=", "&gt;=")
    for name, form in forms(view_run(revoked)).items():
        text = form.replace(">=", "&gt;=")
        assert ON_TOP in text, name
        assert text.index("REVOKED") < text.index(before), name
        marks = {"page": "<s>", "markdown": "~~"}
        assert text[: text.index(before)].endswith(marks.get(name, "No longer stands: ")), name
        assert text.count(before) == 1, name
        assert REASON in text, name
        assert NEW in text, name
        assert "CERTIFIED" not in text, name
        assert "## Other targets" not in text, name
        assert "for every target at once)" not in text, name
        assert "passes" not in text, name
    assert 'aria-labelledby="h-also" hidden' in page(view_run(revoked))
    beside(run / CERTIFICATE).unlink()
    assert 'aria-labelledby="h-also" hidden' not in page(view_run(run))
    for name, text in forms(view_run(run)).items():
        assert "CERTIFIED" in text, name
        assert ON_TOP not in text, name


def test_the_commands_end_with_status_1(revoked: Path) -> None:
    for command in ("view", "verify", "status"):
        done = CliRunner().invoke(cli, [command, str(revoked)])
        assert done.exit_code == 1, command
        assert "revo" in done.stdout.lower()
    told = json.loads(CliRunner().invoke(cli, ["verify", str(revoked), "--format", "json"]).stdout)
    assert (told["status"], told["revoked"]["reason"], told["revoked"]["superseded_by"]) == ("REVOKED", REASON, NEW)
    assert run_state(revoked).notice
    assert "notice of revocation" in words(run_state(revoked))[0]


def test_a_live_page_notices(run: Path) -> None:
    watch = live_page.LiveView(run)
    watch.look()
    assert "CERTIFIED" in watch.shown.card.decode()
    beside(run / CERTIFICATE).write_bytes(notice_of(original(), REASON))
    watch.look()
    assert ON_TOP in watch.shown.card.decode()
    watch.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_reason_stays_text(revoked: Path, text: str) -> None:
    """A notice holds printable text alone; the card does not rely on that."""
    plain = view_run(revoked)
    view = copy.deepcopy(plain)
    view["check"]["revoked"]["reason"] = text
    assert page(view).count("<script") == page(plain).count("<script") == 0
    assert page(view).count("<p") == page(plain).count("<p")
    assert page(view).count("<img") == 0
    made = MarkdownIt("commonmark", {"html": True})
    kinds = [[token.type for token in made.parse(card_markdown(each))] for each in (view, plain)]
    assert kinds[0] == kinds[1]
    assert "\x1b" not in view_text(view)


def test_a_renewal_says_which(run: Path) -> None:
    view = view_run(run)
    assert view["certificate"].renews is None
    assert all("renews" not in text.lower() for text in forms(view).values())
    view["certificate"] = view["certificate"].model_copy(update={"renews": NEW})
    for name, text in forms(view).items():
        assert f"renews certificate {NEW[:16]}" in text.replace("Renews", "renews"), name
