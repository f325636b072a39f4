"""What runs write, byte for byte: registrations, requests, releases, transcripts, certificates, ledgers, cards.

Mutants killed: a field renamed, added or in another order, a number rounded otherwise, requests in another order, a
sentence of a certificate or a card in other words, another seed, cut or intake in a ledger, a live run that resumes
otherwise. Chance of a false alarm: none, all randomness is fixed.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.helpers import GOLDEN
from tests.support.pinned_runs import play_all


def test_bytes_are_those_that_were_pinned(tmp_path: Path) -> None:
    """After a change that is meant to change them: python -m tests.support.pinned_runs FOLDER."""
    pinned = (GOLDEN / "pinned-runs.txt").read_text(encoding="utf-8").splitlines()
    assert play_all(tmp_path) == pinned
