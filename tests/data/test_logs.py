"""Logs of other tools, through small structures of their forms: labels, scores, sources, and what is told.

Mutants killed: a label turned round, the best or the last of several labels, two names' labels taken for one, what
somebody said of a word overruled, a direction that nobody said, a judge's word as a label, a person's as a score, an
unreadable score as 0, the first of several scores, NaN in a file, a column whose type one row decides, a field of
answers overwritten by a score, a source lost or made up, something left out without a word, texts of another trace, a
file of answers taken for a log, a pipe that is waited for.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.cli.answers import answers_command
from fedsrc.cli.main import cli
from fedsrc.data import inspect_logs, mlflow_traces
from fedsrc.data.answers import Answer
from fedsrc.data.collection import Collection, open_collection
from fedsrc.data.logs import Entry, Read, Reading, Source, Word, answers_of, score_of, text_in
from fedsrc.errors import FedsrcError, MissingExtraError, UndecidedError
from fedsrc.labelling.texts import table_texts
from fedsrc.records.columns import Columns
from fedsrc.records.table import frame_records, read_records

NAME, VALUE, LABEL = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"


def read(*words: Word, **how: Any) -> Read:
    return answers_of([Entry("a", words)], Reading(**how), "the log", {})


def loss(*words: Word, **how: Any) -> float | None:
    return read(*words, **how).answers[0].loss


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("correctness", True, 0.0), ("is_correct", False, 1.0), ("hallucination", True, 1.0),
        ("hallucinated", "no", 0.0), ("groundedness", 0.25, 0.75), ("hallucination", 0.25, 0.25),
        ("any", "supported", 0.0), ("any", "Fabricated", 1.0), ("any", "pass", 0.0), ("any", "fail", 1.0),
        ("any", "unsure", 1.0), ("any", None, None), ("any", math.nan, None), ("any", " ", None),
        ("faithfulness", "0", 1.0),
    ],
)  # fmt: skip
def test_what_a_label_means(name: str, value: Any, expected: float | None) -> None:
    assert loss(Word(name, value, human=True)) == expected


@pytest.mark.parametrize("value", [1, 0, True, "yes", 0.5, "0"])
def test_a_direction_that_nobody_said_is_asked_for(value: Any) -> None:
    word = Word("rating", value, human=True)
    with pytest.raises(UndecidedError, match="'rating' does not say whether 1") as asked:
        read(word)
    assert [*asked.value.answers.values()] == ["1", "0"]
    assert loss(word, unsupported=("1",)) == 1 - (loss(word, unsupported=("0",)) or 0)


def test_words_of_ones_own() -> None:
    strange = [Entry("a", (Word("x", "meh", human=True),)), Entry("b", (Word("x", 4, human=True),))]
    with pytest.raises(FedsrcError, match=r"the log, answer a: nobody said what the label 'meh' or '4' means"):
        answers_of(strange, Reading(), "the log", {})
    found = answers_of(strange, Reading(unsupported=("meh",), supported=("4",)), "the log", {})
    assert [each.loss for each in found.answers] == [1.0, 0.0]
    assert loss(Word("x", "fail", human=True), supported=("fail",)) == 0.0
    with pytest.raises(FedsrcError, match="both"):
        Reading(unsupported=("x",), supported=("X",))


@given(st.lists(st.sampled_from(["supported", "unsupported", "unsure", None]), max_size=5))
def test_of_several_labels_the_worst_counts(said: list[str | None]) -> None:
    """Whatever their order; one that is empty is none."""
    there = [each for each in said if each]
    expected = max((float(each != "supported") for each in there), default=None)
    assert loss(Word("j", 1, human=False), *(Word("x", each, human=True) for each in said)) == expected


def test_labels_of_two_names_are_read_by_each_name() -> None:
    words = (Word("hallucination", True, human=True), Word("correct", True, human=True))
    with pytest.raises(UndecidedError, match="several names"):
        read(*words)
    for order in (("correct", "hallucination"), ("hallucination", "correct")):
        assert loss(*words, label_from=order) == 1.0
    assert loss(*words, label_from=("correct",)) == 0.0
    assert read(*words, label_from=("correct",)).answers[0].scores == ()
    assert "1 word under 'hallucination' not used." in read(*words, label_from=("correct",)).told


def test_a_judge_is_never_a_label_nor_a_person_a_score() -> None:
    words = (Word("correct", False, human=False), Word("correct", True, human=True))
    (answer,) = read(*words).answers
    assert (answer.loss, answer.scores) == (0.0, (("correct", 0.0),))
    with pytest.raises(FedsrcError, match="nobody but judges spoke under 'correct'"):
        read(words[0], label_from=("correct",))
    with pytest.raises(FedsrcError, match="no judge's score is called 'correct'"):
        read(words[1], score_from=("correct",))
    unsaid = read(Word("correct", True))
    assert (unsaid.answers[0].loss, unsaid.answers[0].scores) == (None, (("correct", 1.0),))
    assert "Nobody is said to be a person" in unsaid.told[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 0.5), (7, 7.0), ("0.5", 0.5), (True, 1.0), ("no", 0.0), ("Pass", 1.0), ("partially correct", 0.5),
     (math.nan, None), (math.inf, None), ("1e999", None), (10**400, None), ("fine", None), (None, None),
     ([1], None), ({}, None)],
)  # fmt: skip
def test_scores_are_numbers_or_missing(value: Any, expected: float | None) -> None:
    assert score_of(value) == expected


@pytest.mark.parametrize("odd", ["text", [1], None, "NaN", True, "0.5"])
def test_one_answer_does_not_change_how_others_are_read(odd: Any, tmp_path: Path) -> None:
    """Its words, odd or not, leave the others' rows as they were, and their columns numbers."""

    def read_with(*more: Any) -> list[bytes]:
        rows = [{NAME: name, VALUE: value, "trace_id": f"{i}"} for i, word in enumerate([0, 0.25, 1, *more])
                for name, value in (("j", word), ("correct", i % 2))]  # fmt: skip
        lines(tmp_path / "log.jsonl", rows)
        asked = [str(tmp_path / "log.jsonl"), "--label-from", "correct", "-o", str(tmp_path / "a.jsonl")]
        done = CliRunner().invoke(answers_command, asked)
        assert done.exit_code == 0, done.output
        return (tmp_path / "a.jsonl").read_bytes().splitlines()

    before, after = read_with(), read_with(odd)
    assert after[:3] == before
    assert pl.read_ndjson(tmp_path / "a.jsonl")["j"].dtype == pl.Float64
    found = read_records(tmp_path / "a.jsonl", columns=Columns(score="j"), missing="keep")
    assert found.score.tolist() == [0.0, 0.25, 1.0, {"True": 1.0, "0.5": 0.5}.get(str(odd), -1.0)]
    assert found.loss.tolist() == [1, 0, 1, 0]


