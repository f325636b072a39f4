"""The keys by which Flower knows its nodes: elliptic-curve keys in OpenSSH's format, named by a digest."""

from __future__ import annotations

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
    """The name of a node key, from its private file."""
    try:
        key = load_ssh_private_key(read_bytes(path, MAX_BYTES), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedsrcError("cannot be read as a node's private key", where=str(path), hint=MAKE_ONE) from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise FedsrcError("is not an elliptic-curve key", where=str(path), hint=MAKE_ONE)
    return _name(key.public_key())


def name_of_public(path: Path) -> str:
    """The name of a node key, from its public file."""
    try:
        key = load_ssh_public_key(read_bytes(path, MAX_BYTES))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedsrcError("cannot be read as a node's public key", where=str(path), hint=MAKE_ONE) from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise FedsrcError("is not an elliptic-curve key", where=str(path), hint=MAKE_ONE)
    return _name(key)


def _name(key: EllipticCurvePublicKey) -> str:
    return node_key_name(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
