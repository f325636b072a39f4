"""Labels on demand at the boundary: what `research.lazy_labels` counts, as a page.

Writes docs/results/lazy-labels.md and its counts, research/results/lazy_labels.parquet.
Run: python -m research.benchmarks.lazy_labels
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import polars as pl

from research import counted
from research.benchmarks.sealed_validity import ALPHA, TRIALS
from research.lazy_labels import ERROR, LABELS, LEFT_OUT, PARTS, share
from research.pages import FIGURES, markdown, publish

RECORDS = FIGURES / "lazy_labels.parquet"


def grid(frame: pl.DataFrame) -> Iterator[list[str]]:
    """One row for each certificate, with a share for everything that may become of its labels."""
    shares = {each.setting: f"{each.false / each.trials:.4f}" for each in counted.counts(frame, "lazily")}
    for kind in dict.fromkeys(setting.rpartition(": ")[0] for setting in shares):
        yield [kind, *(shares[f"{kind}: {what}"] for what in LABELS)]


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the counts of all settings."""
    first = markdown(["certificate", *LABELS], grid(frame))
    return [HEAD, first, ROUNDS, counted.table(frame, "rounds"), CONTROLS, counted.table(frame, "controls")]


def main() -> None:
    cells = [(part, index, TRIALS) for part, made in PARTS.items() for index in range(len(made()))]
    with ProcessPoolExecutor() as pool:
        frame = counted.frame(pool.map(share, *zip(*cells, strict=True)))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("lazy-labels.md", page(frame))


HEAD = f"""\
# Labels on demand at the boundary

Made by

    python -m research.benchmarks.lazy_labels

The counts are in `research/results/lazy_labels.parquet`.

Thresholds are exactly at their target, by the true losses; what has no label when its round is released counts as
unsupported. At most {ALPHA} of the trials may claim the target. Each figure is of {TRIALS:,} trials; epsilon is for
replacement.

## What becomes of labels

Four rounds of 100 units. *Missing*: three in ten, by chance. *Late*: none, three or seven in ten, by the round.
*Changed*: one in ten supported answers ends as unsupported. *Stopped*: nobody labels a round while the labels so far
look bad. *Withheld at will*: by somebody who has seen all units and wants the certificate."""

ROUNDS = f"""\
## Rounds without an answer, and label errors

Where rounds are given up there are twenty of 20 units, and each goes whose labels look worse than the target. Two looks
have errors of {ERROR:g} each, both ways."""

CONTROLS = f"""\
## Rules that leave a condition out

Without noise, twenty rounds. Where slots are left, the labels of {LEFT_OUT[0]:g} of the supported and {LEFT_OUT[1]:g}
of the unsupported answers are missing."""


if __name__ == "__main__":
    main()
