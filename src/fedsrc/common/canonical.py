"""Canonical bytes and digests: the same value gives the same bytes on every machine and in every language.

JSON by RFC 8785: sorted keys, no spaces, numbers as ECMAScript writes them. What that JSON cannot say becomes text:
whole numbers beyond 2^53 in decimal, infinity as "inf". NaN is refused. Digests are SHA-256 of those bytes, in
hexadecimal.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import rfc8785

from fedsrc.common.durable import open_regular

LARGEST = (1 << 53) - 1  # integers up to it are exact in every language's numbers


def canonical_bytes(value: Any) -> bytes:
    """Return the canonical JSON of plain values (dict, list, str, int, float, bool, None)."""
    plain, simple = _plain(value)
    if simple:  # the standard library writes the same bytes, faster
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return rfc8785.dumps(plain)


def digest(value: Any) -> str:
    """SHA-256 of the canonical bytes."""
    return digest_bytes(canonical_bytes(value))


def digest_bytes(data: bytes) -> str:
    """SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> tuple[Any, bool]:
    """Return the value as RFC 8785 can write it, and whether the standard library writes the same: no fraction in it,
    and no key that UTF-16 sorts differently from code points."""
    if isinstance(value, dict):
        items = {str(key): _plain(item) for key, item in value.items()}
        alike = all(simple for _, simple in items.values()) and all(max(key, default="") < "\ud800" for key in items)
        return {key: item for key, (item, _) in items.items()}, alike
    if isinstance(value, list | tuple):
        parts = [_plain(item) for item in value]
        return [item for item, _ in parts], all(simple for _, simple in parts)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
        return str(value), True
    return value, True


def _number(value: float) -> tuple[Any, bool]:
    if math.isnan(value):
        raise ValueError("NaN has no canonical form")
    if math.isinf(value):
        return ("inf" if value > 0 else "-inf"), True
    if value.is_integer():
        return _plain(int(value))
    return value, False
