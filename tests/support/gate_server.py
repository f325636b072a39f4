"""A real server of a gate in a thread of this process, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from fedsrc.gate.gate import Gate
from fedsrc.gate.service.serving import Maker, bind, server
from fedsrc.gate.service.throttle import Limits

PATIENCE = 60.0


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send bytes as they are, anything else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        reply = self._connection.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())

    def decide(self, score: object) -> Reply:
        return self.ask("POST", "/v1/decide", {"score": score})

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving(
    gate: Gate, limits: Limits | None = None, host: str = "127.0.0.1", make: Maker | None = None
) -> Iterator[int]:
    """Serve on a free port, which is given."""
    running = server(gate, limits or Limits(rate=1e9), make)
    with bind(host, 0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        end = time.monotonic() + PATIENCE
        while not running.started:
            assert time.monotonic() < end
            time.sleep(0.005)
        try:
            yield int(listener.getsockname()[1])
        finally:
            running.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
