"""Mutants of files: bytes damaged by bits, slices and odd tokens, and JSON values with odd ones in them."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

from fedsrc.common.canonical import canonical_bytes

TOKENS = [
    b"NaN", b"Infinity", b"-1", b"1e999", b"null", b"true", b"[", b"{", b"}", b'"', b"\\u0000", b"\xff", b"\x00",
    b"9" * 400, b",", b":", b"\n", b"0.5", b"inf", b"'", b"[[", b"]]", b"#", b"=", "☃".encode(), b"\r",
]  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 10**30, 1.5, "", "x" * 300, "NaN", [], {}, [[]], {"a": 1}, -0.0, 1e308, "\u202e",
]  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The data with one to three random wounds."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice([1, 1, 2, 8, 64, 1000]))
        match rng.randrange(7):
            case 0:
                data = (
                    data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if at < len(data) else data
                )
            case 1:
                data = data[:at] + data[to:]
            case 2:
                data = data[:to] + data[at:]
            case 3:
                data = data[:at] + rng.choice(TOKENS) + data[at:]
            case 4:
                data = data[:at] + rng.choice(TOKENS) + data[to:]
            case 5:
                data = data[:at]
            case _:
                data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[to:]
        data = data or b" "
    return data


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in places(item, (*path, name)))]


def twisted(rng: random.Random, data: bytes) -> bytes:
    """The JSON value with one or two odd values, in canonical form."""
    value = {"root": json.loads(data)}
    for _ in range(rng.randint(1, 2)):
        *path, last = rng.choice(places(value)[1:])
        place: Any = value
        for step in path:
            place = place[step]
        action = rng.randrange(3)
        if action == 0 and isinstance(place, dict) and path:
            del place[last]
        elif action == 1 and isinstance(place, dict):
            place[rng.choice(["extra", "n", "kind", "x" * 50])] = deepcopy(rng.choice(ODD))
        else:
            place[last] = deepcopy(rng.choice(ODD))
    return canonical_bytes(value["root"])
