"""Logs that Inspect, MLflow and OpenTelemetry themselves wrote become answers, and answers a certificate.

Mutants killed: a grade or a feedback turned round, a person's word taken for a score or a judge's for a label, the best
or the last of several labels instead of the worst, a label that counts although it was overridden, a score that is lost
where a person corrected the judge, an epoch as a unit of its own, a
session lost, a failed sample or trace kept or dropped without a word, a retried log counted twice, documents of another
trace, a whole number of OTLP read as text, a column that certify cannot read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.data.collection import open_collection
from fedsrc.data.logs import Reading
from fedsrc.errors import FedsrcError, UndecidedError

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the tools themselves


def fedsrc(*args: object) -> str:
    done = CliRunner().invoke(cli, [str(each) for each in args])
    assert done.exit_code == 0, done.output
    return done.output


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def certified(answers: Path, *more: object) -> str:
    """Inspect and certify a table of answers, without privacy, and verify what came of it."""
    assert "Unsupported: 25.0% of all answers" in fedsrc("inspect", answers, *more)
    run = answers.with_name("run")
    told = fedsrc("certify", answers, *more, "--target", "0.2", "--epsilon", "inf", "-o", run)
    assert "Verified" in fedsrc("verify", run, "--trust", fedsrc("keys").split()[-1])
    return told


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")


def evaluated(folder: str, form: str, *, samples: int = 4, epochs: int = 1, fails: int = -1, **metadata: Any) -> Path:
    """Have Inspect write a log: every fourth answer is wrong, and a judge says so nearly always."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score, accuracy, scorer
    from inspect_ai.solver import solver

    @solver
    def says() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            if state.sample_id == fails:
                raise ValueError("no model")
            state.output = ModelOutput.from_content("m", f"answer {state.sample_id}")
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def annotator() -> Any:
        async def score(state: Any, target: Any) -> Any:
            return Score(value="I" if int(state.sample_id) % 4 == 0 else "C")

        return score

    @scorer(metrics={"*": [accuracy()]})
    def judge() -> Any:
        async def score(state: Any, target: Any) -> Any:
            number = int(state.sample_id)
            return Score(value={"grounded": 0.3 if number % 4 == 0 else 0.5 + number % 50 / 100, "fluent": True})

        return score

    data = [Sample(id=i, input=f"question {i}?", target="t", metadata={"context": [f"d{i}", "e"], **metadata})
            for i in range(samples)]  # fmt: skip
    task = Task(dataset=MemoryDataset(data), solver=says(), scorer=[annotator(), judge()], name="rag")
    (log,) = eval(task, model="mockllm/model", log_dir=folder, log_format=form, epochs=epochs, fail_on_error=False)
    assert log.status == "success"
    return Path(folder)


@pytest.mark.parametrize("form", ["eval", "json"])
def test_an_inspect_log(form: str) -> None:
    folder = evaluated("logs", form, epochs=2, fails=3)
    (folder / "note.txt").write_text("not a log")
    found = open_collection(str(folder), reading=Reading(label_from=("annotator",), score_from=("judge.grounded",)))
    assert len(found.answers) == 6
    first = min(found.answers, key=lambda each: each.source)
    assert (first.question, first.evidence, first.response) == ("question 0?", "d0\n\ne", "answer 0")
    assert (first.loss, first.scores, first.generator, first.group) == (
        1.0, (("judge.grounded", 0.3),), "mockllm/model", "rag",
    )  # fmt: skip
    assert sorted(each.source for each in found.answers) == ["rag/0"] * 2 + ["rag/1"] * 2 + ["rag/2"] * 2
    told = " ".join(found.told)
    assert "samples that failed or were taken back: 2, left out." in told
    assert "files that are no such logs: 1" in told
    assert "6 words under 'judge.fluent' not used." in told
    assert "6 answers: their source is the sample's id." in told


def test_nobody_is_taken_for_a_person() -> None:
    folder = evaluated("logs", "eval", session_id="s1")
    found = open_collection(str(folder))
    assert {each.loss for each in found.answers} == {None}
    assert {each.source for each in found.answers} == {"s1"}
    assert dict(found.answers[1].scores) == {"annotator": 1.0, "judge.fluent": 1.0, "judge.grounded": 0.51}
    assert any("`label_from=`" in each for each in found.told)
    with pytest.raises(FedsrcError, match=r"'ann'(.|\n)*'annotator', 'judge.fluent', 'judge.grounded'"):
        open_collection(str(folder), reading=Reading(label_from=("ann",)))


