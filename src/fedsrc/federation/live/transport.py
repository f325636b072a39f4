"""What a live run needs of an engine: who is connected, letters out, replies back; and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fedsrc.errors import FedsrcError

Kind = Literal["hello", "release"]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Node:
    """A node that is connected now, and the name of its key."""

    id: int
    key: str = ""


@dataclass(frozen=True)
class Letter:
    """Bytes for one node."""

    node: int
    kind: Kind
    data: bytes
    group: str = ""


@dataclass(frozen=True)
class Reply:
    """What came back for a letter: bytes, or a problem. `refused` means that the site itself will not answer."""

    to: str
    data: bytes | None = None
    problem: str = ""
    refused: bool = False


class Post(Protocol):
    """What a live run needs of an engine."""

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that are connected."""

    def push(self, letters: Sequence[Letter], seconds: float) -> Sequence[str | None]:
        """Send letters that expire after so long; return a number for each, or None if it could not be sent."""

    def pull(self, numbers: Sequence[str]) -> Sequence[Reply]:
        """Return the replies to these letters that have come."""


class Clock(Protocol):
    """Time, as the module `time` tells it; tests replace it."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds."""

    start: float = 120.0  # for all sites to say hello before the first round
    round: float = 120.0  # for the answers of a round
    missing: float = 60.0  # for a site that is not connected, within a round
    retry: float = 3.0  # before a question that failed on the way is retried
    poll: float = 0.3

    def __post_init__(self) -> None:
        if not all(0 < each < float("inf") for each in (self.start, self.round, self.missing, self.retry, self.poll)):
            raise FedsrcError("times to wait are numbers of seconds above zero")
