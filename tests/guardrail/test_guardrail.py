"""The guardrail over a real socket: NONE means that every text was accepted, and nothing else ever gives NONE.

Mutants killed: a response let through without evidence, score, group, text or call id; a scorer that fails or gives NaN
and passes; one accepted text of two that lets both pass; a halted or expired gate that passes; a score read from a
header that was withheld, came twice or is no number; tool calls and images that pass; a call that shows two things and
keeps one; evidence that is used twice, kept without end or taken from the assistant; a fallback that replaces too few
texts; a scorer of another name, scale or prefix than the certificate's; headers taken without being told to trust who
calls; a text in a log or a reply; decisions that are not counted; a body of any size.

Chance of a false alarm: none; whatever takes time is waited for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import BELOW, EXPIRED, HALTED, NO_GROUP, UNLISTED, UNUSABLE
from fedsrc.gate.gate import Gate
from fedsrc.gate.service.throttle import Limits
from fedsrc.guardrail.app import (
    FAULT,
    NO_EVIDENCE,
    NO_HEADER,
    NO_TEXT,
    NOT_TEXT,
    ROUTE,
    Source,
    check_score,
    guardrail,
    scorer_of,
)
from fedsrc.guardrail.calls import MOST_CALLS, SECONDS, Calls, Shown, shown_in
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.scale import Scale
from tests.support.gate_certificates import TRUSTED, Terminal, certificate, original
from tests.support.gate_panels import by_group, by_score, claim_on
from tests.support.gate_server import Client, serving

EVIDENCE = "Paris is the capital of France."
GOOD, BAD = "Paris is the capital of France.", "Zebras invented seventeen umbrellas yesterday."
MESSAGES = [{"role": "system", "content": EVIDENCE}, {"role": "user", "content": "What is the capital?"}]
LEXICAL = scorer_of("lexical")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / CERTIFICATE
    path.write_text(original())
    return path


@pytest.fixture
def gate(file: Path) -> Gate:
    return Gate(file, trusted=TRUSTED)


@contextlib.contextmanager
def guarded(gate: Gate, source: Source, limits: Limits | None = None) -> Iterator[Client]:
    with (
        serving(gate, limits, make=lambda gate, limits: guardrail(gate, source, limits)) as port,
        contextlib.closing(Client(port)) as client,
    ):
        yield client


def ask(client: Client, kind: str, **fields: Any) -> Any:
    """Ask as the proxy does, with fields of its own that nobody described to us."""
    body = {"input_type": kind, "litellm_call_id": "one", "request_data": {"user": 1}, "litellm_version": "9", "x": [1]}
    reply = client.ask("POST", ROUTE, {**body, **fields})
    assert reply.status == 200
    return reply.json


def answered(client: Client, *texts: str, messages: Any = MESSAGES, call: str = "one", **fields: Any) -> Any:
    """Send a call's messages, then the texts that came back."""
    assert ask(client, "request", structured_messages=messages, litellm_call_id=call) == {"action": "NONE"}
    return ask(client, "response", texts=list(texts), litellm_call_id=call, structured_messages=None, **fields)


def blocked(reason: str, why: str | None = None) -> dict[str, str]:
    return {"action": "BLOCKED", "blocked_reason": reason if why is None else f"{reason} ({why})"}


PASSES = {"action": "NONE"}


# ---------------------------------------------------------------- by a scorer


def test_an_answer_passes_if_all_its_texts_are_accepted(gate: Gate) -> None:
    with guarded(gate, Source(LEXICAL)) as client:
        assert answered(client, GOOD) == answered(client, GOOD, GOOD) == PASSES
        for texts in ([BAD], [GOOD, BAD], [BAD, GOOD], [BAD, BAD]):
            assert answered(client, *texts) == blocked(BELOW)
        counted = client.ask("GET", "/metrics").body.decode()
    assert 'outcome="accepted",reason="score reaches the threshold"} 5' in counted
    assert 'outcome="abstained",reason="score below the threshold"} 5' in counted


