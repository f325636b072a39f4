"""Requests to an OpenAI-compatible server: retried when the trouble may pass, bounded in size and time, key unseen."""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from fedsrc.errors import FedsrcError

PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each new attempt
LONGEST_PAUSE = 60.0  # whatever the server asks for
PASSING = {429, 500, 502, 503, 504}
REDIRECTS = {301, 302, 303, 307, 308}
SMALL = 1 << 20  # bytes of an answer that carries no arrays

NO_ECHO = (
    "use a server that returns log-probabilities of the prompt (vLLM does); "
    "the llama.cpp server, Ollama and chat endpoints give those of generated tokens only"
)
NOT_CUT = "use a longer context (vLLM: --max-model-len), or shorten the evidence yourself: nothing is cut silently"
FEWER = "lower top, or start the server with more (vLLM: --max-logprobs)"

_sleep, _now = time.sleep, time.monotonic
Answer = TypeVar("Answer", bound=BaseModel)


class Refused(FedsrcError):  # noqa: N818
    """The server answered with a status that is an error."""

    def __init__(self, status: int, what: str, *, where: str, hint: str | None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status = status


class _Passing(Exception):  # noqa: N818
    """Something that may be gone after a pause: what to say if it is not, and how long the server asks to wait."""

    def __init__(self, final: FedsrcError, wait: float = 0.0) -> None:
        super().__init__(str(final))
        self.final, self.wait = final, wait


def _opener() -> urllib.request.OpenerDirector:
    """Open http and https alone; follow no redirect, which would carry the key and the texts wherever it points."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


@dataclass(frozen=True)
class Client:
    """Requests to one server. The key goes to that server alone and is never shown."""

    base: str
    key: str | None = field(repr=False)
    timeout: float
    tokenizes: bool = False
    opener: urllib.request.OpenerDirector = field(default_factory=_opener, repr=False)

    @property
    def root(self) -> str:
        return self.base.removesuffix("/v1")

    @property
    def completions(self) -> str:
        return f"{self.base}/completions"

    def ask(self, kind: type[Answer], url: str, body: dict[str, Any] | None, limit: int) -> Answer:
        """Return the answer to a request, parsed."""
        data = self.fetch(url, body, limit)
        try:
            return kind.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            said = plain_words(f"{'.'.join(map(str, first['loc']))} {first['msg']}")
            hint = "is this an OpenAI-compatible server, and vLLM or one that returns the same?"
            raise FedsrcError(f"the server's answer is not what it should be: {said}", where=url, hint=hint) from error

    def fetch(self, url: str, body: dict[str, Any] | None, limit: int) -> bytes:
        """Return the answer to a request, at most `limit` bytes; retry when the trouble may pass."""
        pauses = iter(PAUSES)
        while True:
            try:
                return self._once(url, body, limit)
            except _Passing as passing:
                pause = next(pauses, None)
                if pause is None:
                    raise passing.final from passing
                _sleep(max(pause, passing.wait))

    def _once(self, url: str, body: dict[str, Any] | None, limit: int) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "fedsrc"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310  http and https alone, see _address
        try:
            with self.opener.open(request, timeout=self.timeout) as answer:
                return _read(answer, limit, _now() + self.timeout, url)
        except HTTPError as error:
            with error:
                refused = _refused(error.code, _message(error, self.key), url)
                raise (_Passing(refused, _wait(error)) if error.code in PASSING else refused) from None
        except (OSError, HTTPException) as error:
            raise self._trouble(error, url) from error

    def _trouble(self, error: Exception, url: str) -> Exception:
        """Return what a failed connection means."""
        reason = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
        if isinstance(reason, TimeoutError):
            return FedsrcError(
                f"no complete answer within {self.timeout:g} seconds", where=url, hint="raise timeout, or lower workers"
            )
        if isinstance(reason, ConnectionResetError | BrokenPipeError | ConnectionAbortedError | IncompleteRead):
            hint = "look at the server's log; lower workers if it is overloaded"
            return _Passing(FedsrcError("the server keeps closing the connection", where=url, hint=hint))
        said = plain_words(str(reason)) or type(reason).__name__
        return FedsrcError(f"the server cannot be reached: {said}", where=url, hint="check the address and the server")


def _read(answer: HTTPResponse, limit: int, deadline: float, url: str) -> bytes:
    """Read the whole body, within a size and a time."""
    parts, size = [], 0
    while part := answer.read1(1 << 16):
        size += len(part)
        parts.append(part)
        if size > limit:
            raise FedsrcError(f"the server's answer is longer than {limit:,} bytes", where=url)
        if _now() > deadline:
            raise TimeoutError
    declared = answer.headers.get("Content-Length", "")
    if declared.isdecimal() and size != int(declared):
        raise IncompleteRead(b"")
    return b"".join(parts)


def _refused(status: int, message: str, url: str) -> Refused:
    """Put an error status into words: what the server said, and what to do about it."""
    lower = message.lower()
    what, hint = f"the server answered {status}: {message or 'nothing'}", None
    if status in REDIRECTS:
        what, hint = f"the server redirects ({status}), which is not followed", "give the address it points to"
    elif status in (401, 403):
        hint = "check the API key"
    elif status == 429 or status >= 500:
        hint = "wait until the server has recovered, or lower workers"
    elif re.search(r"context|too long|max_model_len|exceed", lower) and "logprobs" not in lower:
        what, hint = f"prompt and response are longer than the model takes: {message}", NOT_CUT
    elif "echo" in lower:
        hint = NO_ECHO
    elif "logprobs" in lower:
        hint = FEWER
    elif status == 404:
        hint = "check the model's name and the address, which often ends in /v1"
    return Refused(status, what, where=url, hint=hint)


def _message(error: HTTPError, key: str | None) -> str:
    """Return what an error's body says, as one short line without the key."""
    try:
        body = error.read(SMALL)
    except (OSError, HTTPException):
        return ""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = body.decode("utf-8", errors="replace")
    for name in ("error", "message", "detail"):
        said = said.get(name, said) if isinstance(said, dict) else said
    text = said if isinstance(said, str) else json.dumps(said)
    return plain_words(text.replace(key, "***") if key else text)


def _wait(error: HTTPError) -> float:
    """Return how long the server asks to wait, within reason."""
    said = (error.headers.get("Retry-After") or "").strip()
    return min(float(said), LONGEST_PAUSE) if re.fullmatch(r"[0-9]{1,9}", said) else 0.0


def open_client(base_url: str, api_key: str | None, timeout: float) -> Client:
    """Return a client for an address and a key, both checked."""
    return Client(_address(base_url), _key(api_key), timeout)


def plain_words(text: str) -> str:
    """Make foreign text fit for a message: one line, printable, short."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= 200 else f"{line[:200]}..."


def _address(base_url: str) -> str:
    """Return the address without a slash at its end; refuse one that could hold a secret without showing it."""
    hint = "give an address such as http://localhost:8000/v1"
    try:
        parts = urlsplit(base_url)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise FedsrcError("the server's address is not an address", hint=hint) from error
    if not known or not base_url.isascii() or not base_url.isprintable() or " " in base_url:
        raise FedsrcError("the server's address is not an http or https address", hint=hint)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise FedsrcError("the server's address holds a name, a password or a query", hint="give the key as api_key")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _key(api_key: str | None) -> str | None:
    """Return the key if it can stand in a header; its text is in no message."""
    if api_key is not None and not re.fullmatch(r"[!-~]+", api_key):
        raise FedsrcError("the API key is empty or holds a character that no key has", hint="check for line breaks")
    return api_key
