"""Labels by file: out and in again in every format, whole or not at all, each word once.

Mutants killed: a line number off by one, an answer of another round let in, half a file taken, a file taken twice,
cancelled or drafted annotations taken, "unsure" as a loss, texts changed on the way.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fedsrc.errors import FedsrcError
from fedsrc.labelling.exchange import CONFIG, new_labels, read_words, write_tasks
from fedsrc.labelling.queue import Task, tasks, waiting
from fedsrc.labelling.texts import Text, table_texts
from fedsrc.site.label_file import Label
from tests.support.hostile import HOSTILE
from tests.support.rounds import open_round, text, texts

NAMES = ["row 1", "x,y\n\"z\"", "ß ☃", "4"]  # fmt: skip
ROUND = open_round(NAMES)
HARD = {name: Text(f"q {hard}", f"e\r\n{hard}\n", f"={hard}") for name, hard in zip(NAMES, HOSTILE, strict=False)}
SAID: dict[str, float | None] = dict(zip(NAMES, [0.0, 1.0, None, 0.0], strict=True))
WORD = {0.0: "supported", 1.0: "unsupported", None: "unsure"}


def open_tasks(labels: list[Label] | None = None) -> list[Task]:
    return tasks([ROUND], labels or [])


def studio(task: dict[str, Any], word: str, **more: Any) -> dict[str, Any]:
    """An annotation as Label Studio exports it."""
    result = {"id": "a", "type": "choices", "from_name": "label", "to_name": "response", "origin": "manual",
              "value": {"choices": [word]}}  # fmt: skip
    return {**task, "annotations": [{"completed_by": 3, "was_cancelled": False, "result": [result], **more}]}


def filled(path: Path) -> None:
    """Fill in SAID where a person would."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows({**row, "label": WORD[SAID[row["id"]]], "by": "user 3"} for row in rows)
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        made = [json.dumps({**row, "label": WORD[SAID[row["id"]]], "by": "user 3"}) for row in rows]
        path.write_text("\n".join(made))
    else:
        found = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps([studio(task, WORD[SAID[task["data"]["id"]]]) for task in found]))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json"])
def test_out_and_in_again(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"tasks{suffix}"
    made = write_tasks(path, waiting(open_tasks()), HARD)
    assert made == [path, *([path.with_suffix(".xml")] if suffix == ".json" else [])]
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in made)
    filled(path)
    labels = new_labels(read_words(path, None), open_tasks(), {})
    assert {label.answer: label.loss for label in labels} == SAID
    assert {label.answer: label.shown for label in labels} == {name: each.digest for name, each in HARD.items()}
    assert {label.by for label in labels} == {"user 3"}
    assert new_labels(read_words(path, None), open_tasks(labels), {}) == []
    assert waiting(open_tasks(labels)) == []


def test_a_spreadsheet_computes_nothing_and_changes_nothing(tmp_path: Path) -> None:
    cells = ["=1+1", "'=1", "''@x", "-5", "+1", "\t=1", "\r", "'quoted'", "plain", "x" * 200_000]
    path, made = tmp_path / "t.csv", {f"-{i}": Text("", cell, cell) for i, cell in enumerate(cells)}
    write_tasks(path, tasks([open_round(list(made))], []), made)
    written = path.read_bytes()
    usual = csv.field_size_limit(1_000_000)
    rows = list(csv.reader(written.decode().splitlines()))
    csv.field_size_limit(usual)
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    path.write_bytes(written.replace(b",,\r\n", b",unsure,ada\r\n"))
    assert {word.answer: word.shown for word in read_words(path, None)} == made
    assert csv.field_size_limit() == usual


def test_a_persons_file_has_what_is_left_for_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_tasks(path, waiting(open_tasks()), HARD)
    filled(path)
    two = tasks([open_round(NAMES, twice=1.0)], [])
    labels = new_labels(read_words(path, None), two, HARD)
    assert waiting(tasks([two[0].round], labels), "user 3") == []
    with pytest.raises(FedsrcError, match="exists already"):  # it may hold labels
        write_tasks(path, waiting(two), HARD)
    path.unlink()
    write_tasks(path, waiting(tasks([two[0].round], labels), "ben"), HARD)
    assert len(read_words(path, "ben")) == 0  # not labelled yet


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".csv", 'id,label\n"x,y\n""z""",supported\nrow 9,unsure\n', r"line 4: answer 'row 9' is not in the open"),
        (".csv", "answer,label,by\nrow 1,1,ada\n4,bad,ada\n", r"f.csv line 3: label 'bad' is none"),
        (".csv", "id,label\nrow 1,1.5\n", r"line 2: label '1.5' is none"),
        (".csv", "id,label\nrow 1,nan\n", r"line 2: label 'nan' is none"),
        (".csv", "id,loss\nrow 1,1\n", r"line 2: has no 'id' or no 'label'"),
        (".jsonl", '{"id": "row 1", "label": 1}\n\n{"id": "4", "label": true}\n', r"line 3: label 'True' is none"),
        (".jsonl", '{"id": "row 1", "label": "1"}\n{', r"f.jsonl line 2: is not JSON"),
        (".jsonl", '{"id": "row 1", "label": 1, "by": "a\\u0007"}', r"f.jsonl line 1: by: must be printable"),
        (".jsonl", '{"id": "4", "label": 1, "evidence": "\\ud800", "response": ""}', "line 1: a text holds half a"),
        (".csv", 'id,label,evidence\n4,1,"a\nb"\n9,1,"c\nd"\n', "line 4: answer '9' is not in"),
        (".jsonl", '["row 1"]', r"line 1: has no 'id'"),
        (".json", "{}", r"f.json task 1: is not a task with annotations of Label Studio"),
        (".json", '[{"data": {"id": "4"}, "annotations": [{"result": [{"from_name": "label"}]}]}]', "task 1: is no"),
        (".json", '[{"id": 7, "label": "supported"}]', r"task 1: is not .*\nhint: export as JSON \(not JSON-MIN"),
        (".xls", "", r"the suffix '.xls' names no format"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, suffix: str, content: str, message: str) -> None:
    path = tmp_path / f"f{suffix}"
    path.write_text(content)
    with pytest.raises(FedsrcError, match=message):
        new_labels(read_words(path, "ada"), open_tasks(), HARD)


