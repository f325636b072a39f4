"""The server backend against a loopback server that speaks vLLM's formats from a bigram model over pieces of bytes.

The oracle is that model itself: numbers never pass through the code under test. Every fault is an error with a reason.
Mutants killed: positions off by one, prompt and response tokenised together, the generated token scored, alternatives
beyond the top counted, results in the order of arrival, a response tokenised once per prompt, a straddling token taken
for the response's, a null read as zero, a 503 retried for ever, a redirect followed, the key shown.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.lift import mean_lift
from fedsrc.scores.models import server_client
from fedsrc.scores.models.model import Prompted, Sampling, TokenScores, Wanted
from fedsrc.scores.models.server_answers import top_entropy
from fedsrc.scores.models.server_model import ServerModel, connect
from fedsrc.scores.models.token_text import spans_of_tokens

KEY = "sk-secret-1234"
MERGES = [b": T", b"day", b"the", b", s"]
PIECES = [b"", *(bytes([b]) for b in range(256)), *MERGES]  # 0 begins a sequence
CORPUS = b"Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday. Context: The tower is in the city."
LIMIT = 400
PAIRS = [
    Prompted("Context: the tower is tall.\nAnswer: ", "The tower, the day."),
    Prompted("Answer: ", "The tower, the day."),
    Prompted("Ä: ", "naïve 😀 the end"),
    Prompted("x", "\n"),
]


def tokens_of(text: str) -> list[int]:
    data, found = text.encode(), []
    while data:
        piece = next((m for m in MERGES if data.startswith(m)), data[:1])
        found.append(PIECES.index(piece))
        data = data[len(piece) :]
    return found


def model_table() -> Any:
    """log p(next | last), peaked where the corpus is and uneven elsewhere."""
    size = len(PIECES)
    last, following = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    weights = 1.0 + (last * 31 + following * 17) % 97 / 97
    ids = tokens_of(CORPUS.decode())
    for a, b in pairwise(ids):
        weights[a, b] += 400
    weights[:, 129:257] *= 0.01  # parts of characters, which servers write alike, are not among the most probable
    weights[:, 0] = 1e-9
    return np.log(weights / weights.sum(axis=1, keepdims=True))


TABLE = model_table()


def written(token: int) -> str:
    """As byte-level BPE writes a token (the GPT-2 alphabet, made here in another way than in the code under test)."""
    keep = set(range(ord("!"), ord("~") + 1)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    moved = sorted(set(range(256)) - keep)
    return "".join(chr(b if b in keep else 256 + moved.index(b)) for b in PIECES[token]) if token else "<s>"


def plain(token: int) -> str:
    return PIECES[token].decode(errors="replace") if token else "<s>"


def truth(pair: Prompted) -> tuple[list[str], list[float], list[float], list[tuple[int, int]]]:
    """Tokens, log-probabilities, full entropies and characters, from the table."""
    ids = tokens_of(pair.response)
    before = [([0, *tokens_of(pair.prompt)])[-1], *ids[:-1]]
    owner = [i for i, c in enumerate(pair.response) for _ in c.encode()]
    ends = np.cumsum([len(PIECES[t]) for t in ids]).tolist()
    spans = [(owner[end - len(PIECES[t])], owner[end - 1] + 1) for t, end in zip(ids, ends, strict=True)]
    entropy = [float(-(np.exp(TABLE[b]) * TABLE[b]).sum()) for b in before]
    return [written(t) for t in ids], [float(TABLE[b, t]) for b, t in zip(before, ids, strict=True)], entropy, spans


class Fake(ThreadingHTTPServer):
    """A loopback server with vLLM's wire format. `change` alters an answer; `refuse` replaces it."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.released = threading.Lock(), threading.Event()
        self.calm()

    def calm(self) -> None:
        """As vLLM is, without faults."""
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.change: Callable[[dict[str, Any]], Any] = lambda answer: answer
        self.refuse: Callable[[int, str], Any] = lambda count, path: None
        self.missing: set[str] = set()
        self.by_id, self.strs, self.unseen, self.shift = True, True, False, 0
        self.released.clear()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are part of the tests."""

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]


class Handler(BaseHTTPRequestHandler):
    server: Fake

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.respond(None)

    def do_POST(self) -> None:
        self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def respond(self, body: Any) -> None:
        with self.server.lock:
            self.server.asked.append((self.path, dict(self.headers), body))
            count = self.server.paths().count(self.path)
        special = self.server.refuse(count, self.path)
        if special == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif special == "hang":
            self.server.released.wait(20)
        elif special == "cut":
            self.send(200, b'{"half', {"Content-Length": "1000"})
        elif special is not None:
            self.send(*special)
        elif self.path in self.server.missing:
            self.send(404, b'{"detail":"Not Found"}', {})
        else:
            self.send(200, self.answer(body), {})

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer(self, body: Any) -> bytes:
        routes = {"/v1/completions": self.complete, "/tokenize": self.tokenize, "/detokenize": self.detokenize}
        if self.path == "/v1/models":
            made: Any = {"object": "list", "data": [{"id": "tiny", "root": "org/tiny", "owned_by": "vllm"}]}
        elif self.path == "/version":
            made = {"version": "0.11.0"}
        else:
            made = routes[self.path](body)
        changed = self.server.change(made) if self.path == "/v1/completions" else made
        return changed if isinstance(changed, bytes) else json.dumps(changed).encode()

    def tokenize(self, body: Any) -> Any:
        ids = [0] * body["add_special_tokens"] + tokens_of(body["prompt"])
        strs = [written(t) for t in ids] if self.server.strs and body.get("return_token_strs") else None
        return {"count": len(ids), "max_model_len": LIMIT, "tokens": ids, "token_strs": strs}

    def detokenize(self, body: Any) -> Any:
        return {"prompt": b"".join(PIECES[t] for t in body["tokens"]).decode(errors="replace")}

    def draw(self, body: Any) -> Any:
        """Draw from the table, by the seed of the request, until a stop or the last token."""
        rng, last, text = np.random.default_rng(body["seed"]), ([0, *tokens_of(body["prompt"])])[-1], ""
        drawn: list[float] = []
        while len(drawn) < body["max_tokens"] and not any(stop in text for stop in body["stop"]):
            p = np.exp(TABLE[last] / body["temperature"])
            token = int(rng.choice(p.size, p=p / p.sum()))
            drawn.append(float(TABLE[last, token]))
            last, text = token, text + plain(token)
        ended = next((stop for stop in body["stop"] if stop in text), None)
        text = text if ended is None else text[: text.index(ended)]
        logprobs = {"tokens": [""] * len(drawn), "token_logprobs": drawn, "top_logprobs": [{}] * len(drawn)}
        why = "length" if ended is None else "stop"
        return {"choices": [{"index": 0, "text": text, "finish_reason": why, "logprobs": logprobs}]}

    def complete(self, body: Any) -> Any:
        if "seed" in body:
            return self.draw(body)
        assert body["max_tokens"] == 1
        assert body["temperature"] == 1.0
        text = isinstance(body["prompt"], str)
        ids = [0, *tokens_of(body["prompt"])] if text else body["prompt"]
        every = [*ids, int(TABLE[ids[-1]].argmax())]
        shift = self.server.shift if body["echo"] else 0
        rows = [None, *(TABLE[every[i + shift]] for i in range(len(ids)))]
        first = len(ids) if not body["echo"] else 1 if text and not self.server.unseen else 0
        name = (lambda t: f"token_id:{t}") if self.server.by_id and not text else plain
        shown = list(zip(every, rows, self.offsets(every), strict=True))[first:]
        return {
            "object": "text_completion",
            "model": "tiny",
            "choices": [
                {
                    "index": 0,
                    "text": b"".join(PIECES[t] for t, _, _ in shown).decode(errors="replace"),
                    "finish_reason": "length",
                    "logprobs": {
                        "text_offset": [place for _, _, place in shown],
                        "tokens": [name(t) for t, _, _ in shown],
                        "token_logprobs": [None if row is None else float(row[t]) for t, row, _ in shown],
                        "top_logprobs": [
                            None if row is None else self.top(row, t, body["logprobs"], name) for t, row, _ in shown
                        ],
                    },
                }
            ],
            "usage": {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1},
        }

    def offsets(self, ids: list[int]) -> list[int]:
        lead = len("<s>") if self.server.unseen and ids[0] == 0 else 0
        found = []
        for i in range(len(ids)):
            before = b"".join(PIECES[t] for t in ids[:i]).decode(errors="ignore")
            found.append(len(before) + (lead if i else 0))
        return found

    def top(self, row: Any, own: int, count: int, name: Callable[[int], str]) -> dict[str, float]:
        """vLLM's order: the token itself, then the most probable ones."""
        return {name(int(t)): float(row[t]) for t in [own, *np.argsort(-row)[:count]]}


