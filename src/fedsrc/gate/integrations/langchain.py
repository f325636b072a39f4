"""A LangChain runnable: an answer and its score go in, the answer or the fallback comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsrc.errors import FedsrcError, MissingExtraError
from fedsrc.gate.gate import Gate

try:
    from langchain_core.runnables import Runnable, RunnableBranch, RunnableLambda
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain") from error

DECISION = "decision"


def gated(
    gate: Gate, fallback: Any, *, answer: str = "answer", score: str = "score", group: str = "group"
) -> Runnable[Any, Any]:
    """Return a runnable that passes on `input[answer]` if `input[score]` is accepted, and otherwise the fallback.

    If the certificate lists groups, `input[group]` is the answer's.

    The fallback is a value that stands in for the answer, or a runnable or function that gets the input with the
    decision under the key "decision". Nothing is streamed before the score is there and accepted.
    """
    if fallback is None or fallback == "":
        raise FedsrcError("the fallback is empty", hint="an answer is never dropped without a word")

    def decide(given: Any) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise FedsrcError(f"the gate was given {type(given).__name__}, not a dict with {answer!r} and {score!r}")
        return {**given, DECISION: gate.decide(given.get(score), group=given.get(group))}

    def accepted(given: dict[str, Any]) -> bool:
        return bool(given[DECISION].accepted)

    def pick(given: dict[str, Any]) -> Any:
        if answer not in given:
            raise FedsrcError(f"the gate was given no {answer!r}")
        return given[answer]

    branch = RunnableBranch[dict[str, Any], Any]((accepted, RunnableLambda(pick)), _runnable(fallback))
    return (RunnableLambda(decide) | branch).with_config(run_name="fedsrc gate")


def _runnable(fallback: Any) -> Runnable[Any, Any]:
    if isinstance(fallback, Runnable):
        return fallback
    return RunnableLambda(fallback if callable(fallback) else lambda _: fallback)