def test_somebody_must_have_said_it(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id,label\nrow 1,supported\n")
    with pytest.raises(FedsrcError, match="line 2: does not say who labelled"):
        read_words(tmp_path / "f.csv", None)


def test_words_and_losses(tmp_path: Path) -> None:
    said = ["Supported", " UNSUPPORTED ", "unsure", "0.25", "0", "1", ""]
    path = tmp_path / "f.csv"
    path.write_text("\ufeffid,label\n" + "".join(f"row 1,{each}\n" for each in said))
    assert [word.loss for word in read_words(path, "ada")] == [0.0, 1.0, None, 0.25, 0.0, 1.0]
    labels = new_labels(read_words(path, "ada"), open_tasks(), texts(NAMES))
    assert [label.loss for label in labels] == [0.0, 1.0, None, 0.25, 0.0, 1.0]
    assert {label.shown for label in labels} == {text("row 1").digest}


def test_of_label_studio_only_what_people_finished_counts(tmp_path: Path) -> None:
    task = {"data": {"id": "4"}, "drafts": [{"result": []}], "predictions": [{"result": []}]}
    late, early = studio(task, "unsure", updated_at="2026-01-03"), studio(task, "supported", updated_at="2026-01-02")
    gone, none = studio(task, "unsupported", was_cancelled=True), studio(task, "supported", result=[])
    other = studio(task, "unsupported", completed_by={"id": 9, "email": "ben@example.org"})
    given = [each for one in (late, early, gone, none, other) for each in one["annotations"]]
    path = tmp_path / "f.json"
    path.write_text(json.dumps([{**task, "annotations": given}, {"data": {"id": "row 1"}, "annotations": []}]))
    found = [(word.by, word.loss) for word in read_words(path, None)]
    assert found == [("ben@example.org", 1.0), ("user 3", 0.0), ("user 3", None)]
    two = studio(task, "supported")
    two["annotations"][0]["result"][0]["value"]["choices"] += ["unsure"]
    path.write_text(json.dumps([two]))
    with pytest.raises(FedsrcError, match="task 1: an annotation has several labels"):
        read_words(path, None)


def test_label_studio_takes_it(tmp_path: Path) -> None:
    """Its own package reads the configuration, the tasks and what is annotated on them."""
    interface = pytest.importorskip("label_studio_sdk.label_interface").LabelInterface(CONFIG)
    interface.validate()
    path = tmp_path / "tasks.json"
    write_tasks(path, waiting(open_tasks()), HARD)
    for task in json.loads(path.read_text(encoding="utf-8")):
        assert interface.validate_task(task, validate_regions_only=False)
        annotated = studio(task, "unsure")["annotations"][0]
        assert interface.validate_annotation(annotated)
        annotated["result"][0]["value"]["choices"] = ["fine"]
        assert not interface.validate_annotation(annotated)
    made = interface.generate_sample_annotation()
    path.write_text(json.dumps([{"data": {"id": "4"}, "annotations": [made]}]))
    assert [word.answer for word in read_words(path, "ada")] == ["4"]


def test_texts_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('id,score,question,evidence,response\na,.1,,e1,r1\nb,.2,q2,"e\n2",r2\nc,.3,q3,e3,\n')
    found = table_texts(path, ["a", "b", "c"], ["c", "b"])
    assert found == {"b": Text("q2", "e\n2", "r2"), "c": Text("q3", "e3", "")}
    with pytest.raises(FedsrcError, match="the table changed"):
        table_texts(path, ["a", "b"], ["a"])
    path.write_text("id,score,response\na,.1,r\n")
    with pytest.raises(FedsrcError, match="no column 'evidence'"):
        table_texts(path, ["a"], ["a"])
