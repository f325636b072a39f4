"""The certificate's file: its only text, its signature, and the check that it says what is expected.

Versioned JSON. Everything in it except the signature is a pure function of registration and transcript, so `verify`
recomputes it whole.
"""

from __future__ import annotations

import json
import math
from typing import Any

from fedsrc.common import signing
from fedsrc.common.canonical import canonical_bytes
from fedsrc.errors import FedsrcError
from fedsrc.protocol.damage import differs
from fedsrc.protocol.formats import FIRST_FORMAT, FIRST_HINT, FORMAT
from fedsrc.protocol.succession import ANYONE, Keys

MAX_BYTES = 50_000_000
Body = dict[str, Any]
AS_REGISTERED = ("threshold", "target_risk", "failure_probability", "claim", "weight", "drift", "epsilon", "delta")


def signed(body: Body, key: signing.Key) -> Body:
    """The body with the signer's public key and a signature over everything else."""
    whole = {**body, "key": signing.public_hex(key)}
    return {**whole, "signature": signing.sign(key, canonical_bytes(whole))}


def certificate_text(body: Body) -> str:
    """The only text that says a body: sorted keys, each once."""
    try:
        plain = json.loads(canonical_bytes(body))
    except ValueError:
        return ""  # NaN has no canonical form, so no text says it
    return json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def check_certificate(text: str, expected: Body, server_key: str | None, keys: Keys = ANYONE, *, where: str) -> None:
    """Refuse a certificate's text unless it says what is expected and is signed by the right key."""
    found = parse_certificate(text, where)
    if certificate_text(found) != text:
        raise FedsrcError("is not a certificate as fedsrc writes it", where=where, hint="it was edited or written anew")
    body = {name: value for name, value in found.items() if name not in ("key", "signature")}
    names = sorted(set(body) ^ set(expected)) or [n for n in expected if not _same_at(n, body[n], expected[n])]
    if names:
        raise differs(found, expected, names, as_signed=as_signed(found), where=where)
    _check_signature(found, server_key, where)
    keys.check(found["key"], str(found.get("calibrated")), where)


def parse_certificate(text: str, where: str) -> Body:
    """A certificate's text as plain values."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FedsrcError("is not a certificate: not valid JSON", where=where) from error
    if isinstance(found, dict) and found.get("format") == 1:
        raise FedsrcError(f"is a certificate of {FIRST_FORMAT}", where=where, hint=FIRST_HINT)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FedsrcError("is not a certificate of a known format", where=where)
    return found


def _check_signature(found: Body, registered: str | None, where: str) -> None:
    key, signature = found.get("key"), found.get("signature")
    if not isinstance(key, str) or not isinstance(signature, str):
        raise FedsrcError("the certificate is not signed", where=where)
    if not as_signed(found):
        raise FedsrcError("the signature does not fit the certificate", where=where)
    if registered is not None and key != registered:
        raise FedsrcError(f"the certificate is signed by {key}, not by the registered server", where=where)


def as_signed(found: Body) -> bool:
    """Whether the certificate's own key signed it as it is."""
    key, signature = found.get("key"), found.get("signature")
    unsigned = {name: value for name, value in found.items() if name != "signature"}
    known = isinstance(key, str) and isinstance(signature, str)
    return known and signing.signed_by(str(key), str(signature), canonical_bytes(unsigned))


def _same_at(name: str, a: Any, b: Any) -> bool:
    """Equal in the field of that name: what is registered, and what a gate compares with, to the last bit."""
    return canonical_bytes(a) == canonical_bytes(b) if name in AS_REGISTERED else _same(a, b)


def _same(a: Any, b: Any) -> bool:
    """Equal, up to the last rounded digit of a number: another machine may round a diagnostic the other way."""
    if isinstance(a, list) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_at(name, a[name], b[name]) for name in a)
    if isinstance(a, int | float) and isinstance(b, float) and not isinstance(a, bool):  # 1.0 is written as 1
        return math.isclose(a, b, rel_tol=1e-8, abs_tol=2e-9)
    return canonical_bytes(a) == canonical_bytes(b)
