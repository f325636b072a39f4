"""Membership audit: a million real releases against an attacker who knows everything but one unit and the noise.

Writes docs/results/membership.md and, counted, research/results/membership.parquet.
Run: OPENBLAS_NUM_THREADS=1 python -m research.benchmarks.membership [CORES]

With a part and names of rows it prints what that part of their releases shows, and writes nothing:
python -m research.benchmarks.membership 2 0.1 moments levels
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
from joblib import Parallel, delayed  # type: ignore[import-untyped, unused-ignore]

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.privacy import rho_of_scale
from fedsrc.protocol.registration import Registration
from fedsrc.server.recruiter import make_requests
from fedsrc.site.noise import add_discrete_gaussian
from research import membership, membership_page
from research.membership import Publish
from research.membership_page import NOISE, RECORDS, REGISTERED, ROWS, SLOTS, Row, batch
from research.pages import publish

CORES, CHUNK, BLOCK = 2, 2_500, 100


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


def released(row: Row, cores: int) -> pl.DataFrame:
    """Make all releases of a row, a chunk at a time in each process, and count them."""
    sizes = [CHUNK] * (row.releases // CHUNK)
    parts = list[tuple[Floats, Bools]]()
    for part in Parallel(n_jobs=cores, return_as="generator_unordered")(delayed(chunk)(row, n) for n in sizes):
        parts.append(part)
        done = f"{row.preset}, epsilon {row.epsilon:g}, {NOISE[row.factor]}: {len(parts) * CHUNK:,} of {row.releases:,}"
        print(f"\r{done}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    seen, coins = (np.concatenate(each) for each in zip(*parts, strict=True))
    return membership_page.kept(membership_page.setting_of(row), seen, coins)


def main() -> None:
    words = sys.argv[1:]
    cores, part = int(words[0]) if words else CORES, float(words[1]) if len(words) > 1 else 1.0
    rows = [row for row in ROWS if not words[2:] or row.preset in words[2:]]
    rows = [replace(row, releases=int(row.releases * part)) for row in rows]
    frame = pl.concat(released(row, cores) for row in rows)
    if len(words) > 1:
        print(*membership_page.tables(list(membership_page.audited(frame))), sep="\n\n")
        return
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("membership.md", membership_page.page(frame))
    result = membership_page.outcome(list(membership_page.audited(frame)))
    if not (result.within and result.noticed):
        raise SystemExit("the audit did not come out as the claims say")


if __name__ == "__main__":
    main()
