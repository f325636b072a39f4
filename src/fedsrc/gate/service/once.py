"""JSON in which every name is given once: of two scores in one body, nobody can tell which was meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import HTTPException
from fastapi.routing import APIRoute

TWICE = "body: a name is given twice"


class OnceRequest(Request):
    """A request whose JSON is refused if an object in it gives a name twice."""

    async def json(self) -> Any:
        return json.loads(await self.body(), object_pairs_hook=_each_once)


class OnceRoute(APIRoute):
    """An endpoint whose requests are read by `OnceRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(OnceRequest(request.scope, request.receive))

        return strict


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise HTTPException(422, TWICE)
    return found
