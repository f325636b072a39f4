"""Key succession: one key replaces another, in a statement that both have signed; and which keys are trusted.

A key has one successor at most. A trusted key hands its trust on along the line of statements, and what it signs itself
counts up to the date of its own succession.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.clock import Time, utc_now
from fedsrc.common.signing import Key, public_hex, sign, signed_by
from fedsrc.common.values import Hex, Signature
from fedsrc.errors import FedsrcError
from fedsrc.protocol.documents import Message, read_document

MAX_BYTES = 10_000
DOUBT = "trust neither: name the key you know to be right, and leave the statements out"


class Succession(Message):
    """The statement, signed by both keys: `new` replaces `old` from a time on."""

    END: ClassVar = b"\n"
    format: Literal[1] = 1
    kind: Literal["succession"] = "succession"
    old: Hex
    new: Hex
    time: Time
    by_old: Signature | None = None
    by_new: Signature | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.old == self.new:
            raise ValueError("a key does not succeed itself")
        return self

    @classmethod
    def by(cls, old: Key, new: Key, time: str | None = None) -> Self:
        """Make the statement of two keys, dated now."""
        plain = cls(old=public_hex(old), new=public_hex(new), time=time or utc_now())
        data = plain.signed_part()
        return plain.model_copy(update={"by_old": sign(old, data), "by_new": sign(new, data)})

    def signed_part(self) -> bytes:
        """What both keys sign."""
        return canonical_bytes(self.model_dump(exclude={"by_old", "by_new"}))


def read_succession(path: Path) -> Succession:
    """Read a statement; refuse it unless both keys have signed it."""
    found = read_document(Succession, path, "the succession of a key", MAX_BYTES)
    for whose, public, signature in (("old", found.old, found.by_old), ("new", found.new, found.by_new)):
        if signature is None or not signed_by(public, signature, found.signed_part()):
            raise FedsrcError(f"the succession is not signed by the {whose} key", where=str(path))
    return found


@dataclass(frozen=True)
class Keys:
    """Which keys may have signed a certificate, and until when. Where none is named, any key may."""

    trusted: frozenset[str] = frozenset()
    successions: Mapping[str, Succession] = field(default_factory=dict)  # by the old key

    def line(self, key: str) -> Iterator[str]:
        """Yield a key, its successor, that one's successor, and so on."""
        yield key
        while key in self.successions:
            key = self.successions[key].new
            yield key

    def check(self, key: str, dated: str, where: str, what: str = "certificate") -> None:
        """Refuse what was signed by a key that no trusted key leads to, or is dated after its key was succeeded."""
        if self.trusted and not any(key in self.line(each) for each in self.trusted):
            raise FedsrcError(f"the {what} is signed by {key}, which is not trusted", where=where)
        after = self.successions.get(key)
        if after is not None and dated > after.time:
            late = f"the {what} of {dated} is signed by a key that was succeeded on {after.time}"
            raise FedsrcError(late, where=where, hint=f"do not rely on it: its issuer signs with {after.new} since")


ANYONE = Keys()


def keys_of(trusted: Iterable[str] = (), files: Iterable[Path | str] = ()) -> Keys:
    """Return the keys to trust, with the successions in some files. Forks and cycles are refused."""
    successions: dict[str, Succession] = {}
    for path in files:
        found = read_succession(Path(path))
        known = successions.setdefault(found.old, found)
        if known != found:
            what = f"key {found.old} is succeeded twice: by {known.new} on {known.time}, by {found.new} on {found.time}"
            raise FedsrcError(what, where=str(path), hint=DOUBT)
    keys = Keys(frozenset(trusted), successions)
    for start in successions:
        _check_no_cycle(keys.line(start))
    return keys


def _check_no_cycle(line: Iterable[str]) -> None:
    seen = set[str]()
    for key in line:
        if key in seen:
            raise FedsrcError(f"the successions go round in a circle: key {key} comes after itself", hint=DOUBT)
        seen.add(key)
