"""A number that README.md or a page of docs says about a result is that in the named row and column of that result.

docs/numbers.toml says where each number comes from; nothing is looked up by its value. Covered are the section "What it
costs" and the sentence on runs of the demo in README.md, and every paragraph or table row of README.md, SECURITY.md,
CONTRIBUTING.md, deploy/README.md, docs/*.md and docs/theory/*.md that links to a page under results/. Numbers in code
and link targets do not count; numbers written as words are not seen.

Mutants killed: a number changed on a page, also to one that stands elsewhere in the same result; two numbers swapped; a
result made again with other values while a page still says the old ones; a number added to a covered part without a
source; a row, column or sentence that is no longer there, or there twice; an entry left behind by an edit.

Chance of a false alarm: none, files are compared with files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.support import ROOT

BOOK = ROOT / "docs" / "numbers.toml"
SECTION = "## What it costs"  # of README.md, all of it
DEMO = re.compile(r"Order and noise are drawn afresh.*?records\.", re.DOTALL)  # of README.md

NUMBER = r"(?<!\w)(?<!\d\.)(?:(?<![\w)\]])[-−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?%?(?!\d|[.,]\d|%)"
VALUE = rf"(?:{NUMBER}|\b(?:none|never)\b)"
HOLE = re.compile(r"\{([a-z_]*)\}")
LINK = re.compile(r"\]\([^)\s]*results/[^)\s]*\)")
HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)
NOT_PROSE = re.compile(  # fenced code, code spans, link targets
    r"^(?P<fence>```|~~~).*?^(?P=fence)|(?P<tick>`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)(?P=tick)(?!`)|(?<=\])\([^)\s]*\)",
    re.MULTILINE | re.DOTALL,
)

Span = tuple[int, int]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Spot(Strict):
    """Where in its source a number stands."""

    column: str = ""
    nth: int = Field(default=1, ge=1)  # of the columns with this header
    part: int = Field(default=0, ge=0)  # of the numbers in the cell; 0: it is the only one
    text: str = ""


class Said(Strict):
    page: str
    near: str
    source: str
    under: str = ""
    row: dict[str, str] = {}
    numbers: dict[str, Spot]


class Bare(Strict):
    """Numbers without a source, literally."""

    page: str
    near: str
    reason: str = Field(min_length=10)


class Book(Strict):
    said: tuple[Said, ...] = ()
    parameter: tuple[Bare, ...] = ()
    without_result: tuple[Bare, ...] = ()


class WrongEntryError(Exception):
    """An entry does not fit its page or its source."""


# ---------------------------------------------------------------- reading pages


def pattern(snippet: str) -> tuple[re.Pattern[str], list[str]]:
    """A snippet as a pattern, any white space for white space, with the names of its holes in order."""
    holes = HOLE.findall(snippet)
    literal = [r"\s+".join(re.escape(word) for word in re.split(r"\s+", part)) for part in HOLE.split(snippet)[::2]]
    return re.compile(f"({VALUE})".join(literal)), holes


def only_match(snippet: str, text: str, where: str) -> re.Match[str]:
    matches = list(pattern(snippet)[0].finditer(text))
    if len(matches) != 1:
        raise WrongEntryError(f"{where} has {len(matches)} places that read {snippet!r}, not one")
    return matches[0]


def numbers_in_prose(text: str) -> dict[Span, str]:
    hidden = [match.span() for match in NOT_PROSE.finditer(text)]
    found = {match.span(): match.group() for match in re.finditer(NUMBER, text)}
    return {
        (start, end): number
        for (start, end), number in found.items()
        if not any(first <= start and end <= last for first, last in hidden)
    }


def parts(text: str) -> Iterator[Span]:
    """Paragraphs, and rows of tables."""
    for block in re.finditer(r"(?:^.*\S.*\n?)+", text, re.MULTILINE):
        if not block.group().lstrip().startswith("|"):
            yield block.span()
            continue
        start = block.start()
        for line in block.group().splitlines(keepends=True):
            yield start, start + len(line)
            start += len(line)


def covered(page: str, text: str) -> list[Span]:
    """Where every number needs an entry."""
    spans = [(start, end) for start, end in parts(text) if LINK.search(text, start, end)]
    if page == "README.md":
        hidden = [match.span() for match in NOT_PROSE.finditer(text)]
        headings = [
            match
            for match in HEADING.finditer(text)
            if not any(first <= match.start() < last for first, last in hidden)
        ]
        starts = [index for index, heading in enumerate(headings) if heading.group().rstrip() == SECTION]
        if len(starts) != 1:
            raise WrongEntryError(f"README.md has {len(starts)} headings {SECTION!r}: change SECTION in this test")
        following = [heading.start() for heading in headings[starts[0] + 1 :]]
        spans.append((headings[starts[0]].start(), following[0] if following else len(text)))
        spans += [match.span() for match in DEMO.finditer(text)]
    return spans


def tables(text: str, under: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows of the tables of a page, or of one section of it."""
    if under:
        headings = [match for match in HEADING.finditer(text) if match.group(1).startswith(under)]
        if len(headings) != 1:
            raise WrongEntryError(f"the source has {len(headings)} headings that begin with {under!r}, not one")
        following = HEADING.search(text, headings[0].end())
        text = text[headings[0].end() : following.start() if following else len(text)]
    for block in re.finditer(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        header, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.group().splitlines()
        )
        yield header, rows


