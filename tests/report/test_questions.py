"""Twenty questions of an engineer and a compliance officer, and more: the card or the first page answers each.

Mutants killed: an answer left out of the card or of the page, an address that is renamed, an answer that says something
else.
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
ON_CARD = {  # by question: where on the card the answer stands, and what it says, of the run below
    "What was certified?": ("claim", r"of the answers accepted .* at most 20% are unsupported"),
    "For which system?": ("system", "discharge letters, model 7"),
    "By whom?": ("issuer", "Hospital Group"),
    "Whom do I ask?": ("contact", "ai-safety@hospital.example"),
    "Is it the issuer's signature?": ("trust", "key"),
    "Since when, and until when?": ("valid-until", r"20\d\d-\d\d-\d\d"),
    "Does it stand today?": ("status", "CERTIFIED"),
    "What counts as unsupported?": ("loss", "contradicts the record"),
    "Of which answers does it speak?": ("population", "letters of the wards"),
    "Which score, on which scale, from where on?": ("score", r"grounding.*0 .*100 .*accepted"),
    "On whose data?": ("data", r"records of 2 sites"),
    "How sure is it?": ("how-sure", r"at most 5 of 100"),
    "What does it rest on?": ("assumptions", r"checked.*declared.*not checkable"),
    "What does it not say?": ("limits", r"does not certify any single answer"),
    "What if it is wrong?": ("if-wrong", r"ai-safety@hospital\.example"),
    "Why did it stop, and was anything left?": ("stopped", r"round"),
    "Was it tried before?": ("tries", r"first"),
    "How do I use it?": ("use", r"gate"),
    "Could I promise less risk?": ("strongest", r"risk at most|sentence above"),
    "How is a person in the data protected?": ("privacy", r"epsilon"),
    "How do I check it myself?": ("verify", r"fedsrc verify"),
}
ON_FIRST_PAGE = {  # by question: what docs/index.md answers
    "May I use it for another model, prompt, score or population?": r"No\..*certify again",
    "What leaves my site?": r"box above",
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


def said(answer: str, pattern: str) -> bool:
    return re.search(pattern, " ".join(answer.split()), flags=re.IGNORECASE) is not None


@pytest.mark.parametrize(("place", "pattern"), ON_CARD.values(), ids=ON_CARD)
def test_its_answer_has_an_address_on_the_card(place: str, pattern: str, card: dict[str, str]) -> None:
    assert said(card[place], pattern), card[place]


@pytest.mark.parametrize(("question", "pattern"), ON_FIRST_PAGE.items(), ids=ON_FIRST_PAGE)
def test_its_answer_stands_on_the_first_page(question: str, pattern: str) -> None:
    first = (DOCS / "index.md").read_text(encoding="utf-8")
    answer = next(part for part in first.split("\n\n") if question.rstrip("?").split(",")[0] in part)
    assert said(answer, pattern), answer


def test_the_page_on_cards_names_an_address_that_is_there(card: dict[str, str]) -> None:
    named = re.findall(r"`card\.html#([a-z-]+)`", (DOCS / "guarantee.md").read_text(encoding="utf-8"))
    assert named
    assert set(named) <= set(card)
