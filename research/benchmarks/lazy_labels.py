"""Labels on demand where every certificate is false: what `research.lazy_labels` counts, as a page.

Writes docs/results/lazy-labels.md. Run: python -m research.benchmarks.lazy_labels [TRIALS [JOBS]]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedsrc.maths.binomial import clopper_pearson
from research.benchmarks.sealed_validity import ALPHA, TRIALS
from research.lazy_labels import ERROR, LABELS, LEFT_OUT, PARTS, Found, kinds, shares
from research.pages import markdown, publish


def rows(found: Sequence[Found]) -> list[list[str]]:
    intervals = [clopper_pearson(false, played) for _, false, played in found]
    return [
        [name, f"{false:,} of {played:,}", f"{false / played:.4f}", f"[{low:.4f}, {high:.4f}]"]
        for (name, false, played), (low, high) in zip(found, intervals, strict=True)
    ]


def main() -> None:
    trials, jobs = (int(sys.argv[i]) if len(sys.argv) > i else usual for i, usual in ((1, TRIALS), (2, 1)))
    lazy, others, broken = (shares(part, trials, jobs) for part in PARTS)
    cells = [f"{false / played:.4f}" for _, false, played in lazy]
    grid = [[kind, *cells[i * len(LABELS) : (i + 1) * len(LABELS)]] for i, kind in enumerate(kinds())]
    head = ["setting", "false certificates", "share", "95% interval"]
    publish(
        "lazy-labels.md",
        [
            "# Labels on demand where every certificate is false",
            "Thresholds are exactly at their target, by the true losses; what has no label when its round is released"
            f" counts as unsupported. At most {ALPHA} of the trials may claim the target. Each figure is of"
            f" {trials:,} trials. Made by `python -m research.benchmarks.lazy_labels`.",
            "## What becomes of labels",
            "Four rounds of 100 units. *Missing*: three in ten, by chance. *Late*: none, three or seven in ten, by the"
            " round. *Changed*: one in ten supported answers ends as unsupported. *Stopped*: nobody labels a round"
            " while the labels so far look bad. *Withheld at will*: by somebody who has seen all units and wants the"
            " certificate.",
            markdown(["certificate", *LABELS], grid),
            "## Rounds without an answer, and label errors",
            "Where rounds are given up there are twenty of 20 units, and each goes whose labels look worse than the"
            f" target. Two looks have errors of {ERROR:g} each, both ways.",
            markdown(head, rows(others)),
            "## Rules that leave a condition out",
            f"Without noise, twenty rounds. Where slots are left, the labels of {LEFT_OUT[0]:g} of the supported and"
            f" {LEFT_OUT[1]:g} of the unsupported answers are missing.",
            markdown(head, rows(broken)),
        ],
    )


if __name__ == "__main__":
    main()