def in_table(said: Said, spot: Spot, text: str) -> str:
    if not said.row:
        raise WrongEntryError(f"column {spot.column!r} needs a row")
    cells = [
        row[[place for place, name in enumerate(header) if name == spot.column][spot.nth - 1]]
        for header, rows in tables(text, said.under)
        if header.count(spot.column) >= spot.nth and set(said.row) <= set(header)
        for row in rows
        if all(row[header.index(name)] == value for name, value in said.row.items())
    ]
    if len(cells) != 1:
        raise WrongEntryError(
            f"{said.source} has {len(cells)} rows {said.row} with a column {spot.column!r} (nth {spot.nth}), not one"
        )
    values = re.findall(VALUE, cells[0])
    if not (len(values) == 1 if spot.part == 0 else spot.part <= len(values)):
        raise WrongEntryError(f"the cell {cells[0]!r} of {said.source} has {len(values)} numbers; part = {spot.part}")
    return str(values[max(spot.part, 1) - 1])


def held(said: Said, spot: Spot, text: str) -> str:
    """The number that the source has."""
    if bool(spot.column) == bool(spot.text):
        raise WrongEntryError("a number has either a column or a text")
    if spot.column:
        return in_table(said, spot, text)
    if HOLE.findall(spot.text) != [""]:
        raise WrongEntryError(f"the text {spot.text!r} needs one {{}}")
    return only_match(spot.text, text, said.source).group(1)


def value(number: str) -> Decimal | str:
    """1,000 is 1000, 0.20 is 0.2, 5% is 0.05."""
    if number in {"none", "never"}:
        return number
    plain = Decimal(number.replace(",", "").replace("−", "-").rstrip("%"))
    return plain / 100 if number.endswith("%") else plain


# ---------------------------------------------------------------- the check


def check_said(said: Said, texts: dict[str, str]) -> tuple[list[str], set[Span]]:
    """What is wrong with an entry, and the numbers of the page that it covers."""
    holes = pattern(said.near)[1]
    if set(holes) != set(said.numbers):
        raise WrongEntryError(f"near names {sorted(set(holes))}, numbers has {sorted(said.numbers)}")
    match = only_match(said.near, texts[said.page], said.page)
    spans = {match.span(group) for group in range(1, len(holes) + 1)}
    target = said.source.removeprefix("docs/") if said.page.startswith("docs/") else said.source
    if f"]({target})" not in texts[said.page]:
        return [f"{said.page} does not link to {target}"], spans
    if said.source not in texts:
        return [f"there is no {said.source}"], spans
    problems = []
    for name, says in zip(holes, match.groups(), strict=True):
        try:
            holds = held(said, said.numbers[name], texts[said.source])
        except WrongEntryError as wrong:
            problems.append(f"{{{name}}}: {wrong}")
            continue
        if value(says) != value(holds):
            problems.append(f"{{{name}}}: {said.page} says {says}, {said.source} has {holds}")
    return problems, spans


def check_bare(bare: Bare, texts: dict[str, str]) -> set[Span]:
    text = texts[bare.page]
    matches = list(re.finditer(r"\s+".join(re.escape(word) for word in bare.near.split()), text))
    if len(matches) != 1:
        raise WrongEntryError(f"{bare.page} has {len(matches)} places that read {bare.near!r}, not one")
    start, end = matches[0].span()
    inside = {span for span in numbers_in_prose(text) if start <= span[0] and span[1] <= end}
    if not inside:
        raise WrongEntryError("near has no number")
    return inside


