"""The service over a real socket: right decisions, limits that hold, a description that is true, nothing dropped.

Mutants killed: a limit that believes the announced length, a rate that is not kept, a body or header that may take
forever, NaN taken for a number, a response that repeats what was sent, health that is always well, a count that is off,
a status or field that the description does not have, a 5xx on odd input, a request lost while certificates change.

Chance of a false alarm: none; whatever takes time is waited for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fedsrc.gate.decision import ACCEPTED, BELOW, EXPIRED, HALTED, UNUSABLE
from fedsrc.gate.gate import Gate
from fedsrc.gate.service import serving as server_module
from fedsrc.gate.service.serving import bind
from fedsrc.gate.service.throttle import Bucket, Limits
from fedsrc.protocol.names import CERTIFICATE
from tests.support.gate_certificates import TRUSTED, Terminal, body, original, renewed
from tests.support.gate_server import Client, serving

THRESHOLD: float = body()["threshold"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / CERTIFICATE
    path.write_text(original())
    return path


@pytest.fixture
def gate(file: Path) -> Gate:
    return Gate(file, trusted=TRUSTED)


@pytest.fixture
def client(gate: Gate) -> Iterator[Client]:
    with serving(gate) as port, contextlib.closing(Client(port)) as found:
        yield found


# ---------------------------------------------------------------- what it says


def test_it_decides_as_the_gate_does(gate: Gate, client: Client) -> None:
    scores = [0, 0.0, -0.0, 1, 1.0, THRESHOLD, THRESHOLD - 1e-12, None, -1, 2, 1e300, 5e-324]
    for score in scores:
        reply = client.decide(score)
        assert (reply.status, reply.json) == (200, gate.decide(score)._asdict())
    many = client.ask("POST", "/v1/decide/batch", {"scores": scores})
    assert many.json == {"decisions": [gate.decide(score)._asdict() for score in scores]}
    assert len(client.ask("POST", "/v1/decide/batch", {"scores": [0.5] * 1000}).json["decisions"]) == 1000


BAD = {
    "NaN": b'{"score": NaN}', "infinity": b'{"score": Infinity}', "overflow": b'{"score": 1e999}',
    "true": b'{"score": true}', "text": b'{"score": "0.31415"}', "list": b'{"score": [0.31415]}',
    "huge": b'{"score": 1' + b"0" * 5000 + b"}", "missing": b"{}", "more": b'{"score": 0.9, "answer": "31415"}',
    "nothing": b"", "broken": b'{"score": 0.31415', "not UTF-8": b'{"score": "\xff31415"}',
    "half a letter": b'{"\\ud800": 31415}', "a nest": b"[" * 30_000, "a number": b"0.31415", "null": b"null",
    "two": b'{"score": 0.9}{"score": 0.31415}', "a name": b'{"score": 0.9, "x31415": 1}',
    "an odd name": '{"score": 0.9, "\u202e\u00e931415": 1}'.encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_as_described_is_refused_in_words_of_our_own(client: Client, name: str) -> None:
    reply = client.ask("POST", "/v1/decide", BAD[name])
    assert (reply.status, list(reply.json)) == (422, ["error"])
    assert b"31415" not in reply.body
    assert client.decide(1.0).json["accepted"]


def test_a_batch_has_a_size(client: Client) -> None:
    for scores in ([], [0.5] * 1001, [0.5, "x"], [[0.5]], None):
        assert client.ask("POST", "/v1/decide/batch", {"scores": scores}).status == 422
    assert client.ask("POST", "/v1/decide", {"score": 1}, {"content-type": "text/plain"}).status == 422


def test_the_certificate_is_given_as_it_was_signed(file: Path, client: Client) -> None:
    assert client.ask("GET", "/v1/certificate").body == file.read_bytes()


def test_health_says_why_nothing_is_accepted(file: Path) -> None:
    now = [time.time()]
    gate = Gate(file, trusted=TRUSTED, clock=lambda: now[0])
    with serving(gate) as port, contextlib.closing(Client(port)) as client:
        well = client.ask("GET", "/healthz")
        assert (well.status, well.json) == (200, json.loads(json.dumps(asdict(gate.status()))))
        now[0] += 400 * 86_400
        sick = client.ask("GET", "/healthz")
        assert (sick.status, sick.json["accepting"], sick.json["reason"]) == (503, False, EXPIRED)
        reply = client.decide(1.0)
        assert (reply.status, reply.json["accepted"], reply.json["reason"]) == (200, False, EXPIRED)


def test_metrics_are_what_happened(gate: Gate, file: Path, client: Client) -> None:
    for score in (1.0, 0.0, 0.0, None, "x"):
        client.decide(score)
    client.ask("POST", "/v1/decide/batch", {"scores": [1.0, 0.0, 7]})
    client.ask("GET", "/nowhere")
    client.ask("GET", "/v1/decide")
    file.write_text(renewed(60))
    gate.reload()
    file.write_text("")
    with contextlib.suppress(Exception):
        gate.reload()
    reply = client.ask("GET", "/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }
    decisions = {key[1:]: value for key, value in found.items() if key[0] == "fedsrc_gate_decisions_total" and value}
    assert decisions == {("accepted", ACCEPTED): 2, ("abstained", BELOW): 3, ("abstained", UNUSABLE): 2}
    refused = {
        key[1]: value for key, value in found.items() if key[0] == "fedsrc_gate_refused_requests_total" and value
    }
    assert refused == {"422": 1, "404": 1, "405": 1}
    assert (found["fedsrc_gate_reloads_total", "taken"], found["fedsrc_gate_reloads_total", "refused"]) == (1, 1)
    assert found["fedsrc_gate_accepting",] == 1
    assert 300 * 86_400 < found["fedsrc_gate_certificate_seconds_left",] < 366 * 86_400
    assert found["fedsrc_gate_threshold", gate.status().certificate] == THRESHOLD


def test_every_response_has_safe_headers_and_no_page_loads_from_elsewhere(client: Client) -> None:
    asked = [("POST", "/v1/decide"), ("GET", "/healthz"), ("GET", "/nowhere"), ("GET", "/docs"), ("GET", "/redoc")]
    for method, path in asked:
        reply = client.ask(method, path, {"score": 1})
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert "server" not in reply.headers
        assert (reply.status == 404) == (path in ("/nowhere", "/docs", "/redoc"))


def test_no_score_is_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client.decide(0.31415)
    client.ask("POST", "/v1/decide", b'{"score": "0.31415"}')
    assert "31415" not in caplog.text


def test_bad_requests_do_not_fill_the_log(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    with serving(gate) as port, raw(port, b"this is not HTTP\r\n\r\n") as connection:
        assert connection.recv(100_000).startswith(b"HTTP/1.1 400 ")
    assert caplog.text == ""


# ---------------------------------------------------------------- limits


def raw(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall(data)
    return connection


HEAD = b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def test_bytes_are_counted_as_they_come(gate: Gate) -> None:
    with serving(gate, Limits(max_bytes=100, rate=1e9)) as port, contextlib.closing(Client(port)) as client:
        fits = b'{"score": 1}' + b" " * 88
        assert client.ask("POST", "/v1/decide", fits).status == 200
        assert client.ask("POST", "/v1/decide", fits + b" ").status == 413
        assert client.ask("GET", "/healthz", fits + b" ").status == 413
        chunk = b"33\r\n" + b" " * 0x33 + b"\r\n"
        for lie in (
            HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk * 2,
            HEAD + b"content-length: 999999999\r\n\r\n",
        ):
            with raw(port, lie) as connection:  # the rest is never sent
                assert connection.recv(100_000).startswith(b"HTTP/1.1 413 ")
        assert client.decide(1.0).status == 200


def test_a_slow_body_and_a_slow_header_are_cut_off(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 0.2)
    with serving(gate, Limits(seconds=0.2, rate=1e9)) as port:
        for start in (b"", b"POST /v1/dec"):
            with raw(port, start) as silent:
                assert silent.recv(100_000) == b""
        monkeypatch.setattr(server_module, "HEADER_SECONDS", 20.0)
        with raw(port, HEAD + b'content-length: 12\r\n\r\n{"score"') as slow:
            assert slow.recv(100_000).startswith(b"HTTP/1.1 408 ")


def test_a_slow_second_header_is_cut_off(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 20.0)
    with serving(gate) as port, raw(port, b"") as connection:
        reader = connection.makefile("rb")
        monkeypatch.setattr(server_module, "IDLE_SECONDS", -19.5)
        connection.sendall(HEAD + b'content-length: 12\r\n\r\n{"score": 1}')
        lines = list(iter(reader.readline, b"\r\n"))
        length = next(int(line.split()[1]) for line in lines if line.startswith(b"content-length"))
        assert b'"accepted":true' in reader.read(length)
        connection.sendall(b"POST /v1/dec")
        assert reader.read() == b""


def test_a_large_header_is_refused(gate: Gate) -> None:
    with (
        serving(gate) as port,
        raw(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 100_000) as connection,
    ):
        assert connection.recv(100_000).startswith(b"HTTP/1.1 431 ")


def test_the_rate_is_kept(gate: Gate) -> None:
    now = [0.0]
    bucket = Bucket(4.0, lambda: now[0])
    assert [bucket.take() for _ in range(5)] == [0, 0, 0, 0, 0.25]
    now[0] = 0.25
    assert (bucket.take(), bucket.take()) == (0, 0.25)
    now[0] = 100.0
    assert [bucket.take() for _ in range(5)] == [0, 0, 0, 0, 0.25]
    with serving(gate, Limits(rate=1e-6)) as port, contextlib.closing(Client(port)) as client:
        assert client.decide(1.0).status == 200
        for _ in range(3):
            reply = client.decide(1.0)
            assert (reply.status, reply.json["error"][:17]) == (429, "too many requests")
            assert int(reply.headers["retry-after"]) >= 1
        assert client.ask("GET", "/healthz").status == client.ask("GET", "/metrics").status == 200


def test_more_connections_than_allowed_are_turned_away(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS", 3)
    with serving(gate) as port, contextlib.closing(Client(port)) as client:
        assert client.decide(1.0).status == 200
        with raw(port, b""), raw(port, b""):
            end = time.monotonic() + 60
            while client.decide(1.0).status != 503:
                assert time.monotonic() < end


def test_a_listener_names_its_protocol() -> None:
    """Otherwise asyncio leaves Nagle's algorithm on, and every response waits for a delayed acknowledgement."""
    with (
        bind("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as end,
    ):
        assert end.proto == socket.IPPROTO_TCP


# ---------------------------------------------------------------- its description


def test_every_error_is_declared(client: Client) -> None:
    described = client.ask("GET", "/openapi.json").json
    found = {path: set(method["responses"]) for path, each in described["paths"].items() for method in each.values()}
    assert found == {
        "/v1/decide": {"200", "408", "413", "421", "422", "429", "431", "503"},
        "/v1/decide/batch": {"200", "408", "413", "421", "422", "429", "431", "503"},
        "/v1/certificate": {"200", "408", "413", "421", "429", "431", "503"},
        "/healthz": {"200", "408", "413", "421", "431", "503"},
        "/metrics": {"200", "408", "413", "421", "431", "503"},
    }
    refused = described["paths"]["/v1/decide"]["post"]["responses"]["422"]["content"]["application/json"]["schema"]
    assert refused == {"$ref": "#/components/schemas/Problem"}
    assert described["components"]["schemas"]["AskedMany"]["properties"]["scores"]["maxItems"] == 1000


def test_the_service_does_what_its_description_says(gate: Gate) -> None:
    """Requests made from the description, right ones and wrong ones: no 5xx, and only what it declares comes back."""
    checks = [
        schemathesis.checks.not_a_server_error, status_code_conformance, content_type_conformance,
        response_schema_conformance, response_headers_conformance,
    ]  # fmt: skip
    tried: list[str] = []
    with serving(gate) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            cases = st.one_of(*(found.ok().as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode))

            def fuzz(case: Any) -> None:
                tried.append(case.path)
                case.call_and_validate(checks=checks)

            settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)(
                given(case=cases)(fuzz)
            )()
    assert len(set(tried)) == 5
    assert len(tried) > 60


