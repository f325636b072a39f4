"""The labelling page: to browsers on this machine that know its address, which holds a secret."""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedsrc.common import local_page
from fedsrc.common.durable import read_text, write_whole
from fedsrc.common.values import Frozen, Name
from fedsrc.errors import FedsrcError
from fedsrc.labelling.desk import Desk, Screen, StaleError
from fedsrc.labelling.queue import WORDS, tidy_name

HOST = "127.0.0.1"
MOST = 200_000  # bytes of a question to the server


class Ask(Frozen):
    """What a browser wants to see: the next answer, or the one before another."""

    by: Name
    back: str | None = None


class Said(Frozen):
    """A person's word on what they were shown."""

    by: Name
    answer: str
    word: str
    shown: str
    head: str


class Handler(local_page.Handler):
    """Answers whoever knows the secret: GET of the page, and the page's own questions by POST."""

    server: Server
    words = {**local_page.Handler.words, 403: "only the page itself may ask", 405: "not a method of this page"}  # noqa: RUF012
    allowed = "GET, HEAD, POST"

    def do_GET(self) -> None:
        if self.is_named():
            if self._asked() == "":
                self.answer(200, _page().encode(), "text/html; charset=utf-8")
            else:
                self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        if not self.is_named():
            return
        asked = self._asked()
        if self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            self.send_error(403)
        elif asked not in ("ask", "label"):
            self.send_error(404)
        else:
            self.answer(*self._replied(asked), "application/json")

    def _asked(self) -> str | None:
        """Return what is asked for, if the address holds the secret."""
        _, secret, *rest = self.path.split("/", 2)
        known = hmac.compare_digest(secret.encode(), self.server.secret.encode())
        return rest[0] if known and rest else None

    def _replied(self, asked: str) -> tuple[int, bytes]:
        try:
            length = self.headers.get("Content-Length", "")
            fields = json.loads(self.rfile.read(int(length)) if length.isdecimal() and int(length) <= MOST else b"")
            found = self.server.told(asked, fields)
        except StaleError as error:
            return 409, _json({"words": error.what})
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):  # a name, too, that is none
            return 400, _json({"words": "Give a name of at most 100 letters, on one line."})
        except FedsrcError as error:  # it is not on disk: the page sends it again
            return 503, _json({"words": error.what})
        return 200, _json(found)


class Server(local_page.Server):
    """The labelling page's server; with `by` everybody is that person."""

    def __init__(self, desk: Desk, secret: str, port: int, by: str | None) -> None:
        self.desk, self.secret, self.by = desk, secret, by
        super().__init__(HOST, port, Handler, local_page.policy(_asset("css"), _asset("js"), header=True))

    @property
    def url(self) -> str:
        return f"{super().url}{self.secret}/"

    def told(self, asked: str, fields: dict[str, Any]) -> Screen:
        """Answer the page's question."""
        by = self.by or tidy_name(fields.get("by", ""))
        if not by:
            return {"kind": "name"}
        if asked == "ask":
            ask = Ask.model_validate({**fields, "by": by})
            return self.desk.ask(ask.by, ask.back)
        said = Said.model_validate({**fields, "by": by})
        return self.desk.take(said.by, said.answer, WORDS[said.word], said.shown, said.head)


@contextlib.contextmanager
def serving(desk: Desk, secret: str, port: int, by: str | None = None) -> Iterator[Server]:
    """Serve the page until the block ends."""
    server = Server(desk, secret, port, by)
    with server.running():
        yield server


def kept_secret(path: Path) -> str:
    """Return the secret of a page's address, kept beside its labels: the page survives a restart of its server."""
    if not path.exists() or not path.stat().st_size:
        write_whole(path, secrets.token_urlsafe(24).encode(), mode=0o600)
    return read_text(path, 1000)


def _json(value: Screen) -> bytes:
    return json.dumps(value).encode()


@lru_cache(maxsize=1)
def _page() -> str:
    """Return the page with its style and its script in it."""
    style, script = _asset("css"), _asset("js")
    return _asset("html").replace("STYLE", style).replace("SCRIPT", script)


@lru_cache(maxsize=3)
def _asset(kind: str) -> str:
    return files("fedsrc.labelling").joinpath(f"assets/label.{kind}").read_text("utf-8")
