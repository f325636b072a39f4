"""The server backend with real weights, against the local backend.

A loopback server answers in vLLM's wire format by a plain forward pass of its own: one sequence at a time, all logits,
no batch, no padding. Both backends must then give the same tokens and characters, and log-probabilities and lift within
TOLERANCE, which is what the order of float32 sums moves them by (as in test_small_model.py; seen here: 3e-5).
Mutants killed: positions off by one, the generated token scored, a response tokenised together with its prompt.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.lift import mean_lift, window_lift
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.server_model import connect
from fedsrc.scores.models.transformers_model import TransformersModel

TOLERANCE = 2e-4
EVIDENCE = "Context:\nThe Eiffel Tower in Paris is 330 metres tall and was finished in 1889.\n\n"
QUESTION = "Question: How tall is the Eiffel Tower?\nAnswer: "
PAIRS = [
    Prompted(EVIDENCE + QUESTION, "The Eiffel Tower is 330 metres tall."),
    Prompted(QUESTION, "The Eiffel Tower is 330 metres tall."),
    Prompted(EVIDENCE + QUESTION, "It was built by Martians in 12,345 days; nobody knows why."),
    Prompted(QUESTION, "It was built by Martians in 12,345 days; nobody knows why."),
    Prompted(QUESTION, "Überraschung: 330 m, naïvely 😀 and then\n\n  日本語で。"),
]


class Weights(ThreadingHTTPServer):
    """vLLM's `/tokenize` and `/v1/completions` over a model and its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.tokenizer, self.lock, self.tokenizes = model, tokenizer, threading.Lock(), True

    def tokenize(self, body: Any) -> Any:
        ids = self.tokenizer(body["prompt"], add_special_tokens=body["add_special_tokens"])["input_ids"]
        strs = self.tokenizer.convert_ids_to_tokens(ids)
        return {"count": len(ids), "max_model_len": 8192, "tokens": ids, "token_strs": strs}

    def complete(self, body: Any) -> Any:
        import torch

        text = body["prompt"] if isinstance(body["prompt"], str) else None
        ids = body["prompt"] if text is None else self.tokenizer(text)["input_ids"]
        with torch.inference_mode():
            rows = torch.log_softmax(self.model(torch.tensor([ids])).logits[0].double(), -1)
        ids = [*ids, int(rows[-1].argmax())]
        shown = range(0 if body["echo"] else len(ids) - 1, len(ids))
        names = [f"token_id:{t}" if text is None else self.tokenizer.decode([t]) for t in ids]
        tops = [None if i == 0 else self.top(rows[i - 1], ids[i], body["logprobs"], text is None) for i in shown]
        whole = self.tokenizer.decode([ids[i] for i in shown])
        logprobs = {
            "tokens": [names[i] for i in shown],
            "token_logprobs": [None if i == 0 else float(rows[i - 1, ids[i]]) for i in shown],
            "top_logprobs": tops,
            "text_offset": np.cumsum([0, *(len(names[i]) for i in shown)])[:-1].tolist(),
        }
        return {
            "choices": [{"index": 0, "text": whole, "finish_reason": "length", "logprobs": logprobs}],
            "usage": {"prompt_tokens": len(ids) - 1},
        }

    def top(self, row: Any, own: int, count: int, by_id: bool) -> dict[str, float]:
        picked = {own: None, **dict.fromkeys(row.topk(count).indices.tolist())}
        return {f"token_id:{t}" if by_id else self.tokenizer.decode([t]): float(row[t]) for t in picked}


class Handler(BaseHTTPRequestHandler):
    server: Weights

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "smol", "owned_by": "vllm"}]} if self.path == "/v1/models" else None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            if self.path == "/v1/completions":
                self.reply(self.server.complete(body))
            else:
                self.reply(self.server.tokenize(body) if self.server.tokenizes else None)

    def reply(self, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def served(model: TransformersModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weights]:
    monkeypatch.setenv("no_proxy", "*")
    with Weights(model.network, model.tokenizer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def address(served: Weights) -> str:
    return f"http://127.0.0.1:{served.server_address[1]}/v1"


def test_both_backends_agree(model: TransformersModel, served: Weights) -> None:
    here, there = connect(address(served), "smol", workers=3).score(PAIRS), model.score(PAIRS)
    for found, local in zip(here, there, strict=True):
        assert found.tokens == local.tokens
        np.testing.assert_array_equal(found.offsets, local.offsets)
        np.testing.assert_allclose(found.logprobs, local.logprobs, atol=TOLERANCE)
        assert np.all(found.entropy <= local.entropy + TOLERANCE)
    for lift in (mean_lift, window_lift):
        for i in (0, 2):
            assert lift(here[i], here[i + 1]) == pytest.approx(lift(there[i], there[i + 1]), abs=TOLERANCE)


def test_the_entropy_of_all_tokens_is_the_local_one(model: TransformersModel, served: Weights) -> None:
    found = connect(address(served), "smol")
    found._top = len(model.tokenizer)
    pair = Prompted("It is", " 330 m")
    np.testing.assert_allclose(found.score([pair])[0].entropy, model.score([pair])[0].entropy, atol=1e-3)


def test_text_gives_the_same_where_a_token_begins_with_the_response(model: TransformersModel, served: Weights) -> None:
    served.tokenizes = False
    joined = connect(address(served), "smol")
    pairs = [Prompted(pair.prompt.rstrip(), f" {pair.response}") for pair in PAIRS[:4]]
    for found, local in zip(joined.score(pairs), model.score(pairs), strict=True):
        np.testing.assert_array_equal(found.offsets, local.offsets)
        np.testing.assert_allclose(found.logprobs, local.logprobs, atol=TOLERANCE)
    with pytest.raises(FedsrcError, match="' The' lies across the end of the prompt"):
        joined.score(PAIRS[:1])
