"""A certificate that may be relied on: signed by a trusted key, about the claim that is meant, and current."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.clock import TIME, Time
from fedsrc.common.values import Hex, describe
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import check_certificate, parse_certificate
from fedsrc.protocol.registration import Claim
from fedsrc.protocol.succession import Keys, keys_of

SKEW = 86_400.0  # seconds: a release may be dated a day ahead of the server's clock
CLAIM = ("score", "loss", "population", "target_risk", "failure_probability", "unit", "registration")
FOREIGN = "the certificate is foreign"


@dataclass(frozen=True)
class Trusted:
    """What a signed certificate says, as far as a gate relies on it. Times in seconds since 1970."""

    text: str
    digest: str
    key: str
    threshold: float
    begins: float
    ends: float
    calibrated: str
    expires: str
    registration: str
    transcript: str
    about: Mapping[str, object]


def trusted_keys(keys: Iterable[str], successions: Iterable[Path | str] = ()) -> Keys:
    """The public keys to trust, at least one, and the statements in files that lead from them to others."""
    given = [keys] if isinstance(keys, str) else list(keys)
    if not given:
        raise FedsrcError("no key is trusted", hint="name the issuer's public key, which you got by another way")
    try:
        named = [TypeAdapter(Hex).validate_python(key) for key in given]
    except ValidationError as error:
        raise FedsrcError("a trusted key is not 64 hexadecimal digits", hint="`fedsrc keys FILE` shows one") from error
    return keys_of(named, successions)


def expected_claim(claim: Mapping[str, object]) -> dict[str, object]:
    """What a certificate must speak of, each field by name."""
    unknown = sorted(set(claim) - set(CLAIM))
    if unknown:
        raise FedsrcError(f"{unknown[0]!r} is nothing that a claim says", hint=f"it says: {', '.join(CLAIM)}")
    return dict(claim)


def read_trusted(text: str, keys: Keys, where: str) -> Trusted:
    """A certificate's text, if it is as fedsrc writes it, signed by a trusted key, and certifies a threshold."""
    try:
        found = parse_certificate(text, where)
        said = {name: value for name, value in found.items() if name not in ("key", "signature")}
        check_certificate(text, said, None, keys, where=where)
    except RecursionError as error:
        raise FedsrcError("is not a certificate as fedsrc writes it", where=where) from error
    if found.get("status") != "CERTIFIED":
        raise FedsrcError(f"the certificate certifies nothing: its status is {found.get('status')!r}", where=where)
    try:
        facts = _Facts.model_validate(found)
        begins, ends = _moment(facts.calibrated) - SKEW, facts.expires.timestamp()
    except (ValidationError, OverflowError) as error:
        what = describe(error) if isinstance(error, ValidationError) else str(error)
        raise FedsrcError(f"is not a certificate that a gate can use: {what}", where=where) from error
    return Trusted(
        text, digest_bytes(text.encode()), found["key"], facts.threshold, begins, ends, facts.calibrated,
        str(found["expires"]), facts.registration, facts.transcript, _about(facts),
    )  # fmt: skip


def check_claim(found: Trusted, claim: Mapping[str, object], where: str) -> None:
    """Refuse a certificate that does not speak of the expected claim."""
    says = {**found.about, "registration": found.registration}
    for name, wanted in claim.items():
        if says[name] != wanted:
            raise FedsrcError(f"{FOREIGN}: its {name} is {says[name]!r}, not {wanted!r}", where=where)


def check_renewal(found: Trusted, held: Trusted, where: str) -> None:
    """Refuse a certificate that speaks of something else than the one in force, or is older."""
    for name, was in held.about.items():
        if found.about[name] != was:
            what = f"{FOREIGN}: its {name} is not that of the one in force"
            raise FedsrcError(what, where=where, hint="start a new gate if this is meant")
    if found.calibrated < held.calibrated:
        raise FedsrcError("the certificate is older than the one in force", where=where)


def check_time(found: Trusted, now: float, where: str) -> None:
    """Refuse a certificate that has expired, or was calibrated after the clock's time."""
    if not now <= found.ends:
        what = f"the certificate expired on {found.expires}"
        raise FedsrcError(what, where=where, hint="renew it on fresh units: docs/gate.md")
    if not now >= found.begins:
        what = f"the certificate was calibrated on {found.calibrated}, after this clock"
        raise FedsrcError(what, where=where, hint="set the clock right")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")


class _Site(_Part):
    name: str
    weight: float | None
    drift: float


class _Privacy(_Part):
    unit: str


def _moment(time: str) -> float:
    return datetime.strptime(time, TIME).replace(tzinfo=UTC).timestamp()


def _from_iso(value: object) -> object:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


class _Facts(_Part):
    """The fields of a certificate that a gate relies on."""

    status: Literal["CERTIFIED"]
    threshold: float = Field(ge=0, le=1)
    claim: Claim
    privacy: _Privacy
    sites: list[_Site]
    registration: Hex
    transcript: Hex
    calibrated: Time  # in the one form whose order as text is that of time
    expires: Annotated[datetime, BeforeValidator(_from_iso)]


def _about(facts: _Facts) -> dict[str, object]:
    """What a certificate speaks of. A renewal speaks of the same."""
    claim = facts.claim
    return {
        "score": claim.score,
        "loss": claim.loss,
        "population": claim.population,
        "target_risk": claim.target_risk,
        "failure_probability": claim.failure_probability,
        "unit": facts.privacy.unit,
        "sites": [(site.name, site.weight, site.drift) for site in facts.sites],
    }
