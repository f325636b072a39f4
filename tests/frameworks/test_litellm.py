"""A real LiteLLM proxy between a client and a model, and the guardrail behind it: what reaches the client.

Mutants killed: a route, a field or an action that the proxy does not know; evidence that is not found in what it really
sends; an answer that is not accepted and reaches the client, whole, in part, as one of several choices or as a stream;
a proxy that goes on without its guardrail.

The model is a stand-in that says what it is told to; everything listens on this machine, and nothing else is asked.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedsrc.protocol.names import CERTIFICATE
from tests.support import ROOT
from tests.support.gate_certificates import TRUSTED, original

PATIENCE = 180.0
EVIDENCE = "Paris is the capital of France."
GOOD, BAD, INSTEAD = "Paris is the capital of France.", "Zebras invented umbrellas yesterday.", "Ask a person."
SCORER = ("--scorer", "lexical", "--claim", "score=lift")
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "LITELLM_MODE": "PRODUCTION",
    "NO_PROXY": "*", "PYTHONWARNINGS": "ignore",
}  # fmt: skip


class Model(BaseHTTPRequestHandler):
    """Says what the last message asks for, one choice for each line of it."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = asked["messages"][-1]["content"].splitlines()
        if asked.get("stream"):
            self._start("text/event-stream")
            for i, text in enumerate(said):
                for word in text.split(" "):
                    self._piece({"index": i, "delta": {"content": f"{word} "}, "finish_reason": None})
            for i in range(len(said)):
                self._piece({"index": i, "delta": {}, "finish_reason": "stop"})
            self.wfile.write(b"data: [DONE]\n\n")
            return
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for i, text in enumerate(said)
        ]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self._start("application/json")
        self.wfile.write(json.dumps({**_reply("chat.completion"), "choices": choices, "usage": usage}).encode())

    def _start(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()

    def _piece(self, choice: Any) -> None:
        piece = json.dumps({**_reply("chat.completion.chunk"), "choices": [choice]})
        self.wfile.write(f"data: {piece}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        pass


def _reply(kind: str) -> dict[str, Any]:
    return {"id": "x", "object": kind, "created": 1, "model": "m"}


class Said(NamedTuple):
    """What a client got."""

    status: int
    body: str

    @property
    def texts(self) -> list[str]:
        return [each["message"]["content"] for each in json.loads(self.body)["choices"]]

    @property
    def pieces(self) -> str:
        """The text of a stream."""
        lines = [line.removeprefix("data: ") for line in self.body.splitlines() if line.startswith("data: {")]
        found = [
            choice["delta"].get("content") or "" for line in lines for choice in json.loads(line).get("choices", [])
        ]
        return "".join(found)


class Proxy(NamedTuple):
    """A proxy, and the process of the guardrail behind it."""

    port: int
    guard: subprocess.Popen[str]

    def ask(self, *texts: str, evidence: str = EVIDENCE, headers: dict[str, str] | None = None, **more: Any) -> Said:
        rows = [{"role": "system", "content": evidence}] * bool(evidence) + [
            {"role": "user", "content": "\n".join(texts)}
        ]
        body = {"model": "m", "messages": rows, "n": len(texts), **more}
        own = {"authorization": "Bearer sk-test", "content-type": "application/json", **(headers or {})}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(), own
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return Said(reply.status, reply.read().decode())
        except urllib.error.HTTPError as error:
            return Said(error.code, error.read().decode())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def started(command: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, text=True, **more)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def proxied(folder: Path, *options: str) -> Iterator[Proxy]:
    """Start model, guardrail and proxy, and wait for them."""
    (folder / CERTIFICATE).write_text(original())
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    guard = [sys.executable, "-m", "fedsrc.cli", "gate", "guard", str(folder / CERTIFICATE), "--trust", TRUSTED[0]]
    guard += ["--port", "0", "--format", "json", *options]
    port, config, log = free_port(), folder / "config.yaml", folder / "proxy.log"
    litellm = [str(Path(sys.executable).with_name("litellm")), "--config", str(config), "--telemetry", "False"]
    litellm += ["--host", "127.0.0.1", "--port", str(port)]
    with started(guard, stdout=subprocess.PIPE) as guarding:
        assert guarding.stdout is not None
        address = json.loads(guarding.stdout.readline())["address"]
        config.write_text(settings(f"http://127.0.0.1:{model.server_port}/v1", address))
        with log.open("w") as lines, started(litellm, stdout=lines, stderr=lines, env={**os.environ, **QUIET}) as proxy:
            end = time.monotonic() + PATIENCE
            while not answers(port):
                assert proxy.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            try:
                yield Proxy(port, guarding)
            finally:
                model.shutdown()
                model.server_close()


def settings(model: str, guard: str) -> str:
    """The configuration that the page on the gate points at, with the addresses of this test."""
    text = (ROOT / "examples" / "frameworks" / "litellm.yaml").read_text(encoding="utf-8")
    for place, address in (("http://127.0.0.1:8000/v1", model), ("http://127.0.0.1:8322", guard)):
        assert text.count(place) == 1
        text = text.replace(place, address)
    return text


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=10):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def blocking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(tmp_path_factory.mktemp("blocking"), *SCORER) as found:
        yield found


def held_back(said: Said, reason: str) -> bool:
    """Return whether an error with a reason came, and nothing of the answer."""
    return said.status >= 400 and reason in said.body and "Zebra" not in said.body


def test_an_accepted_answer_passes(blocking: Proxy) -> None:
    said = blocking.ask(GOOD)
    assert (said.status, said.texts) == (200, [GOOD])


def test_an_answer_that_is_not_accepted_is_blocked(blocking: Proxy) -> None:
    said = blocking.ask(BAD)
    assert said.status == 400
    assert held_back(said, "score below the threshold")
    assert blocking.ask(GOOD).status == 200


def test_one_choice_of_two_blocks_both(blocking: Proxy) -> None:
    assert blocking.ask(GOOD, GOOD).texts == [GOOD, GOOD]
    assert held_back(blocking.ask(GOOD, BAD), "score below the threshold")
    assert held_back(blocking.ask(BAD, GOOD), "score below the threshold")


def test_without_evidence_nothing_passes(blocking: Proxy) -> None:
    assert held_back(blocking.ask(GOOD, evidence=""), "no usable score (no evidence is known of this call)")


def test_a_call_id_that_the_client_chose_twice(blocking: Proxy) -> None:
    for _ in range(2):  # one after the other
        assert blocking.ask(GOOD, headers={"x-litellm-call-id": "mine"}).texts == [GOOD]


def test_a_stream_is_shown_when_it_was_accepted_and_not_before(blocking: Proxy) -> None:
    assert blocking.ask(GOOD, stream=True).pieces.strip() == GOOD
    said = blocking.ask(BAD, stream=True)
    assert (said.pieces, "Zebra" in said.body, "score below the threshold" in said.body) == ("", False, True)
    both = blocking.ask(GOOD, BAD, stream=True)
    assert (both.pieces, "score below the threshold" in both.body) == ("", True)


def test_a_fallback_takes_their_places(tmp_path: Path) -> None:
    with proxied(tmp_path, *SCORER, "--fallback", INSTEAD) as proxy:
        assert proxy.ask(GOOD).texts == [GOOD]
        assert proxy.ask(BAD).texts == [INSTEAD]
        assert proxy.ask(GOOD, BAD).texts == [INSTEAD, INSTEAD]
        assert proxy.ask(GOOD, evidence="").texts == [INSTEAD]
        assert proxy.ask(BAD, stream=True).pieces == INSTEAD
        proxy.guard.kill()
        proxy.guard.wait()
        for text in (GOOD, BAD):
            said = proxy.ask(text)
            assert said.status >= 500
            assert GOOD not in said.body
            assert BAD not in said.body


def test_a_score_from_a_header(tmp_path: Path) -> None:
    with proxied(tmp_path, "--score-header", "x-score", "--trust-callers", "--claim", "score=lift") as proxy:
        assert proxy.ask(BAD, headers={"x-score": "0.999"}).texts == [BAD]
        assert held_back(proxy.ask(BAD, headers={"X-Score": "0.001"}), "score below the threshold")
        assert held_back(proxy.ask(BAD), "no usable score")
