"""What a proxy sends of a call, and the evidence in it.

LiteLLM asks twice under one call id: before the model with the messages, after it with the answers alone. So what the
first has is kept, in memory, until the second asks. Its format grows: names that are not ours are ignored, and what is
ours has exactly the type that is described here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

MOST_TEXTS = 128
MOST_CALLS = 4_096
MOST_CHARACTERS = 1 << 26
SECONDS = 3_600.0
WITHHELD = "[present]"  # what LiteLLM sends for a header whose value it keeps to itself


class Call(BaseModel):
    """One question of the proxy: before the model (`request`) or after it (`response`)."""

    model_config = ConfigDict(strict=True, extra="ignore")
    input_type: Literal["request", "response"]
    litellm_call_id: str | None = None
    texts: Annotated[list[str], Field(max_length=MOST_TEXTS)] | None = None
    structured_messages: list[Any] | None = None
    request_headers: dict[str, str] | None = None
    additional_provider_specific_params: dict[str, Any] | None = None
    images: list[Any] | None = None
    tool_calls: list[Any] | None = None

    def header(self, name: str) -> str | None:
        """Return the value of a header that came once and was not withheld."""
        found = [value for each, value in (self.request_headers or {}).items() if each.lower() == name.lower()]
        return found[0] if len(found) == 1 and found[0] != WITHHELD else None


class Shown(NamedTuple):
    """What the model was asked, and the evidence it was shown."""

    question: str
    evidence: str


def shown_in(messages: Sequence[Any] | None, roles: Collection[str]) -> Shown | None:
    """Return the last message of the user, and all messages of these roles; None if there are none of these, or if
    what should be read is not text."""
    rows = [each for each in messages or () if isinstance(each, dict) and isinstance(each.get("role"), str)]
    evidence = [_text(each.get("content")) for each in rows if each.get("role") in roles]
    asked = [each.get("content") for each in rows if each.get("role") == "user"]
    question = _text(asked[-1]) if asked else ""
    read = [each for each in evidence if each is not None]
    if question is None or not read or len(read) < len(evidence):
        return None
    return Shown(question, "\n\n".join(read))


def _text(content: Any) -> str | None:
    """Return the text of a message; None if any part of it is something else."""
    parts = [{"text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not parts:
        return None
    texts = [each.get("text") for each in parts if isinstance(each, dict)]
    read = [each for each in texts if isinstance(each, str)]
    return "\n".join(read) if len(read) == len(parts) else None


class Calls:
    """What calls under way have shown their model: the oldest are forgotten where they are too many, too large or too
    old, and a call that has shown two different things has shown nothing."""

    def __init__(self, characters: int = MOST_CHARACTERS, clock: Callable[[], float] = time.monotonic) -> None:
        self._characters, self._clock = characters, clock
        self._kept: dict[str, tuple[float, Shown | None]] = {}
        self._size = 0

    def keep(self, call: str | None, shown: Shown | None) -> None:
        """Keep what a call has shown, until it is taken."""
        if not call:
            return
        before = self._kept.get(call)
        self._put(call, shown if before is None or before[1] == shown else None)
        end = self._clock() - SECONDS
        while len(self._kept) > MOST_CALLS or self._size > self._characters or self._oldest() < end:
            self.take(next(iter(self._kept)))

    def take(self, call: str | None) -> Shown | None:
        """Return what a call has shown, once."""
        moment, shown = self._kept.pop(call or "", (0.0, None))
        self._size -= _size(shown)
        return shown if moment >= self._clock() - SECONDS else None

    def _put(self, call: str, shown: Shown | None) -> None:
        self.take(call)
        self._kept[call] = (self._clock(), shown)
        self._size += _size(shown)

    def _oldest(self) -> float:
        return next(iter(self._kept.values()), (float("inf"), None))[0]


def _size(shown: Shown | None) -> int:
    return 0 if shown is None else len(shown.question) + len(shown.evidence)
