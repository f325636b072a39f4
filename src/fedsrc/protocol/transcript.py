"""The transcript: the server's append-only, hash-chained list of everything that happened.

JSON lines. Each line holds its number and the SHA-256 of the line before it. Lines are on disk before they are acted
on. Everything after the transcript (tally, bounds, certificate) is a pure function of it and the registration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from fedsrc.common import durable
from fedsrc.common.canonical import canonical_bytes, digest_bytes
from fedsrc.common.held import HeldFile, whole_lines
from fedsrc.common.values import Frozen, Grown, Hex, Name, describe, printable
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.formats import FIRST_FORMAT, FIRST_HINT
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.messages import START, Coordinates, Release, Request

MAX_BYTES = 4_000_000_000


class Opened(Frozen):
    """First line: the registration that binds everything after it."""

    kind: Literal["opened"] = "opened"
    format: Literal[2] = 2
    registration: Hex


class Announced(Frozen):
    """A site's public unspent count, announced before it is asked for anything, in its own signed word where it has a
    registered key and no registered capacity says it."""

    kind: Literal["announced"] = "announced"
    site: Name
    units: int = Field(ge=0)
    hello: Hello | None = None

    @classmethod
    def by(cls, hello: Hello, capacity: int | None) -> Announced:
        """Keep a site's own word where it is signed and says more than the registered capacity; else its number."""
        plain = hello.signature is None or hello.units == capacity
        return cls(site=hello.site, units=hello.units, hello=None if plain else hello)


class Asked(Frozen):
    """A request, on disk before the site sees it."""

    kind: Literal["asked"] = "asked"
    request: Request


class Arrived(Frozen):
    """A release that was accepted."""

    kind: Literal["arrived"] = "arrived"
    release: Release


class Summed(Frozen):
    """The releases of all members of a cohort, in its order, and their sum, which alone can be read."""

    kind: Literal["summed"] = "summed"
    request: Hex
    members: Annotated[tuple[Release, ...], Field(strict=False)]
    first: Coordinates
    second: Coordinates


class Absent(Grown):
    """A request that was not answered, or whose answer was refused, and why. A cohort's is void if a member's answer is
    missing or refused, or their sum is."""

    LATER: ClassVar[tuple[str, ...]] = ("members",)

    kind: Literal["absent"] = "absent"
    request: Hex
    refused: bool
    reason: Annotated[str, Field(max_length=500), AfterValidator(printable)]
    release: Release | None = None  # what was refused, when it could be read and was the site's own
    members: Annotated[tuple[Release, ...], Field(strict=False)] = ()  # whose sum was refused


class Closed(Frozen):
    """A round is over: what arrived is folded, in registered order, and bounds are looked at."""

    kind: Literal["closed"] = "closed"
    round: int = Field(ge=1)


class Ended(Frozen):
    """No more rounds: a certificate or an alarm was reached, or nothing is left to ask."""

    kind: Literal["ended"] = "ended"
    reason: Literal["certified", "rounds used", "units used", "alarm"]


Entry = Opened | Announced | Asked | Arrived | Summed | Absent | Closed | Ended
ENTRIES: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


@dataclass(frozen=True)
class Chain:
    """The end of a checked transcript: how many lines and bytes, and the hash that the next line must hold."""

    lines: int = 0
    head: str = START
    size: int = 0

    def line(self, entry: Entry) -> tuple[bytes, Chain]:
        """Return the next line for an entry, and the chain after it."""
        data = canonical_bytes({"n": self.lines + 1, "prev": self.head, **entry.model_dump()})
        return data + b"\n", Chain(self.lines + 1, digest_bytes(data), self.size + len(data) + 1)

    def read(self, data: bytes, where: str) -> tuple[Entry, Chain]:
        """Check and parse the next line."""
        try:
            fields = json.loads(data)
            number, previous = fields.pop("n"), fields.pop("prev")
            if fields.get("kind") == "opened" and fields.get("format") == 1:
                raise FedsrcError(f"is a transcript of {FIRST_FORMAT}", where=where, hint=FIRST_HINT)
            entry = ENTRIES.validate_python(fields)
        except ValidationError as error:
            raise _damaged(where, self.lines + 1, f"is not an entry ({describe(error)})") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(where, self.lines + 1, "is not a transcript entry") from error
        if number != self.lines + 1 or previous != self.head:
            raise _damaged(
                where, self.lines + 1, f"does not continue line {self.lines}" if self.lines else "is not a first line"
            )
        line, after = self.line(entry)
        if data + b"\n" != line:
            raise _damaged(where, self.lines + 1, "is not in canonical form")
        return entry, after


class Transcript:
    """A transcript file, held by one process. `append` returns once the lines are on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = HeldFile(path, "another process is writing this run")
        try:
            self.entries, self.chain = read_transcript(path)
            self._file.cut(self.chain.size)
        except BaseException:
            self._file.close()
            raise

    def append(self, *entries: Entry) -> None:
        """Write entries in one go and wait for the disk."""
        chain, lines = self.chain, []
        for entry in entries:
            data, chain = chain.line(entry)
            lines.append(data)
        self._file.append(b"".join(lines))
        self.entries.extend(entries)
        self.chain = chain

    def close(self) -> None:
        self._file.close()


def read_transcript(path: Path) -> tuple[list[Entry], Chain]:
    """Read and check a transcript without changing it."""
    entries, chain = list[Entry](), Chain()
    for entry, after in read_entries(path):
        entries.append(entry)
        chain = after
    return entries, chain


def read_entries(path: Path) -> Iterator[tuple[Entry, Chain]]:
    """Yield the entries one at a time, each with the chain after it, in constant memory."""
    return checked(durable.read_lines(path, MAX_BYTES), str(path))


def checked(lines: Iterable[bytes], where: str) -> Iterator[tuple[Entry, Chain]]:
    """Check lines; yield entries, each with the chain after it. A torn last line is left out with a warning."""
    chain = Chain()
    for line in whole_lines(lines, where):
        entry, chain = chain.read(line, where)
        yield entry, chain


def _damaged(where: str, line: int, what: str) -> DamagedError:
    what = f"the transcript was changed after it was written: line {line:,} {what}"
    return DamagedError(what, where=where, hint="do not rely on it; restore a copy of the file as it was")
