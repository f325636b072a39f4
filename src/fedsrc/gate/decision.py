"""One decision: what is in force, as one immutable value, and what that says of a score."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Literal, NamedTuple, get_args

from fedsrc.gate.following import Word
from fedsrc.gate.trust import Trusted
from fedsrc.protocol.scale import Scale

Reason = Literal[
    "score reaches the threshold",
    "score below the threshold",
    "no usable score",
    "certificate expired",
    "clock before the calibration",
    "gate halted",
    "no valid status from the monitor",
    "no group given",
    "group not listed",
    "no threshold for the group",
    "checkpoint missed",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
ACCEPTED, BELOW, UNUSABLE, EXPIRED, EARLY, HALTED, UNWATCHED, NO_GROUP, UNLISTED, NOT_SHOWN, MISSED = REASONS
NO_NUMBER = float("nan")


class Decision(NamedTuple):
    """What a gate decided on one score.

    Attributes:
        accepted: Whether the answer is given out.
        reason: Why, in fixed words.
        threshold: The threshold in force, in [0, 1] whatever the scale of scores; None if the group has none.
        certificate: The certificate in force, by the SHA-256 of its file.
        target_risk: The risk that the certificate promises of what the threshold accepts.
    """

    accepted: bool
    reason: Reason
    threshold: float | None
    certificate: str
    target_risk: float


class Rule(NamedTuple):
    """The threshold of a group or of all traffic, every decision that it can come to, and why there is no threshold."""

    threshold: float | None
    says: Mapping[Reason, Decision]
    without: Reason = NOT_SHOWN


class Held(NamedTuple):
    """One certificate in force, and every decision that it can come to."""

    certificate: Trusted
    word: Word
    halted: bool
    ends: float  # of the certificate, or of the monitor's word
    rule: Rule  # of all traffic; where there are groups, of what is in none
    groups: Mapping[str | None, Rule] | None  # None is the group that was not given
    scale: Scale | None  # of scores; None if they are in [0, 1] as they come

    def rule_of(self, group: object) -> Rule:
        """Return what holds for a group. Where the claim is about all traffic, a group changes nothing."""
        if self.groups is None or not (group is None or isinstance(group, str)):
            return self.rule
        return self.groups.get(group, self.rule)

    def unit(self, score: object) -> float:
        """Return a score in [0, 1], the same double as in calibration; anything else for what is no score."""
        value = score if type(score) is float else number(score)
        return value if self.scale is None else self.scale.unit(value)


def hold(certificate: Trusted, word: Word, *, halted: bool) -> Held:
    """Put a certificate in force."""
    scale = None if certificate.score.scale == Scale() else certificate.score.scale
    ends, listed = min(certificate.ends, word.until), certificate.groups
    if listed is None:
        return Held(certificate, word, halted, ends, _rule(certificate, certificate.threshold), None, scale)
    groups: dict[str | None, Rule] = {None: _rule(certificate, None, NO_GROUP)}
    groups.update((name, _rule(certificate, threshold)) for name, threshold in listed.items())
    return Held(certificate, word, halted, ends, _rule(certificate, None, UNLISTED), groups, scale)


def _rule(certificate: Trusted, threshold: float | None, without: Reason = NOT_SHOWN) -> Rule:
    digest, risk = certificate.digest, certificate.target_risk
    says = {reason: Decision(reason == ACCEPTED, reason, threshold, digest, risk) for reason in REASONS}
    return Rule(threshold, says, without)


def decide(held: Held, now: float, score: object, group: object = None) -> Decision:
    """Decide on a score as it comes."""
    return judge(held, now, held.unit(score), held.rule_of(group))


def judge(held: Held, now: float, value: float, rule: Rule) -> Decision:
    """Decide on a score in [0, 1]. Every comparison is written so that a NaN does not accept."""
    if held.halted:
        return rule.says[HALTED]
    if not now <= held.ends:
        return rule.says[UNWATCHED if now <= held.certificate.ends else EXPIRED]
    if not now >= held.certificate.begins:
        return rule.says[EARLY]
    if rule.threshold is None:
        return rule.says[rule.without]
    if not 0.0 <= value <= 1.0:
        return rule.says[UNUSABLE]
    return rule.says[ACCEPTED if value >= rule.threshold else BELOW]


def number(score: object) -> float:
    """Return a score in double precision, as calibration records are read; NaN for anything but a real number."""
    if not isinstance(score, Real) or isinstance(score, bool):
        return NO_NUMBER
    try:
        return float(score)
    except (ArithmeticError, TypeError, ValueError):
        return NO_NUMBER
