"""Canonical bytes and digests: the same value gives the same bytes on every machine.

JSON with sorted keys and no spaces, floats in Python's shortest round-trip form, infinity as the string "inf";
NaN is refused. Digests are SHA-256 of those bytes, in hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from fedsrc.common.durable import open_regular


def canonical_bytes(value: Any) -> bytes:
    """The canonical JSON of plain values (dict, list, str, int, float, bool, None)."""
    plain = _plain(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical bytes."""
    return digest_bytes(canonical_bytes(value))


def digest_bytes(data: bytes) -> str:
    """SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