def test_a_fallback_takes_the_place_of_every_text(gate: Gate) -> None:
    with guarded(gate, Source(LEXICAL, fallback="Ask a person.")) as client:
        assert answered(client, GOOD) == PASSES
        for texts in ([BAD], [GOOD, BAD]):
            said = answered(client, *texts)
            assert said == {"action": "GUARDRAIL_INTERVENED", "texts": ["Ask a person."] * len(texts)}
        assert answered(client, GOOD, messages=[])["action"] == "GUARDRAIL_INTERVENED"
        assert answered(client) == blocked(UNUSABLE, NO_TEXT)
        assert answered(client, GOOD, tool_calls=[{"id": "1"}]) == blocked(UNUSABLE, NOT_TEXT)


@pytest.mark.parametrize(
    "messages",
    [
        None, [], [MESSAGES[1]], [{"role": "assistant", "content": EVIDENCE}], [{"role": "system", "content": ""}],
        [{"role": "system", "content": " "}], [{"role": "system"}], [{"role": "system", "content": 7}], ["system", 7],
        [{"role": "system", "content": [{"type": "text", "text": EVIDENCE}, {"type": "image_url"}]}],
        [{"role": "system", "content": []}], [*MESSAGES, {"role": "system", "content": None}],
        [MESSAGES[0], {"role": "user", "content": [{"type": "image_url"}]}],
        [{"role": ["system"], "content": EVIDENCE}],
        [{"role": "system", "content": EVIDENCE + "\ud800"}], [{"role": "tool", "content": EVIDENCE}],
    ],
)  # fmt: skip
def test_without_evidence_nothing_passes(gate: Gate, messages: Any) -> None:
    with guarded(gate, Source(LEXICAL)) as client:
        said = answered(client, GOOD, messages=messages)
        assert said["action"] == "BLOCKED"
        assert said["blocked_reason"].startswith(UNUSABLE)
        assert answered(client, GOOD, call="two") == PASSES


def test_evidence_and_question_are_found_by_the_stated_rule() -> None:
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    rows = [
        {"role": "system", "content": "a"}, {"role": "user", "content": "first"},
        {"role": "assistant", "content": "no"}, {"role": "tool", "content": parts},
        {"role": "user", "content": "last"}, {"role": "system", "content": "d"},
    ]  # fmt: skip
    assert shown_in(rows, {"system"}) == Shown("last", "a\n\nd")
    assert shown_in(rows, {"system", "tool"}) == Shown("last", "a\n\nb\nc\n\nd")
    assert shown_in(rows[:1], {"system"}) == Shown("", "a")
    assert shown_in(rows, {"developer"}) is None


def test_the_scorer_sees_question_evidence_and_answer(gate: Gate) -> None:
    seen: list[Answer] = []
    with guarded(gate, Source(lambda answer: seen.append(answer) or 1.0)) as client:  # type: ignore[func-returns-value]
        assert answered(client, GOOD, BAD) == PASSES
    assert [(each.question, each.evidence, each.response) for each in seen] == [
        ("What is the capital?", EVIDENCE, GOOD), ("What is the capital?", EVIDENCE, BAD)
    ]  # fmt: skip


def test_evidence_is_of_one_call_and_used_once(gate: Gate) -> None:
    other = [{"role": "system", "content": BAD}, MESSAGES[1]]
    with guarded(gate, Source(LEXICAL)) as client:
        assert answered(client, GOOD) == PASSES
        assert ask(client, "response", texts=[GOOD]) == blocked(UNUSABLE, NO_EVIDENCE)
        for call, response in ((None, None), ("", ""), (None, ""), ("known", "unknown")):
            assert ask(client, "request", structured_messages=MESSAGES, litellm_call_id=call) == PASSES
            assert ask(client, "response", texts=[GOOD], litellm_call_id=response) == blocked(UNUSABLE, NO_EVIDENCE)
        ask(client, "request", structured_messages=MESSAGES)
        assert answered(client, GOOD) == PASSES  # the same, asked twice
        ask(client, "request", structured_messages=other)
        assert answered(client, GOOD) == blocked(UNUSABLE, NO_EVIDENCE)
        assert ask(client, "response", texts=[GOOD], structured_messages=MESSAGES) == PASSES


