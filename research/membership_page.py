"""The membership audit's page: which releases are audited, what is kept of them, and what it says.

`research.benchmarks.membership` makes the releases; `research.membership` attacks them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from fedsrc.maths.arrays import Bools, Floats
from fedsrc.planning.register import Choices, Preset, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.records.units import Units
from research import membership
from research.membership import Audit, Claim, Worlds
from research.pages import FIGURES, markdown

SLOTS, THRESHOLDS, DELTA, FAILURE = 200, 20, 1e-6, 1e-6
REGISTERED, VARIANCE_HALVED, SCALE_HALVED = 1.0, math.sqrt(0.5), 0.5
NOISE = {REGISTERED: "as registered", VARIANCE_HALVED: "variance halved", SCALE_HALVED: "scale halved"}
SEALED, GRADES = (0.2, 0.4, 0.6, 0.8), 4
Kind = Preset | Literal["sealed", "moments", "levels"]
VERDICT = {(): "within the claim", ("rho",): "rho refuted", ("epsilon",): "epsilon refuted"}
RECORDS = FIGURES / "membership.parquet"
SETTING = {
    "preset": pl.String(), "epsilon": pl.Float64(), "delta": pl.Float64(), "rho": pl.Float64(), "noise": pl.String(),
    "mu": pl.Float64(),
}  # fmt: skip
SCHEMA = {**SETTING, "member": pl.Boolean(), "evidence": pl.Float64(), "releases": pl.Int32()}


@dataclass(frozen=True)
class Row:
    """One audit: a preset, a sealed certificate, or second moments or levels of graded losses, at an epsilon; its noise
    scale times a factor; and so many releases."""

    preset: Kind
    epsilon: float
    factor: float
    releases: int

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


class Setting(NamedTuple):
    """A row as the records name it: its claim, its noise, and how many scales of that noise the worlds are apart."""

    preset: str
    epsilon: float
    delta: float
    rho: float
    noise: str
    mu: float

    @property
    def called(self) -> str:
        """As tables name it: histograms at all thresholds are what was released before plans were the default."""
        return "old default" if self.preset == "default" else self.preset

    @property
    def claim(self) -> Claim:
        return Claim(self.epsilon, self.delta, self.rho)

    @property
    def registered(self) -> bool:
        return self.noise == NOISE[REGISTERED]

    @property
    def halved(self) -> bool:
        """Whether it is the row with enough releases to see that epsilon itself is wrong."""
        return (self.preset, self.epsilon, self.noise) == (HALVED.preset, HALVED.epsilon, NOISE[HALVED.factor])


@dataclass(frozen=True)
class Outcome:
    """Whether real releases stayed within the claim, and whether broken ones were noticed."""

    within: bool
    noticed: bool


Result = tuple[Setting, Audit]


def batch(registration: Registration) -> Worlds:
    """The worst unit of the registration in the last slot; the other slots are spread over scores, a third bad."""
    count = SLOTS - 1
    score = (np.arange(count) + 0.5) / count
    loss = (np.arange(count) % 3 == 0).astype(np.float64)
    others = Units(np.arange(count + 1, dtype=np.int64), score, loss, None)
    return membership.worlds(registration, counted(registration, others))


def setting_of(row: Row) -> Setting:
    """What the records say of a row."""
    claim = membership.claim_of(row.registration)
    mu = batch(row.registration).mu / row.factor
    return Setting(row.preset, claim.epsilon, claim.delta, claim.rho, NOISE[row.factor], mu)


def kept(setting: Setting, seen: Floats, coins: Bools) -> pl.DataFrame:
    """Count releases by whether the unit was in them and by their evidence, which says all that any attack sees."""
    facts = [pl.lit(value, SETTING[name]).alias(name) for name, value in setting._asdict().items()]
    each = pl.DataFrame({"member": coins, "evidence": membership.rounded(seen)})
    counts = each.group_by("member", "evidence").agg(releases=pl.len()).sort("member", "evidence")
    return counts.with_columns(facts).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def audited(frame: pl.DataFrame) -> Iterator[Result]:
    """Every setting of the records, with what all attacks find in its releases."""
    for facts, part in frame.group_by(*SETTING, maintain_order=True):
        seen, coins = (part[name].to_numpy().repeat(part["releases"].to_numpy()) for name in ("evidence", "member"))
        yield Setting(*facts), membership.audit(seen, coins, DELTA, FAILURE)


def shown(setting: Setting, found: Audit) -> list[str]:
    """One line of the table."""
    return [
        setting.called, f"{setting.epsilon:g}", f"{setting.delta:.0e}", setting.noise,
        f"{found.for_epsilon.releases:,}",
        f"{found.bounds.epsilon:.2f}", f"{membership.epsilon_gaussian(setting.mu, setting.delta):.2f}",
        f"{found.bounds.rho:.4f}", f"{setting.rho:.4f}",
        VERDICT.get(found.refuted(setting.claim), "both refuted"),
    ]  # fmt: skip


def guessed(setting: Setting, found: Audit) -> list[str]:
    """How the attacks behind the two bounds did."""
    both = [
        f"{each.made:,}, {each.right / each.made:.1%} right" if each.made else "none"
        for each in (found.for_epsilon, found.for_rho)
    ]
    allowed = 1 / (1 + math.exp(-setting.epsilon))
    return [setting.called, f"{setting.epsilon:g}", setting.noise, both[0], f"{allowed:.1%}", both[1]]


def outcome(found: Sequence[Result]) -> Outcome:
    """Whether registered noise stayed within its claims, and whether too little noise was noticed wherever it was."""
    refuted = {setting: each.refuted(setting.claim) for setting, each in found}
    within = not any(each for setting, each in refuted.items() if setting.registered)
    noticed = all(each for setting, each in refuted.items() if not setting.registered)
    return Outcome(within, noticed and all("epsilon" in each for setting, each in refuted.items() if setting.halved))


def tables(found: Sequence[Result]) -> tuple[str, str]:
    """The bounds, and the guesses behind them."""
    return markdown(HEADER, starmap(shown, found)), markdown(GUESSES_HEADER, starmap(guessed, found))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts from the counts of releases."""
    found = list(audited(frame))
    first, second = tables(found)
    real = sum(each.for_epsilon.releases for setting, each in found if setting.registered)
    return [head(outcome(found), real), first, READING, second, LIMITS]


