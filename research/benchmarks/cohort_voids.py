"""Cohorts where every certificate is false, and a server that makes rounds void by what they hold, as a page.

Writes docs/results/cohort-voids.md. Run: python -m research.benchmarks.cohort_voids [TRIALS [JOBS]]
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from fedsrc.maths.binomial import clopper_pearson
from research.benchmarks.sealed_validity import ALPHA
from research.cohort_voids import RULES, SOUND, settings, share
from research.pages import markdown, publish

TRIALS = 50_000


def main() -> None:
    trials, jobs = (int(sys.argv[i]) if len(sys.argv) > i else usual for i, usual in ((1, TRIALS), (2, 1)))
    cells = [(index, rule) for index in range(len(settings())) for rule in RULES]
    with ProcessPoolExecutor(jobs) as pool:
        false = list(pool.map(share, *zip(*cells, strict=True), [trials] * len(cells)))
    rows = [false[i : i + len(RULES)] for i in range(0, len(false), len(RULES))]
    worst = max(each for row in rows for each in row[:SOUND])
    publish(
        "cohort-voids.md",
        [
            "# Cohorts: rounds made void by what they hold",
            "Thresholds are exactly at their target. A server, with a member that then stays silent, has seen what a"
            " round's sum would be, noise and all, and says whether the round is void. At most"
            f" {ALPHA} of the trials may claim the target. Shares of {trials:,} trials each, made by"
            " `python -m research.benchmarks.cohort_voids`. Sums have their cohort's noise; sealed certificates look"
            " once, at the end, with the line for noise that may be less than stated; open ones after every round.",
            "Charged is what a registration with adversarial dropout does. Left out is what it does where dropout is"
            " declared independent of server and members, and they are not what was declared. The fourth column is a"
            " charge that forgets the noise.",
            markdown(
                ["certificate and cohort", *RULES],
                [[each.name, *(f"{n / trials:.4f}" for n in row)] for each, row in zip(settings(), rows, strict=True)],
            ),
            f"The largest share in the first three columns is {worst / trials:.4f}, with a 95% upper limit of"
            f" {clopper_pearson(worst, trials)[1]:.4f}.",
        ],
    )


if __name__ == "__main__":
    main()