def test_what_is_kept_has_an_end() -> None:
    now = [0.0]
    calls, shown = Calls(10, lambda: now[0]), Shown("1234", "12")
    calls.keep("a", shown)
    calls.keep("b", Shown("", "1234"))
    assert calls.take("a") == shown
    calls.keep("a", shown)
    calls.keep("c", Shown("", "1"))
    assert (calls.take("b"), calls.take("a"), calls.take("c")) == (None, shown, Shown("", "1"))
    calls.keep("huge", Shown("", "12345678901"))
    assert calls.take("huge") is None
    calls.keep("late", shown)
    now[0] = SECONDS + 1
    assert calls.take("late") is None
    for i in range(MOST_CALLS + 1):
        calls.keep(str(i), Shown("", ""))
    assert (calls.take("0"), calls.take("1"), len(calls._kept)) == (None, Shown("", ""), MOST_CALLS - 1)
    now[0] *= 3
    calls.keep("new", shown)
    assert (len(calls._kept), calls.take("new")) == (1, shown)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, -0.1, None, "0.99", True, [1.0]])
def test_what_is_no_score_blocks(gate: Gate, value: Any) -> None:
    with guarded(gate, Source(lambda _: value)) as client:
        assert answered(client, GOOD) == blocked(UNUSABLE)


