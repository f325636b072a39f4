"""The gate in LlamaIndex and in Haystack, as examples/frameworks has it, run by the libraries themselves.

Mutants killed: an answer without evidence, score or text that passes; NaN that passes; one accepted reply of two that
lets both pass; fewer scores than replies; an evaluator or a component that the library does not take.
"""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

from fedsrc.gate.decision import ACCEPTED, BELOW, UNUSABLE
from fedsrc.gate.gate import Gate
from tests.support import ROOT
from tests.support.gate_certificates import TRUSTED, original

SNIPPETS = ROOT / "examples" / "frameworks"


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    (tmp_path / "c.json").write_text(original())
    return Gate(tmp_path / "c.json", trusted=TRUSTED)


def test_an_evaluator_of_llama_index(gate: Gate) -> None:
    made = runpy.run_path(str(SNIPPETS / "llama_index_gate.py"))["GateEvaluator"]
    evaluator = made(gate, lambda question, evidence, answer: {"yes": 0.999, "no": 0.001}.get(answer, float("nan")))
    cases = {("yes", "paper"): ACCEPTED, ("no", "paper"): BELOW, ("odd", "paper"): UNUSABLE, ("", "paper"): UNUSABLE}
    for (answer, evidence), reason in {**cases, ("yes", ""): UNUSABLE}.items():
        found = asyncio.run(evaluator.aevaluate("q", answer, [evidence] if evidence else None))
        assert (found.passing, found.feedback) == (reason == ACCEPTED, reason)
    assert evaluator.evaluate("q", "yes", ["paper"]).score == 0.999


def test_a_component_of_haystack(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    from haystack import Pipeline

    pipeline = Pipeline()
    pipeline.add_component(
        "gate", runpy.run_path(str(SNIPPETS / "haystack_gate.py"))["GateComponent"](gate, fallback="Ask a person.")
    )
    for scores, accepted in (([0.999, 0.999], True), ([0.999, 0.001], False), ([0.999], False), ([], False),
                             ([0.999, float("nan")], False), ([0.999, None], False), ([0.999] * 3, False)):  # fmt: skip
        said = pipeline.run({"gate": {"replies": ["a", "b"], "scores": scores}})["gate"]
        assert said == {"replies": ["a", "b"] if accepted else ["Ask a person."] * 2, "accepted": accepted}
