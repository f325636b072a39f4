"""The gate as a LlamaIndex evaluator: GateEvaluator(gate, score).evaluate(query, response, contexts).passing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.evaluation import BaseEvaluator, EvaluationResult

from fedsrc import Gate


class GateEvaluator(BaseEvaluator):
    """Passes an answer if the gate accepts its score: a function of question, evidence and answer."""

    def __init__(self, gate: Gate, score: Callable[[str, str, str], float]) -> None:
        self._gate, self._score = gate, score

    async def aevaluate(
        self, query: str | None = None, response: str | None = None, contexts: Sequence[str] | None = None, **_: Any
    ) -> EvaluationResult:
        score = self._score(query or "", "\n\n".join(contexts), response) if contexts and response else None
        decision = self._gate.decide(score)
        return EvaluationResult(
            query=query, response=response, contexts=contexts, score=score, passing=decision.accepted,
            feedback=decision.reason,
        )  # fmt: skip

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts_dict: dict[str, Any]) -> None: ...
