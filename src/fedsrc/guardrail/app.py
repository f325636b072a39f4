"""LiteLLM's guardrail route: an answer that the gate does not accept is blocked, or replaced.

The proxy's NONE lets an answer pass, so nothing but an acceptance of every text says NONE. No text is logged or sent
back; what blocks is said in fixed words.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from fedsrc.data.answers import Answer, answer_of
from fedsrc.errors import FedsrcError
from fedsrc.gate.gate import Gate
from fedsrc.gate.service.door import READS, application
from fedsrc.gate.service.metrics import Metrics
from fedsrc.gate.service.throttle import Limits, Throttle
from fedsrc.guardrail.calls import Call, Calls, Shown, shown_in
from fedsrc.protocol.certificate import Certificate, parse_signed
from fedsrc.protocol.scale import Scale
from fedsrc.scores.catalogue import NONE, SCORES, Seen, Settings

ROUTE = "/beta/litellm_basic_guardrail_api"
ABOUT = "A gate, and LiteLLM's guardrail route in front of it: questions, evidence and answers come in to be scored."
NO_EVIDENCE = "no evidence is known of this call"
NO_HEADER = "the score's header is missing, withheld or no number"
NO_TEXT = "there is no text to decide on"
NOT_TEXT = "images and tool calls are not decided on"
FAULT = "the scorer failed"
Scorer = Callable[[Answer], float]  # called in worker threads

log = logging.getLogger("fedsrc.gate")


class Outcome(BaseModel):
    """What becomes of the texts: NONE lets them pass, GUARDRAIL_INTERVENED puts `texts` in their places."""

    action: Literal["NONE", "BLOCKED", "GUARDRAIL_INTERVENED"]
    blocked_reason: str | None = None
    texts: list[str] | None = None


PASS = Outcome(action="NONE")


@dataclass(frozen=True)
class Source:
    """Where the score of an answer comes from, and its group: a scorer, or a header that whoever calls the proxy sets.

    The scorer sees the last message of the user as the question, and all messages of the roles `evidence` as evidence.
    """

    scorer: Scorer | None = None
    score_header: str | None = None
    evidence: frozenset[str] = frozenset({"system"})
    group_header: str | None = None
    group_param: str | None = None
    fallback: str | None = None

    def __post_init__(self) -> None:
        if (self.scorer is None) == (not self.score_header):
            raise FedsrcError("a score comes from a scorer or from a header", hint="name one of them")
        if self.group_header and self.group_param:
            raise FedsrcError("a group comes from a header or from a parameter", hint="name one of them")
        if self.fallback is not None and not self.fallback.strip():
            raise FedsrcError("the fallback is empty", hint="an answer is never dropped without a word")

    def group(self, call: Call) -> object:
        """Return the group that a call says, if any."""
        if self.group_param:
            return (call.additional_provider_specific_params or {}).get(self.group_param)
        return call.header(self.group_header) if self.group_header else None

    def scores(self, call: Call, shown: Shown | None) -> list[object]:
        """Return the score of every text; refuse where one cannot be known."""
        texts = call.texts or []
        if call.images or call.tool_calls or not texts:
            raise FedsrcError(NOT_TEXT if call.images or call.tool_calls else NO_TEXT)
        if self.scorer is None:
            return [_number(call.header(self.score_header or ""))] * len(texts)
        if shown is None:
            raise FedsrcError(NO_EVIDENCE)
        rows = [answer_of({"id": "answer", **shown._asdict(), "response": text}, "") for text in texts]
        return [self.scorer(row) for row in rows]


class _Scored(NamedTuple):
    scores: list[object]  # at least one; None is never accepted
    problem: str | None = None


def scorer_of(name: str) -> Scorer:
    """Return a score that needs no model, by its name."""
    free = [each for each, score in SCORES.items() if score.needs == NONE]
    if name not in free:
        what = f"{name} needs a model" if name in SCORES else f"there is no score {name!r}"
        raise FedsrcError(what, hint=f"one of {', '.join(free)}; any other: `fedsrc.guardrail.app.Source(scorer=...)`")
    return lambda answer: SCORES[name].of(Seen(answer, Settings()))


def check_score(gate: Gate, scorer: str | None, claim: dict[str, str]) -> None:
    """Refuse a scorer that is not the certificate's score by name, unless the claim says what that score is called."""
    found, status = parse_signed(gate.text, str(gate.path)), gate.status()
    assert isinstance(found, Certificate)
    column = status.score
    if scorer is not None and (status.scale != str(Scale()) or status.checkpoints):
        raise FedsrcError(
            f"the certificate's score is not on the scale {Scale()}, or of prefixes", where=str(gate.path)
        )
    called = [column, *([found.claim.score] if column == found.claim.column else [])]
    if scorer not in called and not {"score", "column"} & claim.keys():
        what = f"the certificate's score is called {' or '.join(map(repr, dict.fromkeys(called)))}"
        hint = f"if your score is the one that was certified, bind it by that name: --claim {f'score={called[-1]}'!r}"
        raise FedsrcError(what if scorer is None else f"{what}, not {scorer!r}", where=str(gate.path), hint=hint)


def guardrail(gate: Gate, source: Source, limits: Limits) -> Throttle:
    """Return the gate's service with the proxy's route, as an ASGI app."""
    metrics, calls = Metrics(), Calls()
    app = application(gate, metrics)
    app.title, app.description = "fedsrc guardrail", ABOUT

    @app.post(ROUTE, responses=READS, response_model=Outcome)
    async def guard(call: Call) -> JSONResponse:
        """Decide on every text of a response; one that is not accepted stops all. A request passes, undecided."""
        own = shown_in(call.structured_messages, source.evidence)
        if call.input_type == "request":
            if source.scorer is not None:
                calls.keep(call.litellm_call_id, own)
            return _said(PASS)
        kept = calls.take(call.litellm_call_id)
        found = await run_in_threadpool(_scored, source, call, own or kept)
        decisions = gate.decide_all(found.scores, groups=[source.group(call)] * len(found.scores))
        metrics.decisions.update(each.reason for each in decisions)
        refused = next((each for each in decisions if not each.accepted), None)
        if refused is None:
            return _said(PASS)
        if source.fallback is not None and call.texts and found.problem != NOT_TEXT:
            texts = [source.fallback] * len(call.texts)
            return _said(Outcome(action="GUARDRAIL_INTERVENED", texts=texts))
        why = "" if found.problem is None else f" ({found.problem})"
        return _said(Outcome(action="BLOCKED", blocked_reason=f"{refused.reason}{why}"))

    return Throttle(app, limits, metrics.refuse)


def _scored(source: Source, call: Call, shown: Shown | None) -> _Scored:
    """Return the scores of the texts, or none and why."""
    try:
        return _Scored(source.scores(call, shown))
    except FedsrcError as error:
        return _Scored([None], error.what)
    except Exception as error:  # of a scorer of somebody's own: its words may hold texts
        log.warning("%s: %s", FAULT, type(error).__name__)
        return _Scored([None], FAULT)


def _number(text: str | None) -> object:
    """Read a score as JSON writes numbers."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError) as error:
        raise FedsrcError(NO_HEADER) from error
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise FedsrcError(NO_HEADER)
    return found


def _said(outcome: Outcome) -> JSONResponse:
    return JSONResponse(outcome.model_dump(exclude_none=True))
