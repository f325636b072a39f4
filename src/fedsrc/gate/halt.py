"""A halt that outlives the process: a small file beside the certificate, heeded by every gate on that certificate.

No file means no halt. A file that cannot be read, or is not as it was written, counts as a halt of everything. A
certificate that its issuer revokes is halted the same way, so that a notice which is taken away again ends nothing.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.clock import Time
from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.values import Frozen, Hex
from fedsrc.errors import FedsrcError
from fedsrc.gate.trust import Trusted
from fedsrc.protocol.notices import Notices, Revocation

T = TypeVar("T")
SUFFIX = ".halt"
MAX_BYTES = 10_000
NOT_LATER = "the certificate rests on no later calibration than the halted one"

log = logging.getLogger("fedsrc.gate")


class Halt(Frozen):
    """Which certificate was halted, by the SHA-256 of its file, and what it rests on."""

    format: Literal[1] = 1
    certificate: Hex
    calibrated: Time
    transcript: Hex

    def covers(self, found: Trusted) -> bool:
        """Return whether a certificate rests on nothing later than what was halted, whoever signed it.

        A transcript that grew without another release has another digest and the same time, so it is covered too.
        """
        said = found.certificate
        return said.calibrated <= self.calibrated or said.transcript == self.transcript


def later(one: Halt | None, other: Halt | None) -> Halt | None:
    """Return the halt that covers what both cover; the first if they are of one time."""
    return max((each for each in (one, other) if each), key=lambda each: each.calibrated, default=None)


def beside(certificate: Path) -> Path:
    """Return where the halt of a certificate's file lies: beside it, under its name with an ending."""
    return certificate.with_name(certificate.name + SUFFIX)


def read_halt(path: Path) -> Halt | None:
    """Read a halt; None if there is no file. Anything else is an error."""
    where = str(path)
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)  # a link, a pipe or a device is none that a gate has written
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FedsrcError(error.strerror or str(error), where=where) from error
    if not regular:
        raise FedsrcError("is not a regular file", where=where)
    data = read_bytes(path, MAX_BYTES)
    try:
        found = Halt.model_validate_json(data)
    except ValidationError as error:
        raise FedsrcError("is not a halt as fedsrc writes it", where=where) from error
    if _bytes(found) != data:
        raise FedsrcError("is not a halt as fedsrc writes it", where=where)
    return found


class Unreadable(NamedTuple):
    """Why a halt's file, or a notice, cannot be read."""

    why: str


class Found(NamedTuple):
    """What lay in the files: the halt's, and those of notices."""

    halt: Halt | Unreadable | None
    notice: Revocation | Unreadable | None


class Halts:
    """What one gate knows of halts. `learn` and `add` touch memory alone, `look` and `keep` the files."""

    def __init__(self, path: Path, notices: Notices) -> None:
        self._path, self._notices, self._unread, self._unwritten = path, notices, "", ""
        self._said: dict[str, str] = {}  # of what cannot be read, why
        self._latest: Halt | None = None
        self.revoked: Revocation | None = None  # of the certificate last looked at

    @property
    def problem(self) -> str | None:
        """Why a file could not be read or written when it was last tried."""
        return self._unread or self._unwritten or None

    def cover(self, certificate: Trusted) -> bool:
        """Return whether nothing may be accepted by a certificate."""
        return bool(self._unread) or self.known_to_cover(certificate)

    def known_to_cover(self, certificate: Trusted) -> bool:
        """Return whether a halt that was read, or made here, covers a certificate."""
        return self._latest is not None and self._latest.covers(certificate)

    def revoked_words(self, certificate: Trusted) -> str | None:
        """Say when and why a certificate was revoked, if a notice of that was there at the last look."""
        notice = self.revoked
        return notice.words() if notice is not None and notice.certificate == certificate.digest else None

    def add(self, certificate: Trusted) -> None:
        """Halt a certificate, in memory."""
        said = certificate.certificate
        halt = Halt(certificate=certificate.digest, calibrated=said.calibrated, transcript=said.transcript)
        self._latest = later(self._latest, halt)

    def learn(self, found: Found, certificate: Trusted) -> None:
        """Take up what was found in the files; a certificate that is revoked is halted."""
        self._unread = next((each.why for each in found if isinstance(each, Unreadable)), "")
        self._latest = later(self._latest, None if isinstance(found.halt, Unreadable) else found.halt)
        self.revoked = None if isinstance(found.notice, Unreadable) else found.notice
        if self.revoked is not None:
            self.add(certificate)

    def look(self, certificate: Trusted) -> Found:
        halt = self._try(lambda: read_halt(self._path), "the halt's file cannot be read")
        return Found(halt, self._try(lambda: self.revocation(certificate), "a notice is not as it should be"))

    def _try(self, read: Callable[[], T], problem: str) -> T | Unreadable:
        try:
            found = read()
        except FedsrcError as error:
            if error.what != self._said.get(problem):
                log.error("nothing is accepted while %s: %s", problem, error)
            self._said[problem] = error.what
            return Unreadable(error.what)
        self._said.pop(problem, None)
        return found

    def revocation(self, certificate: Trusted) -> Revocation | None:
        """Find the notice that revokes a certificate. Anything else in its place is an error."""
        return self._notices.revoking(certificate.digest, certificate.certificate.key or "")

    def keep(self, found: Found, certificate: Trusted) -> None:
        """Write the halt of the certificate in force, unless it was found there, or what is there cannot be read."""
        halt = self._latest if self.known_to_cover(certificate) and not isinstance(found.halt, Unreadable) else None
        try:
            if halt is not None and halt != found.halt:
                write_whole(self._path, _bytes(halt), mode=0o600)
            self._unwritten = ""
        except FedsrcError as error:
            if error.what != self._unwritten:
                log.error("HALTED IN MEMORY ALONE: a restart would forget it; each reload tries again: %s", error)
            self._unwritten = error.what


def _bytes(halt: Halt) -> bytes:
    return canonical_bytes(halt.model_dump()) + b"\n"
