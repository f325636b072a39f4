"""What an OpenAI-compatible server says, checked: its JSON, and the part of a completion that belongs to a response."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Ints
from fedsrc.scores.models.model import Prompted, TokenScores
from fedsrc.scores.models.server_client import FEWER, NO_ECHO, NOT_CUT, plain_words

ZERO = -9999.0  # what servers write for a probability of zero
MASS_SLACK = 1e-3  # float32 sums
LogProb = Annotated[float, Field(le=1e-6)]


class Strict(BaseModel):
    """An answer of a server: other fields are ignored, other types refused."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class Tokenized(Strict):
    """An answer of vLLM's /tokenize."""

    count: int
    max_model_len: int
    tokens: list[Annotated[int, Field(ge=0)]]
    token_strs: list[str] | None = None


class Detokenized(Strict):
    """An answer of vLLM's /detokenize."""

    prompt: str


class _LogProbs(Strict):
    tokens: list[str] | None = None
    token_logprobs: list[LogProb | None] | None = None
    top_logprobs: list[dict[str, LogProb] | None] | None = None
    text_offset: list[Annotated[int, Field(ge=0, le=1 << 40)]] | None = None


class _Choice(Strict):
    text: str
    logprobs: _LogProbs | None = None
    finish_reason: str | None = None


class _Usage(Strict):
    prompt_tokens: int | None = None


class Completion(Strict):
    """An answer of /v1/completions."""

    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage | None = None


class Listed(Strict):
    """One model of a server's list."""

    id: str
    root: str | None = None
    owned_by: str | None = None


class Models(Strict):
    """An answer of /v1/models."""

    data: list[Listed]


class Version(Strict):
    """An answer of vLLM's /version."""

    version: str


class Response(NamedTuple):
    """A response as the server tokenises it, and how many tokens the model takes."""

    ids: list[int]
    names: tuple[str, ...]
    spans: Ints
    limit: int


class _Arrays(NamedTuple):
    """What the server said of each token, all of one length, and the most alternatives that it gave to one."""

    tokens: list[str]
    logprobs: list[float | None]
    tops: list[dict[str, float] | None]
    offsets: list[int]
    most: int


class Echoed(NamedTuple):
    """What the server said of each token of the response; `names` as we write tokens."""

    said: _Arrays
    names: tuple[str, ...]
    spans: Ints


def _arrays(answer: Completion, where: str) -> _Arrays:
    choice = answer.choices[0]
    if choice.finish_reason not in (None, "stop", "length"):
        raise FedsrcError(f"the server stopped early: {plain_words(choice.finish_reason)}", where=where)
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


def _part(said: _Arrays, part: slice) -> _Arrays:
    return _Arrays(said.tokens[part], said.logprobs[part], said.tops[part], said.offsets[part], said.most)


def found_by_count(prompt: list[int], response: Response, answer: Completion, where: str) -> Echoed:
    """Find the response in an answer to token ids: the last of those that were sent, each checked where it can be."""
    ids = [*prompt, *response.ids]
    said = _arrays(answer, where)
    echoed = answer.usage.prompt_tokens if answer.usage and answer.usage.prompt_tokens is not None else len(ids)
    if len(said.tokens) <= 1 < len(ids):
        raise FedsrcError("the server did not echo the prompt", where=where, hint=NO_ECHO)
    if echoed != len(ids) or len(said.tokens) not in (len(ids), len(ids) + 1):
        scored = min(echoed, len(said.tokens))
        raise FedsrcError(f"{len(ids):,} tokens were sent, and the server scored {scored:,}", where=where, hint=NOT_CUT)
    if said.tokens[0].startswith("token_id:") and said.tokens[: len(ids)] != [f"token_id:{each}" for each in ids]:
        raise FedsrcError("the server echoed other tokens than it was sent", where=where, hint="use another server")
    return Echoed(_part(said, slice(len(prompt), len(ids))), response.names, response.spans)


def found_by_offset(pair: Prompted, answer: Completion, where: str) -> Echoed:
    """Find the response in an answer to text: the tokens from its first character on, where one must begin."""
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
    own, spans = _part(said, part), np.stack([starts[part], ends[part]], axis=1)
    names = tuple(text[a:b] for a, b in spans.tolist())
    if not names or spans[-1, 1] != end or not all(map(_fits, own.tokens, names)):
        hint = "its text_offset does not count characters, or tokens are missing: use a server with /tokenize (vLLM)"
        raise FedsrcError("the server's tokens do not spell the response", where=where, hint=hint)
    return Echoed(own, names, spans - begin)


def _fits(token: str, span: str) -> bool:
    """Return whether a token says its characters; one that holds part of a character may say less."""
    readable = token.replace("\ufffd", "")
    return token == span or (not readable and len(span) <= 1) or (token != readable and readable in span)


def scores_of(found: Echoed, top: int, where: str) -> TokenScores:
    """Return token scores from a response's part of an answer, every number checked."""
    logprobs = [each for each in found.said.logprobs if each is not None]
    tops = [each for each in found.said.tops if each]
    if min(len(logprobs), len(tops)) < len(found.said.tokens):
        hint = "give a prompt that is not empty; with an old vLLM, start it with --no-enable-prefix-caching"
        raise FedsrcError("the server left tokens of the response without a log-probability", where=where, hint=hint)
    most = found.said.most
    if most < top:
        raise FedsrcError(f"{top} alternatives were asked for; the server gives {most}", where=where, hint=FEWER)
    if min(logprobs) <= ZERO:
        raise FedsrcError("the server gives a token of the response no probability at all", where=where)
    for own, each in zip(logprobs, tops, strict=True):
        if sum(map(math.exp, each.values())) > 1 + MASS_SLACK or own > max(each.values()) + MASS_SLACK:
            raise FedsrcError("the server's probabilities at one position do not fit together", where=where)
    entropy = np.asarray([top_entropy(each.values(), top) for each in tops], dtype=np.float64)
    return TokenScores(found.names, np.asarray(logprobs, dtype=np.float64), entropy, found.spans)


def top_entropy(logprobs: Iterable[float], top: int) -> float:
    """Return the entropy of the `top` largest, with the rest as one outcome: at most the true entropy."""
    largest = np.minimum(sorted(logprobs, reverse=True)[:top], 0.0)
    p = np.exp(largest)
    rest = max(0.0, 1.0 - float(p.sum()))
    return float(-(p * largest).sum()) - (rest * math.log(rest) if rest else 0.0)
