"""The list of the paper's items: complete, with references that are there, and a page that is what the list says.

The paper's text is not part of the repository; its labels are listed with the items. Set FEDSRC_PAPER to its .tex file
to compare them.

Mutants killed: a label left out, doubled or mistyped; an item without a reference, or with one to a function, test,
page or claim that is not there; another status; a reason left out; a page edited, or left behind by an edit of the
list.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from research.studies.paper_items import (
    CLAIMS,
    DATA,
    PAGE,
    STATUSES,
    Item,
    item_of,
    page,
    read_claims,
    read_items,
    with_claims,
)
from tests.support import ROOT
from tests.test_claims import resolve

LABELS, ITEMS = read_items()
KNOWN = read_claims()
KINDS = {"sec", "app", "ass", "lem", "thm", "cor", "prop", "eq", "tab", "fig"}


def test_every_label_stands_at_one_item() -> None:
    named = Counter(label for item in ITEMS for label in item.labels)
    assert len(set(LABELS)) == len(LABELS) == 117
    assert {label.split(":")[0] for label in LABELS} == KINDS
    assert set(named) == set(LABELS)
    assert max(named.values()) == 1
    names = Counter(item.name for item in ITEMS if item.name)
    assert max(names.values()) == 1


def test_labels_are_those_of_the_paper() -> None:
    path = os.environ.get("FEDSRC_PAPER")
    if not path:
        pytest.skip("set FEDSRC_PAPER to the paper's .tex file to compare its labels; it is not part of the repository")
    found = re.findall(r"\\label\{([^}]+)\}", Path(path).read_text(encoding="utf-8"))
    assert sorted(found) == sorted(LABELS)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.title)
def test_references_are_there(item: Item) -> None:
    found = with_claims(item, KNOWN)
    for path in found.function:
        assert callable(resolve(path)) or isinstance(resolve(path), property | staticmethod | classmethod), path
    for name in found.test:
        assert name.startswith("tests/"), name
        assert Path(name).name.startswith("test_"), name
        assert (ROOT / name).is_file(), name
    for name in item.page:
        assert name.startswith(("docs/", "research/results/")), name
        assert (ROOT / name).is_file(), name
    if item.status == "works":
        assert found.function, "what works has code"
        assert found.test or item.page, "what works has a test or a page"
    elif item.status == "partly":
        assert found.function or item.page
    assert item.status in STATUSES
    assert bool(item.why) >= (item.status != "works")
    assert item.why.endswith(".") or not item.why
    assert item.status != "not possible" or item.why.startswith("without ")


def test_the_page_is_what_the_list_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(ITEMS, KNOWN)


def test_the_page_counts_and_links() -> None:
    text = page(ITEMS, KNOWN)
    counts = Counter(item.status for item in ITEMS)
    row = next(line for line in text.splitlines() if line.startswith("| all items |"))
    assert [int(each) for each in re.findall(r"\d+", row)] == [counts[status] for status in STATUSES]
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (PAGE.parent / target).resolve().is_file(), target
    assert all(f"`{label}`" in text for label in LABELS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "soon"}, "there is no status"),
        ({"status": "partly", "why": ""}, "say why"),
        ({"labels": [], "name": ""}, "labels or a name"),
        ({"name": "too"}, "labels or a name"),
    ],
)
def test_a_wrong_entry_is_refused(change: dict[str, object], message: str) -> None:
    entry = {"part": "p", "paper": "x", "status": "works", "labels": ["eq:x"], **change}
    with pytest.raises(ValueError, match=message):
        item_of(entry)
    with pytest.raises(TypeError):
        item_of({**entry, "stauts": "works"})
    assert DATA.is_file()
    assert CLAIMS.is_file()
