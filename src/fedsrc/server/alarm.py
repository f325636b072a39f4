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
from fedsrc.protocol.certificate import Alarm, WatchedRound
from fedsrc.protocol.judgements import Monitor
from fedsrc.protocol.messages import Release
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import down
from fedsrc.server.tally import Masses, masses

RECENT = 5  # rounds that the estimate of the present risk looks back on
WatchStatus = Literal["NOT MONITORED YET", "STILL SUPPORTED", "ALARM"]


@dataclass(frozen=True)
class RoundSample:
    """What a round brings: its releases' masses (..., K), slots per site, and each site's part in the bets."""

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
    """Return a round's sample from the slots that arrived per site and their lattice sums (..., K, 2, p)."""
    seen = masses(registration, sums, 1)
    n = np.asarray(slots, dtype=np.float64)
    declared = registration.weights
    w = n / max(1.0, n.sum()) if declared is None else np.asarray(declared)
    drift = np.asarray([site.drift for site in registration.sites])
    flat = Masses(seen.unsupported[..., 0], seen.supported[..., 0], seen.accepted[..., 0], seen.noise)
    return RoundSample(flat, n, detector.shares(n, w, drift, plan_of(registration).risk))


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
    """Return the log evidence after a round; the alarm is raised when it reaches `log_line`."""
    method = plan_of(registration)
    kept = 0.0 if method.guarantee == "run length" else detector.kept(round)
    return detector.log_evidence(log_M, bets_of(method).p, kept)


class Watch:
    """The detector's state: a fold over closed rounds. The first alarm ends it."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.method = plan_of(registration)
        self.line = log_line(self.method)
        self.log_M = detector.nothing(self.method.bets.count)
        self.factors: list[Floats] = []
        self.bad: list[tuple[float, float]] = []  # per round: unsupported and accepted mass of the mixture, noised
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
        sites = len(self.registration.sites)
        slots, sums = [0] * sites, np.zeros((sites, 2, self.registration.mechanism.basis.p), dtype=np.int64)
        for site, release in arrived:
            slots[site], sums[site] = release.slots, (release.first, release.second)
        seen = round_sample(self.registration, slots, sums)
        number = len(self.rounds) + 1
        self.log_M, factor = fold(self.registration, self.log_M, seen, number)
        self.factors.append(factor)
        self.records += sum(slots)
        self.bad.append(_mixture(seen))
        margin = 1e-9 + 1e-14 * self.records  # for floating point
        level = float(down(evidence(self.registration, self.log_M, number) - margin))
        seen_risk = _risk(self.bad[-1:])
        row = WatchedRound(round=round, records=self.records, log_evidence=level, risk_estimate=seen_risk)
        self.rounds.append(row)
        if level >= self.line:
            since = self.rounds[detector.likely_start(np.stack(self.factors), bets_of(self.method).p)].round
            self.alarm = Alarm(round=round, records=self.records, likely_since=since)

    @property
    def recent_risk(self) -> float | None:
        """Estimate the risk of the last few rounds from their noised masses; it bounds nothing."""
        return _risk(self.bad[-RECENT:])


def _mixture(seen: RoundSample) -> tuple[float, float]:
    """Return the noised unsupported and accepted mass of the deployment mixture in a round."""
    return float(seen.by.q @ seen.masses.unsupported), float(seen.by.q @ seen.masses.accepted)


def _risk(rounds: Sequence[tuple[float, float]]) -> float | None:
    bad, accepted = (math.fsum(each) for each in zip(*rounds, strict=True)) if rounds else (0.0, 0.0)
    return None if accepted < 1 else round(min(1.0, max(0.0, bad / accepted)), 4)
