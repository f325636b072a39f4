"""Where answers came from, as far as a collection says: decoding, original prompts, and the split that was made.

Mutants killed: temperatures of one generator counted for another, a missing temperature counted as zero or left out,
the prompt's text in the manifest, a digest that does not depend on the prompt or on whose it is, parts without digest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.canonical import digest, digest_bytes, file_digest
from fedsrc.data.answer_audit import audit
from fedsrc.data.prepare import prepare
from fedsrc.data.ragtruth import read_noted
from fedsrc.data.selection import Selection
from fedsrc.errors import FedsrcError

QA = {"question": "why?", "passages": "because"}
SOURCES: list[dict[str, Any]] = [
    {"source_id": "7", "task_type": "QA", "source_info": QA, "prompt": "Answer: why?"},
    {"source_id": "8", "task_type": "Summary", "source_info": "a document", "prompt": None},
    {"source_id": "9", "task_type": "Summary", "source_info": "another document"},
]
BASE: dict[str, Any] = {"split": "test", "model": "m", "response": "0123456789", "labels": []}
ROWS: list[dict[str, Any]] = [
    {**BASE, "id": "1", "source_id": "7", "temperature": 0.7},
    {**BASE, "id": "2", "source_id": "8", "temperature": 0.7, "model": "n"},
    {**BASE, "id": "3", "source_id": "9", "temperature": 1},
    {**BASE, "id": "4", "source_id": "9", "temperature": None, "response": "other"},
    {**BASE, "id": "5", "source_id": "7", "response": "another"},
]


def write(folder: Path, rows: list[Any] = ROWS, sources: list[Any] = SOURCES) -> Path:
    folder.mkdir(exist_ok=True)
    for name, values in (("response", rows), ("source_info", sources)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in values))
    return folder


def found(folder: Path) -> Any:
    noted = read_noted(folder)
    return audit([each.answer for each in noted], name="x", notes={each.answer.id: each.notes for each in noted})


def test_decoding_is_counted_by_generator(tmp_path: Path) -> None:
    made = [(each.generator, each.decoding, each.answers) for each in found(write(tmp_path / "a")).decoding]
    assert made == [("m", "", 2), ("m", "temperature 0.7", 1), ("m", "temperature 1", 1), ("n", "temperature 0.7", 1)]
    silent = [{**row, "temperature": None} for row in ROWS]
    assert found(write(tmp_path / "b", silent)).decoding == ()


def test_prompts_are_there_as_a_digest(tmp_path: Path) -> None:
    prompts = found(write(tmp_path / "a")).prompts
    one = digest_bytes(b"Answer: why?")
    assert (prompts.answers, prompts.sha256) == (2, digest({"1": one, "5": one}))
    other = [{**SOURCES[0], "prompt": "Answer: why not?"}, *SOURCES[1:]]
    assert found(write(tmp_path / "b", sources=other)).prompts.sha256 != prompts.sha256
    none = found(write(tmp_path / "c", sources=[{**each, "prompt": None} for each in SOURCES])).prompts
    assert (none.answers, none.sha256) == (0, "")


@pytest.mark.parametrize("value", ["hot", True, -0.1, 1e400, [0.7], 10**400])
def test_a_damaged_temperature_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(FedsrcError, match="temperature is not a number"):
        read_noted(write(tmp_path / "a", [{**ROWS[0], "temperature": value}]))


def test_a_damaged_prompt_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="prompt is not text"):
        read_noted(write(tmp_path / "a", sources=[{**SOURCES[0], "prompt": 3}, *SOURCES[1:]]))


def test_the_manifest_names_the_split_and_no_prompt(tmp_path: Path) -> None:
    folder, parts = write(tmp_path / "a"), tmp_path / "parts.json"
    manifest_file, manifest = prepare(str(folder), tmp_path / "out.jsonl", Selection(seed=3), parts_file=parts)
    written = json.loads(manifest_file.read_text())
    assert written == json.loads(json.dumps(manifest))
    assert written["parts"]["sha256"] == file_digest(parts)
    assert sum(written["parts"]["sources"].values()) == 3
    assert written["prompts"]["answers"] == 2
    assert "why?" not in manifest_file.read_text()
    _, plain = prepare(str(folder), tmp_path / "other.jsonl", Selection(seed=3))
    assert "parts" not in plain
