"""Membership audit: a million real releases against an attacker who knows everything but one unit and the noise.

Writes docs/results/membership.md. Run: OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.membership [CORES]

With a part and names of rows it prints what that part of their releases shows, and writes nothing:
python -m research.benchmarks.membership 2 0.1 moments levels
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Literal

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped, unused-ignore]

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.privacy import rho_of_scale
from fedsrc.planning.register import Choices, Preset, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.records.units import Units
from fedsrc.server.recruiter import make_requests
from fedsrc.site.noise import add_discrete_gaussian
from research import membership
from research.membership import Audit, Publish, Worlds
from research.pages import markdown, publish

CORES, CHUNK, BLOCK = 2, 2_500, 100
SLOTS, THRESHOLDS, DELTA, FAILURE = 200, 20, 1e-6, 1e-6
REGISTERED, VARIANCE_HALVED, SCALE_HALVED = 1.0, math.sqrt(0.5), 0.5
NOISE = {REGISTERED: "as registered", VARIANCE_HALVED: "variance halved", SCALE_HALVED: "scale halved"}
SEALED, GRADES = (0.2, 0.4, 0.6, 0.8), 4
Kind = Preset | Literal["sealed", "moments", "levels"]
VERDICT = {(): "within the claim", ("rho",): "rho refuted", ("epsilon",): "epsilon refuted"}


@dataclass(frozen=True)
class Row:
    """One audit: a preset, a sealed certificate, or second moments or levels of graded losses, at an epsilon; its noise
    scale times a factor; and so many releases."""

    preset: Kind
    epsilon: float
    factor: float
    releases: int

    @property
    def called(self) -> str:
        """As tables name it: histograms at all thresholds are what was released before plans were the default."""
        return "old default" if self.preset == "default" else self.preset

    @property
    def registration(self) -> Registration:
        finer = self.preset if self.preset in ("moments", "levels") else None
        choices = Choices(
            0.2,
            self.epsilon,
            preset="paper" if self.preset == "paper" else "default",
            encoding=finer or "histograms",
            loss_grid=GRADES if finer else None,
            delta=DELTA,
            thresholds=THRESHOLDS,
            grid=True,
            exact_thresholds=True,
            adjacency="zero-out" if self.preset in ("default", "paper") else "replacement",
        )
        made = register_grid(choices, ["audited"])
        if self.preset != "sealed":
            return made
        bets = (0.2, 1.0, (0.5,) * len(SEALED))
        return seal(made, Seal(SEALED, (1 / len(SEALED),) * len(SEALED), (bets,)))


HALVED = Row("default", 1.0, SCALE_HALVED, 500_000)  # enough to see that epsilon itself is wrong
ROWS = (
    Row("default", 1.0, REGISTERED, 1_000_000),
    Row("default", 1.0, VARIANCE_HALVED, 100_000),
    HALVED,
    Row("default", 4.0, REGISTERED, 50_000),
    Row("default", 4.0, VARIANCE_HALVED, 50_000),
    Row("default", 4.0, SCALE_HALVED, 50_000),
    Row("paper", 1.0, REGISTERED, 50_000),
    Row("paper", 1.0, VARIANCE_HALVED, 150_000),
    Row("paper", 1.0, SCALE_HALVED, 50_000),
    Row("sealed", 1.0, REGISTERED, 200_000),
    Row("sealed", 1.0, VARIANCE_HALVED, 100_000),
    Row("sealed", 1.0, SCALE_HALVED, 50_000),
    Row("moments", 1.0, REGISTERED, 100_000),
    Row("moments", 1.0, VARIANCE_HALVED, 100_000),
    Row("moments", 1.0, SCALE_HALVED, 50_000),
    Row("levels", 1.0, REGISTERED, 100_000),
    Row("levels", 1.0, VARIANCE_HALVED, 100_000),
    Row("levels", 1.0, SCALE_HALVED, 50_000),
)


@dataclass(frozen=True)
class Outcome:
    """Whether real releases stayed within the claim, and whether broken ones were noticed."""

    within: bool
    noticed: bool


Result = tuple[Row, Audit]


def batch(registration: Registration) -> Worlds:
    """The worst unit of the registration in the last slot; the other slots are spread over scores, a third bad."""
    count = SLOTS - 1
    score = (np.arange(count) + 0.5) / count
    loss = (np.arange(count) % 3 == 0).astype(np.float64)
    others = Units(np.arange(count + 1, dtype=np.int64), score, loss, None)
    return membership.worlds(registration, counted(registration, others))


def wrong_noise(registration: Registration, factor: float, histograms: Ints) -> Ints:
    """A broken site: the registered release with its noise scale multiplied, declared to OpenDP as what it is."""
    rule = registration.mechanism
    scale = rule.scale * factor
    rho = rho_of_scale(rule.sensitivity**2, scale)
    blocks = np.split(membership.exact(registration, histograms), range(BLOCK, len(histograms), BLOCK))
    noised = [add_discrete_gaussian(each, scale, sensitivity=rule.sensitivity, rho=rho) for each in blocks if len(each)]
    return np.concatenate(noised)


def site(row: Row) -> Publish:
    """What releases: the real path where noise is as registered."""
    registration = row.registration
    if row.factor == REGISTERED:
        request = make_requests(registration, [SLOTS], number=0, round=1)[0]
        return partial(membership.real_releases, registration, request)
    return partial(wrong_noise, registration, row.factor)


def chunk(row: Row, count: int) -> tuple[Floats, Bools]:
    """Evidence from some releases, and the coins that decided whether the unit was in them."""
    coins = membership.fair_coins(count)
    return membership.play(batch(row.registration), site(row), coins), coins


def audit(row: Row, cores: int) -> Audit:
    """All releases of a row, a chunk at a time in each process."""
    sizes = [CHUNK] * (row.releases // CHUNK)
    parts = list[tuple[Floats, Bools]]()
    for part in Parallel(n_jobs=cores, return_as="generator_unordered")(delayed(chunk)(row, n) for n in sizes):
        parts.append(part)
        done = f"{row.preset}, epsilon {row.epsilon:g}, {NOISE[row.factor]}: {len(parts) * CHUNK:,} of {row.releases:,}"
        print(f"\r{done}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    seen, coins = (np.concatenate(each) for each in zip(*parts, strict=True))
    return membership.audit(seen, coins, DELTA, FAILURE)


def shown(row: Row, found: Audit) -> list[str]:
    """One line of the table."""
    claim = membership.claim_of(row.registration)
    mu = batch(row.registration).mu / row.factor
    return [
        row.called, f"{claim.epsilon:g}", f"{claim.delta:.0e}", NOISE[row.factor], f"{row.releases:,}",
        f"{found.bounds.epsilon:.2f}", f"{membership.epsilon_gaussian(mu, claim.delta):.2f}",
        f"{found.bounds.rho:.4f}", f"{claim.rho:.4f}",
        VERDICT.get(found.refuted(claim), "both refuted"),
    ]  # fmt: skip


def guessed(row: Row, found: Audit) -> list[str]:
    """How the attacks behind the two bounds did."""
    both = [
        f"{each.made:,}, {each.right / each.made:.1%} right" if each.made else "none"
        for each in (found.for_epsilon, found.for_rho)
    ]
    allowed = 1 / (1 + math.exp(-row.epsilon))
    return [row.called, f"{row.epsilon:g}", NOISE[row.factor], both[0], f"{allowed:.1%}", both[1]]


def outcome(found: Sequence[Result]) -> Outcome:
    """Whether registered noise stayed within its claims, and whether too little noise was noticed wherever it was."""
    refuted = {row: each.refuted(membership.claim_of(row.registration)) for row, each in found}
    within = not any(refuted[row] for row in refuted if row.factor == REGISTERED)
    noticed = all(refuted[row] for row in refuted if row.factor != REGISTERED) and "epsilon" in refuted[HALVED]
    return Outcome(within, noticed)


def main() -> None:
    words = sys.argv[1:]
    cores, part = int(words[0]) if words else CORES, float(words[1]) if len(words) > 1 else 1.0
    rows = [row for row in ROWS if not words[2:] or row.preset in words[2:]]
    rows = [replace(row, releases=int(row.releases * part)) for row in rows]
    found = [(row, audit(row, cores)) for row in rows]
    first, second = (markdown(HEADER, starmap(shown, found)), markdown(GUESSES_HEADER, starmap(guessed, found)))
    if len(words) > 1:
        print(first, second, sep="\n\n")
        return
    result = outcome(found)
    publish("membership.md", [head(result), first, READING, second, LIMITS])
    if not (result.within and result.noticed):
        raise SystemExit("the audit did not come out as the claims say")


HEADER = (
    "preset", "claimed epsilon", "delta", "noise", "releases", "epsilon at least", "epsilon of this noise",
    "rho at least", "claimed rho", "verdict",
)  # fmt: skip
GUESSES_HEADER = (
    "preset", "claimed epsilon", "noise", "best for epsilon: guesses", "right at most, by the claim",
    "best for rho: guesses",
)  # fmt: skip


def head(result: Outcome) -> str:
    """What the page shows, from what was found."""
    kept = "stayed within" if result.within else "DID NOT STAY within"
    noticed = "refutes the claim" if result.noticed else "DOES NOT always refute the claim"
    return f"""\
