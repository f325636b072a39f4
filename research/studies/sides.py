"""What stands beside what on the page of what can be certified today, and how two sides compare."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import polars as pl

STUDIES = ("today-ragtruth", "today-halueval")
PLANNED = {name: name.replace("today", "planned") for name in STUDIES}  # the same populations, split and sites
AS_PLANNED = {
    "privacy-curve": "planned-curve",
    "scores-halueval": "planned-scores",
    "scores-ragtruth": "planned-scores-ragtruth",
    "scores-controls": "planned-controls",
    "halueval": "planned-hecurve",
    **{
        name: f"planned-{name}"
        for name in (
            "registered",
            "redeep",
            "c1",
            "halueval-surrogate",
            "tasks",
            "heterogeneity",
            "eta",
            "c1-transfer",
            "reuse",
        )
    },
}  # the same populations and sites, under what a plan registers
PAPER, OLD = ("fed-src-c", "paper"), ("betting-ladder", "default")
KEYS = ("population", "target_risk", "epsilon")
Row = dict[str, Any]


class Side(NamedTuple):
    """What stands beside what: a rule on a release under a policy, or a planned case."""

    method: str
    release: str
    policy: str = "first"
    case: str = ""

    def row(self, here: pl.DataFrame, planned: pl.DataFrame) -> Row:
        """Return its row of one combination; without privacy nothing is protected, and development is public."""
        if not self.case:
            rows = here.filter(method=self.method, release=self.release, policy=self.policy)
        elif (rows := planned.filter(case=self.case)).is_empty():
            rows = planned.filter(case="default")
        return rows.row(0, named=True)


SIDES = {
    "paper": Side(*PAPER), "old": Side(*OLD), "few": Side("registered", "default", case="few records"),
    "paper_all": Side(*PAPER, "final"), "old_all": Side(*OLD, "final"),
    "default": Side("registered", "default", case="default"),
    "public": Side("registered", "default", case="public development"),
}  # fmt: skip


def mostly(row: Row, side: str) -> bool:
    """Say whether a side certifies in most trials."""
    return bool(row[f"{side}_fired"] * 2 > row[f"{side}_trials"])


def apart(found: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return the combinations with privacy, and those without."""
    free = [row for row in found if math.isinf(row["epsilon"])]
    return [row for row in found if row not in free], free


class Compared(NamedTuple):
    """Combinations that two sides certify in most trials, and where the first has less or more of something."""

    both: int
    less: int
    more: int


def compared(found: list[Row], sides: tuple[str, str], what: str) -> Compared:
    """Compare the means of two sides where both certify in most trials."""
    both = [row for row in found if all(mostly(row, side) for side in sides)]
    pairs = [[round(row[f"{side}_{what}"], 9) for side in sides] for row in both]  # sums in another order are ties
    return Compared(len(pairs), sum(one < other for one, other in pairs), sum(one > other for one, other in pairs))


def few_beside_old(found: list[Row], labelled: Callable[[Row], int]) -> tuple[Compared, Compared, Compared]:
    """Compare a plan for few records with the old default: records, the same with development records, acceptance."""
    whole = [{**row, "few_records": (row["few_records"] or 0) + labelled(row)} for row in found]
    takes, kept = (compared(found, ("few", "old"), what) for what in ("records", "acceptance"))
    return takes, compared(whole, ("few", "old"), "records"), kept
