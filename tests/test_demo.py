"""The lexical score and the embedded table, which one command makes again from HaluEval's original file."""

from __future__ import annotations

import gzip
import os
from importlib.resources import files
from pathlib import Path

import pytest

from fedsrc.demo import TABLE
from fedsrc.demo.make_table import rows
from fedsrc.scores.lexical import lexical_support

EMBEDDED = gzip.decompress(files("fedsrc.demo").joinpath(TABLE).read_bytes()).decode()


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Paris", 1.0),
        ("It was Paris.", 0.5),  # the only content word is there, neither pair is
        ("The capital is Paris", 1.0),
        ("the capital was London", (1 / 2 + 1 / 3) / 2),
        ("London", 0.0),
        ("", 0.0),
        ("it is", (1 / 2 + 0) / 2),  # stop words only: judged by all its words
    ],
)
def test_lexical_support(answer: str, score: float) -> None:
    assert lexical_support(answer, "The capital is Paris, a city.") == pytest.approx(score)


def test_the_embedded_table_is_complete() -> None:
    lines = EMBEDDED.splitlines()
    assert lines[0] == "id,site,loss,score"
    assert len(lines) == 10_001
    cells = [line.split(",") for line in lines[1:]]
    assert [int(each[0]) for each in cells] == list(range(10_000))
    assert 0.48 < sum(int(each[2]) for each in cells) / 10_000 < 0.52
    assert all(0 <= float(each[3]) <= 1 for each in cells)
    assert len({each[1] for each in cells}) == 5


def test_the_embedded_table_is_made_again() -> None:
    folder = os.environ.get("FEDSRC_DATA")
    source = Path(folder) / "halueval" / "qa.jsonl.gz" if folder else None
    if source is None or not source.exists():
        pytest.skip("set FEDSRC_DATA to a folder with HaluEval's qa file to rebuild the demo table")
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        assert "\n".join(rows(iter(lines))) + "\n" == EMBEDDED
