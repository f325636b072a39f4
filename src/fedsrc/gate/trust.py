"""A certificate that may be relied on: signed by a trusted key, about the claim that is meant, and current."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.clock import instant
from fedsrc.common.values import Hex
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import Certificate, Signed, parse_signed
from fedsrc.protocol.scale import Scale
from fedsrc.protocol.succession import Keys, keys_of

SKEW = 86_400.0  # seconds: a release may be dated a day ahead of the server's clock
RENEWED = ("system", "score", "loss", "population", "failure_probability")  # as they were
CLAIM = ("system", "issuer", "score", "column", "loss", "population", "target_risk", "failure_probability", "unit",
         "groups", "registration")  # fmt: skip
FOREIGN = "the certificate is foreign"


class Score(NamedTuple):
    """The score that a gate takes: its column in tables, how it is written, and at which tokens streams are checked."""

    column: str
    scale: Scale
    checkpoints: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trusted:
    """A certificate that a gate may rely on, its text, the risk that is promised above which threshold of which score,
    and from when to when, in seconds since 1970. The threshold is None where every group has its own."""

    certificate: Certificate
    text: str
    target_risk: float
    threshold: float | None
    score: Score
    begins: float
    ends: float

    @cached_property
    def digest(self) -> str:
        return digest_bytes(self.text.encode())

    @cached_property
    def groups(self) -> Mapping[str, float | None] | None:
        """The threshold of every listed group, if there are groups."""
        panel = self.certificate.panel
        if panel is None or panel.kind != "groups":
            return None
        return {member.name: member.threshold for member in panel.members}


def trusted_keys(keys: Iterable[str], successions: Iterable[Path | str] = ()) -> Keys:
    """Check the public keys to trust, at least one, and read the files that lead from them to others."""
    given = [keys] if isinstance(keys, str) else list(keys)
    if not given:
        raise FedsrcError("no key is trusted", hint="name the issuer's public key, which you got out of band")
    try:
        named = [TypeAdapter(Hex).validate_python(key) for key in given]
    except ValidationError as error:
        raise FedsrcError("a trusted key is not 64 hexadecimal digits", hint="`fedsrc keys FILE` shows one") from error
    return keys_of(named, successions)


def expected_claim(claim: Mapping[str, object]) -> dict[str, object]:
    """Check the names of what a certificate must speak of."""
    unknown = sorted(set(claim) - set(CLAIM))
    if unknown:
        raise FedsrcError(f"{unknown[0]!r} is nothing that a claim says", hint=f"it says: {', '.join(CLAIM)}")
    listed = claim.get("groups")
    return {**claim, **({"groups": tuple(listed)} if isinstance(listed, list) else {})}


def read_trusted(text: str, keys: Keys, where: str, target: float | None = None) -> Trusted:
    """Parse a certificate; refuse one that no trusted key signed, or that shows no threshold for the target."""
    found = parse_signed(text, where)
    found.check_signature(where, keys=keys)
    panel = found.panel if isinstance(found, Certificate) else None
    asked = None if panel is not None and target == found.target_risk else target  # the one that a panel speaks of
    shown = found.status == "CERTIFIED" or asked is not None
    if not isinstance(found, Certificate) or found.expires is None or not shown:
        what = f"the certificate certifies nothing: its status is {found.status!r}"
        raise FedsrcError(what, where=where, hint=_other_hint(found))
    risk, threshold = _promised(found, asked, where)
    begins = instant(found.calibrated).timestamp() - SKEW
    return Trusted(found, text, risk, threshold, _score(found, where), begins, found.expires.timestamp())


def _promised(found: Certificate, target: float | None, where: str) -> tuple[float, float | None]:
    """Return the risk that is promised, and above which threshold; None if every group has its own."""
    if target is None and found.by_group is not None:
        return found.target_risk, None
    shown = found.claim_at(found.target_risk if target is None else target, where)
    return shown.target_risk, shown.threshold


def _score(found: Certificate, where: str) -> Score:
    """Return the score that a certificate is about: of several, the one that was picked."""
    panel = found.panel
    if panel is None or panel.kind != "scores":
        return Score(found.claim.column, found.claim.scale)
    picked = panel.member(panel.picked or "")
    if picked is None or picked.scale is None or picked.threshold != found.threshold:
        raise DamagedError("the certificate does not say which of its scores was picked", where=where)
    return Score(picked.name, picked.scale, picked.checkpoints)


def _other_hint(found: Signed) -> str | None:
    """Say which target an abstention shows all the same."""
    least = found.strongest if isinstance(found, Certificate) and found.status == "ABSTAIN" else None
    return None if least is None else f"its evidence shows a risk of at most {least.target_risk:g}: name it, `target=`"


def check_claim(found: Trusted, claim: Mapping[str, object], where: str) -> None:
    """Refuse a certificate that does not speak of the expected claim."""
    said = found.certificate
    says = {**_about(found), "issuer": said.claim.issuer, "registration": said.registration}
    for name, wanted in claim.items():
        if says[name] != wanted:
            raise FedsrcError(f"{FOREIGN}: its {name} is {says[name]!r}, not {wanted!r}", where=where)


def check_renewal(found: Trusted, held: Trusted, where: str, target: float | None = None) -> None:
    """Refuse a certificate that speaks of something else than the one in force, or is older.

    A gate with a target of its own does not mind which one was registered: it found its own to be shown.
    """
    about = _about(found)
    for name, was in _about(held).items():
        if about[name] != was and (name != "target_risk" or target is None):
            what = f"{FOREIGN}: its {name} is not that of the one in force"
            raise FedsrcError(what, where=where, hint="start a new gate if this is meant")
    if found.certificate.calibrated < held.certificate.calibrated:
        raise FedsrcError("the certificate is older than the one in force", where=where)


def check_time(found: Trusted, now: float, where: str) -> None:
    """Refuse a certificate that has expired, or was calibrated after the clock's time."""
    if not now <= found.ends:
        what = f"the certificate expired on {found.certificate.expires_on}"
        raise FedsrcError(what, where=where, hint="renew it on fresh units: docs/gate.md")
    if not now >= found.begins:
        what = f"the certificate was calibrated on {found.certificate.calibrated}, after this clock"
        raise FedsrcError(what, where=where, hint="set the clock right")


def _about(trusted: Trusted) -> dict[str, object]:
    """Return what a certificate speaks of. A renewal speaks of the same."""
    found, panel = trusted.certificate, trusted.certificate.panel
    about = {name: getattr(found.claim, name) for name in RENEWED}
    if trusted.score.column != found.claim.column:  # another than the claim's was picked
        about["score"] = trusted.score.column
    sites = [(site.name, site.weight, site.drift) for site in found.sites]
    labels = {"target_risk": found.target_risk, "missed": found.missed}
    groups = None if trusted.groups is None else tuple(trusted.groups)
    told = {f"group_{name}": groups and getattr(panel, name) for name in ("column", "claim", "floor", "span")}
    return {
        **about, **trusted.score._asdict(), **labels, "unit": found.privacy.unit, "sites": sites, "groups": groups,
        **told,
    }  # fmt: skip
