"""From a tokenizer's own spelling of tokens (byte-level BPE, SentencePiece) to the characters that they cover."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fedsrc.maths.arrays import Ints


def spans_of_tokens(text: str, tokens: Sequence[str]) -> Ints | None:
    """Return the characters each token touches; None where the tokens' written forms do not spell the text."""
    data = text.encode()
    for read in (_byte_level, _sentence_piece):
        pieces = [read(token) for token in tokens]
        known = [piece for piece in pieces if piece is not None]
        joined = b"".join(known)
        if len(known) == len(pieces) and joined in (data, b" " + data):
            return spans_of_bytes(data, [len(piece) for piece in known], len(joined) - len(data))
    return None


def spans_of_bytes(data: bytes, sizes: Sequence[int], lead: int) -> Ints:
    """Return the first and one past the last character of each run of bytes; `lead` bytes stand before the text."""
    character = np.cumsum([0, *((byte & 0xC0) != 0x80 for byte in data)])  # [i]: characters begun before byte i
    ends = np.maximum(np.cumsum(sizes) - lead, 0)
    begins = np.concatenate([[0], ends[:-1]])
    first = np.where(ends > begins, character[np.minimum(begins + 1, len(data))] - 1, character[begins])
    return np.stack([first, character[ends]], axis=1).astype(np.int64)


def common_prefix(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _byte_alphabet() -> dict[str, int]:
    """Return how byte-level BPE writes bytes: the printable ones as themselves, the others from 256 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()


def _byte_level(token: str) -> bytes | None:
    return bytes(_BYTES[c] for c in token) if all(c in _BYTES for c in token) else None


def _sentence_piece(token: str) -> bytes | None:
    if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()
