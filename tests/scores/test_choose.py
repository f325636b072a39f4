"""A score is chosen by a fixed criterion, written down once, and refuses the sources it was chosen on.

Mutants killed: the lowest AUC taken, cost before AUC, ties by order of mention, a choice edited by hand taken.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from fedsrc.cli.choose import choose_command
from fedsrc.errors import FedsrcError
from fedsrc.scores.choose import choose, read_choice, write_choice

SHA = "0" * 64
TABLE = pl.DataFrame(
    {
        "id": ["a", "b", "c", "d"],
        "source": ["s", "s", "t", "u"],
        "loss": [0.0, 1.0, 0.0, 1.0],
        "good": [0.9, 0.1, 0.8, 0.2],
        "same": [0.7, 0.2, 0.6, 0.3],
        "poor": [0.1, 0.9, 0.8, 0.2],
    }
)


def test_the_highest_auc_then_the_cheapest_then_the_name() -> None:
    made = choose(TABLE, ["poor", "same", "good"], {"good": 1}, records_sha256=SHA)
    assert made.chosen == "same"
    assert {name: each.auc for name, each in made.candidates.items()} == {"poor": 0.25, "same": 1.0, "good": 1.0}
    assert choose(TABLE, ["same", "good"], {}, records_sha256=SHA).chosen == "good"
    assert choose(TABLE, ["poor", "good"], {"good": 9}, records_sha256=SHA).chosen == "good"
    assert (made.answers, made.unsupported, len(made.source_fingerprints)) == (4, 2, 3)


def test_a_choice_is_written_once_and_refuses_its_sources(tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    made = choose(TABLE, ["good", "poor"], {}, records_sha256=SHA)
    write_choice(path, made)
    assert read_choice(path) == made
    made.check(["v", "w"])
    with pytest.raises(FedsrcError, match="chosen on 2 of these sources: 's', 't'"):
        made.check(["t", "v", "s"])
    with pytest.raises(FedsrcError, match="exists already"):
        write_choice(path, made)
    path.write_text(json.dumps({**json.loads(path.read_text()), "chosen": "poor"}))
    with pytest.raises(FedsrcError, match="its own numbers do not choose"):
        read_choice(path)
    path.write_text("{}")
    with pytest.raises(FedsrcError, match="not a choice of this version"):
        read_choice(path)


def test_what_cannot_be_chosen_from() -> None:
    with pytest.raises(FedsrcError, match="no column 'none'"):
        choose(TABLE, ["none"], {}, records_sha256=SHA)
    with pytest.raises(FedsrcError, match="no column 'loss', 'source'"):
        choose(TABLE.drop("loss", "source"), ["good"], {}, records_sha256=SHA)
    for losses in ([0.0, 0.0, 0.0, 0.0], [0.0, 1.0, None, 1.0]):
        with pytest.raises(FedsrcError, match="a label for every answer"):
            choose(TABLE.with_columns(loss=pl.Series(losses)), ["good"], {}, records_sha256=SHA)


def test_the_command(tmp_path: Path) -> None:
    records, target = tmp_path / "dev.parquet", tmp_path / "choice.json"
    TABLE.write_parquet(records)
    records.with_name("dev.parquet.manifest.json").write_text(json.dumps({"passes": {"good": 5}}))
    done = CliRunner().invoke(choose_command, [str(records), "--score", "good", "--score", "same", "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert "good: AUC 1.000, 5 extra passes" in done.output
    assert "Chosen: same, on 4 answers." in done.output
    assert read_choice(target).chosen == "same"