def check(texts: dict[str, str], pages: list[str], book: Book) -> list[str]:
    """Everything that is wrong, each with the entry to fix."""
    problems: list[str] = []
    explained: dict[str, set[Span]] = {page: set() for page in pages}
    for kind, entries in (("said", book.said), ("parameter", book.parameter), ("without_result", book.without_result)):
        for entry in entries:
            here = f"docs/numbers.toml, [[{kind}]] near = {entry.near!r}"
            if entry.page not in explained:
                problems.append(f"{here}: {entry.page} is not a page that is checked")
                continue
            try:
                if isinstance(entry, Said):
                    found, spans = check_said(entry, texts)
                    problems += [f"{here}: {problem}" for problem in found]
                else:
                    spans = check_bare(entry, texts)
            except WrongEntryError as wrong:
                problems.append(f"{here}: {wrong}")
                continue
            if twice := spans & explained[entry.page]:
                problems.append(f"{here}: another entry has {[texts[entry.page][slice(*span)] for span in twice]} too")
            explained[entry.page] |= spans
    for page in pages:
        text, needed = texts[page], covered(page, texts[page])
        for (start, end), number in sorted(numbers_in_prose(text).items()):
            if (start, end) not in explained[page] and any(first <= start and end <= last for first, last in needed):
                around = " ".join(text[max(start - 40, 0) : end + 30].split())
                line = text.count("\n", 0, start) + 1
                problems.append(f"{page}:{line}: {number} (in '{around}') has no entry in docs/numbers.toml")
    return problems


def book_of(text: str) -> Book:
    return Book.model_validate(tomllib.loads(text))


@pytest.fixture(scope="module")
def book() -> Book:
    return book_of(BOOK.read_text(encoding="utf-8"))


GUIDES = [path for folder in ("docs", "docs/theory") for path in sorted((ROOT / folder).glob("*.md"))]
PAGES = [
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "deploy/README.md"),
    *(path.relative_to(ROOT).as_posix() for path in GUIDES),
]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    results = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "results").rglob("*.md"))
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in [*PAGES, *results]}


def test_numbers_of_the_pages_are_those_of_the_results(texts: dict[str, str], book: Book) -> None:
    problems = check(texts, PAGES, book)
    assert not problems, "\n" + "\n".join(problems)


# ---------------------------------------------------------------- the check can fail, on the real pages


def said_numbers(texts: dict[str, str], said: Said) -> dict[str, str]:
    match = only_match(said.near, texts[said.page], said.page)
    return dict(zip(pattern(said.near)[1], match.groups(), strict=True))


def new_problems(texts: dict[str, str], book: Book, said: Said, new: dict[str, str]) -> list[str]:
    """What the check finds when the holes of an entry have other numbers, and did not find before."""
    text, holes = texts[said.page], pattern(said.near)[1]
    match = only_match(said.near, text, said.page)
    for group, name in reversed(list(enumerate(holes, start=1))):
        if name in new:
            start, end = match.span(group)
            text = text[:start] + new[name] + text[end:]
    assert text != texts[said.page], "the number has become that of the mutant: choose another"
    before = check(texts, PAGES, book)
    return [problem for problem in check(texts | {said.page: text}, PAGES, book) if problem not in before]


def entry_of(book: Book, source: str, epsilon: str = "", number: str = "") -> Said:
    entries = [said for said in book.said if said.page == "README.md" and said.source == f"docs/results/{source}"]
    entries = [said for said in entries if not number or number in said.numbers]
    entries = [said for said in entries if not epsilon or said.row.get("epsilon") == epsilon]
    assert len(entries) == 1, f"docs/numbers.toml has {len(entries)} entries of README.md for {source}: say here which"
    return entries[0]


@pytest.mark.parametrize(
    ("source", "epsilon", "name", "number"),
    [
        ("studies/certified-today.md", "1", "default", "65"),  # was 56
        ("boundary.md", "", "issued", "38"),  # was 188, and 38 stands in another row
        ("sealed-validity.md", "", "claim", "0.3"),  # was 0.045
    ],
)
def test_a_changed_number_is_found(
    texts: dict[str, str], book: Book, source: str, epsilon: str, name: str, number: str
) -> None:
    said = entry_of(book, source, epsilon, name)
    problems = new_problems(texts, book, said, {name: number})
    assert len(problems) == 1
    assert f"{{{name}}}: README.md says {number}, {said.source} has " in problems[0]


