"""Untidy exports: one command to a certificate, or one refusal that names the one thing only its owner knows.

Mutants killed: an encoding, separator, scale or label word that is no longer found; a direction that is guessed; rows
that stand twice and are counted twice; a refusal without the option that ends it.

By its noise a run of these tables would abstain in fewer than one of a million: 35% of 4,000 answers are unsupported,
and at the best threshold fewer than 4% of some 1,500.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from research.untidy_exports import EXPORTS, Export, play
from tests.support.gate_certificates import Terminal

ASKS = {  # the one thing that only its owner knows, and the option by which he says it
    "twice.csv": "twice",
    "sources.csv": "--source-column",
    "inverted.csv": "--score-scale",
}


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.file)
def test_one_command_or_one_refusal(
    export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(monkeypatch, capsys)

    def run(arguments: list[str], folder: Path) -> tuple[int, str]:
        monkeypatch.chdir(folder)
        done = terminal(*arguments)
        return done.status, f"{done.out}\n{done.err}"

    tried = play(export, run, tmp_path / "export")
    asked = ASKS.get(export.file)
    assert (tried.end, tried.failures) == ("certified", 0 if asked is None else 1), tried.refusals
    assert asked is None or asked in tried.refusals[0]
