"""Notices of revocation: an issuer's signed statement, in a file beside the certificate's.

A notice is of one certificate, by the SHA-256 of its file, and signed by the key that signed it or one that succeeds
that key. No file means no notice. A file that is no such notice is an error: whoever relies on the certificate stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from fedsrc.common.clock import Time, utc_now
from fedsrc.common.durable import is_folder, unreadable
from fedsrc.common.signing import Key, public_hex
from fedsrc.common.values import Hex, Text, describe
from fedsrc.errors import FedsrcError
from fedsrc.protocol.documents import SignedMessage, read_document
from fedsrc.protocol.succession import ANYONE, Keys

SUFFIX = ".revoked"
MAX_BYTES = 20_000
MOST = 10_000  # notices in a folder


class Revocation(SignedMessage):
    """A certificate is revoked: why, when, and which one takes its place, if any does."""

    END: ClassVar = b"\n"
    format: Literal[1] = 1
    kind: Literal["revocation"] = "revocation"
    certificate: Hex
    reason: Annotated[Text, Field(min_length=1)]
    time: Time
    superseded_by: Hex | None = None
    key: Hex

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.certificate == self.superseded_by:
            raise ValueError("a certificate does not supersede itself")
        return self

    def same_as(self, other: Revocation) -> bool:
        """Whether both say the same, apart from their time."""
        apart = {"time", "signature"}
        return self.model_dump(exclude=apart) == other.model_dump(exclude=apart)

    def words(self) -> str:
        """Say when and why, and which certificate replaces it."""
        instead = f"; superseded by certificate {self.superseded_by}" if self.superseded_by else ""
        return f"the certificate was revoked on {self.time}: {self.reason}{instead}"


def revoke(certificate: str, reason: str, key: Key, *, superseded_by: str | None = None) -> Revocation:
    """Make the notice that revokes a certificate, dated now and signed."""
    try:
        plain = Revocation(
            certificate=certificate, reason=reason, time=utc_now(), superseded_by=superseded_by, key=public_hex(key)
        )
    except ValidationError as error:
        raise FedsrcError(f"this is no notice: {describe(error)}") from error
    return plain.signed(key)


def beside(certificate: Path) -> Path:
    """Return the path of a certificate's notice: beside its file, with a suffix."""
    return certificate.with_name(certificate.name + SUFFIX)


def read_notice(path: Path) -> Revocation:
    """Read a notice; refuse it unless its signature fits."""
    found = read_document(Revocation, path, "a notice of revocation", MAX_BYTES)
    if not found.signed_by(found.key):
        raise FedsrcError("the signature does not fit the notice of revocation", where=str(path))
    return found


class Notices(NamedTuple):
    """Where notices of one certificate's file are looked for: beside it, and in a named file or folder."""

    certificate: Path
    elsewhere: Path | None = None
    keys: Keys = ANYONE

    def revoking(self, certificate: str, key: str) -> Revocation | None:
        """Return the notice that revokes a certificate, by its digest and the key that signed it, or None.

        A folder may hold notices of other certificates. A file that is meant for this one may only be of it, or of the
        one that it supersedes.
        """
        for path, many in self._files():
            found = read_notice(path)
            if found.certificate == certificate:
                check_signer(found, key, self.keys, str(path))
                return found
            if not many and found.superseded_by != certificate:
                what = f"is a notice of another certificate, {found.certificate}"
                raise FedsrcError(what, where=str(path), hint="nothing is relied on while it lies there")
        return None

    def _files(self) -> Iterator[tuple[Path, bool]]:
        """Yield the files to read, and whether each is one of many."""
        near = beside(self.certificate)
        if _is_there(near):
            yield near, False
        if self.elsewhere is None:
            return
        if not is_folder(self.elsewhere):
            yield self.elsewhere, False
            return
        yield from ((path, True) for path in _notices_in(self.elsewhere))


def check_signer(notice: Revocation, key: str, keys: Keys, where: str) -> None:
    """Refuse a notice by another key than the certificate's, unless that one leads to it."""
    if notice.key not in keys.line(key):
        what = f"the notice of revocation is signed by {notice.key}, not by the certificate's key {key}"
        raise FedsrcError(what, where=where, hint="if that key succeeds it, pass the statement with `succession=`")


def _notices_in(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError as error:
        raise unreadable(folder, error) from error
    if len(found) > MOST:
        raise FedsrcError(f"holds more than {MOST:,} notices", where=str(folder))
    return found


def _is_there(path: Path) -> bool:
    """Whether anything has that name. A dangling link counts: it cannot be read."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unreadable(path, error) from error
    return True
