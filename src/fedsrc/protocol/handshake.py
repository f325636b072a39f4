"""Who speaks for a site: the server's signed question, and the site's signed word.

A challenge names the registration, the node it is sent to and a number used once. A hello names the registration, the
site and how many units it has; in a live run also the challenge it answers and the node key that should carry it. It
is kept in the transcript: nobody else can say for a site what it has.
"""

from __future__ import annotations

import secrets
from typing import Annotated, ClassVar, Self

from pydantic import Field

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.signing import Key
from fedsrc.common.values import Hex, Name
from fedsrc.protocol.documents import SignedMessage, parse_message

MAX_BYTES = 4096


class Challenge(SignedMessage):
    """The server's question, signed, so that nobody else learns that a site is there or what it has."""

    TAG: ClassVar = {"fedsrc": "challenge"}
    registration: Hex
    node: Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]
    nonce: Hex

    @classmethod
    def by(cls, key: Key, registration: str, node: int) -> Self:
        """Make a fresh challenge for one node."""
        return cls(registration=registration, node=str(node), nonce=secrets.token_hex(32)).signed(key)


class Hello(SignedMessage):
    """A site's signed word on how many units it has; to a live server, in answer to its challenge."""

    TAG: ClassVar = {"fedsrc": "hello"}
    registration: Hex
    site: Name
    units: int = Field(ge=0)
    challenge: Hex | None = None  # of a live run
    node_key: Hex | None = None


def parse_challenge(data: bytes) -> Challenge:
    """Parse a challenge, or refuse it."""
    return parse_message(Challenge, data, "a challenge", most=MAX_BYTES + 1)


def parse_hello(data: bytes) -> Hello:
    """Parse a hello, or refuse it."""
    return parse_message(Hello, data, "a hello", most=MAX_BYTES + 1)


def node_key_name(public_pem: bytes) -> str:
    """Return a node key's short name: the digest of its public part as Flower writes it."""
    return digest_bytes(public_pem.strip())