@pytest.fixture(scope="module")
def running() -> Iterator[Fake]:
    with Fake() as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.01,))
        thread.start()
        yield fake
        fake.shutdown()
        thread.join()


@pytest.fixture
def fake(running: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setenv("no_proxy", "*")
    running.calm()
    yield running
    running.released.set()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are written down, not made."""
    made: list[float] = []
    monkeypatch.setattr(server_client, "_sleep", made.append)
    return made


def model_of(fake: Fake, **options: Any) -> ServerModel:
    return connect(fake.base, "tiny", **{"api_key": KEY, **options})


def check(found: TokenScores, pair: Prompted) -> None:
    tokens, logprobs, entropy, spans = truth(pair)
    assert list(found.tokens) == tokens
    assert found.logprobs.tolist() == pytest.approx(logprobs, abs=1e-12)
    assert found.offsets.tolist() == [list(span) for span in spans]
    assert np.all(found.entropy <= np.asarray(entropy) + 1e-12)
    assert np.all(found.entropy > 0)


def test_scores_are_the_models(fake: Fake) -> None:
    for pair, found in zip(PAIRS, model_of(fake).score(PAIRS), strict=True):
        check(found, pair)
    assert model_of(fake).score([]) == []


def test_entropy_is_that_of_the_top(fake: Fake) -> None:
    """Of the five most probable tokens, also where the response's own token is a sixth."""
    found, ids = model_of(fake, top=5).score(PAIRS[1:2])[0], tokens_of(PAIRS[1].response)
    for before, own, entropy in zip([tokens_of("Answer: ")[-1], *ids], ids, found.entropy, strict=False):
        p = np.sort(np.exp(TABLE[before]))[::-1][:5]
        expected = -(p * np.log(p)).sum() - (1 - p.sum()) * math.log(1 - p.sum())
        assert entropy == pytest.approx(expected, abs=1e-9), own
    assert np.exp(found.logprobs).min() < 0.01


@pytest.mark.usefixtures("pauses")
def test_any_text_in_any_order(running: Fake) -> None:
    running.calm()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        model = model_of(running, workers=4)
    texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.builds(Prompted, texts, texts), max_size=6))
    def always(pairs: list[Prompted]) -> None:
        for pair, found in zip(pairs, model.score(pairs), strict=True):
            check(found, pair)

    always()


