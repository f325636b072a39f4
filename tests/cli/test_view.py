"""`fedsrc view --verifier`: a page without a run that checks others' cards, and nothing else with it.

Mutants killed: a page with a run in it, a policy that lets the page ask another host, options that are ignored.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.errors import FedsrcError


def test_a_verifier_is_written_without_a_run(tmp_path: Path) -> None:
    target = tmp_path / "verify.html"
    found = CliRunner().invoke(cli, ["view", "--verifier", "-o", str(target)])
    assert found.exit_code == 0, found.output
    text = target.read_text(encoding="utf-8")
    assert 'type="file"' in text
    assert "data:application/zip" not in text.split("<script", maxsplit=1)[0]
    assert "default-src &#39;none&#39;" in text
    assert "connect-src" not in text
    assert text.rstrip("\n") == CliRunner().invoke(cli, ["view", "--verifier"]).output.rstrip("\n")


@pytest.mark.parametrize("more", [["run"], ["--live"], ["--format", "json"], ["--trust", "0" * 64], ["--monitor", "m"]])
def test_a_verifier_takes_nothing_else(more: list[str]) -> None:
    found = CliRunner().invoke(cli, ["view", "--verifier", *more])
    assert found.exit_code != 0
    assert isinstance(found.exception, FedsrcError)
    assert "without a run" in str(found.exception)


def test_a_card_needs_its_run() -> None:
    found = CliRunner().invoke(cli, ["view"])
    assert found.exit_code == 2
    assert "Missing argument 'FOLDER'" in found.output
