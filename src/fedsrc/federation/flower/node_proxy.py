"""What other machines may reach of a SuperLink: the calls of nodes, and nothing else.

Flower 1.41 serves nodes and operators at one port, and lets whoever reaches it submit an app. So the SuperLink stays on
127.0.0.1, and this process passes POST /v1/fleet/... on to it. Run by `fedsrc server` when --host is not this machine.
"""

from __future__ import annotations

import asyncio
import re
import resource
import ssl
import sys
from typing import Any, NamedTuple

MAX_BYTES = 8_000_000  # Flower sends objects in chunks of 5 MB
BODIES, BODY_SECONDS = 64, 30.0  # bodies that are read at once, and for how long
CONNECTIONS = 8_000  # SuperNodes keep theirs open
SECONDS = 120.0
CALL = re.compile("[a-z-]{1,60}")
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}


class Way(NamedTuple):
    """From where to where, and with which certificates; without any, nothing is encrypted."""

    host: str
    port: int
    superlink_port: int
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def command(self) -> list[str]:
        """How the door is started."""
        return [sys.executable, "-m", "fedsrc.federation.flower.node_proxy", *map(str, self)]


def make_app(client: Any) -> Any:
    """An application that forwards node calls through an HTTP client; everything else is not found."""
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    room = asyncio.Semaphore(BODIES)

    async def forward(request: Request) -> Response:
        call = request.path_params["call"]
        if not CALL.fullmatch(call):
            return Response(status_code=404)
        try:
            async with room, asyncio.timeout(BODY_SECONDS):
                body = await _whole(request)
            if body is None:
                return Response(status_code=413)
            kept = _kept(request.headers)
            async with client.stream("POST", f"/v1/fleet/{call}", content=body, headers=kept) as answer:
                data = b"".join([part async for part in answer.aiter_raw()])
        except (TimeoutError, ClientDisconnect):
            return Response(status_code=408)
        except httpx.TransportError:
            return Response(status_code=503)
        return Response(data, answer.status_code, _kept(answer.headers))

    return Starlette(routes=[Route("/v1/fleet/{call}", forward, methods=["POST"])])


async def _whole(request: Any) -> bytes | None:
    """A request's body; None if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            return None
    return bytes(body)


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP}


def serve(way: Way) -> None:
    """Forward until ended."""
    import httpx
    import uvicorn

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * CONNECTIONS), most))
    trust = ssl.create_default_context(cafile=way.ca or None)
    trust.check_hostname = False  # the certificate is for the name that nodes use; its authority is checked
    client = httpx.AsyncClient(
        base_url=f"{'https' if way.ca else 'http'}://127.0.0.1:{way.superlink_port}", verify=trust, timeout=SECONDS,
        limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
    )  # fmt: skip
    uvicorn.run(
        make_app(client), host=way.host, port=way.port, log_level="critical", access_log=False, server_header=False,
        ssl_certfile=way.certificate or None, ssl_keyfile=way.key or None, limit_concurrency=CONNECTIONS,
    )  # fmt: skip


def main(given: list[str]) -> None:
    """The door's process: the fields of a `Way`, in order."""
    host, port, superlink_port, *files = given
    serve(Way(host, int(port), int(superlink_port), *files))


if __name__ == "__main__":
    main(sys.argv[1:])
