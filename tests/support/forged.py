"""Texts of certificates that say anything at all, as a forger would write them: no check is in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key, public_hex, sign
from fedsrc.protocol.names import CERTIFICATE


def unsigned(text: str) -> dict[str, Any]:
    """What a certificate's text says, without key and signature."""
    return {name: value for name, value in json.loads(text).items() if name not in ("key", "signature")}


def forged(plain: dict[str, Any], key: Key | None = None) -> str:
    """The text of these values, signed anew if there is a key."""
    if key is not None:
        plain = {**plain, "key": public_hex(key)}
        plain = {**plain, "signature": sign(key, canonical_bytes(plain))}
    return json.dumps(json.loads(canonical_bytes(plain)), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def forge(run: Path, plain: dict[str, Any], key: Key | None = None) -> None:
    """Put such a text in the place of a run's certificate."""
    (run / CERTIFICATE).write_text(forged(plain, key), encoding="utf-8")