def test_the_last_score_counts_and_fields_of_answers_are_safe() -> None:
    words = [Word(name, value, human=False) for name, value in
             (("id", 0.1), ("j", 0.2), ("loss", 0.3), ("loss_score", 0.4), ("j", 0.5), ("", 0.6))]  # fmt: skip
    found = dict(read(*words).answers[0].scores)
    assert found == {"score": 0.6, "id_score": 0.1, "j": 0.5, "loss_score": 0.3, "loss_score_score": 0.4}


def test_sources_are_told() -> None:
    entries = [Entry("a", (), Source("session.id", "s")), Entry("b", (), Source("session.id", "s")), Entry("c", ())]
    found = answers_of(entries, Reading(), "x", {"broken ones": 3, "others": 0})
    assert [each.source for each in found.answers] == ["s", "s", "c"]
    assert found.told[:3] == (
        "broken ones: 3, left out.",
        "1 answer: no session, person or question is named, so each is a source of its own; `source_from=` names a"
        " field.",
        "2 answers: their source is session.id.",
    )
    fields = {"user_id": 7, "session_id": " ", "flag": True, "other": "o"}
    assert Reading().source(fields, ("session_id", "user_id")) == Source("user_id", "7")
    assert Reading(source_from="other").source(fields, ("user_id",)) == Source("other", "o")
    assert Reading(source_from="flag").source(fields, ("user_id",)) is None
    with pytest.raises(FedsrcError, match="no answer has a field 'nothing'"):
        answers_of(entries[2:], Reading(source_from="nothing"), "x", {})
    with pytest.raises(FedsrcError, match="no answers in it; broken ones: 3"):
        answers_of([], Reading(), "x", {"broken ones": 3})
    with pytest.raises(FedsrcError, match="id 'a' occurs twice"):
        answers_of([entries[0]] * 2, Reading(), "x", {})
    with pytest.raises(FedsrcError, match="x, answer a: response holds half a character"):
        answers_of([Entry("a", (), response="\ud800")], Reading(), "x", {})


def test_texts_of_inputs_and_documents() -> None:
    assert text_in([{"role": "user", "parts": [{"type": "text", "content": "a"}]}]) == "a"
    assert text_in([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]) == "system: a\n\nuser: b"
    assert text_in({"k": 1, "question": "why?"}, ("question",)) == "why?"
    assert text_in([[{"page_content": "d"}], None, "e"]) == "d\n\ne"
    assert text_in({"k": 1}) == '{"k": 1}'
    deep: Any = "x"
    for _ in range(900):
        deep = [{"content": deep}]
    assert text_in(deep) == "(nested too deep)"