def test_results_keep_the_order_when_answers_do_not(fake: Fake) -> None:
    """The first pair's answer is held back until the server has made all others; so requests run at once, too."""
    pairs = [Prompted(f"prompt {i}: ", f"the {i}") for i in range(6)]
    model = model_of(fake, workers=6)
    others = threading.Semaphore(0)

    def hold(answer: Any) -> Any:
        first = answer["choices"][0]["text"].startswith("prompt 0")
        for _ in range(5 if first else 0):
            assert others.acquire(timeout=20)
        if not first:
            others.release()
        return answer

    fake.change = hold
    for pair, found in zip(pairs, model.score(pairs), strict=True):
        check(found, pair)


def test_a_response_is_tokenised_once_and_lift_has_its_tokens(fake: Fake) -> None:
    model = model_of(fake)
    fake.asked.clear()
    present, removed = model.score(PAIRS[:2])
    assert fake.paths().count("/tokenize") == 3
    _, with_evidence, _, _ = truth(PAIRS[0])
    _, without, _, _ = truth(PAIRS[1])
    u = [min(5.0, max(0.0, a - b)) / 5 for a, b in zip(with_evidence, without, strict=True)]
    assert mean_lift(present, removed) == pytest.approx(sum(u) / len(u), abs=1e-9)


def test_requests_are_vllms(fake: Fake) -> None:
    model_of(fake).score(PAIRS[1:2])
    path, headers, body = fake.asked[-1]
    assert path == "/v1/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body["prompt"] == [0, *tokens_of("Answer: "), *tokens_of(PAIRS[1].response)]
    assert (body["echo"], body["logprobs"], body["return_tokens_as_token_ids"]) == (True, 20, True)


def test_identity_names_what_decides_the_numbers(fake: Fake) -> None:
    assert model_of(fake).identity == {
        "backend": "openai-compatible",
        "model": "tiny",
        "revision": "not told by the server, which loaded org/tiny",
        "tokenizer": "the server's, prompt and response apart",
        "server": "vLLM 0.11.0",
        "entropy": "top-20 lower bound",
    }
    fake.missing = {"/v1/models", "/version", "/tokenize"}
    told = model_of(fake, revision="main@abc", top=7).identity
    assert told["revision"] == "main@abc"
    assert told["tokenizer"].endswith("joined")
    assert (told["server"], told["entropy"]) == ("unknown", "top-7 lower bound")


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("pair", PAIRS)
def test_older_servers_without_token_texts(fake: Fake, pair: Prompted, by_id: bool) -> None:
    fake.strs, fake.by_id = False, by_id
    found = model_of(fake).score([pair])[0]
    _, logprobs, _, spans = truth(pair)
    assert found.logprobs.tolist() == pytest.approx(logprobs, abs=1e-12)
    assert found.offsets.tolist() == [list(span) for span in spans]