def test_the_worst_setting_is_the_worst(texts: dict[str, str], book: Book) -> None:
    """README's figure for sealed certificates is the largest of those that keep all conditions."""
    text = (ROOT / "docs/results/sealed-validity.md").read_text(encoding="utf-8").partition("## Rules that leave")[0]
    counts = [int(found.replace(",", "")) for found in re.findall(r"\| ([\d,]+) of 100,000 \|", text)]
    assert len(counts) == 27
    assert said_numbers(texts, entry_of(book, "sealed-validity.md", number="worst"))["worst"] == f"{max(counts):,}"


def test_swapped_numbers_are_found(texts: dict[str, str], book: Book) -> None:
    """What the default certifies and what the paper's rule does, the wrong way round."""
    said = entry_of(book, "studies/certified-today.md", "4", "default")
    now = said_numbers(texts, said)
    problems = new_problems(texts, book, said, {"default": now["paper"], "paper": now["default"]})
    assert [problem.partition(": {")[2].partition(", ")[0] for problem in problems] == [
        f"default}}: README.md says {now['paper']}",
        f"paper}}: README.md says {now['default']}",
    ]


def test_every_number_matters(texts: dict[str, str], book: Book) -> None:
    for said in book.said:
        for name, number in said_numbers(texts, said).items():
            now = value(number)
            other = "7" if isinstance(now, str) else str(now + 1)
            problems = new_problems(texts, book, said, {name: other})
            assert any(f"{{{name}}}: {said.page} says {other}" in problem for problem in problems), (said.near, name)


def test_every_entry_matters(texts: dict[str, str], book: Book) -> None:
    before = check(texts, PAGES, book)
    for kind in ("said", "parameter", "without_result"):
        entries = getattr(book, kind)
        for entry in entries:
            fewer = book.model_copy(update={kind: tuple(other for other in entries if other is not entry)})
            problems = [problem for problem in check(texts, PAGES, fewer) if problem not in before]
            assert problems, entry.near
            assert all("has no entry in docs/numbers.toml" in problem for problem in problems)


# ---------------------------------------------------------------- the check can fail, on small pages

README = """# Name

Not covered: 5 apples.

## What it costs

| | epsilon | records |
| --- | --- | --- |
| [Result](docs/results/r.md), `run 99` | none | 1,160 |
| | 4 | in 39 of 200 trials |

It takes 0.20 ms at limit 30. ```12``` is code.

```
# 77 is code
```

## Next

Not covered: 6 apples.
"""
RESULT = """# Result

Each row is
200 trials.

| epsilon | certified | records | certified | records |
| --- | --- | --- | --- | --- |
| none | 200 | 1,160 / 1,000 | 39 | 7 / 8 |
| 4 | 200 | 2 / 3 | 39 | 7 / 8 |

## Times

| epsilon | certified |
| --- | --- |
| all | 0.2 / 0.3 ms |
"""
SMALL = """
[[said]]
page = "README.md"
near = "`run 99` | {epsilon} | {records} |"
source = "docs/results/r.md"
row = { epsilon = "none" }
numbers = { epsilon = { column = "epsilon" }, records = { column = "records", part = 1 } }

[[said]]
page = "README.md"
near = "| {epsilon} | in {paper} of {trials} trials |"
source = "docs/results/r.md"
row = { epsilon = "4" }
[said.numbers]
epsilon = { column = "epsilon" }
paper = { column = "certified", nth = 2 }
trials = { text = "Each row is {} trials." }

[[said]]
page = "README.md"
near = "It takes {ms} ms"
source = "docs/results/r.md"
under = "Times"
row = { epsilon = "all" }
numbers = { ms = { column = "certified", part = 1 } }

[[parameter]]
page = "README.md"
near = "at limit 30"
reason = "chosen for this example"
"""


def small(readme: str = README, result: str = RESULT, entries: str = SMALL, other: str = "") -> list[str]:
    texts = {"README.md": readme, "docs/other.md": other, "docs/results/r.md": result}
    return check(texts, ["README.md", "docs/other.md"], book_of(entries))