def test_inspect_samples() -> None:
    """The grades of Inspect, scorers with several values, messages as input; the question is the source."""
    scores = {"human": "I", "judge": {"a": "P", "b": 0.5}, "other": "N"}
    sample = SimpleNamespace(
        id=7, epoch=2, uuid=None, input=[SimpleNamespace(role="user", text="why?")],
        metadata={"documents": [{"content": "d"}]}, output=SimpleNamespace(completion="because"),
        scores={name: SimpleNamespace(value=value) for name, value in scores.items()},
    )  # fmt: skip
    entry = inspect_logs.entry_of(sample, "t", "m", Reading())
    (answer,) = answers_of([entry], Reading(label_from=("human",)), "x", {}).answers
    assert answer == Answer(
        id="t/m/7/2", source="t/7", question="why?", evidence="d", response="because", loss=1.0, generator="m",
        group="t",
        scores=(("judge.a", 0.5), ("judge.b", 0.5), ("other", 0.0)),
    )  # fmt: skip
    with pytest.raises(FedsrcError, match="label 'partially correct' means"):
        answers_of([entry], Reading(label_from=("judge.a",)), "x", {})
    assert inspect_logs.entry_of(sample, "t", "m", Reading(source_from="patient")).source is None


def test_mlflow_structures() -> None:
    def said(name: str, value: Any, kind: str, time: int, *, valid: bool | None = True) -> Any:
        source = SimpleNamespace(source_type=kind)
        return SimpleNamespace(name=name, value=value, source=source, create_time_ms=time, valid=valid, feedback=1)

    def trace(name: str, state: str, *assessments: Any) -> Any:
        spans = [SimpleNamespace(span_type="RETRIEVER", outputs=[{"page_content": name}]),
                 SimpleNamespace(span_type="LLM", outputs="no")]  # fmt: skip
        info = SimpleNamespace(trace_id=name, state=state, assessments=list(assessments), tags={"user_id": "u"},
                               trace_metadata={"mlflow.trace.session": "s"})  # fmt: skip
        data = SimpleNamespace(
            request='{"messages": [{"role": "user", "content": "why?"}]}', response='"so"', spans=spans
        )
        return SimpleNamespace(info=info, data=data)

    entries, skipped = mlflow_traces.entries_of(
        [trace("a", "OK", said("j", 0.2, "LLM_JUDGE", 9, valid=False), said("j", 0.7, "CODE", 3),
               said("j", 0, "HUMAN", 1, valid=False),
               said("correct", True, "SOURCE_TYPE_UNSPECIFIED", 1, valid=None), SimpleNamespace(create_time_ms=None)),
         trace("b", "ERROR"), trace("c", "IN_PROGRESS")], Reading(),
    )  # fmt: skip
    assert skipped == {"traces that failed or have not ended": 2, "assessments that are no feedback": 1,
                       "people's words that were overridden": 1}  # fmt: skip
    (answer,) = answers_of(entries, Reading(label_from=("correct",)), "x", skipped).answers
    assert answer == Answer(
        id="a", source="s", question="why?", evidence="a", response="so", loss=0.0, scores=(("j", 0.2),)
    )


def attributes(**values: Any) -> list[Any]:
    return [{"key": name.replace("__", "."), "value": value} for name, value in values.items()]


def evaluation(name: str, value: Any, span: str, **more: Any) -> dict[str, Any]:
    given = [{"key": NAME, "value": {"stringValue": name}}, {"key": VALUE, "value": value}]
    return {"traceId": "AB", "spanId": span, "attributes": given, **more}


def events(path: Path, rows: list[Any], **how: Any) -> Collection:
    return open_collection(str(lines(path, rows)), reading=Reading(**how))