@pytest.mark.parametrize("unseen", [False, True])
def test_text_where_nothing_tokenises(fake: Fake, unseen: bool) -> None:
    """The same numbers where a token begins with the response, whether or not the first token has a place."""
    fake.missing, fake.unseen = {"/tokenize"}, unseen
    model = model_of(fake)
    for pair in [Prompted("Answer:", " so the day, ends"), Prompted("é", "naïve 😀 end")]:
        found = model.score([pair])[0]
        _, logprobs, _, spans = truth(pair)
        assert found.logprobs.tolist() == pytest.approx(logprobs, abs=1e-12)
        assert "".join(pair.response[a:b] for a, b in found.offsets) == pair.response
        if pair.response.isascii():
            assert found.offsets.tolist() == [list(span) for span in spans]
    for pair in [Prompted("Answer:", " The day"), Prompted("Answer: ", "The day")]:
        with pytest.raises(FedsrcError, match="': T' lies across the end of the prompt") as error:
            model.score([pair])
        assert "/tokenize" in str(error.value)
    with pytest.raises(FedsrcError, match="without a token"):
        model.score([Prompted("x", "")])


def within(answer: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The answer with one of its arrays replaced."""
    answer["choices"][0]["logprobs"][name] = value(answer["choices"][0]["logprobs"][name])
    return answer


def choice(answer: dict[str, Any], **values: Any) -> dict[str, Any]:
    answer["choices"][0] |= values
    return answer


def all_shorter(answer: dict[str, Any], count: int) -> dict[str, Any]:
    for name in answer["choices"][0]["logprobs"]:
        within(answer, name, lambda v: v[:count])
    return answer


def near_end(value: Any) -> Callable[[list[Any]], list[Any]]:
    """Replaces the entry of the last token that was sent."""
    return lambda old: [*old[:-2], value, old[-1]]


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "not json": (lambda a: b"<html>hello</html>", "not what it should be"),
    "half json": (lambda a: json.dumps(a).encode()[:-9], "not what it should be"),
    "not utf-8": (lambda a: json.dumps(a).encode().replace(b"tiny", b"\xff\xfe"), "not what it should be"),
    "empty": (lambda a: b"", "not what it should be"),
    "a list": (lambda a: [a], "not what it should be"),
    "deep": (lambda a: b"[" * 100_000, "not what it should be"),
    "no choices": (lambda a: {**a, "choices": []}, "choices"),
    "two choices": (lambda a: {**a, "choices": a["choices"] * 2}, "choices"),
    "NaN": (lambda a: within(a, "token_logprobs", near_end(math.nan)), "finite number"),
    "minus infinity": (lambda a: within(a, "token_logprobs", near_end(-math.inf)), "finite number"),
    "an infinite alternative": (lambda a: within(a, "top_logprobs", near_end({"x": -math.inf})), "finite number"),
    "positive": (lambda a: within(a, "token_logprobs", near_end(0.5)), "less than or equal"),
    "text for a number": (lambda a: within(a, "token_logprobs", near_end("-1.0")), "valid number"),
    "true for a number": (lambda a: within(a, "token_logprobs", near_end(True)), "valid number"),
    "half a surrogate": (lambda a: json.dumps(choice(a, text="?")).replace('"?"', '"\\ud800"').encode(), "not what"),
    "no probability": (lambda a: within(a, "token_logprobs", near_end(-9999.0)), "no probability at all"),
    "null inside": (lambda a: within(a, "token_logprobs", near_end(None)), "without a log-probability"),
    "null alternatives": (lambda a: within(a, "top_logprobs", near_end(None)), "without a log-probability"),
    "too much probability": (lambda a: within(a, "top_logprobs", near_end({"a": -0.1, "b": -0.1})), "fit together"),
    "more than the best": (lambda a: within(a, "token_logprobs", near_end(-0.0)), "fit together"),
    "no logprobs": (lambda a: choice(a, logprobs=None), "no log-probabilities of the prompt"),
    "llama.cpp's form": (lambda a: choice(a, logprobs={"content": []}), "no log-probabilities of the prompt"),
    "no alternatives": (lambda a: within(a, "top_logprobs", lambda v: None), "no alternatives"),
    "five alternatives": (
        lambda a: within(a, "top_logprobs", lambda v: [t and dict(list(t.items())[:5]) for t in v]),
        "20 alternatives were asked for; the server gives 5",
    ),
    "echo ignored": (lambda a: all_shorter(a, 1), "did not echo"),
    "tokens missing": (lambda a: all_shorter(a, 3), "tokens were sent, and the server scored 3"),
    "prompt cut": (lambda a: {**a, "usage": {"prompt_tokens": 2}}, "tokens were sent, and the server scored 2"),
    "one array shorter": (lambda a: within(a, "token_logprobs", lambda v: v[:-1]), "differ in length"),
    "other tokens": (lambda a: within(a, "tokens", near_end("token_id:7")), "other tokens than it was sent"),
    "aborted": (lambda a: choice(a, finish_reason="abort"), "stopped early: abort"),
    "huge": (lambda a: b" " * (4 << 20) + json.dumps(a).encode(), "longer than"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_answer_is_an_error_that_says_so(fake: Fake, fault: str) -> None:
    model = model_of(fake)
    fake.change, match = FAULTS[fault]
    with pytest.raises(FedsrcError, match=match) as error:
        model.score(PAIRS[:1])
    assert KEY not in str(error.value)
    with pytest.raises(FedsrcError):
        model_of(fake)


TEXT_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "echo ignored": (lambda a: choice(all_shorter(a, 1), text="z"), "did not echo"),
    "no places": (lambda a: within(a, "text_offset", lambda v: None), "text_offset"),
    "huge places": (lambda a: within(a, "text_offset", lambda v: [10**30 for _ in v]), "not what it should be"),
    "places that fall": (lambda a: within(a, "text_offset", lambda v: [0, 9, 3, *v[3:]]), "text_offset"),
    "places shifted": (lambda a: within(a, "text_offset", lambda v: [0, *(x + 1 for x in v[1:])]), "spell|across"),
    "places in bytes": (lambda a: within(a, "text_offset", lambda v: [0, *(x + (x > 8) for x in v[1:])]), "spell"),
    "tokens missing": (lambda a: all_shorter(a, 14), "do not spell"),
    "none of the response": (lambda a: all_shorter(a, 7), "across|spell"),
    "no tokens": (lambda a: all_shorter(a, 0), "did not echo"),
}


@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_wrong_places_are_never_a_silent_shift(fake: Fake, fault: str) -> None:
    fake.missing = {"/tokenize"}
    model = model_of(fake)
    fake.change, match = TEXT_FAULTS[fault]
    with pytest.raises(FedsrcError, match=match):
        model.score([Prompted("Answer:", " ä, so it is")])


@pytest.mark.parametrize("missing", [set(), {"/tokenize"}])
def test_log_probabilities_of_other_positions_are_found_out(fake: Fake, missing: set[str]) -> None:
    fake.missing, fake.shift = missing, 1
    with pytest.raises(FedsrcError, match="belong to other positions"):
        connect(fake.base, "tiny")


def error_body(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "BadRequestError", "code": 400}}).encode()


REFUSALS: dict[str, tuple[int, bytes, str, str]] = {
    "context": (
        400,
        error_body("This model's maximum context length is 400 tokens. However, your request has 900 input tokens."),
        "longer than the model takes",
        "nothing is cut silently",
    ),
    "logprobs": (
        400,
        error_body("Requested prompt logprobs of 30, which is greater than max allowed: 20"),
        "greater than max allowed",
        "--max-logprobs",
    ),
    "echo": (400, error_body("Setting 'echo' and 'logprobs' at once is not supported"), "not supported", "vLLM does"),
    "key": (401, error_body(f"wrong key {KEY}"), r"wrong key \*\*\*", "check the API key"),
    "old form": (400, b'{"object":"error","message":"no such thing"}', "400: no such thing", ""),
    "fastapi": (422, b'{"detail":[{"msg":"prompt\\nmust be text"}]}', "prompt.nmust be text", ""),
    "not found": (404, b"", "404: nothing", "/v1"),
    "long": (418, b"\x00teapot " * 100_000, "418: teapot teapot", ""),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_says_what_to_do(fake: Fake, pauses: list[float], refusal: str) -> None:
    model = model_of(fake)
    status, body, match, hint = REFUSALS[refusal]
    fake.refuse = lambda count, path: (status, body, {}) if path == "/v1/completions" else None
    fake.asked.clear()
    with pytest.raises(FedsrcError, match=match) as error:
        model.score(PAIRS[:1])
    assert hint in (error.value.hint or "")
    assert len(str(error.value)) < 600
    assert KEY not in str(error.value)
    assert fake.paths().count("/v1/completions") == 1
    assert pauses == []


def test_what_is_too_long_is_not_sent(fake: Fake) -> None:
    model = model_of(fake)
    fake.asked.clear()
    with pytest.raises(FedsrcError, match=r"have 400 tokens; the server takes 400") as error:
        model.score([Prompted("x" * 398, "z")])
    assert "nothing is cut silently" in str(error.value)
    assert "/v1/completions" not in fake.paths()
    check(model.score([Prompted("x" * 397, "z")])[0], Prompted("x" * 397, "z"))


def test_what_has_no_tokens_is_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(fake)
    with pytest.raises(FedsrcError, match="without a token"):
        model.score([Prompted("x", "")])
    with pytest.raises(FedsrcError, match="not valid text"):
        model.score([Prompted("x", "\ud800")])
    check(model.score([Prompted("", "the")])[0], Prompted("", "the"))  # this tokenizer begins every prompt
    monkeypatch.setattr(Handler, "tokenize", lambda self, body: {"count": 0, "max_model_len": 9, "tokens": []})
    with pytest.raises(FedsrcError, match="a response without a token"):
        model.score([Prompted("", "the")])


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ({"count": 2, "max_model_len": 9, "tokens": [5]}, "count of tokens"),
        ({"count": 1, "max_model_len": 9, "tokens": [5], "token_strs": []}, "count of tokens"),
        ({"count": 1, "max_model_len": 9, "tokens": [-5]}, "not what it should be"),
        ({"count": 1, "max_model_len": 9, "tokens": ["5"]}, "not what it should be"),
        ({"count": 1, "max_model_len": 9, "tokens": [5], "token_strs": ["q"]}, "do not spell it"),
    ],
)
def test_wrong_tokens_are_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch, answer: Any, match: str) -> None:
    model = model_of(fake)
    monkeypatch.setattr(Handler, "tokenize", lambda self, body: answer)
    with pytest.raises(FedsrcError, match=match):
        model.score([Prompted("x", "the")])


def test_busy_servers_are_asked_again_and_waited_for(fake: Fake, pauses: list[float]) -> None:
    model = model_of(fake, workers=1)
    busy = {"7": "7", "date": "Wed, 21 Oct 2026 07:28:00 GMT", "for ever": "999999", "none": ""}
    for wait, expected in zip(busy.values(), (7.0, 0.5, 60.0, 0.5), strict=True):
        pauses.clear()
        fake.asked.clear()
        fake.refuse = lambda count, path, wait=wait: (  # type: ignore[misc]
            (429, b"slow down", {"Retry-After": wait}) if path == "/v1/completions" and count == 1 else None
        )
        check(model.score(PAIRS[:1])[0], PAIRS[0])
        assert pauses == [expected]


@pytest.mark.parametrize("special", [(503, b"loading", {}), (500, b'{"error":"x"}', {}), "reset", "cut"])
def test_trouble_passes_or_ends(fake: Fake, pauses: list[float], special: Any) -> None:
    model = model_of(fake, workers=1)
    fake.asked.clear()
    fake.refuse = lambda count, path: special if path == "/v1/completions" and count <= 3 else None
    check(model.score(PAIRS[:1])[0], PAIRS[0])
    assert pauses == [0.5, 1.0, 2.0]
    pauses.clear()
    fake.asked.clear()
    fake.refuse = lambda count, path: special if path == "/v1/completions" else None
    with pytest.raises(FedsrcError, match=r"503: loading|500: x|keeps closing the connection") as error:
        model.score(PAIRS[:1])
    assert "lower workers" in str(error.value)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert fake.paths().count("/v1/completions") == 5


def test_one_failure_stops_the_rest(fake: Fake, pauses: list[float]) -> None:
    model = model_of(fake, workers=1)
    fake.asked.clear()
    fake.refuse = lambda count, path: (400, b"no", {}) if path == "/v1/completions" else None
    with pytest.raises(FedsrcError, match="400: no"):
        model.score([Prompted(f"{i}: ", "the") for i in range(500)])
    assert fake.paths().count("/v1/completions") < 500


def test_silence_is_a_timeout_and_not_asked_again(fake: Fake, pauses: list[float]) -> None:
    model = model_of(fake, workers=1)
    hasty = ServerModel(replace(model._client, timeout=0.2), "tiny", model.identity, top=20, workers=1)
    fake.asked.clear()
    fake.refuse = lambda count, path: "hang"
    with pytest.raises(FedsrcError, match=r"no complete answer within 0\.2 seconds") as error:
        hasty.score(PAIRS[:1])
    assert "timeout" in (error.value.hint or "")
    assert len(fake.asked) <= 1
    assert pauses == []
    fake.released.set()
    fake.refuse = lambda count, path: None
    check(model.score(PAIRS[:1])[0], PAIRS[0])


def test_a_body_that_drips_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's: each part that arrives takes a second of it."""
    times = iter(range(100))
    monkeypatch.setattr(server_client, "_now", lambda: float(next(times)))

    class Dripping:
        headers: ClassVar[dict[str, str]] = {}

        def read1(self, size: int) -> bytes:
            return b"x"

    with pytest.raises(TimeoutError):
        server_client._read(Dripping(), 1000, 5.0, "url")  # type: ignore[arg-type]
    assert next(times) == 7


def test_redirects_are_not_followed(fake: Fake) -> None:
    model = model_of(fake)
    fake.asked.clear()
    with Fake() as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        try:
            for status in (301, 302, 303, 307, 308):
                fake.refuse = lambda count, path, status=status: (  # type: ignore[misc]
                    (status, b"", {"Location": f"{other.base}/completions"}) if path == "/v1/completions" else None
                )
                with pytest.raises(FedsrcError, match=f"redirects \\({status}\\)"):
                    model.score(PAIRS[:1])
            assert other.asked == []
        finally:
            other.shutdown()
            thread.join()


def test_the_key_is_nowhere_to_be_seen(fake: Fake) -> None:
    model = model_of(fake)
    assert KEY not in repr(model) + repr(model._client) + repr(model.identity)
    for bad in ("", "a b", "x\n", "é"):
        with pytest.raises(FedsrcError, match="API key") as error:
            connect(fake.base, "tiny", api_key=bad)
        assert not bad or bad not in str(error.value)
    fake.asked.clear()
    connect(fake.base, "tiny")
    assert all("Authorization" not in headers for _, headers, _ in fake.asked)


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000",
        "ftp://host/v1",
        "file:///etc/passwd",
        "http://",
        "http://host:0/v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://user:word@host/v1",
        "http://host/v1?key=word",
        "http://host/v1#word",
        "http://host/a b",
        "http://höst/v1",
        "http://host/v1\r\nX: y",
    ],
)
def test_addresses_are_checked_and_hold_no_secrets(address: str) -> None:
    with pytest.raises(FedsrcError, match="address") as error:
        connect(address, "tiny")
    assert "word" not in str(error.value).replace("a password", "").replace("password or", "")


