"""From answers to scores, in steps that are recorded as they are done: a stopped run resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import SCORES, Count, Need, Seen, Settings
from fedsrc.scores.methods.judge import Judgement, question_in_words, verdict_pairs
from fedsrc.scores.models.embedding import Embedded, Embeds
from fedsrc.scores.models.entailment import Entailed, Entails
from fedsrc.scores.models.model import LanguageModel, Prompted, Wanted
from fedsrc.scores.prefixes import prefix_columns, refuse_no_prefix
from fedsrc.scores.prompts import controlled, prompt
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.recordings.signal_recording import SignalRecording

STEP_SECONDS, FIRST_STEP, LARGEST_STEP = 15.0, 16, 4096


@dataclass(frozen=True)
class Means:
    """What scores are made from: token scores, drawn responses, a judge's replies, mechanistic signals, and models that
    compare texts.

    `local` is the local model behind recordings, if there is one; `count` is how many responses a score takes.
    `seconds` collects the time that each kind of work took.
    """

    samples: SampleRecording | None = None
    count: Count = 5
    embeds: Embeds | None = None
    entails: Entails | None = None
    replies: SampleRecording | None = None
    tokens: LanguageModel | None = None
    signals: SignalRecording | None = None
    local: Any = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, str]:
        """The model that scores, whichever recording it is behind."""
        asked = self.tokens or self.signals or self.replies
        found = {} if asked is None else asked.identity
        return {name: value for name, value in found.items() if name not in ("signals", "sampling")}

    def of(self, kind: str) -> Any:
        """Return what a fitted score of a kind reads: recorded token scores or signals, or the local model itself."""
        recorded = {"combination": self.tokens, "franq": self.tokens, "mechanistic": self.signals}
        return recorded.get(kind, self.local)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time of a block to `seconds`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began


def needs(names: Sequence[str]) -> set[Need]:
    """Return what these scores need together."""
    return {each for name in names for each in SCORES[name].needs}


def compares_by(names: Sequence[str], means: Means) -> dict[str, str]:
    """Return how each score that compares texts does so: by entailment or by embedding."""
    found: dict[str, str] = {}
    for name in names:
        wanted = SCORES[name].needs
        if "entailment" in wanted or ("meaning" in wanted and means.entails is not None):
            found[name] = "entailment"
        elif wanted & {"embedding", "meaning"}:
            found[name] = "embedding"
    return found


class _Asked(NamedTuple):
    """What one answer needs of the language model."""

    tokens: list[Prompted]  # with the evidence, then under the control
    verdicts: list[Prompted]
    draws: list[Wanted]
    replies: list[Wanted]


def score_answers(
    answers: Sequence[Answer],
    names: Sequence[str],
    settings: Settings,
    means: Means,
    done: Callable[[int], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Return each named score of every answer, in order, and the columns of its prefixes."""
    refuse_no_prefix(names, settings)
    _check(names, means)
    asked = _asked(answers, names, settings, means)
    _refuse_long(answers, asked, means.local)
    _refuse_no_room(answers, asked, means)
    found: dict[str, list[float]] = {name: [] for name in names}
    for part in _steps(_unrecorded(asked, means)):
        seen = _seen(answers[part], asked[part], settings, means)
        embedded = None if means.embeds is None else Embedded(means.embeds)
        entailed = None if means.entails is None else Entailed(means.entails)
        columns: dict[str, list[float]] = {}
        for name in names:
            columns[name] = _scores(name, seen, means, embedded, entailed)
            columns |= prefix_columns(name, seen, columns[name])
        for column, values in columns.items():
            found.setdefault(column, []).extend(values)
        done(part.stop)
    return found


def _check(names: Sequence[str], means: Means) -> None:
    """Refuse, before any work, scores that these means cannot give."""
    for name in names:
        wanted, hint = SCORES[name].needs, "give `model=`, `server=` or `recording=`"
        if wanted & {"present", "verdict"} and means.tokens is None:
            raise FedsrcError(f"{name} needs a language model", hint=hint)
        if "reply" in wanted and means.replies is None:
            raise FedsrcError(f"{name} needs a model that generates text", hint=hint)
        if "samples" in wanted and means.samples is None:
            raise FedsrcError(f"{name} needs drawn responses", hint="give `model=`, `server=` or `sample_recording=`")
        if "samples" in wanted and SCORES[name].samples(means.count) < SCORES[name].matched:
            raise FedsrcError(f"{name} needs at least {SCORES[name].matched} samples", hint="give a larger `samples=`")
        if "entailment" in wanted and means.entails is None:
            hint = "give `entailment='microsoft/deberta-large-mnli'`"
            raise FedsrcError(f"{name} needs an entailment model", hint=hint)
        embeds = "embedding" in wanted or ("meaning" in wanted and means.entails is None)
        if embeds and means.embeds is None:
            raise FedsrcError(f"{name} needs a model that embeds texts", hint="give `embedding=`")


