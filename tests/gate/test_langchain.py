"""The LangChain runnable, in real chains: what is accepted passes, everything else becomes the fallback.

Mutants killed: an answer streamed before its score is judged, a missing score that passes, a fallback left out in one
of invoke, batch, stream or their async forms, a fallback that cannot see the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel, RunnablePassthrough

from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import BELOW, UNUSABLE
from fedsrc.gate.gate import Gate
from fedsrc.gate.integrations.langchain import gated
from tests.support.gate_certificates import TRUSTED, original

GOOD, BAD = {"answer": "Paris", "score": 0.999}, {"answer": "Rome", "score": 0.001}
CASES = [GOOD, BAD, {"answer": "Oslo"}, {"answer": "Bern", "score": "0.999"}, {"score": 0.001}]
SAID = ["Paris", *["ask a person"] * 4]


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    (tmp_path / "c.json").write_text(original())
    return Gate(tmp_path / "c.json", trusted=TRUSTED)


def test_every_way_of_calling_it(gate: Gate) -> None:
    chain = gated(gate, "ask a person")
    assert [chain.invoke(case) for case in CASES] == SAID
    assert chain.batch(CASES) == SAID
    assert [list(chain.stream(case)) for case in CASES] == [[said] for said in SAID]

    async def later() -> tuple[list[Any], list[Any], list[Any]]:
        streamed = [[part async for part in chain.astream(case)] for case in CASES]
        return [await chain.ainvoke(case) for case in CASES], await chain.abatch(CASES), streamed

    assert asyncio.run(later()) == (SAID, SAID, [[said] for said in SAID])


def test_a_chain_of_model_score_gate_and_parser(gate: Gate) -> None:
    model = FakeListChatModel(responses=["Paris", "Rome"])
    ask = ChatPromptTemplate.from_template("Capital of {country}?") | model | StrOutputParser()
    score: RunnableLambda[Any, float] = RunnableLambda(lambda given: {"Paris": 0.999}.get(given["text"], 0.001))
    chain = (
        RunnablePassthrough.assign(text=ask).assign(support=score)
        | gated(gate, "ask a person", answer="text", score="support")
        | RunnableLambda(str.upper)
    )
    assert [chain.invoke({"country": "France"}), chain.invoke({"country": "Italy"})] == ["PARIS", "ASK A PERSON"]


def test_nothing_is_streamed_before_the_score_is_there(gate: Gate) -> None:
    """The answer comes in pieces, its score last."""

    def pieces(_: Iterator[Any]) -> Iterator[str]:
        yield from ("Ro", "me")

    def late(_: Iterator[Any]) -> Iterator[float]:
        yield 0.001

    parts = RunnableParallel(answer=RunnableGenerator(pieces), score=RunnableGenerator(late))
    assert list((parts | gated(gate, "ask a person")).stream("Italy")) == ["ask a person"]
    sure = RunnableParallel(answer=RunnableGenerator(pieces), score=RunnableLambda(lambda _: 0.999))
    assert "".join((sure | gated(gate, "ask a person")).stream("Italy")) == "Rome"


def test_a_fallback_may_be_a_chain_that_streams_or_a_function(gate: Gate) -> None:
    model = FakeListChatModel(responses=["I am not sure."])
    other = ChatPromptTemplate.from_template("Be careful: {answer}, {decision}") | model | StrOutputParser()
    assert list(gated(gate, other).stream(BAD)) == list("I am not sure.")
    tell = gated(gate, lambda given: f"held back: {given['decision'].reason}")
    assert [tell.invoke(BAD), tell.invoke({"answer": "Oslo"})] == [f"held back: {BELOW}", f"held back: {UNUSABLE}"]


def test_what_it_cannot_work_with_is_an_error(gate: Gate) -> None:
    for empty in ("", None):
        with pytest.raises(FedsrcError, match="fallback is empty"):
            gated(gate, empty)
    chain = gated(gate, "ask a person")
    with pytest.raises(FedsrcError, match="given str, not a dict"):
        chain.invoke("Paris")
    with pytest.raises(FedsrcError, match="given no 'answer'"):
        chain.invoke({"score": 0.999})


def test_a_renewed_certificate_counts_at_once(gate: Gate) -> None:
    chain = gated(gate, "ask a person")
    assert chain.invoke(GOOD) == "Paris"
    gate.halt()
    assert chain.invoke(GOOD) == "ask a person"