def test_a_retried_log_counts_once_and_a_rescored_one_is_asked_about() -> None:
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.scorer import Score

    folder = evaluated("logs", "eval")
    (log,) = folder.glob("*.eval")
    shutil.copy(log, folder / "retried.eval")
    found = open_collection(str(folder))
    assert len(found.answers) == 4
    assert "samples that stand in several logs, after the first: 4, left out." in found.told
    again = read_eval_log(str(log))
    assert again.samples is not None
    again.samples[0].scores = {"annotator": Score(value="C")}
    write_eval_log(again, str(folder / "retried.eval"))
    with pytest.raises(FedsrcError, match="differs from that of another log"):
        open_collection(str(folder))


def test_from_an_inspect_log_to_a_certificate() -> None:
    evaluated("logs", "eval", samples=240)
    fedsrc("answers", "logs", "--label-from", "annotator", "--score-from", "judge.grounded", "-o", "a.jsonl")
    assert set(rows(Path("a.jsonl"))[0]) == {
        "id", "source", "question", "evidence", "response", "loss", "generator", "group", "judge.grounded",
    }  # fmt: skip
    assert "CERTIFIED" in certified(Path("a.jsonl"), "--score-column", "judge.grounded")


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[Any]:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_experiment("rag")
    yield mlflow
    mlflow.flush_trace_async_logging(terminate=True)


def traced(mlflow: Any, number: int, *, session: str | None = None, fails: bool = False) -> str:
    from mlflow.entities import Document, SpanType

    @mlflow.trace(span_type=SpanType.RETRIEVER)
    def retrieve(query: str) -> Any:
        return [Document(page_content=f"doc {number}"), Document(page_content="other")]

    @mlflow.trace
    def app(question: str) -> Any:
        if session:
            mlflow.update_current_trace(metadata={"mlflow.trace.session": session})
        retrieve(question)
        if fails:
            raise ValueError
        return {"answer": f"answer {number}"}

    with suppress(ValueError):
        app(f"question {number}?")
    return str(mlflow.get_last_active_trace_id())


def speak(mlflow: Any, trace: str, name: str, value: Any, kind: str = "HUMAN", who: str = "ana") -> Any:
    from mlflow.entities import AssessmentSource

    return mlflow.log_feedback(
        trace_id=trace, name=name, value=value, source=AssessmentSource(source_type=kind, source_id=who)
    )


def test_mlflow_traces(mlflow: Any) -> None:
    names = [
        traced(mlflow, 0, session="s"),
        traced(mlflow, 1, session="s"),
        traced(mlflow, 2),
        traced(mlflow, 3, fails=True),
    ]
    mlflow.flush_trace_async_logging()
    first, second, third, _ = names
    speak(mlflow, first, "correctness", False)
    speak(mlflow, first, "correctness", True, who="ben")
    speak(mlflow, first, "correctness", "yes", "LLM_JUDGE")
    wrong = speak(mlflow, second, "correctness", False)
    mlflow.override_feedback(trace_id=second, assessment_id=wrong.assessment_id, value=True, source=wrong.source)
    speak(mlflow, first, "faithfulness", 0.2, "LLM_JUDGE")
    speak(mlflow, second, "faithfulness", 1, "CODE")
    speak(mlflow, second, "faithfulness", 0.75, "LLM_JUDGE")
    judged = speak(mlflow, third, "faithfulness", 0.9, "LLM_JUDGE")
    mlflow.override_feedback(trace_id=third, assessment_id=judged.assessment_id, value=0.1, source=wrong.source)
    mlflow.log_expectation(trace_id=third, name="expected", value="x")
    found = open_collection("mlflow:rag", reading=Reading(label_from=("correctness",)))
    answers = {each.id: each for each in found.answers}
    assert set(answers) == {first, second, third}
    assert [answers[each].loss for each in (first, second, third)] == [1.0, 0.0, None]
    assert dict(answers[first].scores) == {"correctness": 1.0, "faithfulness": 0.2}
    assert dict(answers[second].scores) == {"correctness": None, "faithfulness": 0.75}
    assert dict(answers[third].scores) == {"correctness": None, "faithfulness": 0.9}
    assert [answers[each].source for each in (first, second, third)] == ["s", "s", third]
    one = answers[second]
    assert (one.question, one.evidence, one.response) == ("question 1?", "doc 1\n\nother", "answer 1")
    told = " ".join(found.told)
    for words in ("traces that failed or have not ended: 1", "assessments that are no feedback: 1",
                  "people's words that were overridden: 1",
                  "2 answers: their source is mlflow.trace.session.", "1 answer: no session",
                  "1 answer labelled more than once: the worst counts."):  # fmt: skip
        assert words in told, words
    with pytest.raises(UndecidedError, match="several names") as asked:
        open_collection("mlflow:rag")
    assert sorted(asked.value.answers.values()) == ["correctness", "faithfulness"]
    with pytest.raises(FedsrcError, match="cannot be read"):
        open_collection("mlflow:another")


