"""What a table's columns are called, and how scores and labels are written in them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from fedsrc.common.label_words import ONE, ZERO, End, check_words, end_of_one, meaning, plain_name, plain_word
from fedsrc.errors import FedsrcError
from fedsrc.protocol.panels import Scores
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale

ORDER = ("score", "loss", "site", "source", "id", "group")
NEEDED = ("score", "loss")
UNIT = Scale()
SOURCE_NAME = re.compile(  # what people call the thing that several answers share
    r"(source|question|query|prompt|document|doc|article|passage|patient|person|user|customer|session|conversation"
    r"|dialogue|dialog|thread|(user)?input|chat|encounter|ticket|case|account|context|call|email|claim|order)s?"
    r"(id|ids|no|nr|num|number|key|name|uuid|hash|text|)"
)


@dataclass(frozen=True)
class Columns:
    """What the table's columns are called. One that is named must be there; one that is not (None) goes by its own
    word, and may be absent.

    `unsupported` and `supported` are words that labels are written in, besides those that everybody uses. `scale` is
    that of the scores; None where it is to be found out. `others` are further scores, each with its scale.
    """

    score: str | None = None
    loss: str | None = None
    site: str | None = None
    source: str | None = None
    group: str | None = None
    id: str | None = None
    unsupported: tuple[str, ...] = ()
    supported: tuple[str, ...] = ()
    scale: Scale | None = None
    others: tuple[tuple[str, Scale], ...] = ()

    def __post_init__(self) -> None:
        check_words(self.unsupported, self.supported)

    def name(self, what: str) -> str:
        """Return the name of a column."""
        return getattr(self, what) or what

    @property
    def names(self) -> frozenset[str]:
        """The columns that hold names, not numbers."""
        return frozenset(self.name(what) for what in ORDER if what not in NEEDED)

    @property
    def one_is(self) -> End | None:
        """What a 1, a true and a yes mean in the loss column: as somebody says, or else its name."""
        return end_of_one(self.name("loss"), self.unsupported, self.supported)

    def meaning(self, label: str) -> float | None:
        """Return the loss that a word stands for; None if nobody knows it."""
        return meaning(label, self.one_is, self.unsupported, self.supported)

    @property
    def said_numbers(self) -> dict[float, float]:
        """The losses of labels that are numbers, where somebody said what they mean."""
        said = dict[float, float]()
        for end in ("unsupported", "supported"):
            for word in getattr(self, end):
                with suppress(ValueError):
                    said[float(word)] = float(end == "unsupported")
        return said

    def bound(self, registration: Registration) -> Columns:
        """Return the same under a registration, which names the score, its scale, the group and further scores; refuse
        others.

        `NAME=MINE` says that the registered score NAME is in the column MINE.
        """
        column, scale, groups = registration.claim.column, registration.claim.scale, registration.groups
        asked = column if self.score is None else self.score
        if asked != column:
            named, _, asked = asked.partition("=")
            if named != column or not asked:
                raise FedsrcError(
                    f"the registered score is {column!r}, not {self.score!r}",
                    hint=f"if your column holds that score, say so: `score_column='{column}={self.score}'`",
                )
        if self.scale not in (None, scale):
            raise FedsrcError(
                f"the registered scale of the score is {scale}, not {self.scale}",
                hint="leave `score_scale=` out, and write scores as they were registered",
            )
        if groups is not None and self.group not in (None, groups.column):
            what = f"the registered column of groups is {groups.column!r}, not {self.group!r}"
            raise FedsrcError(what, hint="leave `group_column=` out, and name the column as it was registered")
        group = self.group if groups is None else groups.column
        return replace(self, score=asked, scale=scale, group=group, others=further_scores(registration))

    def check(self, present: Collection[str], where: str) -> None:
        """Refuse a table that lacks a column which is needed, or which somebody named."""
        for name, _ in self.others:
            if name not in present:
                raise FedsrcError(f"no column {name!r}, which is one of the scores", where=where)
        for what in ORDER:
            name = self.name(what)
            if name not in present and (what in NEEDED or getattr(self, what)):
                raise FedsrcError(
                    f"no column {name!r} (`{what}_column=`); the table has {', '.join(map(repr, present)) or 'none'}",
                    where=where,
                    hint=self._other_name(what, present),
                )
            if what not in NEEDED and name in (self.name("score"), self.name("loss")):
                raise FedsrcError(
                    f"column {name!r} is the score or the loss, and cannot be the {what} (`{what}_column=`) too",
                    where=where,
                )

    def _other_name(self, what: str, present: Collection[str]) -> str:
        """Suggest what to do about a missing column."""
        near = difflib.get_close_matches(self.name(what), self.unused(present), n=1)
        if near:
            return f"is it {near[0]!r}? `{what}_column={near[0]!r}`"
        names = [f"`{each}_column=`" for each in ("score", "loss", "site", "source", "id")]
        return f"name the columns with {', '.join(names[:-1])} and {names[-1]}"

    def used(self, present: Collection[str]) -> dict[str, str]:
        """Return the name of each column that is used."""
        return {what: self.name(what) for what in ORDER if self.name(what) in present}

    def cut_by(self, present: Collection[str]) -> str:
        """Return what decides units, sites, scores and losses, as a ledger remembers it: columns, and how they are
        read where that is not as usual."""
        cut: dict[str, object] = {what: name for what, name in self.used(present).items() if what != "group"}
        if self.others:
            cut["scores"] = [f"{name}={scale}" for name, scale in self.others]
        if self.scale not in (None, UNIT):
            cut["scale"] = str(self.scale)
        if "loss" in cut and self.one_is == "supported":
            cut["one is"] = self.one_is
        for end in ("unsupported", "supported"):
            if words := sorted({*map(plain_word, getattr(self, end))} - self._follow(end)):
                cut[end] = words
        return json.dumps(cut)

    def _follow(self, end: str) -> frozenset[str]:
        """Return the words that `one_is` says mean this."""
        return ONE if self.one_is == end else ZERO

    def unused(self, present: Collection[str]) -> list[str]:
        """Return the columns that are not used."""
        used = {*self.used(present).values(), *(name for name, _ in self.others)}
        return [name for name in present if name not in used]

    def like_source(self, present: Collection[str]) -> list[str]:
        """Return the columns that are not used, although their name suggests a source."""
        return [name for name in self.unused(present) if SOURCE_NAME.fullmatch(plain_name(name))]


def further_scores(registration: Registration) -> tuple[tuple[str, Scale], ...]:
    """Return the scores that are registered beside the claim's, each with its scale."""
    claims = registration.claims
    return tuple((each.column, each.scale) for each in claims.others) if isinstance(claims, Scores) else ()


def further_score(text: str) -> tuple[str, Scale]:
    """Read NAME, or NAME=WORST:BEST where a further score is not written from 0 to 1."""
    name, _, scale = text.partition("=")
    try:
        return name, Scale.of(scale) if scale else UNIT
    except ValueError as error:
        raise FedsrcError(f"`also_scores=` {error}") from error