def _asked(answers: Sequence[Answer], names: Sequence[str], settings: Settings, means: Means) -> list[_Asked]:
    """Return what each answer needs; of drawn responses, as many as the score that takes most."""
    wanted, evidence = needs(names), [""] * len(answers)
    if "removed" in wanted:
        if settings.control in ("neutral", "irrelevant") and means.local is None:
            raise FedsrcError(
                f"evidence control {settings.control!r} matches lengths in tokens, which needs a local model",
                hint="name the model with `model=`, or use `control='removed'` or `control='shuffled'`",
            )
        evidence = controlled(answers, settings.control, getattr(means.local, "tokens", len))
    count = max((SCORES[name].samples(means.count) for name in names), default=0)
    found = []
    for answer, other in zip(answers, evidence, strict=True):
        shown = prompt(answer, answer.evidence)
        sides = [shown] * ("present" in wanted) + [prompt(answer, other)] * ("removed" in wanted)
        found.append(
            _Asked(
                [Prompted(side, answer.response) for side in sides],
                verdict_pairs(answer) if "verdict" in wanted else [],
                [Wanted(shown, place) for place in range(count)],
                [question_in_words(answer)] if "reply" in wanted else [],
            )
        )
    return found


def _seen(answers: Sequence[Answer], asked: Sequence[_Asked], settings: Settings, means: Means) -> list[Seen]:
    """Return the answers with what the models give of them."""
    count = len(answers)
    nothing: list[Any] = [None] * count
    present, without, verdicts, replies = nothing, nothing, nothing, nothing
    samples: list[Any] = [()] * count
    if means.tokens is not None and asked[0].tokens:
        with means.timed("tokens"):
            sides = zip(*(own.tokens for own in asked), strict=True)
            scores = means.tokens.score([pair for side in sides for pair in side])
            present, without = scores[:count], scores[count:] or nothing
    if means.tokens is not None and asked[0].verdicts:
        with means.timed("verdicts"):
            two = iter(means.tokens.score([pair for own in asked for pair in own.verdicts]))
            verdicts = [Judgement(*both) for both in zip(two, two, strict=True)]
    if means.samples is not None and asked[0].draws:
        with means.timed("samples"):
            drawn = iter(means.samples.sample([each for own in asked for each in own.draws]))
            samples = [tuple(next(drawn) for _ in own.draws) for own in asked]
    if means.replies is not None and asked[0].replies:
        with means.timed("replies"):
            replies = means.replies.sample([each for own in asked for each in own.replies])
    given = zip(answers, present, without, samples, verdicts, replies, strict=True)
    return [Seen(answer, settings, *rest) for answer, *rest in given]


def _scores(
    name: str, seen: Sequence[Seen], means: Means, embedded: Embedded | None, entailed: Entailed | None
) -> list[float]:
    """Return one score of these answers; the texts it compares are embedded or judged in one call."""
    score, by = SCORES[name], compares_by([name], means).get(name)
    count = score.samples(means.count)
    embeds, entails = embedded if by == "embedding" else None, entailed if by == "entailment" else None
    ready = [replace(each, samples=each.samples[:count], embedded=embeds, entailed=entails) for each in seen]
    with means.timed(by or "arithmetic"):
        if embeds is not None:
            embeds.add(text for each in ready for text in score.texts(each))
        if entails is not None:
            entails.add(pair for each in ready for pair in score.pairs(each))
        return [score.of(each) for each in ready]


def _unrecorded(asked: Sequence[_Asked], means: Means) -> list[bool]:
    """Return which answers still need the language model."""
    pairs = [pair for own in asked for pair in (*own.tokens, *own.verdicts)]
    missing: set[Any] = set(means.tokens.missing(pairs)) if isinstance(means.tokens, Recording) else set(pairs)
    if means.samples is not None:
        missing |= set(means.samples.missing([each for own in asked for each in own.draws]))
    if means.replies is not None:
        missing |= set(means.replies.missing([each for own in asked for each in own.replies]))
    return [any(each in missing for kind in own for each in kind) for own in asked]


def _refuse_long(answers: Sequence[Answer], asked: Sequence[_Asked], local: Any) -> None:
    """Refuse, before any work, answers that do not fit into the model's context."""
    pairs = [(i, pair) for i, own in enumerate(asked) for pair in (*own.tokens, *own.verdicts)]
    if not pairs or not hasattr(local, "too_long"):
        return
    places = sorted({pairs[place][0] for place in local.too_long([pair for _, pair in pairs])})
    if places:
        names = ", ".join(repr(answers[i].id) for i in places[:3]) + (", ..." if len(places) > 3 else "")
        raise FedsrcError(
            f"{len(places):,} of {len(answers):,} answers do not fit into the model's {local.limit:,} tokens: {names}",
            hint="use a model with a longer context, or shorten the evidence yourself: nothing is cut silently",
        )


def _refuse_no_room(answers: Sequence[Answer], asked: Sequence[_Asked], means: Means) -> None:
    """Refuse, before any work, answers whose prompt leaves no room for a response of the wanted length."""
    prompts, local = [own.draws[0].prompt for own in asked if own.draws], means.local
    if not prompts or means.samples is None or not hasattr(local, "tokens"):
        return
    room = local.limit - means.samples.how.max_tokens
    sizes = {text: local.tokens(text) for text in set(prompts)}
    places = [i for i, text in enumerate(prompts) if sizes[text] > room]
    if places:
        raise FedsrcError(
            f"{len(places):,} of {len(answers):,} prompts leave no room for a response in the model's "
            f"{local.limit:,} tokens: {answers[places[0]].id!r}{', ...' if len(places) > 1 else ''}",
            hint="use a model with a longer context, a smaller `sample_tokens=`, or shorten the evidence yourself",
        )


def _steps(wanted: Sequence[bool]) -> Iterator[slice]:
    """Yield parts that take about STEP_SECONDS each, so that a stop loses little and batches stay full.

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