def test_otlp_lines(tmp_path: Path) -> None:
    """As the specification writes them: whole numbers as text; an evaluation as a record or as an event of the span."""
    other = {"name": "x", "attributes": attributes(output__value={"stringValue": "no"})}
    event = {"name": "e", "attributes": evaluation("correct", {"boolValue": False}, "")["attributes"]}
    span = {"traceId": "ab", "spanId": "01", "events": [other, event],
            "attributes": attributes(output__value={"stringValue": "so"},
                                     session__id={"stringValue": "s"})}  # fmt: skip
    found = {"traceId": "ab", "spanId": "02", "attributes": attributes(retrieval__documents={"arrayValue": {"values": [
        {"kvlistValue": {"values": attributes(content={"stringValue": "d"})}}]}})}  # fmt: skip
    other = {"traceId": "cd", "spanId": "01", "attributes": attributes(retrieval__documents={"stringValue": "no"})}
    logs = [evaluation("j", {"intValue": "1"}, "01"), evaluation("j", {"doubleValue": 0.5}, "99"),
            {"attributes": evaluation("j", {"intValue": "1"}, "")["attributes"]}]  # fmt: skip
    rows = [{"resourceSpans": [{"scopeSpans": [{"spans": [span, found, other]}]}]},
            {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}, {}]}]}, {"resourceMetrics": []}]  # fmt: skip
    read = events(tmp_path / "a.jsonl", rows, label_from=("correct",))
    first, second = sorted(read.answers, key=lambda each: each.id)
    assert (first.id, first.source, first.evidence, first.response, first.loss) == ("ab/01", "s", "d", "so", 1.0)
    assert (dict(first.scores), dict(second.scores)) == ({"j": 1.0}, {"j": 0.5})
    assert (second.id, second.loss, second.response) == ("ab/99", None, "")
    assert read.told[:2] == ("evaluations without a name, or without trace and span: 1, left out.",
                             "spans and other events that nobody evaluated: 3, left out.")  # fmt: skip


def test_flat_lines_and_annotations(tmp_path: Path) -> None:
    link = {"trace_id": "0xAB", "span_id": "0x1"}
    rows: list[Any] = [
        {**link, "attributes": {NAME: "j", VALUE: 0.5, LABEL: "pass"}},
        {**link, "attributes": {NAME: "k", LABEL: "pass"}},
        {**link, NAME: "review", VALUE: 1, LABEL: "unsupported"},
        {"context": link, "attributes": {"input.value": "why?", "retrieval.documents.0.document.content": "d"}},
    ]
    (answer,) = events(tmp_path / "flat.jsonl", rows, label_from=("review",)).answers
    assert (answer.id, answer.question, answer.evidence, answer.loss) == ("ab/1", "why?", "d", 1.0)
    assert dict(answer.scores) == {"j": 0.5, "k": 1.0}
    phoenix: list[dict[str, Any]] = [
        {"span_id": "1", "annotator_kind": "HUMAN", "annotation_name": "quality", "label": "hallucinated", "score": 0},
        {"span_id": "1", "annotator_kind": "LLM", "name": "quality", "result": {"label": "factual", "score": 1}},
    ]
    langfuse = [{"traceId": "1", "source": "ANNOTATION", "name": "quality", "stringValue": "hallucinated", "value": 0},
                {"traceId": "1", "source": "EVAL", "name": "quality", "value": 1}]  # fmt: skip
    for name, long in (("phoenix", phoenix), ("langfuse", langfuse)):
        (answer,) = events(tmp_path / f"{name}.jsonl", long).answers
        assert (answer.loss, dict(answer.scores)) == (1.0, {"quality": 1.0}), name
    pl.DataFrame([phoenix[0], {**phoenix[0], "annotator_kind": "LLM", "label": "", "score": 1}]).write_csv(
        tmp_path / "p.csv"
    )
    (answer,) = open_collection(str(tmp_path / "p.csv")).answers
    assert (answer.loss, dict(answer.scores)) == (1.0, {"quality": 1.0})
    with pytest.raises(FedsrcError, match="not every row is by HUMAN"):
        frame_records(pl.read_csv(tmp_path / "p.csv"))