HEADER = (
    "preset", "claimed epsilon", "delta", "noise", "releases", "epsilon at least", "epsilon of this noise",
    "rho at least", "claimed rho", "verdict",
)  # fmt: skip
GUESSES_HEADER = (
    "preset", "claimed epsilon", "noise", "best for epsilon: guesses", "right at most, by the claim",
    "best for rho: guesses",
)  # fmt: skip


def head(result: Outcome, releases: int) -> str:
    """What the page shows, from what was found."""
    kept = "stayed within" if result.within else "DID NOT STAY within"
    noticed = "refutes the claim" if result.noticed else "DOES NOT always refute the claim"
    return f"""\
# Membership audit: what real releases give away about one unit

{releases:,} real releases were attacked by someone who knows the mechanism and every record but one: the attack
{kept} the claimed privacy loss. Where noise was deliberately halved, the same attack {noticed}.
An audit bounds the privacy loss from below only: it can refute a claim, not prove it; the proof is in
[theory.md](../theory.md). Made by

    OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.membership

A fair coin per release decides whether one unit, the one that changes a release most, is among the {SLOTS} slots; its
slot stays. The attacker sees the release and says "in", "out" or nothing. Noise `as registered` is what
`fedsrc.site.release.make_release` draws, from the operating system's entropy; the other rows encode the same records
and draw from the same sampler at a smaller scale. There are {THRESHOLDS} thresholds, {len(SEALED)} for sealed
releases; second moments and levels are those of losses in quarters. Epsilon of the old default (histograms) and of the
paper's preset is for zero-out, of the others for replacement. `research/results/membership.parquet` keeps, for each
row, how many releases with the unit and without it had which evidence (`research.membership.evidence`), rounded down to
sixteenths, which no attack here tells apart."""


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
