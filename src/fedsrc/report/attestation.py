"""A certificate for other tools: as tags, and as an in-toto statement of a test result in a signed DSSE envelope."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fedsrc.common.canonical import canonical_bytes, file_digest
from fedsrc.common.durable import read_bytes
from fedsrc.common.signing import Key, public_hex, sign, signed_by
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import Certificate, PanelMember
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.notices import Notices, Revocation
from fedsrc.protocol.scale import Scale
from fedsrc.protocol.succession import keys_of
from fedsrc.report import phrases
from fedsrc.report.panels import BASE
from fedsrc.report.standing import certified_of, headline

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD = "application/vnd.in-toto+json"
MAX_BYTES = 5_000_000
OWN = ("status", "target_risk", "failure_probability", "records", "calibrated", "registration", "transcript", "key")
LONGEST = 5000  # characters of a tag's value that MLflow keeps


def tags(certificate: Certificate) -> dict[str, str]:
    """Say what a certificate says in flat texts, each short enough for a tag. Groups and scores have a tag each."""
    claim, privacy, panel = certificate.claim, certificate.privacy, certificate.panel
    score, scale = phrases.score_of(certificate)
    said: dict[str, object] = {name: getattr(certificate, name) for name in OWN}
    said |= {name: getattr(claim, name) for name in ("system", "issuer", "contact", "loss", "population")}
    said |= {name: getattr(privacy, name) for name in ("epsilon", "delta", "adjacency")}
    said |= {"privacy_unit": privacy.unit, "certificate": certificate.digest, "expires": certificate.expires_on}
    said |= {"statement": headline(certificate), "strongest": phrases.strongest_words(certificate)}
    said |= {"does_not_say": " ".join(certificate.does_not_say), "score": score, "score_scale": scale}
    said |= _bounds(certificate, scale)
    if certificate.tries > 1:
        all_tries = certificate.failure_probability_of_all_tries
        said |= {"tries": certificate.tries, "failure_probability_of_all_tries": all_tries}
    if panel is not None:
        said |= {"groups_certified": certified_of(certificate), "picked": panel.picked}
        said |= {"acceptance_of": BASE[panel.floor]}
        for i, each in enumerate(panel.members, start=1):
            own = each.scale or claim.scale
            row = {"name": each.name, "status": each.status, **({} if panel.claim == "all" else _bounds(each, own))}
            row |= {"score_scale": str(own), "checkpoints": each.checkpoints} if panel.kind == "scores" else {}
            said[f"{panel.kind.removesuffix('s')}.{i:03}"] = canonical_bytes(row).decode()
    return {f"fedsrc.{name}": _short(value) for name, value in said.items() if value not in (None, "")}


def _bounds(shown: Certificate | PanelMember, scale: Scale) -> dict[str, object]:
    """Return a threshold, from 0 to 1 and as scores are written, with its bounds; nothing where there is none."""
    if shown.threshold is None:
        return {}
    accepted = f"{phrases.side_words(scale)} {_short(scale.value(shown.threshold))}"
    bounds = {"risk_at_most": shown.risk_upper, "acceptance_at_least": shown.acceptance_lower}
    return {"threshold": shown.threshold, "accepted": accepted, **bounds}


def _short(value: object) -> str:
    """Write a number exactly, and a text up to what a tag holds."""
    text = canonical_bytes(value).decode().strip('"') if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 40]}... (cut; the certificate has it all)"


def outcomes(certificate: Certificate) -> dict[str, list[str]]:
    """List the claims that the evidence shows, and those that it does not: where every group has its own, each."""
    panel, name = certificate.panel, f"risk<={_short(certificate.target_risk)}"
    every = " in every group" if panel is not None and panel.claim == "all" else ""
    rows: list[tuple[str, str]] = [(f"{name}{every}", certificate.status)]
    if certificate.by_group is not None:
        rows = [(f"{name} group={each.name}", each.status) for each in certificate.by_group.members]
    return {
        "passedTests": [test for test, status in rows if status == "CERTIFIED"],
        "failedTests": [test for test, status in rows if status != "CERTIFIED"],
    }


def statement(certificate: Certificate, folder: Path, subjects: Mapping[str, str]) -> dict[str, Any]:
    """Write what is attested: the certificate and other artifacts, by SHA-256, have this result of that test.

    PASSED only where every claim is shown: a group without a threshold is a failed test, and so is an abstention. That
    the certificate speaks of the other artifacts is the word of whoever signs.
    """
    found = outcomes(certificate)
    config = [{"name": name, "digest": {"sha256": file_digest(folder / name)}} for name in (REGISTRATION, TRANSCRIPT)]
    own = {"name": CERTIFICATE, "digest": {"sha256": certificate.digest}, "annotations": tags(certificate)}
    return {
        "_type": STATEMENT,
        "subject": [own, *({"name": name, "digest": {"sha256": subjects[name]}} for name in sorted(subjects))],
        "predicateType": PREDICATE,
        "predicate": {"result": "FAILED" if found["failedTests"] else "PASSED", "configuration": config, **found},
    }


def sealed(said: Mapping[str, Any], key: Key) -> bytes:
    """Return the signed envelope of a statement: the same bytes whenever the same key signs the same."""
    payload = canonical_bytes(dict(said))
    signature = base64.b64encode(bytes.fromhex(sign(key, _signed_part(payload)))).decode()
    return canonical_bytes({
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD,
        "signatures": [{"keyid": public_hex(key), "sig": signature}],
    }) + b"\n"  # fmt: skip


def _signed_part(payload: bytes) -> bytes:
    """Return what DSSE signs: type and payload, each with its length."""
    return b"DSSEv1 %d %b %d %b" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)


class Attested(NamedTuple):
    """What an attestation says, by whom, and what is known of its certificate since."""

    statement: dict[str, Any]
    key: str
    expired: bool
    revoked: Revocation | None

    @property
    def result(self) -> str:
        return str(self.statement["predicate"]["result"])

    @property
    def subjects(self) -> dict[str, str]:
        return {each["name"]: each["digest"]["sha256"] for each in self.statement["subject"]}


def verify_attestation(
    path: Path,
    *,
    trusted: Iterable[str],
    successions: Iterable[Path] = (),
    revocations: Path | None = None,
    subjects: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> Attested:
    """Check that one of the trusted keys signed an attestation, and that it is of `subjects`, by their SHA-256.

    The run is not recomputed: `fedsrc verify` does that. An attestation has no date, so of a key that was succeeded the
    successor alone counts. A notice that revokes its certificate is looked for beside it and in `revocations`.
    """
    where, keys = str(path), keys_of(trusted, successions)
    inforce = [tuple(keys.line(each))[-1] for each in sorted(keys.trusted)]
    if not inforce:
        raise FedsrcError("no key is named that may have signed it", where=where, hint="name one with `trust=`")
    try:
        envelope = json.loads(read_bytes(path, MAX_BYTES))
        payload = base64.b64decode(envelope["payload"], validate=True)
        fits = envelope["payloadType"] == PAYLOAD
        seals = [base64.b64decode(each["sig"], validate=True).hex() for each in envelope["signatures"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError("is not a signed envelope (DSSE)", where=where, hint="`fedsrc attest` writes one") from error
    signer = next((key for key in inforce for seal in seals if signed_by(key, seal, _signed_part(payload))), None)
    if signer is None or not fits:
        hint = "ask its issuer for the public key, out of band"
        raise DamagedError("no trusted key signed the attestation as it is", where=where, hint=hint)
    try:
        said, own = _parsed(payload)
        tagged, found = own["annotations"], Attested(said, signer, False, None)
        missing = [name for name, digest in (subjects or {}).items() if digest not in found.subjects.values()]
        expires = tagged.get("fedsrc.expires")
        late = expires is not None and (now or datetime.now(UTC)) > datetime.fromisoformat(expires)
        number, key = own["digest"]["sha256"], tagged["fedsrc.key"]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise DamagedError("is not an attestation of a certificate", where=where) from error
    if missing:
        hint = "do not rely on it for that"
        raise DamagedError(f"does not speak of {missing[0]!r} as it is", where=where, hint=hint)
    return found._replace(expired=late, revoked=Notices(path, revocations, keys).revoking(number, key))


def _parsed(payload: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a statement and its certificate."""
    said = json.loads(payload)
    if (said["_type"], said["predicateType"], said["predicate"]["result"] in ("PASSED", "FAILED")) != (
        STATEMENT, PREDICATE, True,
    ):  # fmt: skip
        raise ValueError("another kind of statement")
    return said, next(each for each in said["subject"] if each["name"] == CERTIFICATE)
