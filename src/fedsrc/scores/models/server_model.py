"""A language model behind an OpenAI-compatible server that returns log-probabilities of its prompt, vLLM above all.

The server tokenises prompt and response apart and gets them back as one list of token ids, so that a response has the
same tokens whatever stands before it. A server without vLLM's `/tokenize` gets text; then a token must begin where the
response does. What a server says is outside input: it is checked whole, and what a server cannot do is an error.

Entropy is a lower bound: that of the `top` most probable tokens, with all others together as one more outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.scores.models.drawing import cut, request_seed
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted, no_token
from fedsrc.scores.models.server_client import (
    FEWER,
    NO_DRAWN,
    NO_ECHO,
    NOT_CUT,
    SMALL,
    Client,
    Refused,
    address_of,
    checked_key,
    plain_words,
)
from fedsrc.scores.models.token_text import common_prefix, spans_of_tokens

PER_ENTRY = 256  # bytes for one token of an answer, or one alternative of it
ZERO = -9999.0  # what servers write for a probability of zero
MASS_SLACK = 1e-3  # float32 sums
ALIGNED = 0.5  # how far two computations of one log-probability may lie apart (bfloat16, another batch)
WEEK = Prompted("Monday, Tuesday, Wednesday, Thursday,", " Friday, Saturday")

Model = TypeVar("Model", bound=BaseModel)
LogProb = Annotated[float, Field(le=1e-6)]


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
            return list(pool.map(lambda pair: self._score(pair, responses[pair.response]), pairs))

    def _score(self, pair: Prompted, response: _Response | None) -> TokenScores:
        return _scores(self._echoed(pair, response), self._top, self._client.completions)

    def _echoed(self, pair: Prompted, response: _Response | None) -> _Echoed:
        """The response's part of what the server says when it is sent the pair."""
        if response is None:
            answer = self._complete(pair.prompt + pair.response)
            return _found_by_offset(pair, answer, self._client.completions)
        prompt = self._tokenize(pair.prompt, special=True).tokens
        if not prompt:
            raise FedsrcError(
                "a prompt without a token leaves the first token of the response without a log-probability",
                hint="give a prompt that is not empty",
            )
        if len(prompt) + len(response.ids) >= response.limit:
            raise FedsrcError(
                f"prompt and response have {len(prompt) + len(response.ids):,} tokens; "
                f"the server takes {response.limit:,}, one of them to be written",
                hint=NOT_CUT,
            )
        return _found_by_count(prompt, response, self._complete([*prompt, *response.ids]), self._client.completions)

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        """Draw every response by a request and a seed of its own, so that none depends on how many are asked for."""
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(lambda each: self._sample(each, how), wanted))

    def _sample(self, wanted: Wanted, how: Sampling) -> Sample:
        url = self._client.completions
        body = {
            "model": self._model,
            "prompt": wanted.prompt,
            "logprobs": 1,
            "max_tokens": how.max_tokens,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "stop": list(how.stops),
            "seed": request_seed(wanted, how.seed),
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        limit = SMALL + PER_ENTRY * how.max_tokens * 4
        choice = _parsed(_Completion, self._client.ask(url, body, limit), url).choices[0]
        if choice.finish_reason not in ("stop", "length"):
            raise FedsrcError(f"the server broke off: {plain_words(choice.finish_reason or 'no reason')}", where=url)
        said = None if choice.logprobs is None else choice.logprobs.token_logprobs
        logprobs = [each for each in said or () if each is not None]
        if not logprobs or len(logprobs) < len(said or ()) or min(logprobs) <= ZERO:
            raise FedsrcError("the server gave no log-probabilities of what it drew", where=url, hint=NO_DRAWN)
        text = cut(choice.text, how.stops)
        finished = choice.finish_reason == "stop" or text is not None
        return Sample(choice.text if text is None else text, np.asarray(logprobs, dtype=np.float64), finished)

    def _response(self, text: str) -> _Response | None:
        """A response as tokens, or None where the server cannot tokenise; the same for every prompt."""
        found = self._tokenize(text, special=False) if self._client.tokenizes else None
        if not (_encoded(text) if found is None else found.tokens):
            raise no_token()
        if found is None:
            return None
        spans = None if found.token_strs is None else spans_of_tokens(text, found.token_strs)
        if spans is None:
            spans = self._spans_by_prefix(text, found.tokens)
        names = found.token_strs or [text[a:b] for a, b in spans.tolist()]
        return _Response(found.tokens, tuple(names), spans, found.max_model_len)

    def _tokenize(self, text: str, *, special: bool) -> _Tokenized:
        body = {"model": self._model, "prompt": text, "add_special_tokens": special, "return_token_strs": True}
        url = f"{self._client.root}/tokenize"
        found = _parsed(_Tokenized, self._client.ask(url, body, SMALL + PER_ENTRY * len(_encoded(text))), url)
        names = found.token_strs
        if found.count != len(found.tokens) or (names is not None and len(names) != len(found.tokens)):
            raise FedsrcError("the server's count of tokens is not the number of tokens it lists", where=url)
        return found

    def _spans_by_prefix(self, text: str, ids: Sequence[int]) -> Ints:
        """Characters of each token, by asking for the text of ever longer beginnings. Slow, for odd tokenizers only."""
        url = f"{self._client.root}/detokenize"
        known, said, spans = 0, "", []
        for count in range(1, len(ids) + 1):
            body = {"model": self._model, "tokens": list(ids[:count])}
            said = _parsed(_Detokenized, self._client.ask(url, body, SMALL + PER_ENTRY * len(ids)), url).prompt
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

    def _complete(self, prompt: str | list[int], *, echo: bool = True) -> _Completion:
        """One request for log-probabilities. Sampling is plain, since some servers let it change them."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "echo": echo,
            "logprobs": self._top,
            "max_tokens": 1,  # some servers read 0 as no limit
            "temperature": 1.0,
            "top_p": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }
        if self._client.tokenizes:
            body |= {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_tokens_as_token_ids": True}
        tokens = len(prompt) if isinstance(prompt, list) else len(_encoded(prompt))
        limit = SMALL + PER_ENTRY * (tokens + 1) * (self._top + 2)
        url = self._client.completions
        return _parsed(_Completion, self._client.ask(url, body, limit), url)

    def _check_alignment(self) -> None:
        """A token's probability when echoed must be the one it had when it was next: some servers are off by one."""
        echoed = self._echoed(WEEK, self._response(WEEK.response))
        scores, own = _scores(echoed, self._top, self._client.completions), echoed.tokens[0]
        prompt: str | list[int] = WEEK.prompt
        if self._client.tokenizes:
            prompt = self._tokenize(WEEK.prompt, special=True).tokens
        said = self._complete(prompt, echo=False).choices[0].logprobs
        tops = None if said is None else said.top_logprobs
        if not tops or not tops[0]:
            raise FedsrcError("the server gives no log-probabilities", where=self._client.completions, hint=NO_ECHO)
        away = scores.logprobs[0] - tops[0].get(own, min(tops[0].values()))
        if away > ALIGNED or (own in tops[0] and away < -ALIGNED):
            raise FedsrcError(
                "the server's log-probabilities of the prompt belong to other positions than its tokens",
                where=self._client.completions,
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
    """A model at an address such as http://localhost:8000/v1. The server is asked what it is and tried once.

    Without `echo` it is only asked to draw responses, which servers can do that give no prompt log-probabilities.

    `revision` is your word on the weights, which servers do not tell. Requests that fail for a passing reason are sent
    again a few times; a request that takes longer than `timeout` seconds is not.
    """
    if workers < 1 or top < 1 or not 0 < timeout < math.inf:
        raise FedsrcError("workers and top must be at least 1, and timeout a number of seconds above zero")
    client = Client(address_of(base_url), checked_key(api_key), timeout)
    listed = _listed(client, model)
    client = Client(client.base, client.key, timeout, tokenizes=_tokenizes(client, model))
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
        found._check_alignment()
    return found


def top_entropy(logprobs: Iterable[float], top: int) -> float:
    """Entropy of the `top` largest, with the remaining probability as one outcome: at most the true entropy."""
    largest = np.minimum(sorted(logprobs, reverse=True)[:top], 0.0)
    p = np.exp(largest)
    rest = max(0.0, 1.0 - float(p.sum()))
    return float(-(p * largest).sum()) - (rest * math.log(rest) if rest else 0.0)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class _Tokenized(_Strict):
    count: int
    max_model_len: int
    tokens: list[Annotated[int, Field(ge=0)]]
    token_strs: list[str] | None = None


class _Detokenized(_Strict):
    prompt: str


class _LogProbs(_Strict):
    tokens: list[str] | None = None
    token_logprobs: list[LogProb | None] | None = None
    top_logprobs: list[dict[str, LogProb] | None] | None = None
    text_offset: list[Annotated[int, Field(ge=0, le=1 << 40)]] | None = None


class _Choice(_Strict):
    text: str
    logprobs: _LogProbs | None = None
    finish_reason: str | None = None


class _Usage(_Strict):
    prompt_tokens: int | None = None


class _Completion(_Strict):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage | None = None


class _Listed(_Strict):
    id: str
    root: str | None = None
    owned_by: str | None = None


class _Models(_Strict):
    data: list[_Listed]


class _Version(_Strict):
    version: str


class _Response(NamedTuple):
    """A response as the server tokenises it, and how many tokens the model takes."""

    ids: list[int]
    names: tuple[str, ...]
    spans: Ints
    limit: int


class _Echoed(NamedTuple):
    """What the server said of each token of the response; `tokens` as it writes them, `names` as we do."""

    tokens: list[str]
    names: tuple[str, ...]
    logprobs: list[float | None]
    tops: list[dict[str, float] | None]
    most: int
    spans: Ints


class _Arrays(NamedTuple):
    """The arrays of an answer, over everything that was echoed, all of one length."""

    tokens: list[str]
    logprobs: list[float | None]
    tops: list[dict[str, float] | None]
    offsets: list[int]
    most: int


def _arrays(answer: _Completion, where: str) -> _Arrays:
    choice = answer.choices[0]
    if choice.finish_reason not in (None, "stop", "length"):
        raise FedsrcError(f"the server broke off: {plain_words(choice.finish_reason)}", where=where)
    said = choice.logprobs
    if said is None or said.tokens is None or said.token_logprobs is None:
        raise FedsrcError("the server gave no log-probabilities of the prompt", where=where, hint=NO_ECHO)
    if said.top_logprobs is None:
        raise FedsrcError("the server gave no alternatives to its tokens (top_logprobs)", where=where, hint=NO_ECHO)
    size = len(said.tokens)
    offsets = said.text_offset if said.text_offset is not None else [-1] * size
    if {len(said.token_logprobs), len(said.top_logprobs), len(offsets)} != {size}:
        raise FedsrcError("the server's arrays of tokens and log-probabilities differ in length", where=where)
    most = max((len(each) for each in said.top_logprobs if each is not None), default=0)
    return _Arrays(said.tokens, said.token_logprobs, said.top_logprobs, offsets, most)


def _found_by_count(prompt: list[int], response: _Response, answer: _Completion, where: str) -> _Echoed:
    """The response in an answer to token ids: the last of those that were sent, each checked where it can be."""
    ids = [*prompt, *response.ids]
    said = _arrays(answer, where)
    echoed = answer.usage.prompt_tokens if answer.usage and answer.usage.prompt_tokens is not None else len(ids)
    if len(said.tokens) <= 1 < len(ids):
        raise FedsrcError("the server did not echo the prompt", where=where, hint=NO_ECHO)
    if echoed != len(ids) or len(said.tokens) not in (len(ids), len(ids) + 1):
        raise FedsrcError(
            f"{len(ids):,} tokens were sent, and the server scored {min(echoed, len(said.tokens)):,}",
            where=where,
            hint=NOT_CUT,
        )
    if said.tokens[0].startswith("token_id:") and said.tokens[: len(ids)] != [f"token_id:{each}" for each in ids]:
        raise FedsrcError("the server echoed other tokens than it was sent", where=where, hint="use another server")
    part = slice(len(prompt), len(ids))
    return _Echoed(said.tokens[part], response.names, said.logprobs[part], said.tops[part], said.most, response.spans)


def _found_by_offset(pair: Prompted, answer: _Completion, where: str) -> _Echoed:
    """The response in an answer to text: the tokens from the character on where it begins, which one must begin at."""
    said, text = _arrays(answer, where), answer.choices[0].text
    begin, end = len(pair.prompt), len(pair.prompt) + len(pair.response)
    if text[:end] != pair.prompt + pair.response or not said.tokens:
        raise FedsrcError("the server did not echo the prompt", where=where, hint=NO_ECHO)
    head, tail = said.tokens[0], said.tokens[-1]
    unseen = 0 if text.startswith(head) or "\ufffd" in head else len(head)  # a beginning-of-sequence token
    starts = np.asarray([each - unseen for each in said.offsets], dtype=np.int64)
    ends = np.append(starts[1:], starts[-1] + len(tail) if tail.strip("\ufffd") else len(text))
    if np.any(ends < starts) or starts[0] + unseen != 0:
        raise FedsrcError("the server's places of tokens in the text (text_offset) are missing or wrong", where=where)
    if begin not in starts:
        across = said.tokens[int(np.searchsorted(starts, begin)) - 1]
        raise FedsrcError(
            f"the token {across[:40]!r} lies across the end of the prompt and the beginning of the response",
            where=where,
            hint="use a server with /tokenize (vLLM), or move the space at the end of the prompt into the response",
        )
    part = slice(int(np.searchsorted(starts, begin)), int(np.searchsorted(starts, end)))
    tokens, spans = said.tokens[part], np.stack([starts[part], ends[part]], axis=1)
    if not tokens or spans[-1, 1] != end or not all(map(_fits, tokens, (text[a:b] for a, b in spans.tolist()))):
        raise FedsrcError(
            "the server's tokens do not spell the response",
            where=where,
            hint="its text_offset does not count characters, or tokens are missing: use a server with /tokenize (vLLM)",
        )
    names = tuple(text[a:b] for a, b in spans.tolist())
    return _Echoed(tokens, names, said.logprobs[part], said.tops[part], said.most, spans - begin)


def _fits(token: str, span: str) -> bool:
    """A token says its characters; one that holds part of a character may say less."""
    readable = token.replace("\ufffd", "")
    return token == span or (not readable and len(span) <= 1) or (token != readable and readable in span)


def _scores(found: _Echoed, top: int, where: str) -> TokenScores:
    """Token scores from a response's part of an answer, every number checked."""
    logprobs = [each for each in found.logprobs if each is not None]
    tops = [each for each in found.tops if each]
    if len(logprobs) < len(found.logprobs) or len(tops) < len(found.tops):
        raise FedsrcError(
            "the server left tokens of the response without a log-probability",
            where=where,
            hint="give a prompt that is not empty; with an old vLLM, start it with --no-enable-prefix-caching",
        )
    if found.most < top:
        raise FedsrcError(f"{top} alternatives were asked for; the server gives {found.most}", where=where, hint=FEWER)
    if min(logprobs) <= ZERO:
        raise FedsrcError("the server gives a token of the response no probability at all", where=where)
    for own, each in zip(logprobs, tops, strict=True):
        if sum(map(math.exp, each.values())) > 1 + MASS_SLACK or own > max(each.values()) + MASS_SLACK:
            raise FedsrcError("the server's probabilities at one position do not fit together", where=where)
    entropy = np.asarray([top_entropy(each.values(), top) for each in tops], dtype=np.float64)
    return TokenScores(found.names, np.asarray(logprobs, dtype=np.float64), entropy, found.spans)


def _parsed(kind: type[Model], body: bytes, where: str) -> Model:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        said = plain_words(f"{'.'.join(map(str, first['loc']))} {first['msg']}")
        raise FedsrcError(
            f"the server's answer is not what it should be: {said}",
            where=where,
            hint="is this an OpenAI-compatible server, and vLLM or one that returns the same?",
        ) from error


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FedsrcError("a prompt or response is not valid text (half of a surrogate pair)") from error


def _listed(client: Client, model: str) -> _Listed | None:
    """What the server's list says of the model; None where there is no list."""
    url = f"{client.base}/models"
    try:
        listed = _parsed(_Models, client.ask(url, None, 8 * SMALL), url).data
    except Refused as refused:
        if refused.status in (404, 405, 501):
            return None
        raise
    found = next((each for each in listed if each.id == model), None)
    if found is None:
        names = ", ".join(repr(plain_words(each.id)) for each in listed[:5])
        raise FedsrcError(f"the server has no model {model!r}", where=url, hint=f"it has {names or 'none'}")
    return found


def _told(listed: _Listed | None) -> str:
    """The revision as far as a server tells it: what it loaded the model from."""
    root = plain_words(listed.root) if listed and listed.root else ""
    return f"not told by the server, which loaded {root}" if root else "not told by the server"


def _server(client: Client, listed: _Listed | None) -> str:
    owner = plain_words(listed.owned_by) if listed and listed.owned_by else "unknown"
    url = f"{client.root}/version"
    try:
        version = plain_words(_parsed(_Version, client.ask(url, None, SMALL), url).version)
    except FedsrcError:
        version = ""
    return f"{'vLLM' if owner == 'vllm' else owner} {version}".strip()


def _tokenizes(client: Client, model: str) -> bool:
    """Whether the server has `/tokenize` as vLLM does; other servers have others under the same name."""
    url, body = f"{client.root}/tokenize", {"model": model, "prompt": "a", "add_special_tokens": False}
    try:
        answer = client.ask(url, body, SMALL)
    except Refused as refused:
        if refused.status in (400, 404, 405, 415, 422, 501):
            return False
        raise
    try:
        return bool(_Tokenized.model_validate_json(answer).tokens)
    except ValidationError:
        return False