def test_right_pages_pass() -> None:
    assert small() == []
    assert (
        small(other="5 trials without a link\n\n[`5`](results/5.md) with one\n\n```\n6 [r](results/r.md)\n```\n") == []
    )
    assert small(readme=README.replace("1,160", "1160").replace("0.20", "20%")) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("| none | 1,160", "| none | 1,000", "{records}: README.md says 1,000, docs/results/r.md has 1,160"),
        ("| none | 1,160", "| 4 | 1,160", "{epsilon}: README.md says 4, docs/results/r.md has none"),
        ("in 39 of 200", "in 200 of 39", "{paper}: README.md says 200, docs/results/r.md has 39"),
        ("0.20 ms", "0.2.1 ms", "has 0 places that read 'It takes {ms} ms'"),
        ("0.20 ms", "0.20% ms", "{ms}: README.md says 0.20%, docs/results/r.md has 0.2"),
        ("0.20 ms", "-0.20 ms", "{ms}: README.md says -0.20, docs/results/r.md has 0.2"),
        ("at limit 30", "at limit 31", "has 0 places that read 'at limit 30'"),
        ("It takes", "It took", "has 0 places that read 'It takes {ms} ms'"),
        ("It takes", "It takes 0.2 ms. It takes", "has 2 places that read 'It takes {ms} ms'"),
        ("It takes", "In 3x the time it takes. It takes", "README.md:12: 3 (in "),
        ("It takes", "It won 2-1. It takes", "README.md:12: 1 (in "),
        ("## Next", "Another 8.\n\n## Next", "README.md:18: 8 (in "),
        ("6 apples", "6 apples, see [r](docs/results/r.md)", "README.md:20: 6 (in "),
        ("## What it costs", "## What", "0 headings '## What it costs'"),
        ("](docs/results/r.md)", "](docs/r.md)", "README.md does not link to docs/results/r.md"),
    ],
)
def test_a_wrong_page_is_found(old: str, new: str, problem: str) -> None:
    assert old in README
    try:
        problems = small(readme=README.replace(old, new))
    except WrongEntryError as wrong:
        problems = [str(wrong)]
    assert any(problem in found for found in problems), problems


@pytest.mark.parametrize(
    "other",
    ["In 5 trials\nit held ([r](results/r.md)).\n", "| 5 of them | [r](results/studies/r.md) |\n", "[5](results/r.md)"],
)
def test_a_number_beside_a_link_to_a_result_needs_an_entry(other: str) -> None:
    assert ["docs/other.md:1: 5 " in problem for problem in small(other=other)] == [True]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("| none | 200 | 1,160", "| none | 200 | 1,161", "says 1,160, docs/results/r.md has 1,161"),
        ("| none |", "| inf |", "has 0 rows {'epsilon': 'none'}"),
        ("| none |", "| none | 200 | 1,160 / 1,000 | 39 | 7 / 8 |\n| none |", "has 2 rows {'epsilon': 'none'}"),
        (
            "| records | certified | records |",
            "| costs | certified | costs |",
            "with a column 'records' (nth 1), not one",
        ),
        ("1,160 / 1,000", "–", "has 0 numbers"),
        ("| 39 |", "| 39 / 40 |", "has 2 numbers; part = 0"),
        ("Each row is", "Rows are", "has 0 places that read 'Each row is {} trials.'"),
        ("## Times", "## Time", "0 headings that begin with 'Times'"),
    ],
)
def test_a_result_that_changed_is_found(old: str, new: str, problem: str) -> None:
    assert old in RESULT
    problems = small(result=RESULT.replace(old, new))
    assert any(problem in found for found in problems), problems


def test_a_result_that_is_not_there_is_found() -> None:
    problems = check({"README.md": README}, ["README.md"], book_of(SMALL))
    assert len(problems) == 3
    assert all(problem.endswith(": there is no docs/results/r.md") for problem in problems)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("nth = 2", "nth = 3", "(nth 3), not one"),
        ("nth = 2", "nth = 1", "{paper}: README.md says 39, docs/results/r.md has 200"),
        ('near = "It takes {ms} ms', 'near = "It takes {time} ms', "near names ['time'], numbers has ['ms']"),
        ("is {} trials", "is 200 trials", "needs one {}"),
        ("nth = 2", 'text = "39"', "either a column or a text"),
        ('row = { epsilon = "all" }', "", "column 'certified' needs a row"),
        ("docs/results/r.md", "docs/results/s.md", "README.md does not link to docs/results/s.md"),
        ('"README.md"', '"CHANGELOG.md"', "CHANGELOG.md is not a page that is checked"),
        ("at limit 30", "at limit", "near has no number"),
        ("at limit 30", "ms at limit 30. ```12``` is code", ""),
        ("at limit 30", "It takes 0.20 ms at limit 30", "another entry has ['0.20'] too"),
    ],
)
def test_a_wrong_entry_is_found(old: str, new: str, problem: str) -> None:
    assert old in SMALL
    problems = small(entries=SMALL.replace(old, new))
    assert any(problem in found for found in problems) if problem else not problems, problems
