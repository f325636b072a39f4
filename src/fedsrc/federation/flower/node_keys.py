"""The keys that Flower identifies nodes by: elliptic-curve keys in OpenSSH's format, named by a digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedsrc.common.durable import read_bytes
from fedsrc.common.signing import MAX_BYTES
from fedsrc.errors import FedsrcError
from fedsrc.protocol.handshake import node_key_name

MAKE_ONE = "make one with `ssh-keygen -t ecdsa -b 384 -N '' -f node.key`"


def name_of_private(path: Path) -> str:
    """Return the name of a node key, from its private file."""
    key = _load(path, "private", lambda data: load_ssh_private_key(data, password=None))
    return _name(path, key.public_key() if isinstance(key, EllipticCurvePrivateKey) else key)


def name_of_public(path: Path) -> str:
    """Return the name of a node key, from its public file."""
    return _name(path, _load(path, "public", load_ssh_public_key))


def _load(path: Path, part: str, load: Callable[[bytes], object]) -> object:
    try:
        return load(read_bytes(path, MAX_BYTES))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedsrcError(f"cannot be read as a node's {part} key", where=str(path), hint=MAKE_ONE) from error


def _name(path: Path, key: object) -> str:
    if not isinstance(key, EllipticCurvePublicKey):
        raise FedsrcError("is not an elliptic-curve key", where=str(path), hint=MAKE_ONE)
    return node_key_name(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
