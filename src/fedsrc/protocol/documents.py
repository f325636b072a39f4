"""Values that travel or lie in files of their own, each with one text: canonical JSON, and nothing else is accepted."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pydantic import ValidationError

from fedsrc.common.canonical import canonical_bytes, digest_bytes
from fedsrc.common.durable import read_bytes
from fedsrc.common.signing import Key, sign, signed_by
from fedsrc.common.values import Frozen, Signature, describe
from fedsrc.errors import FedsrcError

M = TypeVar("M", bound="Message")


class Message(Frozen):
    """A value that has one text."""

    END: ClassVar[bytes] = b""

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump()) + self.END

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its text."""
        return digest_bytes(self.to_bytes())


class SignedMessage(Message):
    """A message with one signature over everything else in it."""

    TAG: ClassVar[dict[str, str]] = {}  # so that no message of one kind can be passed off as one of another
    signature: Signature | None = None

    def signed_part(self) -> bytes:
        """Return what is signed: everything but the signature."""
        return canonical_bytes({**self.TAG, **self.model_dump(exclude={"signature"})})

    def signed(self, key: Key) -> Self:
        return self.model_copy(update={"signature": sign(key, self.signed_part())})

    def signed_by(self, public: str) -> bool:
        """Whether the key with that public part signed it."""
        return self.signature is not None and signed_by(public, self.signature, self.signed_part())


def parse_message(kind: type[M], data: bytes, what: str, *, most: int | None = None) -> M:
    """Parse a message from the wire or refuse it. Why is told in fixed words: it goes into transcripts and logs."""
    try:
        found = kind.model_validate_json(data[:most])
    except ValidationError as error:
        raise FedsrcError(f"it is not {what}") from error
    if found.to_bytes() != data:
        raise FedsrcError("it is not in canonical form")
    return found


def parse_document(kind: type[M], data: bytes, what: str, where: str) -> M:
    """Parse the bytes of a file, or refuse them and say what is wrong."""
    try:
        found = kind.model_validate_json(data)
    except ValidationError as error:
        raise FedsrcError(f"is not {what}: {describe(error)}", where=where) from error
    if found.to_bytes() != data:
        raise FedsrcError(f"is not {what} as fedsrc writes it", where=where)
    return found


def read_document(kind: type[M], path: Path, what: str, most: int) -> M:
    """Read a file of at most so many bytes. `what` names its kind to whoever reads why it is refused."""
    return parse_document(kind, read_bytes(path, most), what, str(path))
