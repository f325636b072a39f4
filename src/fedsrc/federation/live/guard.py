"""The privacy boundary of the live mode: the one process at a site that reads records and ledger.

Whatever carries bytes to it is not trusted. It answers two questions, both signed by the registered server: a
challenge, with the site's signed hello, and a request, with a release. It refuses everything else: the reason goes to
the site's own log, and the other end gets a few fixed words that depend on no record. Every answer has the same size,
so that not even its length says anything.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, Frame
from fedsrc.protocol.handshake import Hello, parse_challenge
from fedsrc.protocol.messages import Refusal, Request, parse_request
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.site.admission import RefusedError, admit, check_ready, refusing
from fedsrc.site.ledger import Ledger
from fedsrc.site.sent import once
from fedsrc.site.site import Site
from fedsrc.site.streamed import open_site

NUMBER = 23  # bytes of a 64-bit integer, its sign, its quotes and a comma
AROUND = 1024  # bytes for what stands around a release's numbers


class Guard:
    """One site's records behind its ledger, for one registration and whoever can reach it.

    Used by one thread. `find` gives the table; `tell` writes a line of the site's log.
    """

    def __init__(
        self,
        registration: Registration,
        name: str,
        ledger: Ledger,
        find: Callable[[], Records | Table],
        key: Key,
        *,
        mask: Key | None = None,
        sent: Path | None = None,
        fresh: bool = False,
        node_key: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registration, self.name = registration, name
        self._ledger, self._find, self._key, self._fresh = ledger, find, key, fresh
        self._mask, self._sent, self._node_key, self._tell = mask, sent, node_key, tell
        self._size = answer_size(registration, name)
        self._site: Site | None = None

    def open(self) -> int:
        """Check everything that can be checked before anybody asks; return how many units the site can release."""
        if self.registration.server_key is None:
            raise FedsrcError("the registration names no server key", hint="register with `server_key=`")
        if self.registration.site(self.name).key is None:
            raise FedsrcError(f"site {self.name!r} has no registered key", hint="register with `site_keys=`")
        check_ready(self.registration, self.name, self._ledger, self._key)
        return self._records().room()

    def letter(self, question: Frame) -> Frame:
        """Answer a question, padded with spaces to the one size of all answers."""
        kind, data = self.answer(question)
        return Frame(kind, data.ljust(self._size))

    def answer(self, question: Frame) -> Frame:
        """Answer a question, whatever it is."""
        try:
            given = self._hello(question.data) if question.kind == HELLO else self._release(question.data)
        except RefusedError as refusal:
            if refusal.why in (Refusal.CANNOT, Refusal.NOT_YET):
                self._site = None  # a table that changed is looked at anew, and so is one that labels may be put into
            behind = refusal.for_log().replace("\n", "; ")
            self._tell(f"refused: {refusal.why}: {behind}")
            return Frame(REFUSED, refusal.why.encode())
        except Exception as error:  # a fault here must not end the process that guards the records
            self._site = None
            self._tell(f"refused: {Refusal.CANNOT}: a fault in fedsrc, {type(error).__name__}\n{_places(error)}")
            return Frame(REFUSED, Refusal.CANNOT.encode())
        return Frame(GIVEN, given)

    def _hello(self, data: bytes) -> bytes:
        with refusing(Refusal.UNREADABLE):
            challenge = parse_challenge(data)
        admit(challenge, self.name, self._ledger, self._key, serves=self.registration)
        with refusing(Refusal.CANNOT):
            units = self._records().room()
        self._tell(f"hello through node {challenge.node}: {units:,} units")
        hello = Hello(
            registration=self.registration.digest, site=self.name, units=units, challenge=challenge.digest,
            node_key=self._node_key,
        )  # fmt: skip
        return hello.signed(self._key).to_bytes()

    def _release(self, data: bytes) -> bytes:
        with refusing(Refusal.UNREADABLE):
            order = parse_request(data, "the request")
        admit(order, self.name, self._ledger, self._key, serves=self.registration)
        with refusing(Refusal.CANNOT):
            return once(self._sent, order.request, partial(self._answer, order.request))

    def _answer(self, request: Request) -> bytes:
        stored = self._ledger.stored(request)
        if stored is not None:
            self._tell(f"request {request.number} of round {request.round}: the same bytes again")
            return stored
        given = self._records().release(request)
        units = self.registration.parts(request).get(self.name, 0)
        self._tell(f"request {request.number} of round {request.round}: released {units:,} units")
        return given

    def _records(self) -> Site:
        """The table behind the ledger, taken in once."""
        if self._site is None:
            self._site = open_site(
                self.registration, self.name, self._find(), self._ledger, self._key, mask=self._mask, fresh=self._fresh
            )
            self._fresh = False  # said of the table as it was; one that changed later must show its ids
        return self._site


def answer_size(registration: Registration, name: str) -> int:
    """Return the size of all answers of a site, in bytes: the registration decides it."""
    numbers = sum(registration.mechanism.lengths) + (registration.cohorts is not None)  # whose members mask their slots
    return AROUND + len(canonical_bytes(name)) + NUMBER * numbers


def _places(error: Exception) -> str:
    """Return where a fault happened, without its message, which may quote a record."""
    return "".join(traceback.format_tb(error.__traceback__))
