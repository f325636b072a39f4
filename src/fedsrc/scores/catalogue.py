"""Every score by name: what it needs, how it is computed, and what it costs.

A new score is a file with its formula and one entry here. It says what it needs of a language model (`needs`), which
texts it wants embedded and which pairs judged for entailment, so that these are asked for in batches, and how many
passes of the model it costs beyond the one that wrote the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any, Literal, TypeVar

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.methods.confidence import mean_entropy, mean_probability
from fedsrc.scores.methods.control_scores import familiarity, shortness
from fedsrc.scores.methods.conu import SIMILAR, conu, sconu
from fedsrc.scores.methods.judge import Judgement, confidence, stated_confidence
from fedsrc.scores.methods.lexical import lexical_support, sentences
from fedsrc.scores.methods.lift import B_DEFAULT, WINDOW, mean_lift, window_lift
from fedsrc.scores.methods.self_consistency import self_consistency
from fedsrc.scores.methods.selfcheck import (
    selfcheck_embedding,
    selfcheck_ngram,
    selfcheck_ngram_mean,
    selfcheck_nli,
)
from fedsrc.scores.methods.semantic_entropy import discrete_semantic_entropy, semantic_entropy, sureness
from fedsrc.scores.models.embedding import Embedded
from fedsrc.scores.models.entailment import Entailed, Pair
from fedsrc.scores.models.model import Sample, TokenScores
from fedsrc.scores.prompts import NEUTRAL, NO_QUESTION, TEMPLATE, Control

# present, removed: token scores with the evidence and under the control; samples: drawn responses; embedding,
# entailment: a model for texts; meaning: entailment where it is available, else embedding; verdict, reply: a
# judge's token scores of its two answers, and what it says in words
Need = Literal["present", "removed", "samples", "embedding", "entailment", "meaning", "verdict", "reply"]
Count = int | Literal["recommended", "matched"]
Policy = tuple[int, ...]  # checkpoints of prefix scores, in tokens
T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What decides a score besides the models: clipping, window, evidence control, what counts as similar, prefixes."""

    B: float = B_DEFAULT
    window: int = WINDOW
    control: Control = "removed"
    similar: float = SIMILAR
    prefixes: tuple[Policy, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.B < float("inf") or self.window < 1:
            raise FedsrcError("clipping B must be above zero and the window at least one token")
        if not 0 < self.similar <= 1:
            raise FedsrcError("texts count as similar from a cosine in (0, 1]")
        if any(not policy or [0, *policy] != sorted({0, *policy}) for policy in self.prefixes):
            raise FedsrcError("the checkpoints of a policy are increasing numbers of tokens, from 1")
        if len(set(self.prefixes)) < len(self.prefixes):
            raise FedsrcError("a policy of checkpoints is named twice")

    def plain(self) -> dict[str, Any]:
        """Return the settings for a manifest, with the prompt templates."""
        return {**asdict(self), "templates": {"question": TEMPLATE, "no question": NO_QUESTION, "neutral": NEUTRAL}}


@dataclass(frozen=True)
class Seen:
    """One answer with what a score needs of it."""

    answer: Answer
    settings: Settings
    present: TokenScores | None = None
    without: TokenScores | None = None
    samples: tuple[Sample, ...] = ()
    verdict: Judgement | None = None
    reply: Sample | None = None
    embedded: Embedded | None = None
    entailed: Entailed | None = None

    @property
    def sides(self) -> tuple[TokenScores, TokenScores]:
        """Token scores with the evidence and under the control."""
        return given(self.present), given(self.without)

    def first(self, n: int) -> Seen:
        """Return the answer as scores of tokens see its first ones."""
        without = None if self.without is None else self.without.first(n)
        return replace(self, present=given(self.present).first(n), without=without)

    @property
    def response(self) -> str:
        return self.answer.response.strip()

    @property
    def drawn(self) -> list[str]:
        """The texts of the samples."""
        return [sample.text.strip() for sample in self.samples]

    @property
    def similarities(self) -> tuple[Floats, Floats]:
        """Similarities of the response with each sample, and of the samples with each other."""
        drawn, embedded = self.drawn, given(self.embedded)
        return embedded.similarities([self.response], drawn)[0], embedded.similarities(drawn, drawn)

    def asked(self, text: str) -> str:
        """Return a response as entailment reads it: after the question."""
        return f"{self.answer.question} {text}".strip()

    def same(self, one: str, other: str) -> bool:
        """Return whether two responses mean the same: by entailment where it is available, else by embedding."""
        if self.entailed is not None:
            return self.entailed.both_ways(self.asked(one), self.asked(other))
        return given(self.embedded).similarity(one, other) >= self.settings.similar


def given(value: T | None) -> T:
    """Return what a score needs, and so was given."""
    assert value is not None
    return value


@dataclass(frozen=True)
class Score:
    """What a score needs, how it is computed, what it says in one line, and what it costs.

    `passes` are extra passes of the language model; each sample costs one more. Its authors take `recommended` samples;
    `matched` is the fewest that it can do with.
    """

    needs: frozenset[Need]
    of: Callable[[Seen], float]
    about: str
    passes: int = 0
    recommended: int = 0
    matched: int = 0
    texts: Callable[[Seen], Iterable[str]] = lambda _: ()
    pairs: Callable[[Seen], Iterable[Pair]] = lambda _: ()

    def samples(self, count: Count) -> int:
        """Return how many samples it takes when that many are asked for."""
        if "samples" not in self.needs:
            return 0
        chosen = {"recommended": self.recommended, "matched": self.matched}
        return count if isinstance(count, int) else chosen[count]

    def extra_passes(self, count: Count) -> int:
        """Return its relative compute: passes of the language model beyond the one that wrote the response."""
        return self.passes + self.samples(count)


def _responses(seen: Seen) -> list[str]:
    return [seen.response, *seen.drawn]


def _among_samples(seen: Seen) -> list[Pair]:
    return [Pair(*pair) for pair in permutations([seen.asked(text) for text in dict.fromkeys(seen.drawn)], 2)]


def _with_response(seen: Seen) -> list[Pair]:
    own = seen.asked(seen.response)
    others = [seen.asked(text) for text in seen.drawn]
    return [pair for other in others for pair in (Pair(own, other), Pair(other, own))]


def _sentence_pairs(seen: Seen) -> list[Pair]:
    return [Pair(sample, sentence) for sentence in sentences(seen.response) for sample in seen.drawn]


NONE: frozenset[Need] = frozenset()
PRESENT: frozenset[Need] = frozenset({"present"})
BOTH: frozenset[Need] = frozenset({"present", "removed"})

BASIC: Mapping[str, Score] = {
    "lift": Score(
        BOTH, lambda s: mean_lift(*s.sides, B=s.settings.B), "mean clipped information lift (the paper's)", passes=1
    ),
    "window": Score(
        BOTH,
        lambda s: window_lift(*s.sides, B=s.settings.B, width=s.settings.window),
        "smallest mean lift over a window of tokens",
        passes=1,
    ),
    "probability": Score(PRESENT, lambda s: mean_probability(given(s.present)), "mean token probability"),
    "entropy": Score(PRESENT, lambda s: mean_entropy(given(s.present)), "exp(-mean token entropy)"),
    "lexical": Score(
        NONE, lambda s: lexical_support(s.answer.response, s.answer.evidence), "wording found in the evidence"
    ),
    "familiarity": Score(
        NONE,
        lambda s: familiarity(s.answer.response, f"{s.answer.question} {s.answer.evidence}"),
        "1 / (1 + content words that are new)",
    ),
    "shortness": Score(NONE, lambda s: shortness(s.answer.response), "length alone: a control, no score of support"),
}

SAMPLED: Mapping[str, Score] = {
    "semantic-entropy": Score(
        frozenset({"samples", "meaning"}), lambda s: sureness(semantic_entropy(s.samples, s.same), len(s.samples)),
        "1 - semantic entropy of drawn responses / log n",
        recommended=10, matched=2, texts=lambda s: s.drawn, pairs=_among_samples,
    ),
    "semantic-entropy-discrete": Score(
        frozenset({"samples", "meaning"}),
        lambda s: sureness(discrete_semantic_entropy(s.drawn, s.same), len(s.samples)),
        "the same, clusters weighted by their counts",
        recommended=10, matched=2, texts=lambda s: s.drawn, pairs=_among_samples,
    ),
    "selfcheck-ngram": Score(
        frozenset({"samples"}), lambda s: selfcheck_ngram(s.response, s.drawn),
        "SelfCheckGPT: least likely word of each sentence among drawn responses",
        recommended=20, matched=1,
    ),
    "selfcheck-ngram-mean": Score(
        frozenset({"samples"}), lambda s: selfcheck_ngram_mean(s.response, s.drawn),
        "SelfCheckGPT: mean word among drawn responses",
        recommended=20, matched=1,
    ),
    "selfcheck-embedding": Score(
        frozenset({"samples", "embedding"}),
        lambda s: selfcheck_embedding(s.response, s.drawn, given(s.embedded).similarities),
        "SelfCheckGPT: closest sentence in each drawn response",
        recommended=20, matched=1, texts=lambda s: [each for text in _responses(s) for each in sentences(text)],
    ),
    "selfcheck-nli": Score(
        frozenset({"samples", "entailment"}),
        lambda s: selfcheck_nli(s.response, s.drawn, given(s.entailed).contradiction),
        "SelfCheckGPT: 1 - P(a drawn response contradicts a sentence)",
        recommended=20, matched=1, pairs=_sentence_pairs,
    ),
    "conu": Score(
        frozenset({"samples", "embedding"}), lambda s: conu(*s.similarities, s.settings.similar),
        "ConU: frequency of the response among drawn ones, and its similarity to them",
        recommended=10, matched=1, texts=_responses,
    ),
    "sconu": Score(
        frozenset({"samples", "embedding"}), lambda s: sconu(*s.similarities, s.settings.similar),
        "SConU: 1 - entropy of meanings among the response and drawn ones",
        recommended=10, matched=1, texts=_responses,
    ),
    "self-consistency": Score(
        frozenset({"samples", "meaning"}), lambda s: self_consistency(s.response, s.drawn, s.same),
        "share of drawn responses that mean the same (conformal abstention)",
        recommended=10, matched=1, texts=_responses, pairs=_with_response,
    ),
}  # fmt: skip

JUDGED: Mapping[str, Score] = {
    "judge": Score(
        frozenset({"verdict"}),
        lambda s: confidence(given(s.verdict)),
        "the model's P(True) that it is supported",
        passes=1,
    ),
    "judge-verbal": Score(
        frozenset({"reply"}), lambda s: stated_confidence(given(s.reply)), "the model's own number for that", passes=1
    ),
}

SCORES: Mapping[str, Score] = {**BASIC, **SAMPLED, **JUDGED}
