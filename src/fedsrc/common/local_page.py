"""A page that this process serves, to browsers that name it by its own name: it loads nothing and runs its own code."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedsrc.errors import FedsrcError

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def policy(style: str, script: str | None = None, *, header: bool = False, asks: bool = True) -> str:
    """Return the content security policy: nothing from outside, and of inline code exactly this, by digest. A page that
    `asks` may ask its own server, and no other."""
    parts = ["default-src 'none'", f"style-src {_digest(style)}", "img-src data:", "base-uri 'none'",
             "form-action 'none'"]  # fmt: skip
    if script is not None:
        parts += [f"script-src {_digest(script)}", *(["connect-src 'self'"] if asks else [])]
    if header:
        parts.append("frame-ancestors 'none'")
    return "; ".join(parts)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class Handler(BaseHTTPRequestHandler):
    """Answers in plain words and with strict headers; nothing of a request is repeated or logged."""

    server: Server
    server_version, sys_version, timeout = "fedsrc", "", 10
    words = {421: "this page is not served under that name"}  # noqa: RUF012
    allowed = "GET, HEAD"

    def is_named(self) -> bool:
        """Return whether the caller named this server by its own name; refuse them if not."""
        if names_us(self.headers.get("Host", ""), self.server.names, loopback=self.server.loopback):
            return True
        self.send_error(421)
        return False

    def answer(self, code: int, data: bytes, kind: str | None, tag: str | None = None) -> None:
        """Send an answer, or of HEAD its head."""
        self.send_response(code)
        for name, value in {"Content-Security-Policy": self.server.policy, **HEADERS}.items():
            self.send_header(name, value)
        if tag is not None:
            self.send_header("ETag", tag)
        if code == 405:
            self.send_header("Allow", self.allowed)
        if kind is not None:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer in plain words, with the usual headers; nothing of the request is repeated."""
        code = 405 if code == 501 else code  # a method that is not here
        self.answer(code, f"{self.words.get(code, 'not here')}\n".encode(), "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class Server(ThreadingHTTPServer):
    """Listens at an address, under a content security policy."""

    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[Handler], policy: str) -> None:
        self.policy = policy
        self.loopback = is_loopback(host)
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), handler)
        except OSError as error:
            what = f"cannot listen on {host} port {port}: {error.strerror or error}"
            raise FedsrcError(what, hint="`port=0` picks a free one") from error

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        shown = str(host)
        return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no event."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Answer requests until the block ends."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def names_us(header: str, names: set[str], *, loopback: bool) -> bool:
    """Return whether a Host header is an address or our own name; on loopback, a loopback one.

    That turns away a page of another site whose own name was made to point here (DNS rebinding).
    """
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
    bare = host.removeprefix("[").removesuffix("]").lower()
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare in (names if not loopback else {"localhost"})
    return address.is_loopback or not loopback
