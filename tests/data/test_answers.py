"""Loaders read the original formats, splits keep sources together, bad rows are named.

Mutants killed: labels inverted, a span counted twice or past the end, members of a pair in different parts, a split
that moves when sources are added, silently dropped rows.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.data.answers import Answer, read_answers
from fedsrc.data.halueval import read_halueval
from fedsrc.data.ragtruth import marked_fraction, read_noted
from fedsrc.data.selection import keep
from fedsrc.data.split import PARTS, assign, part_of, select, write_assignments
from fedsrc.errors import FedsrcError
from tests.support.answers import write_answers

ROW = {"id": "1", "source": "s", "question": "q?", "evidence": "some text", "response": "an answer", "loss": 1}


def lines(path: Path, rows: list[Any]) -> Path:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_own_files_agree(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "id": 2, "loss": 0.25, "site": "north", "ignored": [1]}]
    expected = [
        Answer(id="1", source="s", question="q?", evidence="some text", response="an answer", loss=1.0),
        Answer(id="2", source="s", question="q?", evidence="some text", response="an answer", loss=0.25, site="north"),
    ]
    pl.DataFrame([{**row, "id": str(row["id"]), "ignored": None} for row in rows]).write_parquet(tmp_path / "a.parquet")
    for path in (lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl.gz", rows)):
        assert read_answers(path) == expected
    assert [answer.loss for answer in read_answers(tmp_path / "a.parquet")] == [1.0, 0.25]
    write_answers(tmp_path / "c.jsonl", expected)
    assert read_answers(tmp_path / "c.jsonl") == expected


BAD: dict[str, tuple[list[Any], str]] = {
    "no response": ([{"evidence": "x"}], "line 1: response is missing"),
    "empty evidence": ([ROW, {**ROW, "id": "2", "evidence": " "}], "line 2: evidence is missing"),
    "bad loss": ([{**ROW, "loss": 2}], "line 1: loss 2 is not a number in"),
    "text loss": ([{**ROW, "loss": "yes"}], "line 1: loss 'yes' is not a number"),
    "twice": ([ROW, ROW], "id '1' occurs twice"),
    "not an object": ([[1, 2]], "line 1: not a JSON object"),
    "nothing": ([], "no answers"),
    "site a list": ([{**ROW, "site": ["a"]}], "line 1: site is not text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_answers_are_named(tmp_path: Path, name: str) -> None:
    rows, message = BAD[name]
    with pytest.raises(FedsrcError, match=message):
        read_answers(lines(tmp_path / "a.jsonl", rows))


def test_unknown_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="unknown kind of file"):
        read_answers(tmp_path / "a.txt")
    with pytest.raises(FedsrcError, match="cannot be read"):
        read_answers(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(FedsrcError, match="cannot be read"):
        read_answers(tmp_path / "bad.jsonl.gz")


def test_ragtruth_format(tmp_path: Path) -> None:
    lines(tmp_path / "source_info.jsonl", [
        {"source_id": "7", "task_type": "QA", "source_info": {"question": "why?", "passages": "because"}},
        {"source_id": "8", "task_type": "Summary", "source_info": "a document"},
        {"source_id": "9", "task_type": "Data2txt", "source_info": {"name": "Café"}},
    ])  # fmt: skip
    base = {"temperature": 0.7, "quality": "good", "split": "test", "model": "m", "response": "0123456789"}
    lines(tmp_path / "response.jsonl", [
        {**base, "id": "1", "source_id": "7", "labels": [{"start": 2, "end": 5}, {"start": 4, "end": 6}]},
        {**base, "id": "2", "source_id": "8", "labels": []},
        {**base, "id": "3", "source_id": "9", "labels": [], "split": "train", "model": "other"},
    ])  # fmt: skip
    one, two, three = (each.answer for each in read_noted(tmp_path))
    assert (one.question, one.evidence, one.loss, one.span_fraction, one.group) == ("why?", "because", 1.0, 0.4, "QA")
    assert (two.evidence, two.loss, two.span_fraction) == ("a document", 0.0, 0.0)
    assert ("Café" in three.evidence, three.generator, three.split) == (True, "other", "train")
    lines(tmp_path / "response.jsonl", [])
    with pytest.raises(FedsrcError, match="no responses in it"):
        read_noted(tmp_path)
    with pytest.raises(FedsrcError, match=r"no source_info\.jsonl"):
        read_noted(tmp_path / "elsewhere")


@pytest.mark.parametrize(("marks", "factual"), [([], 1.0), ([True], 1.0), ([True, True], 1.0), ([True, False], 0.0)])
def test_ragtruth_says_what_is_true_beyond_the_evidence(tmp_path: Path, marks: list[bool], factual: float) -> None:
    """Kills: `any` for `all`, spans of true text taken for supported text, the mark lost on its way through a file."""
    labels = [{"start": 0, "end": 2, "implicit_true": mark} for mark in marks]
    row = {"id": "1", "source_id": "s", "response": "a text", "model": "m", "split": "test", "labels": labels}
    lines(tmp_path / "response.jsonl", [row])
    lines(tmp_path / "source_info.jsonl", [{"source_id": "s", "task_type": "Summary", "source_info": "a document"}])
    ((answer, _),) = read_noted(tmp_path)
    assert (answer.factual, answer.loss) == (factual, float(bool(marks)))
    write_answers(tmp_path / "out.jsonl", [answer, Answer("2", "s", "e", "r")])
    assert [each.factual for each in read_answers(tmp_path / "out.jsonl")] == [factual, None]


@given(st.lists(st.tuples(st.integers(-5, 30), st.integers(-5, 30)), max_size=6))
def test_marked_characters_count_once(spans: list[tuple[int, int]]) -> None:
    text = "x" * 20
    expected = len({i for start, end in spans for i in range(max(0, start), min(20, end))}) / 20
    assert marked_fraction(text, spans) == pytest.approx(expected)


def test_halueval_format(tmp_path: Path) -> None:
    row = {"knowledge": "k", "question": "q", "right_answer": "r", "hallucinated_answer": "h"}
    lines(tmp_path / "qa_data.json", [row, row])
    answers = read_halueval(tmp_path, "qa", pairs=1)
    assert [(a.response, a.loss, a.source) for a in answers] == [("r", 0.0, "qa-0"), ("h", 1.0, "qa-0")]
    with pytest.raises(FedsrcError, match="is this HaluEval's summarization file"):
        read_halueval(tmp_path / "qa_data.json", "summarization")
    with pytest.raises(FedsrcError, match=r"no dialogue_data\.json"):
        read_halueval(tmp_path, "dialogue")


def test_splits_keep_sources_together_and_stay_put(tmp_path: Path) -> None:
    answers = [Answer(id=f"{i}", source=f"s{i // 3}", evidence="e", response="r") for i in range(3000)]
    parts = assign(answers, seed=1)
    assert sum(len(select(answers, parts, part)) for part in PARTS) == 3000
    shares = {part: count / 1000 for part, count in Counter(parts.values()).items()}
    assert shares == pytest.approx({"development": 0.2, "calibration": 0.5, "evaluation": 0.3}, abs=0.06)
    more = assign([*answers, Answer(id="x", source="new", evidence="e", response="r")], seed=1)
    assert all(more[source] == part for source, part in parts.items())
    assert assign(answers, seed=2) != parts
    assert part_of("s0", 1) == parts["s0"]
    write_assignments(tmp_path / "split.json", parts, 1)
    assert json.loads((tmp_path / "split.json").read_text())["parts"] == parts
    with pytest.raises(FedsrcError, match="sum to one"):
        assign(answers, 1, {"development": 0.5, "calibration": 0.5, "evaluation": 0.5})


def test_the_papers_cell_c1() -> None:
    """C1 is the 839 QA train responses of mistral-7B-instruct, 347 of them unsupported."""
    folder = os.environ.get("FEDSRC_DATA")
    if not folder or not (Path(folder) / "ragtruth").is_dir():
        pytest.skip("set FEDSRC_DATA to a folder with RAGTruth to check the paper's cells")
    found = [each.answer for each in read_noted(Path(folder) / "ragtruth")]
    cell = keep(found, task="QA", generators=["mistral-7B-instruct"], split="train")
    assert (len(cell), sum(a.loss or 0 for a in cell)) == (839, 347)
    assert len({a.source for a in cell}) == 839
