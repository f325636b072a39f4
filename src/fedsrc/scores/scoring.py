"""From answers to scores, in steps that are recorded as they are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import SCORES, Count, Need, Seen, Settings
from fedsrc.scores.methods.judge import Verdict, question_in_words, verdict_pairs
from fedsrc.scores.models.embedding import Embedded, Embeds
from fedsrc.scores.models.entailment import Entailed, Entails
from fedsrc.scores.models.model import LanguageModel, Prompted, TokenScores, Wanted
from fedsrc.scores.prompts import controlled, prompt
from fedsrc.scores.recordings.samples import SampleRecording

STEP_SECONDS, FIRST_STEP, LARGEST_STEP = 15.0, 16, 4096


@dataclass(frozen=True)
class Means:
    """What scores use beside token scores: drawn responses and how many a score takes, and models that compare texts.

    `replies` are what a judge says in words. `seconds` is filled with the time that each kind of work took.
    """

    samples: SampleRecording | None = None
    count: Count = 5
    embeds: Embeds | None = None
    entails: Entails | None = None
    replies: SampleRecording | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time of a block to `seconds`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began


def needs(names: Sequence[str]) -> set[Need]:
    """What these scores need together."""
    return {each for name in names for each in SCORES[name].needs}


def needs_model(names: Sequence[str]) -> bool:
    """Whether any of these scores needs token scores of a language model."""
    return bool(needs(names) & {"present", "verdict"})


def compares_by(names: Sequence[str], means: Means) -> dict[str, str]:
    """How each score that compares texts does so: by entailment or by embedding."""
    found: dict[str, str] = {}
    for name in names:
        wanted = SCORES[name].needs
        if "entailment" in wanted or ("meaning" in wanted and means.entails is not None):
            found[name] = "entailment"
        elif wanted & {"embedding", "meaning"}:
            found[name] = "embedding"
    return found


def prompted(answers: Sequence[Answer], settings: Settings, model: Any) -> tuple[list[Prompted], list[Prompted]]:
    """Each answer after its prompt with the evidence, and after its prompt under the control."""
    length: Callable[[str], int] = getattr(model, "tokens", len)
    if settings.control in ("neutral", "irrelevant") and model is None:
        raise FedsrcError(
            f"evidence control {settings.control!r} matches lengths in tokens, which needs a local model",
            hint="name the model with `model=`, or use `control='removed'` or `control='shuffled'`",
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
    means: Means | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Each named score of every answer, in order. `local` is the model behind a recording, if any."""
    used = means or Means()
    _check(names, model, used)
    wanted = needs(names)
    both = "removed" in wanted
    present, without = prompted(answers, settings if both else Settings(), local)
    tokens = [*present, *(without if both else [])] if "present" in wanted else []
    verdicts = [verdict_pairs(answer) for answer in answers] if "verdict" in wanted else []
    _refuse_long(answers, [*tokens, *_by_side(verdicts)], local)
    draws = _draws(present, names, used)
    _refuse_no_room(answers, draws, local, used)
    found: dict[str, list[float]] = {name: [] for name in names}
    for part in _steps(_unrecorded(answers, [*tokens, *_by_side(verdicts)], draws, model, used)):
        seen = [Seen(answer, settings) for answer in answers[part]]
        if model is not None and tokens:
            with used.timed("tokens"):
                seen = _with_tokens(seen, present[part], without[part] if both else None, model)
        if model is not None and verdicts:
            with used.timed("verdicts"):
                seen = _with_verdicts(seen, verdicts[part], model)
        seen = _with_samples(seen, draws[part], used)
        seen = _with_replies(seen, used) if "reply" in wanted else seen
        texts = _Texts(used)
        for name in names:
            found[name] += texts.scores(name, seen)
        done(part.stop)
    return found


def _check(names: Sequence[str], model: LanguageModel | None, means: Means) -> None:
    """Refuse before any work what cannot be computed with these means."""
    for name in names:
        wanted = SCORES[name].needs
        if wanted & {"present", "verdict"} and model is None:
            raise FedsrcError(f"{name} needs a language model", hint="give `model=`, `server=` or `recording=`")
        if "reply" in wanted and means.replies is None:
            raise FedsrcError(f"{name} needs a model that writes", hint="give `model=`, `server=` or `recording=`")
        if "samples" in wanted and means.samples is None:
            raise FedsrcError(f"{name} needs drawn responses", hint="give `model=`, `server=` or `sample_recording=`")
        if "samples" in wanted and SCORES[name].samples(means.count) < SCORES[name].matched:
            raise FedsrcError(f"{name} needs at least {SCORES[name].matched} samples", hint="give `samples=` more")
        if "entailment" in wanted and means.entails is None:
            raise FedsrcError(
                f"{name} needs an entailment model", hint="give `entailment='microsoft/deberta-large-mnli'`"
            )
        if (
            wanted & {"embedding", "meaning"}
            and means.embeds is None
            and ("embedding" in wanted or means.entails is None)
        ):
            raise FedsrcError(f"{name} needs a model that embeds texts", hint="give `embedding=`")


