"""Who speaks for a site: the server's signed question, and the site's signed word.

A challenge names the registration, the node it is sent to and a number used once. A hello names the registration, the
site and how many units it has; in a live run also the challenge it answers and the node key that should carry it. It
is kept in the transcript: nobody else can say for a site what it has.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Self

from pydantic import Field, ValidationError

from fedsrc.common.canonical import canonical_bytes, digest, digest_bytes
from fedsrc.common.signing import Key, sign, signed_by
from fedsrc.common.values import Frozen, Hex, Name, Signature
from fedsrc.errors import FedsrcError

MAX_BYTES = 4096


class Challenge(Frozen):
    """The server's question, signed, so that nobody else learns that a site is there or what it has."""

    registration: Hex
    node: Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]
    nonce: Hex
    signature: Signature | None = None

    @classmethod
    def by(cls, key: Key, registration: str, node: int) -> Self:
        """A fresh challenge for one node."""
        plain = cls(registration=registration, node=str(node), nonce=secrets.token_hex(32))
        return plain.model_copy(update={"signature": sign(key, plain.signed_part())})

    def signed_part(self) -> bytes:
        return canonical_bytes({"fedsrc": "challenge", **self.model_dump(exclude={"signature"})})

    def signed_by(self, public: str) -> bool:
        return self.signature is not None and signed_by(public, self.signature, self.signed_part())

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump())

    @property
    def digest(self) -> str:
        return digest(self.model_dump())


class Hello(Frozen):
    """A site's signed word on how many units it has; to a live server, in answer to its challenge."""

    registration: Hex
    site: Name
    units: int = Field(ge=0)
    challenge: Hex | None = None  # of a live run
    node_key: Hex | None = None
    signature: Signature | None = None

    def signed_part(self) -> bytes:
        return canonical_bytes({"fedsrc": "hello", **self.model_dump(exclude={"signature"})})

    def signed(self, key: Key) -> Hello:
        return self.model_copy(update={"signature": sign(key, self.signed_part())})

    def signed_by(self, public: str) -> bool:
        return self.signature is not None and signed_by(public, self.signature, self.signed_part())

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump())


def parse_challenge(data: bytes) -> Challenge:
    """A challenge from bytes, in canonical form or refused."""
    try:
        challenge = Challenge.model_validate_json(data[: MAX_BYTES + 1])
    except ValidationError as error:
        raise FedsrcError("it is not a challenge") from error
    if challenge.to_bytes() != data:
        raise FedsrcError("it is not a challenge in canonical form")
    return challenge


def parse_hello(data: bytes) -> Hello:
    """A hello from bytes, in canonical form or refused."""
    try:
        hello = Hello.model_validate_json(data[: MAX_BYTES + 1])
    except ValidationError as error:
        raise FedsrcError("it is not a hello") from error
    if hello.to_bytes() != data:
        raise FedsrcError("it is not a hello in canonical form")
    return hello


def node_key_name(public_pem: bytes) -> str:
    """A node key's short name: the digest of its public part as Flower writes it."""
    return digest_bytes(public_pem.strip())
