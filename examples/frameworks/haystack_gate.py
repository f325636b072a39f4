"""The gate as a Haystack component: pipeline.add_component("gate", GateComponent(gate, fallback="Ask a person."))."""

from __future__ import annotations

from haystack import component

from fedsrc import Gate


@component
class GateComponent:
    """Passes replies on if the gate accepts the score of each, and otherwise the fallback in the place of each."""

    def __init__(self, gate: Gate, fallback: str) -> None:
        self._gate, self._fallback = gate, fallback

    @component.output_types(replies=list[str], accepted=bool)
    def run(self, replies: list[str], scores: list[float]) -> dict[str, object]:
        decisions = self._gate.decide_all(scores)
        accepted = len(decisions) == len(replies) > 0 and all(each.accepted for each in decisions)
        return {"replies": replies if accepted else [self._fallback] * len(replies), "accepted": accepted}
