"""What became of a run that does not verify, in plain words first: changed, cut short, or not what was signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsrc.errors import FedsrcError

NAMED = 5  # fields
WORDS = frozenset({"statement", "does_not_say", "assumptions"})
AGAIN = "do not rely on it; ask the issuer for the run folder again"


def differs(
    found: Mapping[str, Any], expected: Mapping[str, Any], names: Sequence[str], *, as_signed: bool, where: str
) -> FedsrcError:
    """The error for a certificate that says otherwise than registration and transcript, in the fields named.

    While its signature fits, the certificate is as it was signed, and one of the other files is not.
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    fields = f"{', '.join(names[:NAMED])}{more} {'differs' if len(names) == 1 else 'differ'}"
    if not as_signed:
        what = f"the certificate was changed after it was signed: it does not follow from the transcript ({fields})"
    elif found.get("registration") != expected["registration"]:
        what = f"the registration is not the one that was signed: its digest is {expected['registration']}"
    elif found.get("transcript") != expected["transcript"]:
        what = _ends_elsewhere(found.get("transcript_lines"), expected["transcript_lines"])
    elif set(names) <= WORDS:
        what = f"the certificate does not follow from the transcript in its words, though its signature fits: {fields}"
        hint = "do not rely on it, unless another version of fedsrc issued it and verifies it"
        return FedsrcError(what, where=where, hint=hint)
    else:
        what = f"the certificate does not follow from the transcript, though its signature fits: {fields}"
    return FedsrcError(what, where=where, hint=AGAIN)


def _ends_elsewhere(signed: Any, there: int) -> str:
    if isinstance(signed, int) and signed > there:
        return f"the transcript was cut short: it ends after {there:,} of the {signed:,} lines that were signed"
    if signed == there:
        return f"the certificate does not follow from the transcript: line {there:,} was changed after it was signed"
    return f"the certificate does not follow from the transcript: it has {there:,} lines, and {signed} were signed"
