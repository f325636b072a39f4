"""Secrets that two key holders share. A key is kept in Edwards form, so that its holder can sign with it, and agrees in
Montgomery form: X25519 on the same point (RFC 7748, section 4.1)."""

from __future__ import annotations

from hashlib import sha512

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError

P = 2**255 - 19  # the field of Curve25519


def agreeing(key: Key) -> X25519PrivateKey:
    """Return the Montgomery form of a private key: X25519 takes the scalar that Ed25519 makes of its seed."""
    return X25519PrivateKey.from_private_bytes(sha512(key.private_bytes_raw()).digest()[:32])


def can_agree(public: str) -> bool:
    """Whether a public key is a point with which secrets can be shared, and not one of low order."""
    try:
        return bool(agreed(X25519PrivateKey.from_private_bytes(bytes(32)), public))
    except FedsrcError:
        return False


def agreed(mine: X25519PrivateKey, public: str) -> bytes:
    """Return the 32 bytes that the holders of two keys share, and nobody else knows; refuse points of low order."""
    y = int.from_bytes(bytes.fromhex(public), "little") & (2**255 - 1)
    try:
        u = (1 + y) * pow(1 - y, -1, P) % P
        return mine.exchange(X25519PublicKey.from_public_bytes(u.to_bytes(32, "little")))
    except ValueError as error:
        raise FedsrcError("a key is no point with which a secret can be shared") from error
