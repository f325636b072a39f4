"""Held-out answers by threshold, in the studies that hold some out: counts, risk and exact intervals.

python -m research.studies.heldout [TABLES]

With TABLES, the folder of the studies' tables, everything is computed again into research/results/heldout.csv; without,
the page is written from that file. Writes docs/results/heldout.md.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import polars as pl

from fedsrc.audit.heldout import by_threshold
from fedsrc.common.durable import write_whole
from research.pages import FIGURES, markdown, publish
from research.studies.catalogue import study_of

STUDIES = ("halueval", "c1")
TABLE = FIGURES / "heldout.csv"
HEAD = ["threshold", "acceptance, calibrated", "risk, calibrated", "held out: accepted"]
DIGITS = 6


def computed(names: tuple[str, ...], tables: Path) -> pl.DataFrame:
    """Return the rows of these studies, to six decimals."""
    parts = [
        by_threshold(study_of(name), tables)
        .select(pl.lit(name).alias("study"), pl.exclude("setting"))
        .unique(maintain_order=True)
        for name in names
    ]
    return pl.concat(parts).with_columns(pl.col(pl.Float64).round(DIGITS))


def text_of(frame: pl.DataFrame) -> bytes:
    """Return the rows as a CSV file."""
    buffer = io.BytesIO()
    frame.write_csv(buffer)
    return buffer.getvalue()


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts."""
    parts = [
        "# Held-out answers by threshold",
        "What answers that neither chose thresholds nor calibrated say of every threshold of a study. An interval is"
        " the exact (Clopper-Pearson) 95% interval of this threshold's held-out risk, at its own counts; for graded"
        " losses, which are summed as they are, that of Hoeffding and Bentkus, which is wider. Each holds by itself,"
        " not all at once. A certificate is about the law that calibration draws from: an interval here that reaches"
        " above the target contradicts nothing, and neither does it confirm anything. HaluEval's answers come in"
        " pairs, one supported and one not; the intervals count them as independent, as the paper's do, and may be too"
        " wide or too narrow for that.",
    ]
    for (study, population), part in frame.group_by(["study", "population"], maintain_order=True):
        known = study_of(str(study))
        whole = bool((part["heldout_unsupported"] % 1 == 0).all())
        head = [*HEAD, f"held out: {'unsupported' if whole else 'losses'}", "held-out risk", "95% interval"]
        parts += [
            f"## {population}",
            f"Study [{known.name}](studies/{study}.md).",
            markdown(head, [_row(row, 0 if whole else 2) for row in part.iter_rows(named=True)]),
        ]
    made = "Made by `python -m research.studies.heldout TABLES`; the rows are in `research/results/heldout.csv`."
    return [*parts, made]


def _row(row: dict[str, float | int | None], digits: int) -> list[str]:
    low, high = row["heldout_risk_low"], row["heldout_risk_high"]
    risk = row["heldout_risk"]
    return [
        f"{row['threshold']:.4f}", f"{row['acceptance']:.3f}", f"{row['risk']:.3f}", f"{row['heldout_accepted']:,}",
        f"{row['heldout_unsupported']:.{digits}f}", "–" if risk is None else f"{risk:.3f}",
        "–" if low is None or high is None else f"[{low:.3f}, {high:.3f}]",
    ]  # fmt: skip


def main() -> None:
    """Compute, where tables are named, and write the page."""
    if sys.argv[1:]:
        write_whole(TABLE, text_of(computed(STUDIES, Path(sys.argv[1]))))
    publish("heldout.md", page(pl.read_csv(TABLE)))


if __name__ == "__main__":
    main()
