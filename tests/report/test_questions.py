"""Twenty questions of an engineer and a compliance officer: docs/card.md says where each answer stands, and it does.

Mutants killed: an answer left out of the card, a place that is renamed, an answer that says something else, a question
of the page that nothing holds.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.local import certify_table
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.scale import Scale
from fedsrc.report.html import page
from fedsrc.report.view import Watched, view_run
from tests.support.helpers import changed, registration, table

DOCS = Path(__file__).parents[2] / "docs"
KEY = Key.from_private_bytes(b"q" * 32)
SITES = ("north", "south")
RECORDS = table(3000, sites=SITES)
CLAIM = {
    "system": "discharge letters, model 7", "issuer": "Hospital Group", "contact": "ai-safety@hospital.example",
    "score": "grounding", "column": "grounding", "scale": Scale(worst=0, best=100), "loss": "contradicts the record",
    "population": "letters of the wards",
}  # fmt: skip
ANSWERS = {  # by question: what the answer says, of the run below
    "What was certified?": r"of the answers accepted .* at most 20% are unsupported",
    "For which system?": "discharge letters, model 7",
    "By whom?": "Hospital Group",
    "Whom do I ask?": "ai-safety@hospital.example",
    "Is it the issuer's signature?": "key",
    "Since when, and until when?": r"20\d\d-\d\d-\d\d",
    "Does it stand today?": "CERTIFIED",
    "What counts as unsupported?": "contradicts the record",
    "Of which answers does it speak?": "letters of the wards",
    "Which score, on which scale, from where on?": r"grounding.*0 .*100 .*accepted",
    "On whose data?": r"records of 2 sites",
    "How sure is it?": r"at most 5 of 100",
    "What does it rest on?": r"checked.*declared.*not checkable",
    "What does it not say?": r"does not certify any single answer",
    "What if it is wrong?": r"ai-safety@hospital\.example",
    "Why did it stop, and was anything left?": r"round",
    "Was it tried before?": r"first",
    "How do I use it?": r"gate",
    "Could I promise less risk?": r"risk at most|sentence above",
    "How is a person in the data protected?": r"epsilon",
    "How do I check it myself?": r"fedsrc verify",
    "May I use it for another model, prompt, score or population?": r"No\..*certify again",
    "What leaves a site?": r"box above|noised",
    "What does epsilon 4 mean?": r"times as likely",
    "What does it cost?": r"[Ll]abels",
    "Who answers for the labels?": r"issuer",
    "How do I stop it?": r"halt",
}


class Places(HTMLParser):
    """Collects the text below every element that has an id."""

    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.text, self._open = dict[str, str](), list[tuple[str, str | None]]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self._open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for _, place in self._open:
            if place is not None:
                self.text[place] = f"{self.text.get(place, '')} {data.strip()}".strip()


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The card of a run whose issuer said all there is to say; 3,000 units where 480 suffice."""
    folder = tmp_path_factory.mktemp("questions")
    made = registration(RECORDS, batch=400, rounds=3, policy="final", weights=dict.fromkeys(SITES, 1 / 2))
    reg = changed(made, claim={**made.claim.model_dump(), **CLAIM})
    certify_table(reg, RECORDS, folder / "run", folder / "ledger", KEY)
    assert (folder / "run" / CERTIFICATE).exists()
    found = Places()
    found.feed(page(view_run(folder / "run", trusted=(public_hex(KEY),), monitor=Watched("certified"))))
    return found.text


def asked() -> list[tuple[str, str]]:
    """The questions of docs/card.md with the place of each answer: an id of the card, or the first page."""
    section = (DOCS / "card.md").read_text(encoding="utf-8").partition("## Where each answer stands\n")[2]
    rows = re.findall(r"^\| (.+?\?) \| (.+?) \|$", section.partition("\n## ")[0], flags=re.MULTILINE)
    return [(question, place) for question, place in rows]


def test_there_are_twenty_questions_and_more_and_each_is_held() -> None:
    questions = [question for question, _ in asked()]
    assert len(questions) >= 20
    assert set(questions) == set(ANSWERS), "a question on the page that nothing holds, or the other way round"


@pytest.mark.parametrize(("question", "place"), asked())
def test_its_answer_stands_where_the_page_says(question: str, place: str, card: dict[str, str]) -> None:
    on_card = re.fullmatch(r"card, `#([a-z-]+)`", place)
    if on_card:
        said = card[on_card[1]]
    else:
        assert re.fullmatch(r"\[first page\]\(index\.md#[a-z-]+\)", place)
        first = (DOCS / "index.md").read_text(encoding="utf-8")
        asked_there = question.rstrip("?").split(",")[0]
        said = next(part for part in first.split("\n\n") if asked_there in part)
    assert re.search(ANSWERS[question], " ".join(said.split()), flags=re.IGNORECASE), said
