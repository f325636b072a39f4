"""A session: what it checks before it touches a folder, what it resumes, what it says, and that it lets go.

Mutants killed: a folder made by a session that was never entered, a run of another registration or key continued, a
transcript that stays held after an error, an announcement within a round, news told twice or of the wrong site.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import BusyError, FedsrcError
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.messages import Answer, Request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.transcript import Announced, Opened, read_transcript
from fedsrc.server.loop import ask, play_round
from fedsrc.server.session import Session
from tests.support.helpers import registration, table

KEY = Key.generate()
REG = registration(table(600, sites=("a", "b")), batch=50, rounds=2, server_key=public_hex(KEY))


def hellos(units: int = 200) -> list[Hello]:
    return [Hello(registration=REG.digest, site=name, units=units) for name in ("a", "b")]


def nobody(requests: Sequence[Request], /) -> list[Answer]:
    return ["it rains" for _ in requests]


def test_making_a_session_touches_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    session = Session(folder, REG, KEY)
    assert not session.begun
    assert not folder.exists()
    with session:
        assert session.begun
        assert [site.name for site in session.silent] == ["a", "b"]
    assert (folder / REGISTRATION).read_text() == REG.to_toml()
    assert read_transcript(folder / TRANSCRIPT)[0] == [Opened(registration=REG.digest)]


def test_other_keys_and_other_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="run by the server with key"):
        Session(tmp_path, REG, Key.generate())
    with pytest.raises(FedsrcError, match="there is no such run folder"):
        Session(tmp_path / "run", None, KEY)
    with Session(tmp_path / "run", REG, KEY):
        pass
    assert Session(tmp_path / "run", None, KEY).registration == REG
    other = registration(table(600, sites=("a", "b")), batch=60, rounds=2)
    with pytest.raises(FedsrcError, match="holds a run of another registration"):
        Session(tmp_path / "run", other, KEY)
    (tmp_path / "run" / REGISTRATION).unlink()
    with pytest.raises(FedsrcError, match="holds a run without its registration"):
        Session(tmp_path / "run", REG, KEY)


def test_a_transcript_is_held_and_let_go(tmp_path: Path) -> None:
    with Session(tmp_path / "run", REG, KEY), pytest.raises(BusyError), Session(tmp_path / "run", REG, KEY):
        pass
    with Session(tmp_path / "run", REG, KEY) as session:
        session.transcript.append(Announced(site="nowhere", units=1))
    for _ in range(2):  # an error while it is entered does not leave it held
        with pytest.raises(FedsrcError, match="'nowhere' cannot announce"), Session(tmp_path / "run", REG, KEY):
            pass


def test_announcements_wait_for_the_end_of_a_round(tmp_path: Path) -> None:
    with Session(tmp_path / "run", REG, KEY) as session:
        session.announce(hellos()[:1])
        ask(session.replay, session.transcript)
        session.announce(hellos()[1:])
        assert [site.name for site in session.silent] == ["b"]
        play_round(session.replay, session.transcript, nobody)
        session.announce(hellos()[1:])
        assert session.silent == []


def test_news_are_told_once_and_name_the_site(tmp_path: Path) -> None:
    with Session(tmp_path / "run", REG, KEY) as session:
        session.announce(hellos())
        ask(session.replay, session.transcript)
        assert session.news() == []
    with Session(tmp_path / "run", None, KEY) as session:  # another process closes the round
        play_round(session.replay, session.transcript, nobody)
        first = session.news()
        assert first == ["site 'a': it rains", "site 'b': it rains", "round 1 closed: 0 units so far, no bound yet"]
        assert session.news() == []


def test_a_session_that_ended_signs_the_same_again(tmp_path: Path) -> None:
    found, calls = [], list[int]()
    for _ in range(2):
        with Session(tmp_path / "run", REG, KEY) as session:
            if session.replay.ended is None:
                session.announce(hellos())
            session.run(nobody, watch=lambda replay: calls.append(replay.rounds))
            found.append(session.finish())
        assert Certificate.read(tmp_path / "run" / CERTIFICATE) == found[-1]
        (tmp_path / "run" / CERTIFICATE).unlink()
    assert found[0] == found[1]
    assert found[0].status == "ABSTAIN"
    assert calls == [1, 2, 2]