# ---------------------------------------------------------------- renewal and stop


def test_nothing_is_dropped_while_certificates_change(file: Path) -> None:
    made = [renewed(60 + i, threshold=(0.25, 0.75)[i % 2]) for i in range(20)]
    file.write_text(made[0])
    thresholds, wrong, replies = dict[str, float](), list[Any](), [0] * 3
    stop = threading.Event()

    def work(k: int, port: int) -> None:
        with contextlib.closing(Client(port)) as client:
            while not stop.is_set():
                for score in (0.1, 0.25, 0.5, 0.75):
                    reply = client.decide(score)
                    if reply.status != 200 or reply.json["accepted"] != (score >= reply.json["threshold"]):
                        wrong.append(reply)
                    thresholds.setdefault(reply.json["certificate"], reply.json["threshold"])
                    if thresholds[reply.json["certificate"]] != reply.json["threshold"]:
                        wrong.append(reply)
                    replies[k] += 1

    with Gate(file, trusted=TRUSTED).watch(0.002) as gate, serving(gate) as port:
        workers = [threading.Thread(target=work, args=(k, port)) for k in range(3)]
        for worker in workers:
            worker.start()
        try:
            for i, text in enumerate(made[1:], 1):
                file.write_text(text)
                enough, end = sum(replies) + 12, time.monotonic() + 60
                while gate.status().renewals < i or sum(replies) < enough:
                    assert time.monotonic() < end
                    time.sleep(0.002)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
    assert not wrong
    assert set(thresholds.values()) == {0.25, 0.75}


