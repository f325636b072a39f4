"""From answers to scores: which score needs which arrays, in steps that are recorded as they are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.confidence import mean_entropy, mean_probability
from fedsrc.scores.controls import familiarity, shortness
from fedsrc.scores.lexical import lexical_support
from fedsrc.scores.lift import B_DEFAULT, WINDOW, mean_lift, window_lift
from fedsrc.scores.model import LanguageModel, Prompted, TokenScores
from fedsrc.scores.prompts import NEUTRAL, NO_QUESTION, TEMPLATE, Control, controlled, prompt

Needs = Literal["text", "present", "both"]
STEP_SECONDS, FIRST_STEP, LARGEST_STEP = 15.0, 16, 4096


@dataclass(frozen=True)
class Settings:
    """What decides a score besides the model: clipping, window, and what stands in for the evidence."""

    B: float = B_DEFAULT
    window: int = WINDOW
    control: Control = "removed"

    def __post_init__(self) -> None:
        if not 0 < self.B < float("inf") or self.window < 1:
            raise FedsrcError("clipping B must be above zero and the window at least one token")

    def plain(self) -> dict[str, Any]:
        """For the manifest, with the prompt templates."""
        return {**asdict(self), "templates": {"question": TEMPLATE, "no question": NO_QUESTION, "neutral": NEUTRAL}}


@dataclass(frozen=True)
class Seen:
    """One answer with the token scores that a score needs."""

    answer: Answer
    settings: Settings
    present: TokenScores | None = None
    without: TokenScores | None = None

    @property
    def sides(self) -> tuple[TokenScores, TokenScores]:
        assert self.without is not None
        return self.shown, self.without

    @property
    def shown(self) -> TokenScores:
        assert self.present is not None
        return self.present

    @property
    def known(self) -> str:
        """What the response may rest on: the question's words count as known."""
        return f"{self.answer.question} {self.answer.evidence}"


@dataclass(frozen=True)
class Score:
    """A score by name: what it needs, how it is computed, and what it says in one line."""

    needs: Needs
    of: Callable[[Seen], float]
    about: str


SCORES: Mapping[str, Score] = {
    "lift": Score("both", lambda s: mean_lift(*s.sides, B=s.settings.B), "mean clipped information lift (the paper's)"),
    "window": Score(
        "both",
        lambda s: window_lift(*s.sides, B=s.settings.B, width=s.settings.window),
        "smallest mean lift over a window of tokens",
    ),
    "probability": Score("present", lambda s: mean_probability(s.shown), "mean token probability"),
    "entropy": Score("present", lambda s: mean_entropy(s.shown), "exp(-mean token entropy)"),
    "lexical": Score(
        "text", lambda s: lexical_support(s.answer.response, s.answer.evidence), "wording found in the evidence"
    ),
    "familiarity": Score(
        "text", lambda s: familiarity(s.answer.response, s.known), "1 / (1 + content words that are new)"
    ),
    "shortness": Score("text", lambda s: shortness(s.answer.response), "length alone: a control, no score of support"),
}


def needs_model(names: Sequence[str]) -> bool:
    """Whether any of these scores needs a language model."""
    return any(SCORES[name].needs != "text" for name in names)


def prompted(answers: Sequence[Answer], settings: Settings, model: Any) -> tuple[list[Prompted], list[Prompted]]:
    """Each answer after its prompt with the evidence, and after its prompt under the control."""
    length: Callable[[str], int] = getattr(model, "tokens", len)
    if settings.control in ("neutral", "irrelevant") and model is None:
        raise FedsrcError(
            f"evidence control {settings.control!r} matches lengths in tokens, which needs a local model",
            hint="name the model with --model, or use --control removed or shuffled",
        )
    evidence = controlled(answers, settings.control, length)
    present = [Prompted(prompt(answer, answer.evidence), answer.response) for answer in answers]
    without = [
        Prompted(prompt(answer, other), answer.response) for answer, other in zip(answers, evidence, strict=True)
    ]
    return present, without


def score_answers(
    answers: Sequence[Answer],
    names: Sequence[str],
    settings: Settings,
    model: LanguageModel | None,
    *,
    local: Any = None,
    done: Callable[[int], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Each named score of every answer, in order. `local` is the model behind a recording, if any."""
    if not needs_model(names):
        return {name: [SCORES[name].of(Seen(answer, settings)) for answer in answers] for name in names}
    if model is None:
        raise FedsrcError(f"{' and '.join(names)} need a language model", hint="give --model, --server or --recording")
    both = any(SCORES[name].needs == "both" for name in names)
    present, without = prompted(answers, settings if both else Settings(), local)
    _refuse_long(answers, present + (without if both else []), local)
    found: dict[str, list[float]] = {name: [] for name in names}
    for part in _steps(_unrecorded(model, present, without if both else present)):
        scores = model.score(present[part] + (without[part] if both else []))
        count = len(present[part])
        sides = scores[count:] if both else [None] * count
        for answer, first, second in zip(answers[part], scores[:count], sides, strict=True):
            seen = Seen(answer, settings, first, second)
            for name in names:
                found[name].append(SCORES[name].of(seen))
        done(part.stop)
    return found


def _unrecorded(model: Any, present: Sequence[Prompted], without: Sequence[Prompted]) -> list[bool]:
    """Which answers still need the model."""
    if not hasattr(model, "missing"):
        return [True] * len(present)
    missing = set(model.missing([*present, *without]))
    return [first in missing or second in missing for first, second in zip(present, without, strict=True)]


def _refuse_long(answers: Sequence[Answer], pairs: Sequence[Prompted], local: Any) -> None:
    """Before any work: name the answers that do not fit, all of them counted."""
    if local is None or not hasattr(local, "too_long"):
        return
    places = sorted({place % len(answers) for place in local.too_long(pairs)})
    if places:
        names = ", ".join(repr(answers[i].id) for i in places[:3]) + (", ..." if len(places) > 3 else "")
        raise FedsrcError(
            f"{len(places):,} of {len(answers):,} answers do not fit into the model's {local.limit:,} tokens: {names}",
            hint="use a model with a longer context, or shorten the evidence yourself: nothing is cut silently",
        )


def _steps(wanted: Sequence[bool]) -> Iterator[slice]:
    """Parts that take about STEP_SECONDS each, so that a stop loses little and batches stay full.

    Only answers that need the model count towards a part's size.
    """
    start, size = 0, FIRST_STEP
    while start < len(wanted):
        stop, asked = start, 0
        while stop < len(wanted) and asked < size and stop - start < LARGEST_STEP:
            asked += wanted[stop]
            stop += 1
        began = time.monotonic()
        yield slice(start, stop)
        start, seconds = stop, time.monotonic() - began
        if asked == size and seconds < STEP_SECONDS / 2:
            size = min(2 * size, LARGEST_STEP)
        elif seconds > 2 * STEP_SECONDS:
            size = max(FIRST_STEP, size // 2)
