"""The page's verifier on forgeries of recorded runs: where it has a verdict, it is that of `fedsrc verify`.

Mutants killed: any check that it leaves out and `fedsrc verify` makes, or the other way round; a pass out of reach.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.recorded.export import NOW, Case, cases
from tests.report.verifier_node import NODE, files_of, out_of_reach, verdicts
from tests.support.recordings import Verdict, recorded, verdict, write_files

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: it runs the page's verifier")

WORDS = {"verified": "VERIFIED", "refused": "DOES NOT VERIFY"}
UNREADABLE = "registration.json is not there"  # a registration that fedsrc does not read has no canonical form
UNUSUAL = "it is not as fedsrc writes it"  # the same values in another text
MANY = 400


def compared(found: Iterable[Case], folder: Path) -> Counter[str]:
    """Compare both verdicts on every case, and count them."""
    counts = Counter[str]()
    rest = iter(found)
    while batch := list(itertools.islice(rest, MANY)):
        places = [write_files(folder / f"{run}--{forgery}", files) for run, forgery, files in batch]
        answers = verdicts([files_of(place) for place in places], now=NOW.timestamp() * 1000)
        for (run, forgery, _), place, answer in zip(batch, places, answers, strict=True):
            said = verdict(place, NOW)
            assert agree(said, answer, run), (run, forgery, said, answer["verdict"], answer["why"])
            counts[f"{said.word}: {answer['verdict']}"] += 1
    return counts


def agree(said: Verdict, answer: dict[str, Any], run: str) -> bool:
    """Whether both say the same; whether the page's verifier may say nothing."""
    if answer["verdict"] == "CANNOT CHECK":
        return out_of_reach(run) or UNREADABLE in answer["why"] or UNUSUAL in answer["why"]
    if answer["verdict"] != WORDS[said.word] or said.word == "refused":
        return bool(answer["verdict"] == WORDS[said.word])
    notes = {part["name"] for part in answer["parts"] if part["result"] == "note"}
    return answer["status"] == said.status and notes == {
        name for name, holds in (("REVOKED", said.revoked), ("EXPIRED", said.expired)) if holds
    }


def test_every_forgery_once(tmp_path: Path) -> None:
    counts = compared(cases(recorded(), sampled=True), tmp_path)
    assert counts["verified: VERIFIED"] > 60
    assert counts["refused: DOES NOT VERIFY"] > 200


@pytest.mark.thorough
@pytest.mark.parametrize("name", recorded())
def test_every_forgery_of_a_run(name: str, tmp_path: Path) -> None:
    assert compared(cases([name]), tmp_path).total() > 0
