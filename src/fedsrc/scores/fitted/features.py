"""What a combination of scores looks at: numbers of one answer, from its text and its stored token arrays."""

from __future__ import annotations

import re

import numpy as np

from fedsrc.data.answers import Answer
from fedsrc.maths.arrays import Floats
from fedsrc.scores.methods.controls import is_refusal, novel_words
from fedsrc.scores.methods.lexical import STOP_WORDS, lexical_support, words
from fedsrc.scores.methods.lift import mean_lift, window_lift, window_means
from fedsrc.scores.models.model import TokenScores

LEXICAL = (
    "lexical support", "novel words", "novel share", "novel numbers", "novel names", "words", "sentences", "refusal",
    "worst sentence",
)  # fmt: skip
LANGUAGE = (
    "lift", "lift B=1", "lift window 10", "lift window 20", "lift window 40", "probability", "entropy",
    "logprob window 10", "logprob window 20", "entropy window 20", "lowest gain", "low gain share", "evidence gain",
)  # fmt: skip
NAMES = (*LEXICAL, *LANGUAGE)
SENTENCE = re.compile(r"(?<=[.!?])\s+")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][a-z]+")


def lexical_features(answer: Answer) -> list[float]:
    """Numbers of the text alone, in the order of LEXICAL."""
    known = f"{answer.question} {answer.evidence}"
    given, said = set(words(known)), words(answer.response)
    content = [word for word in said if word not in STOP_WORDS]
    novel = novel_words(answer.response, known)
    sentences = [each for each in SENTENCE.split(answer.response.strip()) if words(each)] or [answer.response]
    return [
        lexical_support(answer.response, known),
        np.log1p(novel),
        sum(word not in given for word in content) / max(1, len(content)),
        np.log1p(len(set(NUMBER.findall(answer.response)) - set(NUMBER.findall(known)))),
        np.log1p(len({name.lower() for name in NAME.findall(answer.response)} - given)),
        np.log1p(len(said)),
        np.log1p(len(sentences)),
        float(is_refusal(answer.response)),
        min(lexical_support(each, known) for each in sentences),
    ]


def language_features(present: TokenScores, removed: TokenScores) -> list[float]:
    """Numbers of the token arrays with and without evidence, in the order of LANGUAGE."""
    gain = present.logprobs - removed.logprobs
    return [
        mean_lift(present, removed),
        mean_lift(present, removed, B=1.0),
        *(window_lift(present, removed, width=width) for width in (10, 20, 40)),
        float(np.exp(present.logprobs).mean()),
        float(present.entropy.mean()),
        *(float(window_means(present.logprobs, width).min()) for width in (10, 20)),
        float(window_means(present.entropy, 20).max()),
        float(window_means(gain, 10).min()),
        float(np.mean(gain < 0.0)),
        float(gain.mean()),
    ]


def features(answer: Answer, present: TokenScores, removed: TokenScores) -> Floats:
    """All numbers of an answer, in the order of NAMES."""
    return np.array(lexical_features(answer) + language_features(present, removed))
