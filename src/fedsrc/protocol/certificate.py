"""The certificate, and the account of a monitor: what a server signs at the end, as values with one text each.

Versioned JSON. Everything in it except the signature is a pure function of registration and transcript, so `verify`
recomputes it whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from fedsrc.common import signing
from fedsrc.common.canonical import canonical_bytes, digest_bytes
from fedsrc.common.clock import real_time
from fedsrc.common.durable import read_text, write_whole
from fedsrc.common.values import Frozen, Grown, Hex, Real, Signature, describe
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.maths.kinds import Adjacency, BasisName, Conversion, Encoding
from fedsrc.protocol.formats import FIRST_FORMAT, FIRST_HINT, FORMAT
from fedsrc.protocol.registration import Claim
from fedsrc.protocol.scale import Scale
from fedsrc.protocol.succession import ANYONE, Keys

MAX_BYTES = 50_000_000
_AS_REGISTERED = ("threshold", "target_risk", "failure_probability", "claim", "weight", "drift", "epsilon", "delta",
                  "missed", "scale")  # fmt: skip
T = TypeVar("T")


def _from_iso(value: object) -> object:
    return (datetime.fromisoformat(value) if value else None) if isinstance(value, str) else value


def _to_iso(value: datetime | None) -> str:
    return "" if value is None else value.isoformat()


Many = Annotated[tuple[T, ...], Field(strict=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
_TimeOrNone = Annotated[str, AfterValidator(lambda time: time and real_time(time))]
_Expiry = Annotated[AwareDatetime | None, BeforeValidator(_from_iso), PlainSerializer(_to_iso)]


class SiteShare(Frozen):
    """What a site gave, how much of all that is, and how it was registered."""

    name: str
    records: Count
    charged: Count
    share: Real
    weight: float | None
    drift: float


class PrivacyLoss(Frozen):
    """Who is protected against what, by which noise, and what a release costs."""

    unit: Literal["record", "source"]
    adjacency: Adjacency
    mechanism: Literal["discrete Gaussian", "none"]
    encoding: Encoding | Literal["contrasts", "moments", "levels"]
    basis: BasisName | None  # of histograms
    epsilon: Real
    replacement_epsilon: Real  # for a unit being this one or any other; `epsilon` is for the registered adjacency
    zero_out_epsilon: Real  # for a unit being this one, or one below every threshold
    delta: float
    conversion: Conversion
    rho: Real
    scale: Real
    releases_per_unit: Literal[1] = 1
    thresholds: str
    colluding: Count | None = None  # members of a cohort against which, and the server, `epsilon` holds
    sum_scale: Real | None = None  # of the noise in a cohort's sum, at most
    epsilon_among: Real | None = None  # if all other members of the cohort side with the server

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_none(write(self), "colluding", "sum_scale", "epsilon_among")


class Assumption(Frozen):
    """What the statement rests on, and how that is known."""

    what: str
    how: Literal["checked", "declared", "not checkable"]


class ThresholdBounds(Frozen):
    """Every bound on one threshold."""

    threshold: Share
    contrast_upper: Real
    acceptance_lower: Real
    risk_upper: Real
    sampling_width: Real
    privacy_width: Real
    certified: bool
    log_wealth: Real | None = None  # of bets; other methods make none, and their rows have no such field

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_none(write(self), "log_wealth")


class PanelMember(Frozen):
    """One group or score of a panel: its status, the threshold that is picked for it, and every bound on its rows.

    Where one threshold is claimed for all groups, each has that one, and its bounds are those of all together.
    `share` is its part of the failure budget, `scale` and `checkpoints` are a score's.
    """

    name: str
    status: Literal["CERTIFIED", "OPEN", "ABSTAIN"]
    share: float
    threshold: Share | None
    contrast_upper: Real | None
    acceptance_lower: Real | None
    risk_upper: Real | None
    scale: Scale | None = None
    checkpoints: Many[Count] = ()
    thresholds: Many[ThresholdBounds] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        shown = (self.threshold, self.acceptance_lower, self.risk_upper)
        if {each is None for each in shown} != {self.status != "CERTIFIED"}:
            raise ValueError(f"{self.name!r} has a threshold and bounds if it is certified, and only then")
        rows = {(row.threshold, row.acceptance_lower, row.risk_upper) for row in self.thresholds if row.certified}
        if self.status == "CERTIFIED" and self.thresholds and shown not in rows:
            raise ValueError(f"the threshold of {self.name!r} is one of those that are certified")
        return self


class Panel(Frozen):
    """What a panel shows: of every group, of one threshold in all of them, or of the score that is picked.

    All of it holds together, up to the failure probability. `column` says the group of an answer, `floor` what
    acceptance is a share of, `picked` the score whose threshold the certificate has.
    """

    kind: Literal["groups", "scores"]
    claim: Literal["each", "all", "best"]
    column: str
    floor: Literal["traffic", "group"]
    span: Literal["shares", "whole"]
    members: Many[PanelMember]
    picked: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        picked = None if self.picked is None else self.member(self.picked)
        if len({each.name for each in self.members}) != len(self.members) or not self.members:
            raise ValueError("the members of a panel have names of their own")
        if (self.kind == "scores") != (self.claim == "best") or (self.picked is not None and self.kind == "groups"):
            raise ValueError("scores are claimed by the best, and groups each or all")
        if self.picked is not None and (picked is None or picked.status != "CERTIFIED"):
            raise ValueError("the score that is picked is a certified member")
        return self

    def member(self, name: str) -> PanelMember | None:
        """Return the group or score of that name, if it is listed."""
        return next((each for each in self.members if each.name == name), None)


class OtherTarget(Frozen):
    """A target that the same evidence shows, and the threshold that would be certified for it."""

    target_risk: float
    threshold: Share
    acceptance_lower: Real


class RoundBound(Frozen):
    """One round as the card shows it: records so far and the smallest risk bound with enough acceptance.

    Where the mixture may change between rounds, only the registered target can be it: no other is proved.
    """

    round: Count
    records: Count
    risk_upper: Real


class WatchedRound(Grown):
    """One round as the card shows it: units so far, evidence of a risk above the line, and what the round looks like.

    The estimate is of the round alone, from noised masses: no claim. Where groups are watched, all is of the one that
    is closest to its line, `group`; the log of its share is added to its evidence, so that one line serves all groups.
    """

    LATER: ClassVar[tuple[str, ...]] = ("group",)
    round: Count
    records: Count
    log_evidence: Real
    risk_estimate: Real | None
    group: str | None = None


class WatchedGroup(Frozen):
    """Where a watched group stands: its evidence with the log of its share of the guarantee, and its risk of late."""

    name: str
    threshold: Share
    share: float
    log_evidence: Real | None
    recent_risk_estimate: Real | None


class Alarm(Grown):
    """When the evidence reached its line, in which groups, and in which round the change seems to have begun (an
    estimate; of several groups, in that furthest above its line)."""

    LATER: ClassVar[tuple[str, ...]] = ("groups",)
    round: Count
    records: Count
    likely_since: Count
    groups: Many[str] | None = None


class Signed(Frozen):
    """What a certificate and the account of a monitor both say, and who signed it."""

    status: str
    statement: str
    target_risk: float
    threshold: Share | None
    format: Literal[2] = 2
    method: str
    records: Count
    rounds: Count
    releases: Count
    absent: Count
    refused: Count
    sites: Many[SiteShare]
    mixture: Literal["as calibrated", "declared"]
    privacy: PrivacyLoss
    assumptions: Many[Assumption]
    calibrated: _TimeOrNone  # the latest release; "" before the first
    registration: Hex
    transcript: Hex
    transcript_lines: Count
    does_not_say: Many[str]
    expires: _Expiry
    key: Hex | None = None
    signature: Signature | None = None

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Parse a text; refuse it unless it is the one text of its value."""
        return cls._of(_plain(text, where), text, where)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file."""
        return cls.parse(read_text(Path(path), MAX_BYTES), str(path))

    @property
    def text(self) -> str:
        """Its one text: sorted keys, each once."""
        plain = json.loads(canonical_bytes(self.model_dump()))
        return json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of its file."""
        return digest_bytes(self.text.encode())

    @property
    def expires_on(self) -> str:
        """The time at which it expires, as its text has it; "" if it never does."""
        return _to_iso(self.expires)

    def save(self, path: Path | str) -> None:
        """Write it to a file atomically."""
        write_whole(Path(path), self.text.encode())

    def signed(self, key: signing.Key) -> Self:
        """Return it with the signer's public key and a signature over everything else."""
        whole = self.model_copy(update={"key": signing.public_hex(key)})
        return whole.model_copy(update={"signature": signing.sign(key, whole._signed_part())})

    def as_signed(self) -> bool:
        """Whether its own key signed it as it is."""
        if self.key is None or self.signature is None:
            return False
        return signing.signed_by(self.key, self.signature, self._signed_part())

    def check_signature(self, where: str, *, server_key: str | None = None, keys: Keys = ANYONE) -> None:
        """Refuse it unless it is signed, by the registered server and by a key that is trusted."""
        if self.key is None or self.signature is None:
            raise DamagedError("the certificate is not signed", where=where)
        if not self.as_signed():
            raise DamagedError("the signature does not fit the certificate", where=where)
        if server_key is not None and self.key != server_key:
            raise DamagedError(f"the certificate is signed by {self.key}, not by the registered server", where=where)
        keys.check(self.key, self.calibrated, where)

    def differs_from(self, expected: Signed) -> list[str]:
        """Return the fields in which it differs, apart from key and signature."""
        mine, theirs = (each.model_dump(exclude={"key", "signature"}) for each in (self, expected))
        return [name for name in theirs | mine if not _same_at(name, mine.get(name), theirs.get(name))]

    @classmethod
    def _of(cls, plain: dict[str, Any], text: str, where: str) -> Self:
        try:
            found = cls.model_validate(plain)
            whole = found.text
        except (ValueError, OverflowError) as error:
            what = describe(error) if isinstance(error, ValidationError) else str(error)
            raise DamagedError(f"is not a certificate: {what}", where=where) from error
        if whole != text:
            hint = "it was edited or written anew"
            raise DamagedError("is not a certificate as fedsrc writes it", where=where, hint=hint)
        return found

    def _signed_part(self) -> bytes:
        return canonical_bytes(self.model_dump(exclude={"signature"}))

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_none(write(self), "key", "signature", "missed", "panel", "groups")


