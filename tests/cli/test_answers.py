"""`fedsrc answers` as a user meets it: answers and manifest written, or nothing; data on stdout, log on stderr.

Mutants killed: originals written over, a manifest of other bytes than those written, a part that is not the one written
down, an audit error that still writes, a cached collection asked for again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fedsrc.cli.answers import answers_command
from fedsrc.cli.streams import in_flags
from fedsrc.data import hub
from fedsrc.data.answers import read_answers
from fedsrc.errors import FedsrcError

PAIRS = [
    {"knowledge": f"k{i // 2}", "question": f"q{i}", "right_answer": f"r{i}", "hallucinated_answer": f"wrong {i}"}
    for i in range(60)
]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSRC_CACHE", str(tmp_path / "cache"))

    def run(*args: str) -> Result:
        return CliRunner().invoke(answers_command, args)

    return run


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_answers_and_manifest_are_written(call: Any, tmp_path: Path) -> None:
    lines(tmp_path / "qa_data.json", PAIRS)
    done = call("qa_data.json", "--pairs", "50")
    assert done.exit_code == 0, done.output
    assert done.stdout == "Wrote answers.jsonl and answers.jsonl.manifest.json\n"
    assert "halueval/qa: 100 answers of 50 sources; 100 labelled, 50 of them unsupported (50.0%)." in done.stderr
    assert "warning: Unsupported responses are longer: length alone has AUC 1.000" in done.stderr
    data = (tmp_path / "answers.jsonl").read_bytes()
    manifest = json.loads((tmp_path / "answers.jsonl.manifest.json").read_text())
    assert manifest["written"] == {
        "name": "answers.jsonl",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    assert manifest["files"][0]["sha256"] == hashlib.sha256((tmp_path / "qa_data.json").read_bytes()).hexdigest()
    assert (manifest["format"], manifest["chosen"]["pairs"], manifest["answers"]) == (1, 50, 100)
    assert str(tmp_path) not in json.dumps(manifest)
    answers = read_answers(tmp_path / "answers.jsonl")
    assert (len(answers), answers[1].loss, answers[1].span_fraction) == (100, 1.0, 1.0)
    again = call("answers.jsonl", "-o", "again.jsonl", "--format", "json")
    assert json.loads(again.stdout) == json.loads((tmp_path / "again.jsonl.manifest.json").read_text())
    assert (tmp_path / "again.jsonl").read_bytes() == data


def test_the_parts_are_those_written_down(call: Any, tmp_path: Path) -> None:
    lines(tmp_path / "qa_data.json", PAIRS)
    how = ("qa_data.json", "--seed", "3", "--shares", "0.25,0.25,0.5", "--one-per-source", "--parts", "parts.json")
    sources = set()
    for part in ("development", "calibration", "evaluation"):
        done = call(*how, "--part", part, "-o", f"{part}.jsonl")
        assert done.exit_code == 0, done.output
        assert "stand in more than one part" in done.stderr
        written = json.loads((tmp_path / "parts.json").read_text())
        found = {answer.source for answer in read_answers(tmp_path / f"{part}.jsonl")}
        assert found == {source for source, name in written["parts"].items() if name == part}
        sources |= found
    assert (len(sources), written["seed"]) == (60, 3)
    joined = call(*how, "--join-sources", "--part", "evaluation")
    assert "stand in more than one part" not in joined.stderr
    assert "several source names" not in joined.stderr


def test_a_kept_collection_is_not_asked_for_again(call: Any, tmp_path: Path) -> None:
    row = {"document": "d", "right_summary": "r", "hallucinated_summary": "h"}
    folder = hub.folder_of("halueval/summarization", tmp_path / "cache")
    folder.mkdir(parents=True)
    lines(folder / "summarization_data.json", [row])
    for how in (("halueval/summarization",), ("HaluEval", "--task", "summarization")):
        done = call(*how)
        assert done.exit_code == 0, done.output
        assert "Fetching" not in done.stderr


def test_refusals_write_nothing(call: Any, tmp_path: Path) -> None:
    lines(tmp_path / "qa_data.json", PAIRS)
    lines(tmp_path / "own.jsonl", [{"evidence": "e", "response": "r"}])
    lines(tmp_path / "empty.json", [{**PAIRS[0], "knowledge": " "}])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for how, message in (
        (("nothing",), "no such file, and no collection of that name"),
        (("halueval",), "which task"),
        (("qa_data.json", "--task", "dialogue"), "HaluEval's qa file"),
        (("qa_data.json", "--generator", "gpt"), "no answer that is left has the generator 'gpt'"),
        (("own.jsonl", "--pairs", "3"), "--pairs belongs to HaluEval"),
        (("own.jsonl", "-o", "own.jsonl"), "is read here, or written twice"),
        ((".", "--task", "qa", "-o", "qa_data.json"), "is read here, or written twice"),
        (("own.jsonl", "--parts", "answers.jsonl"), "is read here, or written twice"),
        (("own.jsonl", "--shares", "0.5,0.5,0.5", "--part", "evaluation"), "sum to one"),
        (("empty.json",), "the audit found errors; nothing was written"),
    ):
        done = call(*how)
        assert isinstance(done.exception, FedsrcError), (how, done.output)
        assert message in in_flags(str(done.exception))
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert "error: 2 answers have no evidence" in done.stderr
    for how in (("own.jsonl", "--shares", "1,0"), ("own.jsonl", "--shares", "a,b,c"), ("own.jsonl", "--part", "test")):
        assert call(*how).exit_code == 2
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_papers_cell_from_the_command_line(call: Any, tmp_path: Path) -> None:
    folder = Path(os.environ.get("FEDSRC_DATA", "none")) / "ragtruth"
    if not folder.is_dir():
        pytest.skip("set FEDSRC_DATA to a folder with RAGTruth to check the paper's cell")
    done = call(
        str(folder), "--task", "QA", "--generator", "mistral-7B-instruct", "--split", "train", "--format", "json"
    )
    assert done.exit_code == 0, done.output
    manifest = json.loads(done.stdout)
    assert (manifest["answers"], manifest["unsupported"], manifest["sources"]) == (839, 347, 839)
    assert len(read_answers(tmp_path / "answers.jsonl")) == 839
