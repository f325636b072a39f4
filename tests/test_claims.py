"""Every claim has an address: paper/claims.toml is checked against the code, the tests, the theory and the paper.

The paper's text is not part of the repository. Set FEDSRC_PAPER to its .tex file to check its labels as well.

Mutants killed: a function renamed or removed without its claim, a citation dropped from a docstring, a cited function
missing from the map, a claim doubled, a section of docs/theory renamed, a page that names another's test, a label
mistyped.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedsrc
from tests.support import ROOT

CITATION = re.compile(r"\b(Paper|Theory|Source): ")
PAPER_KINDS = ("eq", "thm", "lem", "prop", "cor", "ass")
STATUSES = ("planned", "argument")
THEORY = sorted((ROOT / "docs" / "theory").glob("*.md"))


@dataclass(frozen=True)
class Claim:
    """One entry of the map."""

    id: str
    where: tuple[str, ...]
    says: str
    function: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    deviation: str = ""
    status: str = ""

    def labels(self, source: str) -> list[str]:
        """Places in "paper", in "theory", or on a page of a "result"."""
        return [place.removeprefix(source).strip() for place in self.where if place.startswith(f"{source} ")]


def read_claims() -> list[Claim]:
    entries = tomllib.loads((ROOT / "paper" / "claims.toml").read_text(encoding="utf-8"))["claim"]
    return [claim_of(entry) for entry in entries]


def claim_of(entry: dict[str, Any]) -> Claim:
    """One entry; an unknown field is an error."""
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()}
    return Claim(**values)


CLAIMS = read_claims()
IMPLEMENTED = [claim for claim in CLAIMS if not claim.status]


def resolve(path: str) -> object:
    """The object at a dotted path: the longest importable module, then attributes."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = inspect.getattr_static(found, name)
        return found
    raise ModuleNotFoundError(path)


def docstring(found: object) -> str:
    return inspect.getdoc(found) or ""


def cites(path: str) -> bool:
    """Whether a function's docstring, or that of its module, says where it comes from."""
    module = inspect.getmodule(resolve(path))
    return bool(CITATION.search(docstring(resolve(path))) or CITATION.search(docstring(module)))


def modules() -> list[ModuleType]:
    """All but the app that is shipped to SuperNodes, which runs where Flower is."""
    names = [info.name for info in pkgutil.walk_packages(fedsrc.__path__, "fedsrc.")]
    return [importlib.import_module(name) for name in names if ".flower.app." not in name]


def public_names() -> Iterator[tuple[str, object]]:
    """Public functions and public methods that a module defines, with their dotted paths."""
    for module in modules():
        for name, found in vars(module).items():
            if name.startswith("_") or getattr(found, "__module__", None) != module.__name__:
                continue
            yield f"{module.__name__}.{name}", found
            if inspect.isclass(found):
                for member, value in vars(found).items():
                    if not member.startswith("_"):
                        yield f"{module.__name__}.{name}.{member}", value


def test_ids_are_unique() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_entries_are_complete(claim: Claim) -> None:
    assert claim.says.endswith(".")
    assert claim.where
    assert all(place.split(" ")[0] in ("paper", "theory", "result") for place in claim.where)
    if claim.status:
        assert claim.status in STATUSES
        assert not claim.function
    else:
        assert claim.function
        assert claim.test


@pytest.mark.parametrize("claim", IMPLEMENTED, ids=lambda claim: claim.id)
def test_functions_exist_and_cite_their_source(claim: Claim) -> None:
    for path in (*claim.function, *claim.also):
        found = resolve(path)
        assert callable(found) or isinstance(found, property | staticmethod | classmethod), path
    for path in claim.function:
        assert not path.startswith("fedsrc.maths.") or cites(path), f"{path} cites neither the paper nor the theory"


@pytest.mark.parametrize("claim", IMPLEMENTED, ids=lambda claim: claim.id)
def test_test_files_exist(claim: Claim) -> None:
    for name in claim.test:
        assert name.startswith("tests/"), name
        assert Path(name).name.startswith("test_"), name
        assert (ROOT / name).is_file(), name


def test_every_cited_function_is_in_the_map() -> None:
    listed = {path for claim in CLAIMS for path in (*claim.function, *claim.also)}
    cited = {path for path, found in public_names() if CITATION.search(docstring(found))}
    assert cited
    assert not cited - listed


def test_theory_sections_exist() -> None:
    index = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").split("\n", 1)[1]
    text = "\n".join([index, *(page.read_text(encoding="utf-8") for page in THEORY)])
    headings = re.findall(r"^#{1,2} (.+)$", text, flags=re.MULTILINE)
    named = {label for claim in CLAIMS for label in claim.labels("theory")}
    lost = {label for label in named if not any(heading.startswith(label) for heading in headings)}
    assert not lost
    unnamed = [heading for heading in headings if not any(heading.startswith(label) for label in named)]
    assert not unnamed, "a section of docs/theory has no claim"


def test_sections_of_results_exist() -> None:
    """Statements that are not used stand on the page that says what they would gain."""
    named = [label.split(" ", 1) for claim in CLAIMS for label in claim.labels("result")]
    assert named
    for page, heading in named:
        text = (ROOT / "docs" / "results" / f"{page}.md").read_text(encoding="utf-8")
        assert re.search(rf"^## {re.escape(heading)}", text, flags=re.MULTILINE), f"{page}: {heading}"


@pytest.mark.parametrize("page", THEORY, ids=lambda page: page.stem)
def test_a_page_of_the_theory_names_what_holds_it(page: Path) -> None:
    """Its last lines name files that are there, and tests of its claims."""
    text = page.read_text(encoding="utf-8")
    number = text.split()[1]
    claims = [claim for claim in CLAIMS if any(label.startswith(number) for label in claim.labels("theory"))]
    known = {test for claim in claims for test in claim.test}
    code, _, tests = text.partition("\nCode: ")[2].partition("Tests: ")
    assert bool(known) == bool(code)
    for name in re.findall(r"`(.+?)`", code):
        assert (ROOT / name).is_file() or (ROOT / "src" / "fedsrc" / name).is_file(), name
    assert set(re.findall(r"`(.+?)`", tests)) <= known


def paper_labels() -> set[str]:
    path = os.environ.get("FEDSRC_PAPER")
    if not path:
        pytest.skip("set FEDSRC_PAPER to the paper's .tex file to check its labels; it is not part of the repository")
    return set(re.findall(r"\\label\{([^}]+)\}", Path(path).read_text(encoding="utf-8")))


def test_paper_labels_exist() -> None:
    labels = paper_labels()
    named = {label for claim in CLAIMS for label in claim.labels("paper")}
    assert not named - labels


def test_every_result_of_the_paper_has_a_claim() -> None:
    results = {label for label in paper_labels() if label.split(":")[0] in PAPER_KINDS}
    named = {label for claim in CLAIMS for label in claim.labels("paper")}
    assert not results - named
