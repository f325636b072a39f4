"""Ed25519 keys: who signed a certificate or a release."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.errors import FedsrcError

Key = Ed25519PrivateKey
MAX_BYTES = 100_000  # of a key's file


def public_hex(key: Key) -> str:
    """Return the public part of a key, 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def sign(key: Key, data: bytes) -> str:
    """Sign data; the signature is hexadecimal. Ed25519 is deterministic: same key and data, same signature."""
    return key.sign(data).hex()


def signed_by(public: str, signature: str, data: bytes) -> bool:
    """Whether `signature` over `data` was made by the key whose public part is `public`.

    Each has one spelling: if capitals were accepted, a signed file could be rewritten under another digest.
    """
    try:
        key, seal = bytes.fromhex(public), bytes.fromhex(signature)
        Ed25519PublicKey.from_public_bytes(key).verify(seal, data)
    except (InvalidSignature, ValueError):
        return False
    return (key.hex(), seal.hex()) == (public, signature)


def load_or_make(path: Path) -> Key:
    """Load the private key from a PEM file that only its owner can read; make it on first use."""
    if not path.exists():
        pem = Key.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_whole(path, pem, mode=0o600, replace=False)
    return load(path)


def load(path: Path) -> Key:
    """Load the private key from a PEM file."""
    try:
        key = load_pem_private_key(read_bytes(path, MAX_BYTES), password=None)
    except (ValueError, TypeError) as error:
        raise FedsrcError("cannot be read as a private key", where=str(path)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise FedsrcError("is not an Ed25519 private key", where=str(path))
    return key
