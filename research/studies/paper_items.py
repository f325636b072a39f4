"""What of the paper fedsrc has, item by item: from `paper_items.toml` to docs/results/paper-items.md.

python -m research.studies.paper_items docs
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any, Literal, get_args

from research.pages import RESULTS, ROOT

Status = Literal["works", "partly", "not possible"]
STATUSES: tuple[Status, ...] = get_args(Status)
DATA, CLAIMS, PAGE = Path(__file__).with_suffix(".toml"), ROOT / "paper" / "claims.toml", RESULTS / "paper-items.md"
HEAD = ("item", "what the paper has", "status", "code", "tests", "pages and tables", "note")


@dataclass(frozen=True)
class Item:
    """One thing that the paper has: labels of its text, or a name where it has none."""

    part: str
    paper: str
    status: Status
    labels: tuple[str, ...] = ()
    name: str = ""
    why: str = ""
    claims: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    page: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return its name, or its labels."""
        return self.name or ", ".join(f"`{label}`" for label in self.labels)


@dataclass(frozen=True)
class Claim:
    """What an entry of paper/claims.toml lends to an item."""

    function: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


def read_items(path: Path = DATA) -> tuple[tuple[str, ...], list[Item]]:
    """Return all labels of the paper, and the items; an unknown field or status is an error."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    items = [item_of(each) for each in given["item"]]
    return tuple(given["labels"]), items


def item_of(entry: dict[str, Any]) -> Item:
    """Return one entry, checked."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    made = Item(**values)
    if made.status not in STATUSES:
        raise ValueError(f"{made.title}: there is no status {made.status!r}")
    if bool(made.name) == bool(made.labels):
        raise ValueError(f"{made.title}: an item has labels or a name")
    if made.status != "works" and not made.why:
        raise ValueError(f"{made.title}: say why it is {made.status}")
    return made


def read_claims(path: Path = CLAIMS) -> dict[str, Claim]:
    """Return functions and tests of every claim that has any."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    return {each["id"]: Claim(tuple(each.get("function", ())), tuple(each.get("test", ()))) for each in entries}


def with_claims(item: Item, claims: dict[str, Claim]) -> Claim:
    """Return the item's functions and tests, those of its claims first, each once."""
    known = [claims[name] for name in item.claims]
    functions = dict.fromkeys([*(each for claim in known for each in claim.function), *item.function])
    tests = dict.fromkeys([*(each for claim in known for each in claim.test), *item.test])
    return Claim(tuple(functions), tuple(tests))


def page(items: Sequence[Item], claims: dict[str, Claim]) -> str:
    """Return the page: counts, then a table for every part of the paper, in the order of the file."""
    parts = dict.fromkeys(item.part for item in items)
    lead = (
        "What of the paper Fed-SRC works here, item by item: every labelled section, assumption, lemma, theorem,"
        " equation, table and figure, and what its evaluation says without a label. *Works*: it is there, with the"
        " code, tests or pages named. *Partly*: the note says what is missing or different. *Not possible*: the note"
        " says without what. A table of figures counts as *partly* wherever its scores or answers are not the paper's."
    )
    made = (
        "Made by `python -m research.studies.paper_items docs` from `research/studies/paper_items.toml`; functions and"
        " tests of theorems come from `paper/claims.toml`."
    )
    tables = [f"## {part}\n\n{table([i for i in items if i.part == part], claims)}" for part in parts]
    return "\n\n".join(["# The paper, item by item", lead, counted(items), *tables, made]) + "\n"


def counted(items: Sequence[Item]) -> str:
    """Return how many items and labels have each status, part by part."""
    parts = dict.fromkeys(item.part for item in items)
    rows = [[part, *_counts([item for item in items if item.part == part])] for part in parts]
    labels = Counter({status: sum(len(i.labels) for i in items if i.status == status) for status in STATUSES})
    rows += [["all items", *_counts(items)], ["labels of the paper's text", *(str(labels[each]) for each in STATUSES)]]
    return markdown(["part", *STATUSES], rows)


def _counts(items: Sequence[Item]) -> list[str]:
    found = Counter(item.status for item in items)
    return [str(found[status]) for status in STATUSES]


def table(items: Sequence[Item], claims: dict[str, Claim]) -> str:
    """Return the rows of one part."""
    return markdown(HEAD, [_row(item, with_claims(item, claims)) for item in items])


def _row(item: Item, found: Claim) -> list[str]:
    code = [f"`{_short(each)}`" for each in found.function]
    tests = [_link(each, each.removeprefix("tests/")) for each in found.test]
    pages = [_link(each, Path(each).name) for each in item.page]
    return [item.title, item.paper, item.status, *(", ".join(each) or "–" for each in (code, tests, pages)), item.why]


def _short(path: str) -> str:
    return path.removeprefix("fedsrc.")


def _link(path: str, text: str) -> str:
    return f"[{text}]({Path(relpath(ROOT / path, PAGE.parent)).as_posix()})"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of words."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def main() -> None:
    """Write the page."""
    if sys.argv[1:] != ["docs"]:
        sys.exit("say what to write: docs")
    PAGE.write_text(page(read_items()[1], read_claims()), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
