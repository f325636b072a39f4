"""Cohort privacy: 200,000 real opened sums against the server and t members, who know everything but one unit.

Writes docs/results/cohort-privacy.md. Run: OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.cohort_privacy [CORES]

With a part it prints what that part of the sums shows, and writes nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped, unused-ignore]

from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.privacy import epsilon_tight
from research import membership
from research.membership import Audit
from research.opened_sums import COLLUDING, DELTA, EPSILON, HONEST, MEMBERS, SLOTS, chunk, registration, variance
from research.pages import markdown, publish

CORES, CHUNK, FAILURE = 2, 1_000, 1e-6
FAR = 4.9  # deviations that a right variance passes with probability 1e-6


@dataclass(frozen=True)
class Row:
    """One audit: for how many colluding members the noise was made, where two collude."""

    name: str
    colluding: int
    sums: int


RIGHT = Row("as registered, for K - t", COLLUDING, 200_000)
WRONG = Row("shared for K", 0, 20_000)


@dataclass(frozen=True)
class Found:
    """What an audit shows: bounds on the privacy loss, and the variance of the attacker's statistic, which is 1."""

    audit: Audit
    variance: float
    deviations: float


def audit(row: Row, cores: int) -> Found:
    """Make all sums of a row, a chunk at a time in each process, and attack them."""
    jobs = [delayed(chunk)(row.colluding, first, min(CHUNK, row.sums - first)) for first in range(0, row.sums, CHUNK)]
    parts = list[tuple[Floats, Bools]]()
    for part in Parallel(n_jobs=cores, return_as="generator_unordered")(jobs):
        parts.append(part)
        done = sum(len(coins) for _, coins in parts)
        print(f"\r{row.name}: {done:,} of {row.sums:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    seen, coins = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Found(membership.audit(seen, coins, DELTA, FAILURE), *variance(seen, coins))


def shown(row: Row, found: Found) -> list[str]:
    """One line of the table."""
    claim, bounds = membership.claim_of(registration()), found.audit.bounds
    verdict = " and ".join(found.audit.refuted(claim)) or "none"
    return [
        row.name, f"{row.sums:,}", f"{bounds.epsilon:.2f}", f"{bounds.rho:.4f}", f"{claim.rho:.4f}",
        f"{found.variance:.4f}", f"{found.deviations:+.1f}", verdict,
    ]  # fmt: skip


def main() -> None:
    cores, part = int(sys.argv[1]) if len(sys.argv) > 1 else CORES, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    rows = [replace(row, sums=int(row.sums * part)) for row in (RIGHT, WRONG)]
    found = [audit(row, cores) for row in rows]
    table = markdown(HEADER, [shown(row, each) for row, each in zip(rows, found, strict=True)])
    if part != 1.0:
        print(table)
        return
    right, wrong = found
    within = not right.audit.refuted(membership.claim_of(registration())) and abs(right.deviations) < FAR
    noticed = wrong.deviations < -FAR
    publish("cohort-privacy.md", [head(within, noticed), table, reading()])
    if not (within and noticed):
        raise SystemExit("the audit did not come out as the claims say")


HEADER = (
    "noise", "opened sums", "epsilon at least", "rho at least", "claimed rho", "variance of the statistic",
    "deviations from 1", "refuted by the bounds",
)  # fmt: skip


def head(within: bool, noticed: bool) -> str:
    """What the page shows, from what was found."""
    kept = "stayed within" if within else "DID NOT STAY within"
    seen = "sees it at once" if noticed else "DOES NOT SEE IT"
    return f"""\
# Cohort privacy: what opened sums give away about one unit

A cohort of {len(MEMBERS)} sites, of which {COLLUDING} may collude, was attacked by its server and those {COLLUDING}
together: they know their own noise and masks, the other site's records and every record of the victim but one. Over
{RIGHT.sums:,} real sums the attack {kept} the claimed epsilon of {EPSILON:g}. Where noise was wrongly shared among all
{len(MEMBERS)} members, instead of those who do not collude, the same attacker {seen}.
An audit bounds the privacy loss from below only; the proof is in [theory.md](../theory.md). Made by

    OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.cohort_privacy

Every sum is of a new request: each member makes a real release (`make_release`, with the operating system's entropy),
masks it with its own key (`mask_release`), and the sum is opened as a server opens it (`open_sum`). A fair coin decides
which of two units that are furthest apart is among the victim's {SLOTS} slots. The attacker takes off what the
colluders sent, before their masks, and all that is known of the records."""


def reading() -> str:
    """What the columns mean, and what is left when everybody else colludes."""
    reg = registration()
    all_others = epsilon_tight(reg.mechanism.rho * HONEST, DELTA)
    return f"""\
*Epsilon at least* and *rho at least* are lower confidence bounds, which hold together in a row with probability
1 - {FAILURE:g}; one above the claim refutes it, as in [the audit of single releases](membership.md). The *statistic* is
the log-likelihood ratio over its deviation under the registered noise, less its mean: its variance is 1 if the noise
that the attacker does not know has the registered scale. *Deviations from 1* are in units of the standard error; beyond
{FAR:g} the registered noise is refuted with a chance of error of 1e-6.

Shared for K, each member adds s / sqrt(K) where s / sqrt(K - t) was registered: with t = {COLLUDING} of
{len(MEMBERS)} the noise that stays unknown has half the variance.

If all other members colluded with the server, the victim would have its own share alone: rho {HONEST}
times as large, epsilon {all_others:.2f} instead of {EPSILON:g}."""


if __name__ == "__main__":
    main()
