"""Watching a deployed gate: rounds of fresh labelled units folded into the evidence that its risk has passed a line.

The counterpart of `certify` for a registration whose method is "monitor": `Replay` hands it every closed round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from fedsrc.maths import detector
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.betting import Covariance
from fedsrc.protocol.certificate import Alarm, WatchedGroup, WatchedRound
from fedsrc.protocol.judgements import Monitor
from fedsrc.protocol.messages import Release
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import down
from fedsrc.server.tally import Masses, masses

RECENT = 5  # rounds that the estimate of the present risk looks back on
WatchStatus = Literal["NOT MONITORED YET", "STILL SUPPORTED", "ALARM"]


@dataclass(frozen=True)
class RoundSample:
    """What a round brings: its releases' masses (..., K), those of groups (..., G, K), slots per site, and each site's
    part in the bets."""

    masses: Masses
    slots: Floats
    by: detector.Shares


def plan_of(registration: Registration) -> Monitor:
    """Return the registered monitor."""
    assert registration.monitor is not None  # whoever watches has such a registration
    return registration.monitor


@lru_cache(maxsize=64)
def bets_of(method: Monitor) -> detector.Bets:
    """Compile the registered bets, once."""
    b = method.bets
    return detector.bets(method.risk, count=b.count, low=b.low, high=b.high)


def log_line(method: Monitor) -> float:
    """Return the line of an alarm: the log of the run length, or of one over the false-alarm probability.

    Theory: (x), Theorem (run length), Theorem (probability).
    """
    if method.guarantee == "run length":
        return math.log(method.run_length or 0)
    return -math.log(method.false_alarm - method.refusal_budget)


def round_sample(registration: Registration, slots: Sequence[int], sums: Ints) -> RoundSample:
    """Return a round's sample from the slots that arrived per site and their lattice sums (..., K, 2, p), those
    of groups (..., K, G, 2, p). Every group has all slots."""
    seen = masses(registration, sums, 1)
    n = np.asarray(slots, dtype=np.float64)
    declared = registration.weights
    w = n / max(1.0, n.sum()) if declared is None else np.asarray(declared)
    drift = np.asarray([site.drift for site in registration.sites])
    found = (seen.unsupported, seen.supported, seen.accepted)
    bad, good, accepted = (each[..., 0] if registration.groups is None else np.moveaxis(each, -1, -2) for each in found)
    noise = Covariance(*(each[..., :1] for each in seen.noise))  # alike in all groups
    by = detector.shares(n, w, drift, plan_of(registration).risk)
    return RoundSample(Masses(bad, good, accepted, noise), n, by)


def fold(registration: Registration, log_M: Floats, seen: RoundSample, round: int) -> tuple[Floats, Floats]:
    """Return the detector after a round, and the round's own factor, per bet.

    Theory: (x), recursion.
    """
    method = plan_of(registration)
    log_L = detector.log_factor(
        seen.masses.unsupported, seen.masses.supported, seen.masses.noise, by=seen.by, bets=bets_of(method)
    )
    start = float(seen.slots.sum()) if method.guarantee == "run length" else detector.given(round)
    return detector.step(log_M, log_L, start), log_L


def evidence(registration: Registration, log_M: Floats, round: int) -> Floats:
    """Return the log evidence after a round, of every group with the log of its share; the alarm is raised when it
    reaches `log_line`.

    Theory: (xviii) Monitor per group.
    """
    method, groups = plan_of(registration), registration.groups
    kept = 0.0 if method.guarantee == "run length" else detector.kept(round)
    found = detector.log_evidence(log_M, bets_of(method).p, kept)
    return found if groups is None else found + np.log(groups.shares)


class Watch:
    """The detector's state: a fold over closed rounds, with a detector for every group. The first alarm ends it.

    `level` is the evidence of every group, and without groups the only one.
    """

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.method = plan_of(registration)
        self.line = log_line(self.method)
        self.log_M = detector.nothing(self.method.bets.count)
        self.factors: list[Floats] = []  # per round: of every group and bet
        self.bad: list[Floats] = []  # per round: unsupported and accepted mass of the mixture, noised, of every group
        self.level = np.zeros(1)
        self.rounds: list[WatchedRound] = []
        self.alarm: Alarm | None = None
        self.records = 0

    @property
    def status(self) -> WatchStatus:
        if self.alarm is not None:
            return "ALARM"
        return "STILL SUPPORTED" if self.rounds else "NOT MONITORED YET"

    def close(self, round: int, arrived: Sequence[tuple[int, Release]]) -> None:
        """Fold a closed round: the releases that arrived, each with its site's index. Without any, nothing changes."""
        if not arrived:
            return
        sites, shape = len(self.registration.sites), self.registration.mechanism.shape
        slots, sums = [0] * sites, np.zeros((sites, *shape), dtype=np.int64)
        for site, release in arrived:
            slots[site], sums[site] = release.slots, np.reshape((*release.first, *release.second), shape)
        self.records += sum(slots)
        self._fold(round_sample(self.registration, slots, sums))
        names, closest = self.registration.block_names, self.closest
        row = WatchedRound(
            round=round, records=self.records, log_evidence=float(self.level[closest]),
            risk_estimate=_risk(self.bad[-1:], closest), group=names[closest] if names else None,
        )  # fmt: skip
        self.rounds.append(row)
        if row.log_evidence >= self.line:
            factors = np.stack(self.factors)[:, closest]
            since = self.rounds[detector.likely_start(factors, bets_of(self.method).p)].round
            rung = tuple(name for name, level in zip(names, self.level, strict=False) if level >= self.line)
            self.alarm = Alarm(round=round, records=self.records, likely_since=since, groups=rung or None)

    def _fold(self, seen: RoundSample) -> None:
        number = len(self.rounds) + 1
        self.log_M, factor = fold(self.registration, self.log_M, seen, number)
        self.factors.append(np.atleast_2d(factor))
        bad, accepted = (each @ seen.by.q for each in (seen.masses.unsupported, seen.masses.accepted))
        self.bad.append(np.atleast_2d(np.stack([bad, accepted], axis=-1)))
        margin = 1e-9 + 1e-14 * self.records  # for floating point
        self.level = np.atleast_1d(down(evidence(self.registration, self.log_M, number) - margin))

    @property
    def closest(self) -> int:
        """The group that is closest to its line, or furthest above it; 0 without groups."""
        return int(np.argmax(self.level))

    @property
    def groups(self) -> tuple[WatchedGroup, ...] | None:
        """Where every group stands, where groups are watched."""
        claims, values = self.registration.groups, self.registration.row_values
        if claims is None:
            return None
        return tuple(
            WatchedGroup(
                name=name, threshold=values[i], share=claims.shares[i],
                log_evidence=float(self.level[i]) if self.rounds else None, recent_risk_estimate=self.recent_risk(i),
            )
            for i, name in enumerate(claims.names)
        )  # fmt: skip

    def recent_risk(self, group: int) -> float | None:
        """Estimate a group's risk in the last few rounds from their noised masses; it bounds nothing."""
        return _risk(self.bad[-RECENT:], group)


def _risk(rounds: Sequence[Floats], group: int) -> float | None:
    bad, accepted = (math.fsum(each[group, i] for each in rounds) for i in range(2))
    return None if accepted < 1 else round(min(1.0, max(0.0, bad / accepted)), 4)