class Certificate(Signed):
    """The decision of a run, its statement, and what it rests on.

    `threshold`, `risk_at_most` and `acceptance_at_least` are None unless its status is CERTIFIED. `expires` is None
    if nothing was calibrated.
    """

    status: Literal["CERTIFIED", "OPEN", "ABSTAIN"]
    method: Literal["betting", "sealed", "contrast", "variance-adaptive", "ratio"]
    failure_probability: float
    tries: Count
    failure_probability_of_all_tries: Real
    claim: Claim
    contrast_upper: Real | None
    acceptance_lower: Real | None
    risk_upper: Real | None
    eta: Real | None
    thresholds: Many[ThresholdBounds]
    every_target: bool
    also_certified: Many[OtherTarget]
    evidence: Many[RoundBound]
    missed: Share | None = None  # of what is unsupported, the declared share that labels miss; not written if none
    renews: Hex | None
    panel: Panel | None = None  # not written if there is one claim

    @model_validator(mode="after")
    def _check(self) -> Self:
        needed = ["calibrated", "expires"]
        if self.by_group is None:
            needed = ["threshold", "contrast_upper", "acceptance_lower", "risk_upper", *needed]
        elif (self.status == "CERTIFIED") != any(each.status == "CERTIFIED" for each in self.by_group.members):
            raise ValueError("a certificate by group is certified where one of its groups is")
        missing = [name for name in needed if getattr(self, name) in (None, "")]
        self._check_panel()
        if self.status == "CERTIFIED" and missing:
            raise ValueError(f"status CERTIFIED needs {missing[0]}")
        if self.status != "CERTIFIED" and self.threshold is not None:
            raise ValueError(f"status {self.status} has no threshold")
        return self

    def _check_panel(self) -> None:
        """Refuse a panel that says something else than the certificate: a gate reads both."""
        if self.by_group is not None and self.threshold is not None:
            raise ValueError("a certificate by group has no threshold for all")
        if self.panel is None or self.by_group is not None:
            return
        said = self.panel.members if self.panel.kind == "groups" else (self.panel.member(self.panel.picked or ""),)
        if any(self.threshold != (None if each is None else each.threshold) for each in said):
            raise ValueError("a panel has the threshold of its certificate")

    @property
    def by_group(self) -> Panel | None:
        """The panel, where every group has a threshold of its own, and the certificate none for all."""
        return self.panel if self.panel is not None and self.panel.claim == "each" else None

    @property
    def risk_at_most(self) -> float | None:
        """The bound on the risk of what the threshold accepts."""
        return self.risk_upper

    @property
    def acceptance_at_least(self) -> float | None:
        """The bound on the share that the threshold accepts."""
        return self.acceptance_lower

    @property
    def strongest(self) -> OtherTarget | None:
        """The smallest risk that the evidence shows with enough acceptance, of those that it speaks of."""
        return min(self.also_certified, key=lambda row: row.target_risk, default=None)

    def claim_at(self, target: float, where: str) -> OtherTarget:
        """Return what is shown at a target: the registered claim, or that of the largest rung at or below the target.

        The choice may be made after looking, and after an abstention: the bounds hold for all rungs at once, and
        between rungs nothing is shown.

        Theory: (iv), Ladder.
        """
        if not 0 < target < 1:
            raise FedsrcError(f"the target {target!r} is not between 0 and 1", hint="`target=` 0.2, for example")
        if self.status == "OPEN":
            raise FedsrcError("the run is still open: nothing can be claimed of it yet", where=where)
        if self.by_group is not None and target == self.target_risk:
            raise FedsrcError("every group has a threshold of its own", where=where, hint="look it up by group")
        if target == self.target_risk and self.threshold is not None and self.acceptance_lower is not None:
            return OtherTarget(target_risk=target, threshold=self.threshold, acceptance_lower=self.acceptance_lower)
        self._check_every_target(where)
        below = [row for row in self.also_certified if row.target_risk <= target]
        if not below:
            least = self.strongest
            hint = None if least is None else f"`target=` {least.target_risk:g} is the smallest that is shown"
            raise FedsrcError(f"its evidence does not show a risk of at most {target:g}", where=where, hint=hint)
        return max(below, key=lambda row: row.target_risk)

    def _check_every_target(self, where: str) -> None:
        """Refuse other targets than the registered one where the ladder does not decide, or the mixture may move. A
        sealed certificate lists its registered targets, and what is shown at one holds above it."""
        if self.panel is not None:
            raise FedsrcError(f"it speaks of its registered target {self.target_risk:g} alone, as a panel", where=where)
        if self.method == "sealed":
            return
        alone = f"it speaks of its registered target {self.target_risk:g} alone"
        if self.method != "betting":
            what = f"{alone}: the method {self.method!r} shows no other"
            raise FedsrcError(what, where=where, hint="the default preset shows every target at once")
        if not self.every_target:
            what = f"{alone}: its mixture of sites is not fixed, since no weights were declared"
            raise FedsrcError(what, where=where, hint="register with `weights=` to have every target")

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        names = ("status", "threshold", "risk_at_most", "acceptance_at_least", "records", "rounds")
        return ((name, getattr(self, name)) for name in names)


