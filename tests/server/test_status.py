"""`fedsrc status`: what it says of open, broken and finished runs, and that it touches nothing."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, REFUSED, RELEASE, Frame
from fedsrc.federation.live.log import open_log
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Reply
from fedsrc.protocol.messages import Refusal
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.transcript import Transcript
from fedsrc.server.folder import LOG
from fedsrc.server.status import run_state, words
from tests.support.crash_scenarios import NAMES, files_registration
from tests.support.live_scenarios import PATIENCE, SERVER, OwnClock, OwnPost, guards, live


def test_a_finished_run(tmp_path: Path) -> None:
    body = live(tmp_path)
    state = run_state(tmp_path / "run")
    assert (state.status, state.certificate, state.writing) == (body.status, True, False)
    assert (state.releases, state.records, state.rounds) == (body.releases, body.records, body.rounds)
    assert (state.transcript, state.registration) == (body.transcript, body.registration)
    assert [(site.name, site.arrived, site.left) for site in state.sites] == [(name, 2, 30) for name in NAMES]
    assert all(site.last is not None and not site.waiting for site in state.sites)


def test_trouble_is_shown(tmp_path: Path) -> None:
    """A stranger is turned away, a site refuses, another sends what is no release, a third never comes."""
    post = OwnPost(OwnClock())

    def refuses(question: Frame) -> Frame:
        return Frame(REFUSED, Refusal.NOT_ALLOWED.encode()) if question.kind == RELEASE else answers["a"](question)

    def babbles(question: Frame) -> Frame:
        return Frame(GIVEN, b"\x1b[31mno release") if question.kind == RELEASE else answers["b"](question)

    with guards(tmp_path) as sites:
        answers = {name: guard.answer for name, guard in sites.items()}
        post.join(1, refuses)
        post.join(2, babbles)
        post.join(3, lambda _: Frame(GIVEN, b"<script>"))
        with open_log(tmp_path / "run" / LOG) as log:
            play(files_registration(), tmp_path / "run", SERVER, post, patience=PATIENCE, clock=post.clock, tell=log)
    state = run_state(tmp_path / "run")
    assert state.status == "ABSTAIN"
    assert [(site.absent, site.refused, site.announced) for site in state.sites] == [
        (2, 0, 150),
        (0, 2, 150),
        (0, 0, None),
    ]
    assert state.turned_away == 1
    assert "it is not a hello" in state.latest[0]
    text = "\n".join(words(state))
    assert "c: has not connected yet" in text
    assert f"a: 0 releases, 30 of 150 units left, 2 absent (last: site 'a' refused: {Refusal.NOT_ALLOWED})" in text
    assert "it is not a release" in text
    assert "\x1b" not in text


def test_an_open_run_is_read_while_it_is_written(tmp_path: Path) -> None:
    """Cut after any number of lines, and in the middle of one: the state of what is there; nothing is changed."""
    live(tmp_path)
    lines = (tmp_path / "run" / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / CERTIFICATE).unlink()
    for count in range(len(lines)):
        cut = b"".join(lines[:count]) + lines[count][: len(lines[count]) // 2]
        (tmp_path / "run" / TRANSCRIPT).write_bytes(cut)
        state = run_state(tmp_path / "run")
        assert (state.lines, state.status, state.certificate) == (count, "OPEN", False)
        assert (tmp_path / "run" / TRANSCRIPT).read_bytes() == cut
    (tmp_path / "run" / TRANSCRIPT).write_bytes(b"".join(lines[:6]))
    asked = [site.name for site in run_state(tmp_path / "run").sites if site.waiting]
    assert asked == ["a", "b"]
    with closing(Transcript(tmp_path / "run" / TRANSCRIPT)):
        assert run_state(tmp_path / "run").writing
        assert "OPEN, running" in words(run_state(tmp_path / "run"))[0]
    assert "OPEN, not running" in words(run_state(tmp_path / "run"))[0]


def test_the_command(tmp_path: Path) -> None:
    body = live(tmp_path)
    found = CliRunner().invoke(cli, ["status", str(tmp_path / "run"), "--format", "json"])
    assert found.exit_code == (0 if body.status == "CERTIFIED" else 1)
    assert json.loads(found.stdout)["sites"][0]["arrived"] == 2
    assert "Round 2 of at most 2" in CliRunner().invoke(cli, ["status", str(tmp_path / "run")]).stdout
    with pytest.raises(FedsrcError, match="no such run folder"):
        run_state(tmp_path / "nothing")
    (tmp_path / "run" / TRANSCRIPT).unlink()
    with pytest.raises(FedsrcError, match="is missing"):
        run_state(tmp_path / "run")
    (tmp_path / "run" / CERTIFICATE).unlink()
    assert run_state(tmp_path / "run").status == "OPEN"


def test_replies_count_once(tmp_path: Path) -> None:
    post = OwnPost(OwnClock())
    post.mischief = lambda _, reply: [reply, Reply(reply.to, reply.data)]
    live(tmp_path, post=post)
    assert [site.arrived for site in run_state(tmp_path / "run").sites] == [2, 2, 2]
