"""Cohorts at the boundary, and a server that makes rounds void by what they hold, as a page.

Writes docs/results/cohort-voids.md and its counts, research/results/cohort_voids.parquet.
Run: python -m research.benchmarks.cohort_voids
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import polars as pl

from fedsrc.maths.binomial import clopper_pearson
from research import counted
from research.benchmarks.sealed_validity import ALPHA
from research.cohort_voids import RULES, SOUND, settings, share
from research.counted import Count
from research.pages import FIGURES, markdown, publish

TRIALS = 50_000
RECORDS = FIGURES / "cohort_voids.parquet"


def count(index: int, rule: str) -> Count:
    """Count false certificates of a setting under a rule, which the records call a part."""
    return Count(rule, settings()[index].name, share(index, rule, TRIALS), TRIALS)


def rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """One row for each setting, with its share under every rule."""
    for (name,), part in frame.group_by("setting", maintain_order=True):
        found = {each.part: f"{each.false / each.trials:.4f}" for each in map(Count._make, part.iter_rows())}
        yield [str(name), *(found[rule] for rule in RULES)]


def worst(frame: pl.DataFrame) -> str:
    """Say how large a share is under the rules that are covered."""
    sound = [each for rule in list(RULES)[:SOUND] for each in counted.counts(frame, rule)]
    most = max(sound, key=lambda each: each.false / each.trials)
    return f"""\
The largest share in the first three columns is {most.false / most.trials:.4f}, with a 95% upper limit of
{clopper_pearson(most.false, most.trials)[1]:.4f}."""


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the counts of all settings under all rules."""
    return [HEAD, markdown(["certificate and cohort", *RULES], rows(frame)), worst(frame)]


def main() -> None:
    cells = [(index, rule) for index in range(len(settings())) for rule in RULES]
    with ProcessPoolExecutor() as pool:
        frame = counted.frame(pool.map(count, *zip(*cells, strict=True)))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("cohort-voids.md", page(frame))


HEAD = f"""\
# Cohorts: rounds made void by what they hold

Made by

    python -m research.benchmarks.cohort_voids

The counts are in `research/results/cohort_voids.parquet`.

Thresholds are exactly at their target. A server, with a member that then stays silent, has seen what a round's sum
would be, noise and all, and says whether the round is void. At most {ALPHA} of the trials may claim the target. Shares
of {TRIALS:,} trials each; epsilon is for replacement. Sums have their cohort's noise; sealed certificates look once, at
the end, with the line for noise that may be less than stated; open ones after every round.

Charged is what a registration with adversarial dropout does. Left out is what it does where dropout is declared
independent of server and members, and they are not what was declared. The fourth column is a charge that forgets the
noise."""


if __name__ == "__main__":
    main()