class MonitorAccount(Signed):
    """Where a monitor stands. It certifies nothing: it speaks of the certificate that it names.

    Where every group has a threshold of its own, `threshold` is None; `groups` has them.
    """

    kind: Literal["monitor"] = "monitor"
    status: Literal["NOT MONITORED YET", "STILL SUPPORTED", "ALARM"]
    method: Literal["monitor"]
    certificate: Hex
    alarm_risk: float
    guarantee: str
    log_line: Real
    log_evidence: Real | None
    recent_risk_estimate: Real | None
    evidence: Many[WatchedRound]
    alarm: Alarm | None
    groups: Many[WatchedGroup] | None = None

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        return ((name, getattr(self, name)) for name in ("status", "threshold", "alarm_risk", "records", "rounds"))


def parse_signed(text: str, where: str) -> Certificate | MonitorAccount:
    """Parse a certificate or the account of a monitor."""
    plain = _plain(text, where)
    return (MonitorAccount if plain.get("kind") == "monitor" else Certificate)._of(plain, text, where)


def read_signed(path: Path) -> Certificate | MonitorAccount:
    """Read a certificate or the account of a monitor from a file."""
    return parse_signed(read_text(path, MAX_BYTES), str(path))


def _plain(text: str, where: str) -> dict[str, Any]:
    """Parse a text into plain values of this format."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError("is not a certificate: not valid JSON", where=where) from error
    if isinstance(found, dict) and found.get("format") == 1:
        raise FedsrcError(f"is a certificate of {FIRST_FORMAT}", where=where, hint=FIRST_HINT)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DamagedError("is not a certificate of a known format", where=where)
    return found


def _without_none(said: dict[str, Any], *names: str) -> dict[str, Any]:
    """Leave out the named fields where they are None."""
    return {name: value for name, value in said.items() if value is not None or name not in names}


def _same_at(name: str, a: Any, b: Any) -> bool:
    """Compare a field: what is registered, and what a gate compares with, to the last bit."""
    return canonical_bytes(a) == canonical_bytes(b) if name in _AS_REGISTERED else _same(a, b)


def _same(a: Any, b: Any) -> bool:
    """Compare up to the last rounded digit of a number: another machine may round a diagnostic the other way."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_at(name, a[name], b[name]) for name in a)
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-8, abs_tol=2e-9)
    return canonical_bytes(a) == canonical_bytes(b)