def test_from_mlflow_to_a_certificate(mlflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [traced(mlflow, number, session=f"s{number}") for number in range(240)]
    mlflow.flush_trace_async_logging()
    for number, name in enumerate(names):
        bad = number % 4 == 0
        speak(mlflow, name, "hallucination", bad)
        speak(mlflow, name, "groundedness", 0.3 if bad else 0.5 + number % 50 / 100, "LLM_JUDGE")
    fedsrc("answers", "mlflow:rag", "-o", "a.jsonl")
    assert "CERTIFIED" in certified(Path("a.jsonl"))


def otlp(folder: Path, numbers: range) -> None:
    """Spans and evaluation events, written by OpenTelemetry's own exporters, a file each."""
    from opentelemetry._logs import LogRecord
    from opentelemetry.exporter.otlp.json.file._log_exporter import FileLogExporter
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    folder.mkdir()
    traces, logs = TracerProvider(), LoggerProvider()
    traces.add_span_processor(SimpleSpanProcessor(FileSpanExporter(folder / "traces.jsonl")))
    logs.add_log_record_processor(SimpleLogRecordProcessor(FileLogExporter(folder / "logs.jsonl")))
    tracer, logger = traces.get_tracer("app"), logs.get_logger("app")

    def judged(name: str, value: Any, label: str | None = None) -> None:
        attributes = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value}
        attributes |= {"gen_ai.evaluation.score.label": label} if label else {}
        logger.emit(LogRecord(event_name="gen_ai.evaluation.result", attributes=attributes))

    for number in numbers:
        bad = number % 4 == 0
        with tracer.start_as_current_span("rag"):
            with tracer.start_as_current_span("retrieve") as span:
                span.set_attribute("gen_ai.retrieval.documents", json.dumps([{"content": f"doc {number}"}]))
            with tracer.start_as_current_span("chat") as span:
                part = {"type": "text", "content": f"question {number}?"}
                span.set_attribute("gen_ai.input.messages", json.dumps([{"role": "user", "parts": [part]}]))
                part = {"type": "text", "content": f"answer {number}"}
                span.set_attribute("gen_ai.output.messages", json.dumps([{"role": "assistant", "parts": [part]}]))
                span.set_attribute("gen_ai.conversation.id", f"c{number}")
                judged("review", 0 if bad else 1, "fail" if bad else "pass")
                judged("groundedness", 0.3 if bad else 0.5 + number % 50 / 100)
    traces.shutdown()
    logs.shutdown()


def test_opentelemetry_files(tmp_path: Path) -> None:
    otlp(tmp_path / "otel", range(3))
    found = open_collection(str(tmp_path / "otel"), reading=Reading(label_from=("review",)))
    assert [(each.question, each.evidence, each.response, each.source, each.loss) for each in found.answers] == [
        (f"question {i}?", f"doc {i}", f"answer {i}", f"c{i}", float(i == 0)) for i in range(3)
    ]
    assert [dict(each.scores) for each in found.answers] == [{"groundedness": value} for value in (0.3, 0.51, 0.52)]
    assert "spans and other events that nobody evaluated: 6, left out." in found.told
    plain = open_collection(str(tmp_path / "otel" / "logs.jsonl"))
    assert [dict(each.scores)["review"] for each in plain.answers] == [0.0, 1.0, 1.0]
    assert [each.response for each in plain.answers] == [""] * 3


def test_from_opentelemetry_to_a_certificate(tmp_path: Path) -> None:
    otlp(tmp_path / "otel", range(240))
    fedsrc("answers", "otel", "--label-from", "review", "-o", "a.jsonl")
    assert "CERTIFIED" in certified(Path("a.jsonl"))
