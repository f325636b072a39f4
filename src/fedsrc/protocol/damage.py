"""Why a run does not verify, in plain words: it was changed, cut short, or is not what was signed."""

from __future__ import annotations

from collections.abc import Sequence

from fedsrc.errors import DamagedError
from fedsrc.protocol.certificate import Signed
from fedsrc.protocol.succession import ANYONE, Keys

NAMED = 5  # fields
WORDS = frozenset({"statement", "guarantee", "does_not_say", "assumptions"})
AGAIN = "do not rely on it; ask the issuer for the run folder again"


def check_same(found: Signed, expected: Signed, where: str, *, server_key: str | None, keys: Keys = ANYONE) -> None:
    """Refuse a certificate unless it says what is expected and is signed by the right key."""
    names = found.differs_from(expected)
    if names:
        raise _differs(found, expected, names, where)
    found.check_signature(where, server_key=server_key, keys=keys)


def _differs(found: Signed, expected: Signed, names: Sequence[str], where: str) -> DamagedError:
    """Return the error for a certificate that differs from what follows, in the fields named.

    While its signature fits, the certificate is as it was signed, and one of the other files is not.
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    fields = f"{', '.join(names[:NAMED])}{more} {'differs' if len(names) == 1 else 'differ'}"
    if not found.as_signed():
        what = f"the certificate was changed after it was signed: it does not follow from the transcript ({fields})"
    elif found.registration != expected.registration:
        what = f"the registration is not the one that was signed: its digest is {expected.registration}"
    elif found.transcript != expected.transcript:
        what = _ends_elsewhere(found.transcript_lines, expected.transcript_lines)
    elif set(names) <= WORDS:
        what = f"the certificate does not follow from the transcript in its words, though its signature fits: {fields}"
        hint = "do not rely on it, unless another version of fedsrc issued it and verifies it"
        return DamagedError(what, where=where, hint=hint)
    else:
        what = f"the certificate does not follow from the transcript, though its signature fits: {fields}"
    return DamagedError(what, where=where, hint=AGAIN)


def _ends_elsewhere(signed: int, there: int) -> str:
    if signed > there:
        return f"the transcript was cut short: it ends after {there:,} of the {signed:,} lines that were signed"
    if signed == there:
        return f"the certificate does not follow from the transcript: line {there:,} was changed after it was signed"
    return f"the certificate does not follow from the transcript: it has {there:,} lines, and {signed} were signed"