@pytest.mark.parametrize(
    "row",
    [{"resourceLogs": 3}, {"resourceLogs": [3]}, {"resourceSpans": [{"scopeSpans": [{"spans": [[]]}]}]},
     {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": [{"value": {}}]}]}]}]},
     {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": [{"key": "k", "value": {"arrayValue": 1}}]}]}]}]},
     {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": [{"key": ["k"], "value": {}}]}]}]}]}],
)  # fmt: skip
def test_damaged_lines_are_named(tmp_path: Path, row: Any) -> None:
    with pytest.raises(FedsrcError, match="line 1: is not OTLP"):
        events(tmp_path / "a.jsonl", [row])


def test_what_is_no_log(tmp_path: Path) -> None:
    """A file of answers stays one, whatever it holds besides; labels are named of logs; nobody waits for a pipe."""
    own = lines(
        tmp_path / "own.jsonl", [{"evidence": "e", "response": "r", "trace_id": "1", "attributes": {}, NAME: "x"}]
    )
    assert open_collection(str(own)).logged is False
    with pytest.raises(FedsrcError, match="this is no log"):
        open_collection(str(own), reading=Reading(label_from=("x",)))
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(FedsrcError, match="is a pipe"):
        open_collection(str(tmp_path / "pipe.json"))
    assert not inspect_logs.is_inspect(tmp_path / "pipe.json")
    (tmp_path / "log.json").write_text('{\n "version": 2,\n "status": "success", "eval": {}}')
    assert inspect_logs.is_inspect(tmp_path / "log.json")


@pytest.mark.parametrize(("what", "library"), [("log.eval", "inspect-ai"), ("mlflow:rag", "mlflow")])
def test_a_missing_library_is_named(what: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mlflow", "inspect_ai", "inspect_ai.log"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    Path("log.eval").write_bytes(b"PK")
    with pytest.raises(MissingExtraError, match=f"{library} is not installed"):
        open_collection(what)


def test_a_command_writes_only_what_the_log_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers without texts are told, not refused, and are not one source although they share no evidence."""
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "log.jsonl", [{NAME: name, VALUE: value, "trace_id": str(i)} for i in range(6)
                                   for name, value in (("correct", i % 2), ("faithfulness", i / 10))])  # fmt: skip
    done = CliRunner().invoke(answers_command, ["log.jsonl", "--label-from", "correct", "--join-sources"])
    assert done.exit_code == 0, done.output
    assert "log.jsonl: 6 answers of 6 sources; 6 labelled, 3 of them unsupported (50.0%)." in done.stderr
    assert "note: 6 answers have no evidence" in done.stderr
    assert "--source-from names a field" in done.stderr
    assert done.stderr.endswith("Next: fedsrc inspect answers.jsonl\n")
    rows = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert [*rows[3]] == ["id", "source", "evidence", "response", "loss", "generator", "faithfulness"]
    assert json.loads(Path("answers.jsonl.manifest.json").read_text())["read"]["label_from"] == ["correct"]
    assert read_records(Path("answers.jsonl")).loss.tolist() == [1, 0] * 3
    assert CliRunner().invoke(answers_command, ["log.jsonl", "-o", "log.jsonl"]).exit_code == 1


def test_from_a_log_without_labels_to_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round opens on the answers of a log that nobody labelled, and people are shown their texts. A question that is
    not there is no source that answers share."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    lines(tmp_path / "log.jsonl", [
        {"trace_id": f"{i}", NAME: "groundedness", VALUE: i * 37 % 100 / 100, "output.value": f"answer {i}",
         "input.value": f"why {i}?" if i % 2 else ""}
        for i in range(400)
    ])  # fmt: skip
    on_demand = "certify a.jsonl --labels on-demand --target 0.2 --epsilon 4 --min-acceptance 0.2 -o run"
    for command in ("answers log.jsonl -o a.jsonl", on_demand, "label a.jsonl -o run --export tasks.csv"):
        done = CliRunner().invoke(cli, command.split())
        assert done.exit_code == 0, done.output
    tasks = pl.read_csv("tasks.csv", schema_overrides={"id": pl.String})
    assert tasks.height > 10
    assert (tasks["response"] == "answer " + tasks["id"]).all()


EXPORTS: dict[str, tuple[dict[str, Any], str]] = {
    "ragas": ({"user_input": "q", "retrieved_contexts": ["a", "b"], "response": "r", "faithfulness": 0.5},
              "faithfulness"),
    "deepeval": ({"input": "q", "actual_output": "r", "retrieval_context": ["a", "b"], "Faithfulness Score": 0.5},
                 "Faithfulness Score"),
    "phoenix": ({"input": "q", "output": "r", "context": "a\n\nb", "eval.Groundedness": 0.5}, "eval.Groundedness"),
    "langsmith": ({"question": "q", "answer": "r", "contexts": ["a", "b"], "feedback.faithfulness": 0.5},
                  "feedback.faithfulness"),
}  # fmt: skip


@pytest.mark.parametrize("tool", EXPORTS)
def test_exported_tables(tool: str, tmp_path: Path) -> None:
    """Their scores are found, people's annotations are labels, and people who label see the texts."""
    row, score = EXPORTS[tool]
    path = lines(tmp_path / "t.jsonl", [{**row, "annotation_label": "hallucinated"}])
    found = read_records(path)
    assert (found.columns.name("score"), found.score.tolist(), found.loss.tolist()) == (score, [0.5], [1.0])
    text = table_texts(path, ["0"], ["0"])["0"]
    assert (text.question, text.evidence, text.response) == ("q", "a\n\nb", "r")
    with pytest.raises(FedsrcError, match="may each be the response"):
        table_texts(lines(path, [{"evidence": "e", "answer": "a", "output": "o"}]), ["0"], ["0"])
