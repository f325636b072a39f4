"""The desk: every word once, on disk before it is acknowledged; then the run looks, and the next round is there.

Mutants killed: a retry that doubles a word, a late one that overturns a newer, a word on a text that was changed, a
full disk that loses a word or the file, a run that looks too early or never, a failure of it that ends the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common import durable
from fedsrc.errors import BusyError, FedsrcError
from fedsrc.labelling.desk import STUCK, Desk, Screen, StaleError
from fedsrc.site.label_file import read_labels
from fedsrc.site.rounds import Round
from tests.support.rounds import open_round, texts

NAMES = ["row 1", "row 2", "row 3"]
Make = Callable[..., Desk]


class Run:
    """A run whose rounds open one after the other."""

    def __init__(self, rounds: list[list[Round]]) -> None:
        self.rounds, self.looked = rounds, 0

    def now(self) -> list[Round]:
        return self.rounds[min(self.looked, len(self.rounds) - 1)]

    def advance(self) -> str:
        self.looked += 1
        return f"Looked {self.looked} times."


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made = []

    def one(run: Run, advance: Callable[[], str] | None = None) -> Desk:
        made.append(Desk(tmp_path / "labels.jsonl", run.now, texts, advance or run.advance))
        return made[-1]

    yield one
    for each in made:
        each.close()


def word(desk: Desk, screen: Screen, loss: float | None = 0.0, by: str = "ada") -> Screen:
    return desk.take(by, screen["answer"], loss, screen["shown"], screen["head"])


def until(desk: Desk, kind: str, by: str = "ada", words: str = "") -> Screen:
    """Ask until the run has looked."""
    for _ in range(2000):
        screen = desk.ask(by)
        if screen["kind"] == kind and words in screen.get("words", ""):
            return screen
        time.sleep(0.01)
    raise AssertionError(screen)


def test_a_round_is_labelled_and_the_next_one_is_there(make: Make, tmp_path: Path) -> None:
    first, second = open_round(NAMES), open_round(["row 9"], 2)
    desk = make(run := Run([[first], [second], []]))
    screen, seen = desk.ask("ada"), list[str]()
    while len(seen) < 3:
        assert run.looked == 0
        seen.append(screen["answer"])
        screen = word(desk, screen)
    assert sorted(seen) == NAMES
    screen = until(desk, "answer")
    assert (screen["answer"], run.looked) == ("row 9", 1)
    word(desk, screen, None)
    assert until(desk, "done", words="Looked")["words"] == "Looked 2 times."
    assert [(each.answer, each.loss) for each in read_labels(tmp_path / "labels.jsonl")] == [
        *((name, 0.0) for name in seen),
        ("row 9", None),
    ]


def test_sent_again_a_word_is_kept_once_and_a_late_one_is_turned_away(make: Make, tmp_path: Path) -> None:
    desk = make(Run([[open_round(NAMES)]]))
    first = desk.ask("ada")
    second = word(desk, first)
    assert word(desk, first) == second  # the answer was lost, not the word
    earlier = desk.ask("ada", back=second["answer"])
    assert (earlier["answer"], earlier["said"]) == (first["answer"], "0")
    assert word(desk, earlier, 1.0)["answer"] == second["answer"]
    with pytest.raises(StaleError):  # from before the change of mind
        word(desk, first, 0.0)
    with pytest.raises(StaleError):  # and for an answer that this window has not been asked about
        desk.take("ada", second["answer"], 0.0, second["shown"], second["head"])
    labels = read_labels(tmp_path / "labels.jsonl")
    assert [(each.answer, each.loss) for each in labels] == [(first["answer"], 0.0), (first["answer"], 1.0)]
    again = desk.ask("ada", back=second["answer"])
    word(desk, again, 1.0)  # the same word once more
    assert len(read_labels(tmp_path / "labels.jsonl")) == 2


def test_a_word_is_on_what_was_shown_and_open(make: Make) -> None:
    desk = make(Run([[open_round(NAMES)]]))
    screen = desk.ask("ada")
    for wrong in ({"shown": "0" * 64}, {"answer": "row 77"}):
        with pytest.raises(StaleError):
            word(desk, {**screen, **wrong})
    assert word(desk, screen)["answer"] != screen["answer"]


def test_a_full_disk_is_reported_and_the_word_comes_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, real = make(Run([[open_round(NAMES)]])), durable.write
    screen = desk.ask("ada")

    def full(file: Any, data: bytes) -> None:
        real(file, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write", full)
    with pytest.raises(FedsrcError, match="No space left"):
        word(desk, screen)
    monkeypatch.setattr(durable, "write", real)
    with pytest.warns(UserWarning, match="torn"):
        assert word(desk, screen)["answer"] != screen["answer"]
    assert [each.answer for each in read_labels(tmp_path / "labels.jsonl")] == [screen["answer"]]


def test_two_people_and_a_third(make: Make) -> None:
    desk = make(run := Run([[open_round(["row 1"], twice=1.0, disagreement="third")], []]))
    assert "another person" in desk.ask("ada")["note"]
    assert word(desk, desk.ask("ada"), 0.0)["words"].startswith("There is nothing more for you now")
    assert word(desk, desk.ask("ben"), 1.0, "ben")["kind"] == "done"
    assert run.looked == 0
    assert word(desk, desk.ask("eva"), 1.0, "eva")["words"] == "One moment ..."
    until(desk, "done", words="Looked 1")
    assert set(desk.ask("ada")) == {"kind", "words"}


def test_a_run_that_fails_leaves_the_page(make: Make) -> None:
    desk = make(Run([[open_round(["row 1"])]]), lambda: str(1 / 0))
    screen = desk.ask("ada")
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        assert _last_words(desk, screen) == STUCK


def _last_words(desk: Desk, screen: Screen) -> str:
    word(desk, screen)
    return str(until(desk, "done", words="failed")["words"])


def test_one_desk_for_a_table(make: Make) -> None:
    make(Run([[]]))
    with pytest.raises(BusyError, match="another process is adding labels"):
        make(Run([[]]))


def test_nothing_shown_tells_score_site_or_progress(make: Make) -> None:
    desk = make(Run([[open_round(NAMES)]]))
    assert set(desk.ask("ada")) == {
        "kind", "answer", "question", "evidence", "response", "shown", "head", "said", "note"
    }  # fmt: skip