# Membership audit: what real releases give away about one unit

A million real releases were attacked by someone who knows the mechanism and every record but one: the attack
{kept} the claimed privacy loss. Where noise was deliberately halved, the same attack {noticed}.
An audit bounds the privacy loss from below only: it can refute a claim, not prove it; the proof is in
[theory.md](../theory.md). Made by

    OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.membership

A fair coin per release decides whether one unit, the one that changes a release most, is among the {SLOTS} slots; its
slot stays. The attacker sees the release and says "in", "out" or nothing. Noise `as registered` is what
`fedsrc.site.release.make_release` draws, from the operating system's entropy; the other rows encode the same records
and draw from the same sampler at a smaller scale. There are {THRESHOLDS} thresholds, {len(SEALED)} for sealed
releases; second moments and levels are those of losses in quarters. Epsilon of the old default (histograms) and of the
paper's preset is for zero-out, of the others for replacement."""


READING = f"""\
*Epsilon at least* and *rho at least* are lower confidence bounds: both hold together in a row with probability
1 - {FAILURE:g}. A bound above the claim refutes it. *Epsilon of this noise* is what the noise in that row costs by the
formula for continuous Gaussians (an approximation on a lattice): no audit could show more. It is below the claim for
registered noise because the claim is made through zero-concentrated privacy, which costs something, and more by the
paper's conversion.

The two bounds ask different questions. Epsilon at delta = {DELTA:g} is about rare releases, so hundreds of thousands
are needed to see that it is wrong, and a fault of the size of a halved variance stays out of sight. Rho, the quantity
that a site's ledger adds up, is about typical releases: too little noise shows there with far fewer.

The guesses behind the bounds, out of all releases of the row:"""

LIMITS = """\
The share of right guesses is held against e^epsilon / (1 + e^epsilon), the most that the claim allows (apart from
delta) for an attacker who may keep silent; the bounds take the uncertainty of that share into account.

What this does not show: that no other unit, batch or attack does better. The attack is the best one on Gaussian noise
of the registered shape, by the lemma of Neyman and Pearson (`research.membership`); noise broken in another way
could hide from it, and the shape of the noise is tested on its own. Nor does it look at anything but the released
integers: files, timing and keys are outside it."""


if __name__ == "__main__":
    main()
