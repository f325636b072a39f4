"""The service: decisions on scores, the certificate in force, health and metrics, and an OpenAPI description of them.

Only scores and groups come in; no question, no answer. A refused request is told in words, never with what it sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any, Self

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from fedsrc.gate.decision import Reason
from fedsrc.gate.gate import Gate, Status
from fedsrc.gate.service.metrics import CONTENT_TYPE, Metrics
from fedsrc.gate.service.throttle import Limits, Throttle

MOST_SCORES = 1_000
TWICE = "body: a name is given twice"
OUR_NAMES = ("body", "score", "scores", "group", "groups", "input_type", "texts")
ABOUT = "Accepts a score if it reaches a certified threshold. Only scores and groups come in: no question, no answer."
Score = Annotated[
    float | None,
    Field(description="On the registered scale, [0, 1] unless one was registered; anything else is not accepted."),
]

Group = Annotated[str | None, Field(description="As the certificate lists it; needed if it lists groups.")]


class Sent(BaseModel):
    """What a client sends: nothing but what is described, no NaN, no text for a number."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Question(Sent):
    """One score, and the answer's group."""

    score: Score
    group: Group = None


class AskedMany(Sent):
    """Several scores, and the group of each answer: as many, in the same order."""

    scores: Annotated[list[Score], Field(min_length=1, max_length=MOST_SCORES)]
    groups: Annotated[list[Group], Field(max_length=MOST_SCORES)] | None = None

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if self.groups is not None and len(self.groups) != len(self.scores):
            raise ValueError("there are not as many groups as scores")
        return self


class Decided(BaseModel):
    """Whether the score was accepted, why, by which certificate (the SHA-256 of its file), and the risk it promises."""

    accepted: bool
    reason: Reason
    threshold: float | None
    certificate: str = Field(pattern="^[0-9a-f]{64}$")
    target_risk: float


class DecidedMany(BaseModel):
    """One decision for each score."""

    decisions: list[Decided]


class Problem(BaseModel):
    """What was wrong, in words."""

    error: str


PLAIN = {"text/plain": {"schema": {"type": "string"}}}
WAIT = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
Responses = dict[int | str, dict[str, Any]]
OPEN: Responses = {
    408: {"model": Problem, "description": "The body did not arrive in time."},
    413: {"model": Problem, "description": "The body is too large."},
    421: {"model": Problem, "description": "The Host header names another host than this service."},
    431: {"model": Problem, "description": "The header is too large."},
    503: {"description": "Too many connections.", "content": PLAIN},
}
LIMITED: Responses = {**OPEN, 429: {"model": Problem, "description": "Too many requests.", "headers": WAIT}}
READS: Responses = {**LIMITED, 422: {"model": Problem, "description": "The body is not what is described here."}}
SICK = {"model": Status, "description": "Nothing is accepted, or there are too many connections.", "content": PLAIN}


def service(gate: Gate, limits: Limits | None = None) -> Throttle:
    """Return the service of a gate, as an ASGI app."""
    bounds, metrics = limits or Limits(), Metrics()
    return Throttle(application(gate, metrics), bounds, metrics.refuse)


def application(gate: Gate, metrics: Metrics) -> FastAPI:
    """Return the endpoints, without limits on bytes and rate."""
    app = FastAPI(title="fedsrc gate", version=version("fedsrc"), description=ABOUT, docs_url=None, redoc_url=None)
    app.router.route_class = OnceRoute
    app.add_exception_handler(RequestValidationError, _not_described)
    app.add_exception_handler(HTTPException, _in_words)
    app.add_exception_handler(Exception, _fault)

    @app.post("/v1/decide", responses=READS, response_model=Decided)
    async def decide(asked: Question) -> JSONResponse:
        """Decide on one score."""
        decision = gate.decide(asked.score, group=asked.group)
        metrics.decisions[decision.reason] += 1
        return JSONResponse(decision._asdict())

    @app.post("/v1/decide/batch", responses=READS, response_model=DecidedMany)
    async def decide_many(asked: AskedMany) -> JSONResponse:
        """Decide on several scores, in their order, all by the same certificate."""
        decisions = gate.decide_all(asked.scores, groups=asked.groups)
        metrics.decisions.update(each.reason for each in decisions)
        return JSONResponse({"decisions": [each._asdict() for each in decisions]})

    @app.get("/v1/certificate", responses=LIMITED, response_model=dict[str, Any])
    async def certificate() -> Response:
        """The certificate in force, byte for byte as it was signed."""
        return Response(gate.text, media_type="application/json")

    @app.get("/healthz", responses={**OPEN, 503: SICK}, response_model=Status)
    async def health() -> JSONResponse:
        """200 while the gate accepts anything, 503 otherwise."""
        status = gate.status()
        return JSONResponse(asdict(status), 200 if status.accepting else 503)

    @app.get("/metrics", responses=OPEN, response_class=PlainTextResponse)
    async def counts() -> Response:
        """Counts in Prometheus' text format."""
        return Response(metrics.text(gate.status()), headers={"content-type": CONTENT_TYPE})

    return app


class OnceRequest(Request):
    """A request whose JSON is refused if an object in it gives a name twice: nobody can tell which was meant."""

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


async def _not_described(_: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a body, without repeating it."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part in OUR_NAMES or isinstance(part, int))
    return JSONResponse({"error": f"{where}: {first['msg']}"}, 422)


async def _in_words(_: Request, error: Exception) -> JSONResponse:
    """Put an error of the framework into words; a body that it cannot read is one that is not as described."""
    assert isinstance(error, HTTPException)
    status = 422 if error.status_code == 400 else error.status_code
    return JSONResponse({"error": str(error.detail)}, status, headers=error.headers)


async def _fault(_: Request, __: Exception) -> JSONResponse:
    """Answer for a fault of ours, which the log has."""
    return JSONResponse({"error": "this is a fault in the service; nothing was accepted"}, 500)
