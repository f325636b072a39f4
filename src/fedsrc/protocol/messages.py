"""Requests and releases: what the server asks of a site, and the only thing that ever leaves it.

A release is two integer vectors of fixed length, whatever the data: supported and unsupported mass (complementary)
or count and loss (paired), in plain bins or in the suffix basis, plus discrete Gaussian noise.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.clock import TIME, Time
from fedsrc.common.signing import Key, sign, signed_by
from fedsrc.common.values import Hex, Name, Signature, Whole
from fedsrc.protocol.documents import Message, SignedMessage, parse_document, parse_message, read_document
from fedsrc.protocol.names import HOLDER

Order = Literal["shuffled", "in order"]
Coordinates = Annotated[tuple[Whole, ...], Field(strict=False)]
Answer = bytes | str  # a release's bytes, or why there is none
MAX_BYTES = 20_000_000
START = "0" * 64  # before a first release, and before a transcript's first line


class Refusal(StrEnum):
    """Why a site does not answer a question: all that the other end is ever told."""

    UNREADABLE = "it cannot be read"
    NOT_OURS = "it is of another registration or for another site"
    NOT_ALLOWED = "the site does not allow this registration"
    NOT_SIGNED = "it is not signed by the registered server"
    NOT_AS_REGISTERED = "it asks for something else than the registration fixes"
    NOT_YET = "not yet"
    CANNOT = "the site cannot answer it; its own log says why"


class Request(Message):
    """The server's question to one site, or to the holder of all. It is in the transcript before any record is read."""

    registration: Hex
    number: int = Field(ge=1)
    round: int = Field(ge=1)
    site: Name
    slots: int = Field(ge=1)
    scale: float = Field(ge=0)
    parts: Annotated[tuple[int, ...], Field(strict=False)] | None = (
        None  # slots of every site, where one holder answers; of every member, where a cohort does, named in `site`
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.parts is not None and (min(self.parts, default=-1) < 0 or sum(self.parts) != self.slots):
            raise ValueError("the parts of a request must be its slots, site by site")
        return self

    @model_serializer(mode="wrap")
    def _without_none(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the parts out of a request to one site."""
        return {name: value for name, value in write(self).items() if value is not None}

    @property
    def of_cohort(self) -> bool:
        """Whether it asks the members of a cohort, each of which answers."""
        return self.parts is not None and self.site != HOLDER

    @property
    def asked(self) -> str:
        """Whom it asks, in words."""
        if self.parts is None:
            return f"site {self.site!r}"
        return f"cohort {self.site!r}" if self.of_cohort else "the holder"

    @cached_property
    def digest(self) -> str:
        return digest_bytes(self.to_bytes())


class SignedRequest(Message):
    """A request as it travels: signed by the server, so that nobody else can make a site spend its units."""

    request: Request
    signature: Signature | None = None

    @classmethod
    def by(cls, request: Request, key: Key) -> SignedRequest:
        return cls(request=request, signature=sign(key, request.to_bytes()))

    def signed_by(self, public: str) -> bool:
        return self.signature is not None and signed_by(public, self.signature, self.request.to_bytes())


class Link(NamedTuple):
    """Where a release stands in its site's chain under one registration; a site's ledger alone decides it."""

    place: int = 1
    before: str = START
    tries: int = 1
    others: float = 0.0


class Release(SignedMessage):
    """A site's answer to one request: noised integers and public metadata, nothing else. A cohort's member masks its
    integers, and says so by `check`: its slots, masked too, which show whether the masks cancel.

    Its digest is what the site's next release names as the one before it.
    """

    request: Hex
    site: Name
    slots: int = Field(ge=0)
    scale: float = Field(ge=0)
    order: Order
    time: Time
    place: int = Field(ge=1)  # the first, second, ... that the site was asked for under this registration
    before: Hex  # the SHA-256 of the one before it as it was sent; zeros before the first
    tries: int = Field(ge=1)  # certificates registered on units of the same table, this one included
    others: float = Field(0.0, ge=0)  # the sum of the failure probabilities of the others
    first: Coordinates
    second: Coordinates
    check: Whole | None = None
    labels: Hex | None = None  # of labels on demand, keyed with a secret that stays at the site: it can be held to them

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what there is none of."""
        return {name: value for name, value in write(self).items() if value is not None or name == "signature"}


def parse_release(data: bytes) -> Release:
    """Parse a release, or refuse it."""
    return parse_message(Release, data, "a release")


def read_request(path: Path) -> SignedRequest:
    """Read a request file, or refuse it."""
    return read_document(SignedRequest, path, "a request", MAX_BYTES)


def parse_request(data: bytes, where: str) -> SignedRequest:
    """Parse a request, or refuse it."""
    return parse_document(SignedRequest, data, "a request", where)


def from_the_future(release: Release) -> str | None:
    """Return why a release's date is not believed, or None."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime(TIME)
    return "it is dated in the future: check the site's clock" if release.time > tomorrow else None
