"""Forged certificates: changed, signed by others, or signed by the right key over what does not follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fedsrc.common.signing import public_hex
from fedsrc.protocol.names import CERTIFICATE
from tests.recorded.forger import EVIL, Files, Forge, Original, Plain, changed, original

GROUP = 2**252 + 27742317777372353535851937790883648493  # the order of Ed25519's base point
NEUTRAL = "01" + 31 * "00"  # as a public key, with any message: R = NEUTRAL, S = 0 is a signature
Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every plain value, with the way to it; of empty lists and mappings, themselves."""
    if not isinstance(value, dict | list) or not value:
        yield path, value
        return
    for step, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(each, (*path, step))


def otherwise(value: Any) -> Any:
    """Something of the same kind that says something else, by more than rounding."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.999 if value else 0.001
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return 1 if value is None else [value]


def _said(change: Callable[[Plain], Plain | None], signed: str) -> Forge:
    """A certificate whose words are changed, signed by the server, somebody else, or nobody."""

    def forge(run: Original) -> Files | None:
        plain = None if run.certificate is None else change(run.certificate)
        if plain is None:
            return None
        by = {"server": run.signer, "other": EVIL}.get(signed) if run.certificate else None
        if signed == "before":  # the old key and signature stay
            old = json.loads(run.files[CERTIFICATE])
            return run.said({**plain, "key": old["key"], "signature": old["signature"]}, None)
        return run.said(plain, by)

    return forge


def _first_of(field: str, plain: Plain) -> Plain | None:
    """Change the first value of a field."""
    if field not in plain:
        return None
    path, value = next(leaves(plain[field], (field,)))
    return dict(changed(plain, path, otherwise(value)))


def _same(plain: Plain) -> Plain:
    return plain


def _promise(plain: Plain) -> Plain:
    """Say that more is shown than is."""
    risk = {"risk_upper": 0.001} if plain.get("risk_upper") else {}
    return {**plain, "statement": plain["statement"].replace("at most", "far below"), **risk, "records": 10**6}


def _certified(plain: Plain) -> Plain | None:
    """Turn an abstention or an open run into a certificate."""
    if plain["status"] not in ("ABSTAIN", "OPEN") or not plain["thresholds"]:
        return None
    shown = ("threshold", "contrast_upper", "acceptance_lower", "risk_upper")
    return {**plain, "status": "CERTIFIED", **{name: plain["thresholds"][0][name] for name in shown}}


def _quiet(plain: Plain) -> Plain | None:
    return {**plain, "status": "STILL SUPPORTED", "alarm": None} if plain.get("alarm") else None


def _last_digit(plain: Plain) -> Plain | None:
    """Move the last bound that is written by its last digit."""
    rows = plain["evidence"]
    name = "log_evidence" if "alarm" in plain else "risk_upper"
    if not rows or not 0 < rows[-1][name] < 1:
        return None
    return {**plain, "evidence": [*rows[:-1], {**rows[-1], name: round(rows[-1][name] - 1e-9, 9)}]}


def _last_digit_of_threshold(plain: Plain) -> Plain | None:
    return {**plain, "threshold": plain["threshold"] + 1e-9} if plain["threshold"] else None


def _without(name: str, plain: Plain) -> Plain | None:
    return {each: value for each, value in plain.items() if each != name} if name in plain else None


def _cut(name: str, plain: Plain) -> Plain | None:
    """Leave out the last of several."""
    return {**plain, name: plain[name][:-1]} if plain.get(name) else None


def _signature(change: Callable[[Plain], Plain | None]) -> Forge:
    """A certificate as it was signed, with something else in the place of key or signature."""

    def forge(run: Original) -> Files | None:
        if run.certificate is None:
            return None
        plain = change(json.loads(run.files[CERTIFICATE]))
        return None if plain is None else run.said(plain, None)

    return forge


def _malleable(plain: Plain) -> Plain:
    """Add the group's order to S: the same equation holds, and RFC 8032 refuses it."""
    data = bytes.fromhex(plain["signature"])
    larger = int.from_bytes(data[32:], "little") + GROUP
    return {**plain, "signature": (data[:32] + larger.to_bytes(32, "little")).hex()}


