"""Adjacency from the command line, down to the noise of a release.

Mutants killed: the option ignored, its default swapped between presets, noise of zero-out under replacement, a factor
of two for the root of two.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedsrc.cli.main import main
from fedsrc.protocol.registration import Registration


def registered(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Registration:
    """What `fedsrc register` writes."""
    table, target = folder / "dev.csv", folder / f"{len(list(folder.iterdir()))}.toml"
    if not table.exists():
        rng = np.random.default_rng(0)
        loss = rng.random(300) < 0.3
        rows = (f"{score:.4f},{int(wrong)}" for score, wrong in zip(rng.random(300), loss, strict=True))
        table.write_text("\n".join(["score,loss", *rows]) + "\n")
    words = ["register", str(table), "--target", "0.2", "--epsilon", "4", "--public-development", "-o", str(target)]
    monkeypatch.setattr(sys, "argv", ["fedsrc", *words, *options])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    return Registration.from_toml(target.read_text())


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_replacement_has_the_root_of_two_of_the_noise(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly: the paper's triangle inequality would give twice the noise of its paired bins."""
    zero, other = (
        registered(tmp_path, monkeypatch, "--preset", preset, "--adjacency", kind)
        for kind in ("zero-out", "replacement")
    )
    assert (zero.privacy.adjacency, other.privacy.adjacency) == ("zero-out", "replacement")
    assert other.mechanism.scale / zero.mechanism.scale == pytest.approx(np.sqrt(2), rel=1e-3)
    assert other.mechanism.rho == pytest.approx(zero.mechanism.rho, rel=1e-3)


def test_replacement_is_the_default_and_zero_out_the_paper_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registered(tmp_path, monkeypatch).privacy.adjacency == "replacement"
    assert registered(tmp_path, monkeypatch, "--preset", "paper").privacy.adjacency == "zero-out"