@pytest.fixture
def process(file: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command as it is run in production, and the port it says it listens at."""
    command = [sys.executable, "-m", "fedsrc.cli", "gate", "serve", str(file), "--trust", TRUSTED[0], "--port", "0"]
    command += ["--reload-seconds", "0.05", "--format", "json"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        told = json.loads(started.stdout.readline())
        assert (told["accepting"], told["monitor"]) == (True, None)
        yield started, int(told["address"].removeprefix("http://127.0.0.1:"))
    finally:
        started.kill()
        started.communicate()


def test_the_command_serves_renews_halts_and_stops(file: Path, process: tuple[subprocess.Popen[str], int]) -> None:
    running, port = process
    end = time.monotonic() + 60
    with contextlib.closing(Client(port)) as client:
        assert client.decide(1.0).json["reason"] == ACCEPTED
        file.write_text(renewed(60, threshold=0.9))
        while client.decide(0.8).json["threshold"] != 0.9:
            assert time.monotonic() < end
        running.send_signal(signal.SIGUSR1)
        while client.decide(1.0).json["reason"] != HALTED:
            assert time.monotonic() < end
        assert client.ask("GET", "/healthz").status == 503
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    assert running.stderr is not None
    words = running.stderr.read()
    assert "renewed: " in words
    assert "halted: " in words
    assert words.endswith("Stopped.\n")


def test_what_cannot_be_served_is_said(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fedsrc, base = Terminal(monkeypatch, capsys), ("gate", "serve", str(file), "--trust", TRUSTED[0])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = fedsrc(*base, "--port", str(taken.getsockname()[1]))
    assert (done.status, "cannot listen: Address already in use" in done.err) == (2, True)
    monkeypatch.delitem(sys.modules, "fedsrc.gate.service.serving")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = fedsrc(*base)
    assert (done.status, "hint: in the checkout of fedsrc: pip install '.[gate]'" in done.err) == (2, True)
