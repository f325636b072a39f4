"""A language model behind an OpenAI-compatible server that returns log-probabilities of its prompt, vLLM above all.

The server tokenises prompt and response apart and gets them back as one list of token ids, so that a response has the
same tokens whatever stands before it. A server without vLLM's `/tokenize` gets text; then a token must begin where the
response does. What a server says is outside input: it is checked whole, and what a server cannot do is an error.

Entropy is a lower bound: that of the `top` most probable tokens, with all others together as one more outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.scores.models import server_answers as answers
from fedsrc.scores.models.drawing import cut, request_seed
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted, no_token
from fedsrc.scores.models.server_client import NO_ECHO, NOT_CUT, SMALL, Client, Refused, open_client, plain_words
from fedsrc.scores.models.token_text import common_prefix, spans_of_tokens

PER_ENTRY = 256  # bytes for one token of an answer, or one alternative of it
ALIGNED = 0.5  # how far two computations of one log-probability may lie apart (bfloat16, another batch)
WEEK = Prompted("Monday, Tuesday, Wednesday, Thursday,", " Friday, Saturday")


class ServerModel:
    """A model that a server runs. Build one with `connect`."""

    def __init__(self, client: Client, model: str, identity: dict[str, str], *, top: int, workers: int) -> None:
        self._client, self._model, self.identity = client, model, identity
        self._top, self._workers = top, workers

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Score every pair, several requests at once; results come in the order of the pairs."""
        with ThreadPoolExecutor(self._workers) as pool:
            texts = list(dict.fromkeys(pair.response for pair in pairs))
            responses = dict(zip(texts, pool.map(self._response, texts), strict=True))
            return list(pool.map(lambda pair: self._scores(self._echoed(pair, responses[pair.response])), pairs))

    def _scores(self, echoed: answers.Echoed) -> TokenScores:
        return answers.scores_of(echoed, self._top, self._client.completions)

    def _echoed(self, pair: Prompted, response: answers.Response | None) -> answers.Echoed:
        """Return the response's part of what the server says when it is sent the pair."""
        url = self._client.completions
        if response is None:
            return answers.found_by_offset(pair, self._complete(pair.prompt + pair.response), url)
        prompt = self._tokenize(pair.prompt, special=True).tokens
        if not prompt:
            raise FedsrcError(
                "a prompt without a token leaves the first token of the response without a log-probability",
                hint="give a prompt that is not empty",
            )
        ids = [*prompt, *response.ids]
        if len(ids) >= response.limit:
            takes = f"the server takes {response.limit:,}, one of them to be written"
            raise FedsrcError(f"prompt and response have {len(ids):,} tokens; {takes}", hint=NOT_CUT)
        return answers.found_by_count(prompt, response, self._complete(ids), url)

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        """Draw every response by a request and a seed of its own, so that none depends on how many are asked for."""
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(lambda each: self._sample(each, how), wanted))

    def _sample(self, wanted: Wanted, how: Sampling) -> Sample:
        url = self._client.completions
        body = {
            "prompt": wanted.prompt,
            "logprobs": 1,
            "max_tokens": how.max_tokens,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "stop": list(how.stops),
            "seed": request_seed(wanted, how.seed),
        }
        choice = self._completion(body, 4 * how.max_tokens).choices[0]
        if choice.finish_reason not in ("stop", "length"):
            reason = plain_words(choice.finish_reason or "no reason")
            raise FedsrcError(f"the server stopped early: {reason}", where=url)
        said = (choice.logprobs and choice.logprobs.token_logprobs) or []
        logprobs = [each for each in said if each is not None]
        if not logprobs or len(logprobs) < len(said) or min(logprobs) <= answers.ZERO:
            hint = "use a server whose /v1/completions returns log-probabilities of generated tokens (logprobs: 1)"
            raise FedsrcError("the server gave no log-probabilities of what it drew", where=url, hint=hint)
        text = cut(choice.text, how.stops)
        finished = choice.finish_reason == "stop" or text is not None
        return Sample(choice.text if text is None else text, np.asarray(logprobs, dtype=np.float64), finished)

    def _response(self, text: str) -> answers.Response | None:
        """Return a response as tokens, the same for every prompt, or None where the server cannot tokenise."""
        found = self._tokenize(text, special=False) if self._client.tokenizes else None
        if not (_encoded(text) if found is None else found.tokens):
            raise no_token()
        if found is None:
            return None
        spans = None if found.token_strs is None else spans_of_tokens(text, found.token_strs)
        if spans is None:
            spans = self._spans_by_prefix(text, found.tokens)
        names = found.token_strs or [text[a:b] for a, b in spans.tolist()]
        return answers.Response(found.tokens, tuple(names), spans, found.max_model_len)

    def _tokenize(self, text: str, *, special: bool) -> answers.Tokenized:
        body = {"model": self._model, "prompt": text, "add_special_tokens": special, "return_token_strs": True}
        url = f"{self._client.root}/tokenize"
        found = self._client.ask(answers.Tokenized, url, body, SMALL + PER_ENTRY * len(_encoded(text)))
        if {found.count, len(found.tokens if found.token_strs is None else found.token_strs)} != {len(found.tokens)}:
            raise FedsrcError("the server's count of tokens is not the number of tokens it lists", where=url)
        return found

    def _spans_by_prefix(self, text: str, ids: Sequence[int]) -> Ints:
        """Find each token's characters by asking for the text of ever longer beginnings: slow, for odd tokenizers."""
        url = f"{self._client.root}/detokenize"
        known, said, spans = 0, "", []
        for count in range(1, len(ids) + 1):
            body = {"model": self._model, "tokens": list(ids[:count])}
            said = self._client.ask(answers.Detokenized, url, body, SMALL + PER_ENTRY * len(ids)).prompt
            clean = common_prefix(said, text)
            spans.append((known, max(known, clean + (len(said) > clean))))
            known = max(known, clean)
        if said != text:
            raise FedsrcError(
                "the tokens of a response do not spell it: its characters cannot be placed",
                where=url,
                hint="the tokenizer changes the text; use a model whose tokenizer keeps it",
            )
        return np.asarray(spans, dtype=np.int64)

    def _complete(self, prompt: str | list[int], *, echo: bool = True) -> answers.Completion:
        """Ask for log-probabilities. Sampling is plain, since some servers let it change them."""
        body = {"prompt": prompt, "echo": echo, "logprobs": self._top, "temperature": 1.0, "top_p": 1.0}
        body["max_tokens"] = 1  # some servers read 0 as no limit
        if self._client.tokenizes:
            body |= {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_tokens_as_token_ids": True}
        tokens = len(prompt) if isinstance(prompt, list) else len(_encoded(prompt))
        return self._completion(body, (tokens + 1) * (self._top + 2))

    def _completion(self, body: dict[str, Any], entries: int) -> answers.Completion:
        body = {"model": self._model, "presence_penalty": 0.0, "frequency_penalty": 0.0, **body}
        return self._client.ask(answers.Completion, self._client.completions, body, SMALL + PER_ENTRY * entries)

    def check_alignment(self) -> None:
        """Refuse a server that is off by one: an echoed token's probability must be the one it had when it was next."""
        url = self._client.completions
        echoed = self._echoed(WEEK, self._response(WEEK.response))
        scores, own = self._scores(echoed), echoed.said.tokens[0]
        tokenizes = self._client.tokenizes
        prompt = self._tokenize(WEEK.prompt, special=True).tokens if tokenizes else WEEK.prompt
        said = self._complete(prompt, echo=False).choices[0].logprobs
        tops = None if said is None else said.top_logprobs
        if not tops or not tops[0]:
            raise FedsrcError("the server gives no log-probabilities", where=url, hint=NO_ECHO)
        away = scores.logprobs[0] - tops[0].get(own, min(tops[0].values()))
        if away > ALIGNED or (own in tops[0] and away < -ALIGNED):
            raise FedsrcError(
                "the server's log-probabilities of the prompt belong to other positions than its tokens",
                where=url,
                hint="llama-cpp-python does this for models without a beginning-of-sequence token; use another server",
            )


def connect(
    base_url: str,
    model: str,
    *,
    api_key: str | None = None,
    revision: str | None = None,
    workers: int = 8,
    timeout: float = 120.0,
    top: int = 20,
    echo: bool = True,
) -> ServerModel:
    """Connect to a model at an address such as http://localhost:8000/v1; ask the server what it is, and try it once.

    Without `echo` it is only asked to draw responses, which servers can do that give no prompt log-probabilities.
    `revision` is your word on the weights, which servers do not tell. A request that fails for a passing reason is
    retried a few times; one that takes longer than `timeout` seconds is not.
    """
    if workers < 1 or top < 1 or not 0 < timeout < math.inf:
        raise FedsrcError("workers and top must be at least 1, and timeout a number of seconds above zero")
    client = open_client(base_url, api_key, timeout)
    listed = _listed(client, model)
    client = replace(client, tokenizes=_tokenizes(client, model))
    identity = {
        "backend": "openai-compatible",
        "model": model,
        "revision": revision or _told(listed),
        "tokenizer": f"the server's, prompt and response {'apart' if client.tokenizes else 'joined'}",
        "server": _server(client, listed),
        "entropy": f"top-{top} lower bound",
    }
    found = ServerModel(client, model, identity, top=top, workers=workers)
    if echo:
        found.check_alignment()
    return found


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FedsrcError("a prompt or response is not valid text (half of a surrogate pair)") from error


def _listed(client: Client, model: str) -> answers.Listed | None:
    """Return what the server's list says of the model; None where there is no list."""
    url = f"{client.base}/models"
    try:
        listed = client.ask(answers.Models, url, None, 8 * SMALL).data
    except Refused as refused:
        if refused.status in (404, 405, 501):
            return None
        raise
    found = next((each for each in listed if each.id == model), None)
    if found is None:
        names = ", ".join(repr(plain_words(each.id)) for each in listed[:5])
        raise FedsrcError(f"the server has no model {model!r}", where=url, hint=f"it has {names or 'none'}")
    return found


def _told(listed: answers.Listed | None) -> str:
    """Return the revision as far as a server tells it: what it loaded the model from."""
    root = plain_words(listed.root) if listed and listed.root else ""
    return f"not told by the server, which loaded {root}" if root else "not told by the server"


def _server(client: Client, listed: answers.Listed | None) -> str:
    owner = plain_words(listed.owned_by) if listed and listed.owned_by else "unknown"
    try:
        version = plain_words(client.ask(answers.Version, f"{client.root}/version", None, SMALL).version)
    except FedsrcError:
        version = ""
    return f"{'vLLM' if owner == 'vllm' else owner} {version}".strip()


def _tokenizes(client: Client, model: str) -> bool:
    """Return whether the server has `/tokenize` as vLLM does; other servers have others under the same name."""
    body = {"model": model, "prompt": "a", "add_special_tokens": False}
    try:
        said = client.fetch(f"{client.root}/tokenize", body, SMALL)
        return bool(answers.Tokenized.model_validate_json(said).tokens)
    except Refused as refused:
        if refused.status in (400, 404, 405, 415, 422, 501):
            return False
        raise
    except ValidationError:
        return False