def _with_tokens(
    seen: list[Seen], present: Sequence[Prompted], without: Sequence[Prompted] | None, model: LanguageModel
) -> list[Seen]:
    scores = model.score([*present, *(without or [])])
    sides: list[TokenScores | None] = [None] * len(seen) if without is None else list(scores[len(seen) :])
    whole = zip(seen, scores[: len(seen)], sides, strict=True)
    return [replace(each, present=first, without=second) for each, first, second in whole]


def _with_verdicts(seen: list[Seen], pairs: Sequence[Sequence[Prompted]], model: LanguageModel) -> list[Seen]:
    scores = iter(model.score([pair for both in pairs for pair in both]))
    return [replace(each, verdict=Verdict(next(scores), next(scores))) for each in seen]


def _by_side(verdicts: Sequence[Sequence[Prompted]]) -> list[Prompted]:
    """All first pairs, then all second ones."""
    return [pair for side in zip(*verdicts, strict=True) for pair in side]


def _with_replies(seen: list[Seen], means: Means) -> list[Seen]:
    assert means.replies is not None
    with means.timed("replies"):
        replies = means.replies.sample([question_in_words(each.answer) for each in seen])
    return [replace(each, reply=reply) for each, reply in zip(seen, replies, strict=True)]


def _draws(present: Sequence[Prompted], names: Sequence[str], means: Means) -> list[list[Wanted]]:
    """What is to be drawn for each answer: as many as the score that takes most."""
    count = max((SCORES[name].samples(means.count) for name in names), default=0)
    return [[Wanted(pair.prompt, place) for place in range(count)] for pair in present]


def _with_samples(seen: list[Seen], draws: Sequence[Sequence[Wanted]], means: Means) -> list[Seen]:
    if means.samples is None or not any(draws):
        return seen
    with means.timed("samples"):
        drawn = iter(means.samples.sample([each for wanted in draws for each in wanted]))
    return [replace(each, samples=tuple(next(drawn) for _ in wanted)) for each, wanted in zip(seen, draws, strict=True)]


class _Texts:
    """Comparisons of one step's texts, each text embedded and each pair judged once for all scores."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._embedded = None if means.embeds is None else Embedded(means.embeds)
        self._entailed = None if means.entails is None else Entailed(means.entails)

    def scores(self, name: str, seen: Sequence[Seen]) -> list[float]:
        """One score of these answers: what it compares is asked for at once, then each answer is scored."""
        score, by = SCORES[name], compares_by([name], self._means).get(name)
        count = score.samples(self._means.count)
        embedded = self._embedded if by == "embedding" else None
        entailed = self._entailed if by == "entailment" else None
        ready = [replace(each, samples=each.samples[:count], embedded=embedded, entailed=entailed) for each in seen]
        with self._means.timed(by or "arithmetic"):
            if embedded is not None:
                embedded.add(text for each in ready for text in score.texts(each))
            if entailed is not None:
                entailed.add(pair for each in ready for pair in score.pairs(each))
            return [score.of(each) for each in ready]


def _unrecorded(
    answers: Sequence[Answer],
    tokens: Sequence[Prompted],
    draws: Sequence[Sequence[Wanted]],
    model: Any,
    means: Means,
) -> list[bool]:
    """Which answers still need the language model."""
    missing: set[Any] = set(model.missing(tokens)) if hasattr(model, "missing") else set(tokens)
    if means.samples is not None:
        missing |= set(means.samples.missing([each for wanted in draws for each in wanted]))
    replies = [] if means.replies is None else [question_in_words(answer) for answer in answers]
    if means.replies is not None:
        missing |= set(means.replies.missing(replies))
    asked = [(*tokens[i :: len(answers)], *draws[i], *replies[i : i + 1]) for i in range(len(answers))]
    return [any(each in missing for each in own) for own in asked]


def _refuse_long(answers: Sequence[Answer], pairs: Sequence[Prompted], local: Any) -> None:
    """Before any work: name the answers that do not fit, all of them counted."""
    if local is None or not hasattr(local, "too_long"):
        return
    places = sorted({place % len(answers) for place in local.too_long(pairs)}) if pairs else []
    if places:
        names = ", ".join(repr(answers[i].id) for i in places[:3]) + (", ..." if len(places) > 3 else "")
        raise FedsrcError(
            f"{len(places):,} of {len(answers):,} answers do not fit into the model's {local.limit:,} tokens: {names}",
            hint="use a model with a longer context, or shorten the evidence yourself: nothing is cut silently",
        )


def _refuse_no_room(answers: Sequence[Answer], draws: Sequence[Sequence[Wanted]], local: Any, means: Means) -> None:
    """Before any work: name the answers whose prompt leaves no room for a response of the wanted length."""
    if local is None or not hasattr(local, "tokens") or means.samples is None or not any(draws):
        return
    room = local.limit - means.samples.how.max_tokens
    sizes = {text: local.tokens(text) for text in {each[0].prompt for each in draws}}
    places = [i for i, each in enumerate(draws) if sizes[each[0].prompt] > room]
    if places:
        raise FedsrcError(
            f"{len(places):,} of {len(answers):,} prompts leave no room for a response in the model's "
            f"{local.limit:,} tokens: {answers[places[0]].id!r}{', ...' if len(places) > 1 else ''}",
            hint="use a model with a longer context, a smaller `sample_tokens=`, or shorten the evidence yourself",
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
