"""The same values in other bytes, and bytes that are no values: certificates and transcripts have one text each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from tests.recorded.forger import Files, Forge, Original, chained

DEEP = 5_000
NUMBER = re.compile(rb"(?<=[:\[,])([1-9][0-9]{0,14})(?=[,}\]\n])")
Text = Callable[[bytes], bytes]


def spaced(text: bytes) -> bytes:
    """Put a space after the first colon."""
    return re.sub(rb'":(?! )', b'": ', text, count=1) if b'": ' not in text else text.replace(b'": ', b'":  ', 1)


def reordered(text: bytes) -> bytes:
    """Write keys in the opposite order, as the text is indented or not."""
    found = json.loads(text)
    items = dict(reversed(found.items()))
    if text.startswith(b"{\n"):
        return json.dumps(items, indent=1, ensure_ascii=False).encode() + b"\n"
    return json.dumps(items, separators=(",", ":"), ensure_ascii=False).encode()


def doubled(text: bytes) -> bytes:
    """Write a key twice: first with another value, then with its own, which is what most readers take."""
    return re.sub(
        rb"^\{(\s*)", rb'{\1"kind":"opened",\1' if b'"kind"' in text else rb'{\1"status":"",\1', text, count=1
    )


def doubled_after(text: bytes) -> bytes:
    """Write a key twice, the other way round."""
    return re.sub(rb"(\s*)\}$", rb',"n":1\1}', text.rstrip(b"\n")) + (b"\n" if text.endswith(b"\n") else b"")


def decimal(text: bytes) -> bytes:
    """Write a whole number with a fraction of zero."""
    return (
        NUMBER.sub(rb"\1.0", text, count=1)
        if NUMBER.search(text)
        else re.sub(rb": ([0-9]+)(?=,)", rb": \1.0", text, count=1)
    )


def exponent(text: bytes) -> bytes:
    """Write a whole number with an exponent."""
    return (
        NUMBER.sub(rb"\1e0", text, count=1)
        if NUMBER.search(text)
        else re.sub(rb": ([0-9]+)(?=,)", rb": \1e0", text, count=1)
    )


def escaped(text: bytes) -> bytes:
    """Write a letter of the first key as its number."""
    return re.sub(rb'"([a-z])', lambda found: b'"\\u%04x' % found[1][0], text, count=1)


def capitals(text: bytes) -> bytes:
    """Write a digest in capitals."""
    return re.sub(rb'"(?=[0-9]*[a-f])([0-9a-f]{64})"', lambda found: b'"' + found[1].upper() + b'"', text, count=1)


def in_place(old: bytes, new: bytes, text: bytes) -> bytes:
    """Put a token in the place of the first number."""
    return re.sub(old, new, text, count=1)


def extra(value: bytes, text: bytes) -> bytes:
    """Add a field of that value, first of all in sorted order."""
    return re.sub(rb"^\{(\s*)", rb'{\1"a":' + value + rb",\1", text, count=1)


def _number(token: bytes) -> Text:
    return partial(in_place, rb"(?<=[:\[, ])-?[0-9]+(?:\.[0-9]+)?(?=[,}\]\n])", token)


TEXTS: dict[str, Text] = {
    "spaces": spaced,
    "key-order": reordered,
    "key-twice": doubled,
    "key-twice-after": doubled_after,
    "decimal": decimal,
    "exponent": exponent,
    "escaped": escaped,
    "capitals": capitals,
    "byte-order-mark": lambda text: b"\xef\xbb\xbf" + text,
    "no-utf-8": lambda text: text.replace(b'"', b'"\xff', 1),
    "surrogate": lambda text: text.replace(b'"', b'"\xed\xa0\x80', 1),
    "nul": lambda text: text.replace(b'"', b'"\x00', 1),
    "utf-16": lambda text: text.decode().encode("utf-16"),
    "nan": _number(b"NaN"),
    "infinity": _number(b"Infinity"),
    "minus-infinity": _number(b"-Infinity"),
    "minus-zero": _number(b"-0"),
    "beyond-doubles": _number(b"1e999"),
    "huge-integer": _number(b"9" * 400),
    "huger-integer": _number(b"9" * 20_000),
    "true-for-a-number": _number(b"true"),
    "text-for-a-number": _number(b'"1"'),
    "deep": partial(extra, b"[" * DEEP + b"]" * DEEP),
    "deep-objects": partial(extra, b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "field-more": partial(extra, b'""'),
    "not-json": lambda text: text[: len(text) // 2],
    "comment": lambda text: text.rstrip(b"\n") + b" // genuine" + (b"\n" if text.endswith(b"\n") else b""),
    "comma": lambda text: re.sub(rb"(\s*)\}$", rb",\1}", text.rstrip(b"\n")) + (b"\n" if text.endswith(b"\n") else b""),
}  # fmt: skip


def of_certificate(change: Text, run: Original) -> Files | None:
    """The certificate in another text; its signature is over the values, and fits those that are unchanged."""
    if run.certificate is None:
        return None
    text = change(run.files[CERTIFICATE])
    return None if text == run.files[CERTIFICATE] else run.put(certificate=text)


def of_line(change: Text, place: int, run: Original) -> Files | None:
    """A line of the transcript in another text, everything after it chained to those bytes, signed by the server."""
    lines, entries = run.lines, run.entries
    i = place % len(lines)
    text = change(lines[i])
    if text == lines[i] or b"\n" in text:
        return None
    return run.told(chained(entries, {i: text}), signed=True)


def _between(what: bytes, run: Original) -> Files:
    lines = run.files[TRANSCRIPT].split(b"\n")
    return run.put(transcript=b"\n".join([lines[0], what, *lines[1:]]))


def torn(run: Original) -> Files:
    """The last line without its end."""
    return run.put(transcript=run.files[TRANSCRIPT][:-10])


def line_changed(run: Original) -> Files | None:
    """A digit of a line in the middle, and no hash."""
    lines = run.lines
    if len(lines) < 3:
        return None
    i = len(lines) // 2
    lines[i] = re.sub(rb"[0-8](?=[^0-9]*$)", lambda found: b"%d" % (int(found[0]) + 1), lines[i], count=1)
    return run.told(lines, signed=False)


def line_gone(run: Original) -> Files | None:
    lines = run.lines
    return run.told([*lines[: len(lines) // 2], *lines[len(lines) // 2 + 1 :]], signed=False)


def lines_exchanged(run: Original) -> Files | None:
    lines = run.lines
    i = len(lines) // 2
    return run.told([*lines[: i - 1], lines[i], lines[i - 1], *lines[i + 1 :]], signed=False) if i else None


def line_twice(run: Original) -> Files:
    lines = run.lines
    i = len(lines) // 2
    return run.told([*lines[: i + 1], lines[i], *lines[i + 1 :]], signed=False)


def _numbered(name: str, value: Any, run: Original) -> Files | None:
    """A wrong number or hash of a line, chained on."""
    lines, i = run.lines, len(run.lines) // 2
    found = json.loads(lines[i])
    text = json.dumps({**found, name: value}, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    return run.told(chained(run.entries, {i: text}), signed=True)


LINES: dict[str, Forge] = {
    "line-changed": line_changed,
    "line-gone": line_gone,
    "lines-exchanged": lines_exchanged,
    "line-twice": line_twice,
    "line-numbered-0": partial(_numbered, "n", 0),
    "line-numbered-in-words": partial(_numbered, "n", "2"),
    "line-after-nothing": partial(_numbered, "prev", "0" * 64),
    "line-after-number": partial(_numbered, "prev", 0),
    "torn": torn,
    "torn-after-the-end": lambda run: run.put(transcript=run.files[TRANSCRIPT] + b'{"kind":"clo'),
    "blank-line": partial(_between, b""),
    "blank-line-at-the-end": lambda run: run.put(transcript=run.files[TRANSCRIPT] + b"\n"),
    "carriage-returns": lambda run: run.put(transcript=run.files[TRANSCRIPT].replace(b"\n", b"\r\n")),
    "carriage-returns-chained": lambda run: run.told(
        chained(run.entries, {i: b"%s\r" % _hole(line) for i, line in enumerate(run.lines)}), signed=True
    ),
    "zeros-at-the-end": lambda run: run.put(transcript=run.files[TRANSCRIPT] + b"\0\n"),
    "certificate-carriage-returns": lambda run: (
        run.put(certificate=run.files[CERTIFICATE].replace(b"\n", b"\r\n")) if run.certificate else None
    ),
    "certificate-without-end": lambda run: (
        run.put(certificate=run.files[CERTIFICATE].rstrip(b"\n")) if run.certificate else None
    ),
    "certificate-with-more": lambda run: (
        run.put(certificate=run.files[CERTIFICATE] + b"\n") if run.certificate else None
    ),
    "certificate-in-one-line": lambda run: (
        run.put(certificate=json.dumps(json.loads(run.files[CERTIFICATE]), ensure_ascii=False, sort_keys=True).encode())
        if run.certificate
        else None
    ),
}


def _hole(line: bytes) -> bytes:
    """A line that takes the hash of the one before it, whatever that is."""
    return re.sub(rb'"prev":"[0-9a-f]{64}"', b'"prev":"PREV"', line)


ALL_TEXTS: dict[str, Forge] = {
    **LINES,
    **{f"certificate-{name}": partial(of_certificate, each) for name, each in TEXTS.items()},
    **{f"first-line-{name}": partial(of_line, each, 0) for name, each in TEXTS.items()},
    **{f"line-{name}": partial(of_line, each, 3) for name, each in TEXTS.items()},
}