@pytest.mark.parametrize("options", [{"workers": 0}, {"top": 0}, {"timeout": 0.0}, {"timeout": math.nan}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(FedsrcError, match="at least 1"):
        connect("http://localhost/v1", "tiny", **options)


def test_nobody_there(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(FedsrcError, match="cannot be reached") as error:
            connect(address, "tiny")
    assert "check the address" in str(error.value)
    assert pauses == []


def test_a_server_that_is_no_web_server(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def greet() -> None:
            with listening.accept()[0] as found:
                found.recv(1 << 16)
                found.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(FedsrcError, match="cannot be reached"):
            connect(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "tiny")
        thread.join()


def test_unknown_models_are_named(fake: Fake) -> None:
    with pytest.raises(FedsrcError, match="no model 'large'") as error:
        connect(fake.base, "large")
    assert "'tiny'" in str(error.value)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_probe_is_an_error_and_not_a_missing_endpoint(fake: Fake, status: int) -> None:
    fake.refuse = lambda count, path: (status, b"", {}) if path == "/tokenize" else None
    with pytest.raises(FedsrcError, match=str(status)):
        model_of(fake)


def test_another_servers_tokenize_is_not_vllms(fake: Fake) -> None:
    """The llama.cpp server has a /tokenize too, with another form; its answers have no echo, which is then said."""
    fake.refuse = lambda count, path: (200, b'{"tokens":[]}', {}) if path == "/tokenize" else None
    fake.change = lambda a: choice(a, text="x", logprobs={"content": [{"token": "x", "logprob": -1.0}]})
    with pytest.raises(FedsrcError, match="no log-probabilities of the prompt") as error:
        model_of(fake)
    assert "llama.cpp" in str(error.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


@pytest.mark.parametrize("missing", [set(), {"/tokenize"}])
def test_no_answer_makes_a_traceback(running: Fake, missing: set[str]) -> None:
    """Any one place of an answer replaced by anything: a FedsrcError, or scores that passed every check."""
    running.calm()
    running.missing = missing
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        model = model_of(running, workers=1)
    pair = Prompted("Answer:", " é, so")
    said: list[Any] = []
    running.change = lambda answer: said.append(answer) or answer  # type: ignore[func-returns-value]
    model.score([pair])

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from(list(places(said[0]))), json_values)
    def always(path: tuple[Any, ...], new: Any) -> None:
        running.change = lambda answer: replaced(answer, path, new)
        try:
            found = model.score([pair])[0]
        except FedsrcError:
            return
        assert np.all(np.isfinite(found.entropy))
        assert np.all(found.entropy >= 0)
        assert found.offsets.min() >= 0
        assert found.offsets.max() == len(pair.response)

    always()


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=40), st.integers(1, 45))
def test_top_entropy_is_a_lower_bound_that_grows(weights: list[float], top: int) -> None:
    p = np.asarray(weights) / sum(weights)
    full = float(-(p * np.log(p)).sum())
    found = top_entropy(np.log(p).tolist(), top)
    assert -1e-9 <= found <= full + 1e-9
    assert found <= top_entropy(np.log(p).tolist(), top + 1) + 1e-9
    if top >= len(weights):
        assert found == pytest.approx(full, abs=1e-6)


def test_tokens_of_sentence_piece_are_placed() -> None:
    spell = spans_of_tokens("The é day", ["▁The", "▁", "<0xC3>", "<0xA9>", "▁day"])
    assert spell is not None
    assert spell.tolist() == [[0, 3], [3, 4], [4, 5], [4, 5], [5, 9]]
    alone = spans_of_tokens("The", ["▁", "The"])
    assert alone is not None
    assert alone.tolist() == [[0, 0], [0, 3]]
    assert spans_of_tokens("The", ["the"]) is None
    assert spans_of_tokens("The", ["▁▁The"]) is None


WANTED = [Wanted("Context: the tower.\nAnswer: ", place) for place in range(4)]


def test_responses_are_drawn_each_by_a_request_of_its_own(fake: Fake) -> None:
    """Mutants killed: one seed for all, results in the order of arrival, sampling settings not sent."""
    model, how = model_of(fake), Sampling(temperature=0.7, top_p=0.8, max_tokens=9, seed=3, stops=("day",))
    drawn = model.sample(WANTED, how)
    assert len({each.text for each in drawn}) == 4
    assert [each.text for each in model.sample(WANTED[::-1], how)] == [each.text for each in drawn[::-1]]
    for each in drawn:
        assert each.finished == (len(each.logprobs) < 9)
        assert "day" not in each.text
        assert np.all(each.logprobs < 0)
    bodies = [body for path, _, body in fake.asked if path.endswith("/completions") and "seed" in body]
    assert {(b["temperature"], b["top_p"], b["max_tokens"], b["stop"][0]) for b in bodies} == {(0.7, 0.8, 9, "day")}
    assert len({b["seed"] for b in bodies}) == 4


def test_a_server_that_only_draws_is_not_asked_to_echo(fake: Fake) -> None:
    fake.shift = 1  # its prompt log-probabilities are wrong
    with pytest.raises(FedsrcError, match="belong to other positions"):
        model_of(fake)
    assert len(model_of(fake, echo=False).sample(WANTED, Sampling(max_tokens=2))) == 4


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("logprobs", None, "no log-probabilities of what it drew"),
        ("logprobs", {"token_logprobs": [-1.0, None]}, "no log-probabilities of what it drew"),
        ("logprobs", {"token_logprobs": [-9999.0]}, "no log-probabilities of what it drew"),
        ("logprobs", {"token_logprobs": [0.5]}, "not what it should be"),
        ("finish_reason", "content_filter", "stopped early: content_filter"),
        ("finish_reason", None, "stopped early: no reason"),
        ("text", None, "not what it should be"),
    ],
)
def test_what_a_server_must_say_of_a_draw(fake: Fake, field: str, value: Any, message: str) -> None:
    model = model_of(fake)
    fake.change = lambda answer: {"choices": [{**answer["choices"][0], field: value}]}
    with pytest.raises(FedsrcError, match=message):
        model.sample(WANTED[:1], Sampling(max_tokens=2))
