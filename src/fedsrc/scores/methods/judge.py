"""A language model as judge: how sure it is that the evidence supports a response.

`judge` is P(True) of Kadavath et al. (2022), "Language models (mostly) know what they know", arXiv:2207.05221, asked
about support instead of truth: the model reads evidence, question and response, and its probability of the answer
" True" is taken over that of " True" and " False". Nothing is drawn.

`judge-verbal` asks for a number in words (Tian et al. 2023, "Just ask for calibration", arXiv:2305.14975): the most
likely continuation, token by token, must be a whole number from 0 to 100 and nothing else. Anything else counts as 0.

Prompts, decoding and parser are fixed here; `RULES` goes into a manifest whole.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
from scipy.special import expit

from fedsrc.data.answers import Answer
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted

READ: Final = "Context:\n{evidence}\n\n{question}Proposed answer: {response}\n\n"
QUESTION: Final = "Question: {question}\n"
ASKED: Final = "Is everything in the proposed answer supported by the context, True or False?\nVerdict:"
ASKED_IN_WORDS: Final = (
    "How likely is it that everything in the proposed answer is supported by the context? "
    "Reply with a whole number from 0 (certainly not) to 100 (certainly) and nothing else.\nNumber:"
)
CHOICES: Final = (" True", " False")
GREEDY: Final = Sampling(temperature=1.0, top_p=1e-9, max_tokens=6, seed=0, stops=("\n",))
NUMBER: Final = re.compile(r"\s*(100|[1-9]?[0-9])%?\.?\s*")
UNPARSABLE: Final = 0.0
RULES: Final = {
    "read": READ,
    "question": QUESTION,
    "judge": {"asked": ASKED, "choices": list(CHOICES), "decoding": "P(first) / (P(first) + P(second)), nothing drawn"},
    "judge-verbal": {
        "asked": ASKED_IN_WORDS,
        "decoding": f"most likely token, at most {GREEDY.max_tokens}, up to a line break",
        "parser": NUMBER.pattern,
        "unparsable": UNPARSABLE,
    },
}


class Judgement(NamedTuple):
    """Token scores of the two answers a judge may give."""

    true: TokenScores
    false: TokenScores


def verdict_pairs(answer: Answer) -> list[Prompted]:
    """Return each of the two answers after the judge's prompt."""
    return [Prompted(_read(answer) + ASKED, choice) for choice in CHOICES]


def confidence(verdict: Judgement) -> float:
    """Return P(True) / (P(True) + P(False)), each the product over the answer's tokens."""
    true, false = (float(np.sum(each.logprobs)) for each in verdict)
    return float(expit(true - false))


def question_in_words(answer: Answer) -> Wanted:
    """Return what the judge is asked to continue."""
    return Wanted(_read(answer) + ASKED_IN_WORDS, 0)


def parsed(reply: str) -> float | None:
    """Return the number a reply states, over 100; None where it is anything else."""
    found = NUMBER.fullmatch(reply)
    return None if found is None else int(found[1]) / 100


def stated_confidence(reply: Sample) -> float:
    """Return what the judge said, or the registered value for a reply that is no number."""
    found = parsed(reply.text)
    return UNPARSABLE if found is None else found


def _read(answer: Answer) -> str:
    question = QUESTION.format(question=answer.question) if answer.question else ""
    return READ.format(evidence=answer.evidence, question=question, response=answer.response)