def _neutral(plain: Plain) -> Plain:
    """Take the neutral point for a key: whoever checks no more than the equation finds every message signed."""
    return {**plain, "key": NEUTRAL, "signature": NEUTRAL + 64 * "0"}


def of_another_run(run: Original) -> Files | None:
    """The certificate of a run that was certified elsewhere."""
    if run.certificate is None or run.name == "certify-private":
        return None
    return run.put(certificate=original("certify-private").files[CERTIFICATE])


def of_another_format(number: int, run: Original) -> Files | None:
    return None if run.certificate is None else run.said({**run.certificate, "format": number}, run.signer)


def _plain_text(text: str, run: Original) -> Files | None:
    return None if run.certificate is None else run.put(certificate=text.encode())


def _account(run: Original) -> Files | None:
    """A certificate that calls itself the account of a monitor, or the other way round."""
    if run.certificate is None:
        return None
    other = {**run.certificate, "kind": "monitor"}
    if "kind" in run.certificate:
        other = {name: value for name, value in run.certificate.items() if name != "kind"}
    return run.said(other, run.signer)


FIELDS = (
    "status", "statement", "target_risk", "threshold", "method", "records", "rounds", "releases", "absent", "refused",
    "sites", "mixture", "privacy", "assumptions", "calibrated", "registration", "transcript", "transcript_lines",
    "does_not_say", "expires", "failure_probability", "tries", "failure_probability_of_all_tries", "claim",
    "contrast_upper", "acceptance_lower", "risk_upper", "eta", "thresholds", "every_target", "also_certified",
    "evidence", "missed", "renews", "panel", "certificate", "alarm_risk", "guarantee", "log_line", "log_evidence",
    "recent_risk_estimate", "alarm", "groups", "kind",
)  # fmt: skip

CERTIFICATES: dict[str, Forge] = {
    "certificate-gone": lambda run: run.put(certificate=None) if run.certificate else None,
    "certificate-empty": partial(_plain_text, ""),
    "certificate-list": partial(_plain_text, "[]\n"),
    "certificate-of-another-run": of_another_run,
    "certificate-format-1": partial(of_another_format, 1),
    "certificate-format-3": partial(of_another_format, 3),
    "certificate-as-account": _account,
    "promise-unsigned": _said(_promise, "before"),
    "promise-signed-by-server": _said(_promise, "server"),
    "promise-signed-by-other": _said(_promise, "other"),
    "certified-after-all-unsigned": _said(_certified, "before"),
    "certified-after-all-signed": _said(_certified, "server"),
    "alarm-silenced-signed": _said(_quiet, "server"),
    "same-words-signed-by-other": _said(_same, "other"),
    "same-words-unsigned": _said(_same, "nobody"),
    "last-digit-of-bound-signed": _said(_last_digit, "server"),
    "last-digit-of-threshold-signed": _said(_last_digit_of_threshold, "server"),
    "field-more-signed": _said(lambda plain: {**plain, "note": ""}, "server"),
    "field-less-signed": _said(partial(_without, "does_not_say"), "server"),
    "limit-left-out-signed": _said(partial(_cut, "does_not_say"), "server"),
    "assumption-left-out-signed": _said(partial(_cut, "assumptions"), "server"),
    "evidence-left-out-signed": _said(partial(_cut, "evidence"), "server"),
    "threshold-left-out-signed": _said(partial(_cut, "thresholds"), "server"),
    "site-left-out-signed": _said(partial(_cut, "sites"), "server"),
    "signature-gone": _signature(partial(_without, "signature")),
    "key-gone": _signature(partial(_without, "key")),
    "key-of-another": _signature(lambda plain: {**plain, "key": public_hex(EVIL)}),
    "signature-bit": _signature(lambda plain: {**plain, "signature": otherwise(plain["signature"])}),
    "signature-capitals": _signature(lambda plain: {**plain, "signature": plain["signature"].upper()}),
    "key-capitals": _signature(lambda plain: {**plain, "key": plain["key"].upper()}),
    "signature-zeros": _signature(lambda plain: {**plain, "signature": 128 * "0"}),
    "signature-malleable": _signature(_malleable),
    "key-neutral": _signature(_neutral),
    **{f"{name}-changed-signed": _said(partial(_first_of, name), "server") for name in FIELDS},
}