def test_a_scorer_that_fails_blocks_and_its_words_stay_unsaid(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    def fails(answer: Answer) -> float:
        raise ValueError(answer.response)

    caplog.set_level(logging.DEBUG)
    with guarded(gate, Source(fails)) as client:
        assert answered(client, GOOD, GOOD) == blocked(UNUSABLE, FAULT)
    assert FAULT in caplog.text
    assert "Paris" not in caplog.text


def test_a_gate_that_accepts_nothing_lets_nothing_pass(file: Path) -> None:
    now = [time.time()]
    gate = Gate(file, trusted=TRUSTED, clock=lambda: now[0])
    with guarded(gate, Source(LEXICAL)) as client:
        assert answered(client, GOOD) == PASSES
        now[0] += 400 * 86_400
        assert answered(client, GOOD) == blocked(EXPIRED)
        gate.halt()
        assert answered(client, GOOD) == blocked(HALTED)
        assert client.ask("GET", "/healthz").status == 503


# ---------------------------------------------------------------- by a header; groups


def test_a_score_from_a_header(gate: Gate) -> None:
    with guarded(gate, Source(score_header="X-Score")) as client:
        assert ask(client, "request", structured_messages=MESSAGES) == PASSES
        for value in ("1", "1.0", "0.999"):
            assert ask(client, "response", texts=[GOOD], request_headers={"x-score": value}) == PASSES
        assert ask(client, "response", texts=[GOOD], request_headers={"x-score": "0.001"}) == blocked(BELOW)
        for value in ("NaN", "Infinity", "1e999", "2"):
            assert ask(client, "response", texts=[GOOD], request_headers={"x-score": value}) == blocked(UNUSABLE)
        wrong = ["", "x", "[present]", "true", "null", "0_9", "[1]", '"1"', "1 1", "[" * 5000, "9" * 5000, "٠.٩"]
        headers = [*({"x-score": value} for value in wrong), {"x-score": "1", "X-SCORE": "1"}, {}, None, {"score": "1"}]
        for each in headers:
            assert ask(client, "response", texts=[GOOD], request_headers=each) == blocked(UNUSABLE, NO_HEADER)


def test_a_group_from_a_header_or_a_parameter(file: Path) -> None:
    file.write_text(by_group({"a": 0.2, "b": 0.9}))
    gate = Gate(file, trusted=TRUSTED)
    with guarded(gate, Source(score_header="x-score", group_header="x-group")) as client:
        said = [
            ask(client, "response", texts=[GOOD], request_headers={"x-score": "0.5", **more})
            for more in ({"x-group": "a"}, {"x-group": "b"}, {"x-group": "c"}, {"x-group": "[present]"}, {})
        ]
        assert said == [PASSES, blocked(BELOW), blocked(UNLISTED), blocked(NO_GROUP), blocked(NO_GROUP)]
    with guarded(gate, Source(score_header="x-score", group_param="ward")) as client:
        for params, expected in (
            ({"ward": "a"}, PASSES),
            ({"ward": ["a"]}, blocked(UNLISTED)),
            (None, blocked(NO_GROUP)),
        ):
            fields = {"request_headers": {"x-score": "0.5"}, "additional_provider_specific_params": params}
            assert ask(client, "response", texts=[GOOD], **fields) == expected


# ---------------------------------------------------------------- hostile requests


HOSTILE: dict[str, bytes] = {
    "no kind": b"{}", "another kind": b'{"input_type": "stream", "texts": ["Paris"]}',
    "texts of numbers": b'{"input_type": "response", "texts": [1]}',
    "a text": b'{"input_type": "response", "texts": "Paris"}',
    "headers": b'{"input_type": "response", "texts": ["Paris"], "request_headers": {"x": 1}}',
    "messages": b'{"input_type": "request", "structured_messages": "Paris"}',
    "call": b'{"input_type": "request", "litellm_call_id": 1}',
    "twice": b'{"input_type": "response", "input_type": "request", "texts": ["Paris"]}', "nothing": b"", "list": b"[]",
    "a nest": b"[" * 30_000, "not UTF-8": b'{"input_type": "\xff"}',
    "many": json.dumps({"input_type": "response", "texts": ["Paris"] * 129}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_as_described_is_an_error_which_is_no_acceptance(gate: Gate, name: str) -> None:
    with guarded(gate, Source(lambda _: 1.0)) as client:
        reply = client.ask("POST", ROUTE, HOSTILE[name])
        assert (reply.status, list(reply.json)) == (422, ["error"])
        assert b"Paris" not in reply.body
        assert answered(client, GOOD) == PASSES


def test_images_tool_calls_and_nothing_at_all_do_not_pass(gate: Gate) -> None:
    with guarded(gate, Source(lambda _: 1.0)) as client:
        for more in ({"tool_calls": [{"id": "1"}]}, {"images": ["data:"]}):
            assert answered(client, GOOD, **more) == blocked(UNUSABLE, NOT_TEXT)
        assert answered(client) == ask(client, "response", texts=None) == blocked(UNUSABLE, NO_TEXT)
        for text in ("", " ", "\ud800"):
            assert answered(client, GOOD, text)["action"] == "BLOCKED"


def test_a_large_body_is_refused(gate: Gate) -> None:
    with guarded(gate, Source(lambda _: 1.0), Limits(max_bytes=1000, rate=1e9)) as client:
        body = {"input_type": "request", "structured_messages": [{"role": "system", "content": "x" * 1000}]}
        assert client.ask("POST", ROUTE, body).status == 413


def test_no_text_is_in_the_log(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with guarded(gate, Source(LEXICAL)) as client:
        assert answered(client, GOOD) == PASSES
        assert answered(client, BAD) == blocked(BELOW)
    assert "Paris" not in caplog.text
    assert "Zebra" not in caplog.text


def test_its_description_says_that_texts_come_in(gate: Gate) -> None:
    with guarded(gate, Source(LEXICAL)) as client:
        told = client.ask("GET", "/openapi.json").json
        assert "answers come in" in told["info"]["description"]
        assert set(told["paths"][ROUTE]["post"]["responses"]) == {
            "200",
            "408",
            "413",
            "421",
            "422",
            "429",
            "431",
            "503",
        }
    with serving(gate) as port, contextlib.closing(Client(port)) as plain:
        assert plain.ask("POST", ROUTE, {"input_type": "request"}).status == 404


# ---------------------------------------------------------------- which score it is


def test_the_scorer_is_the_score_that_was_certified(file: Path) -> None:
    def check(text: str, scorer: str | None, **claim: str) -> None:
        file.write_text(text)
        check_score(Gate(file, trusted=TRUSTED, claim=claim), scorer, claim)

    named = certificate(claim={**json.loads(original())["claim"], "score": "lexical"})
    check(named, "lexical")
    check(certificate(claim=claim_on(Scale(), column="lexical")), "lexical")
    check(by_score({"score": (Scale(), 0.4, ()), "lexical": (Scale(), 0.5, ())}, "lexical"), "lexical")
    check(original(), "lexical", score="lift")
    check(original(), None, column="score")
    for text, scorer in (
        (original(), "lexical"), (named, "familiarity"), (named, None),
        (by_score({"lexical": (Scale(), 0.4, ()), "other": (Scale(), 0.5, ())}, "other"), "lexical"),
        (by_score({"score": (Scale(), 0.4, ()), "other": (Scale(), 0.5, ())}, "other"), "lift"),
    ):  # fmt: skip
        with pytest.raises(FedsrcError, match="the certificate's score is called"):
            check(text, scorer)
    low = Scale(worst=1.0, best=0.0)
    with pytest.raises(FedsrcError, match="not on the scale 0:1"):
        check(certificate(claim=claim_on(low, score="lexical")), "lexical")
    with pytest.raises(FedsrcError, match="or of prefixes"):
        check(by_score({"score": (Scale(), 0.4, ()), "lexical": (Scale(), 0.5, (20,))}, "lexical"), "lexical")


def test_what_cannot_be_guarded_is_said(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fedsrc, base = Terminal(monkeypatch, capsys), ("gate", "guard", str(file), "--trust", TRUSTED[0])
    header, trusted = ("--score-header", "x-score"), "--trust-callers"
    for options, words in {
        (): "a score comes from a scorer or from a header",
        ("--scorer", "lexical", *header, trusted): "a score comes from a scorer or from a header",
        header: "whoever calls the proxy sets its headers",
        ("--scorer", "lexical", "--group-header", "x"): "whoever calls the proxy sets its headers",
        ("--scorer", "lexical"): "not 'lexical'",
        (*header, trusted): "--claim 'score=lift'",
        ("--scorer", "lift"): "lift needs a model",
        ("--scorer", "magic"): "there is no score 'magic'",
        ("--scorer", "lexical", "--fallback", " "): "the fallback is empty",
        ("--scorer", "lexical", "--group-param", "a", "--group-header", "b", trusted): "a group comes from a header or",
        ("--scorer", "lexical", "--claim", "score=other"): "its score is 'lift', not 'other'",
    }.items():
        done = fedsrc(*base, *options)
        assert (done.status, words in done.err) == (2, True), (options, done.err)


def test_the_command_guards_halts_and_stops(file: Path) -> None:
    command = [sys.executable, "-m", "fedsrc.cli", "gate", "guard", str(file), "--trust", TRUSTED[0], "--port", "0"]
    command += ["--scorer", "lexical", "--evidence", "tool", "--claim", "score=lift", "--format", "json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        port = int(json.loads(running.stdout.readline())["address"].removeprefix("http://127.0.0.1:"))
        shown = [{"role": "tool", "content": EVIDENCE}, MESSAGES[1]]
        with contextlib.closing(Client(port)) as client:
            assert answered(client, GOOD, messages=shown) == PASSES
            assert answered(client, BAD, messages=shown) == blocked(BELOW)
            assert answered(client, GOOD) == blocked(UNUSABLE, NO_EVIDENCE)
            running.send_signal(signal.SIGUSR1)
            end = time.monotonic() + 60
            while answered(client, GOOD, messages=shown) != blocked(HALTED):
                assert time.monotonic() < end
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        assert running.stderr is not None
        assert "Paris" not in running.stderr.read()
    finally:
        running.kill()
        running.communicate()
