"""The rows of the paper's Table contrast beside ours: acceptance by epsilon, abstention, and the worst violations."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from fedsrc.audit.page import markdown
from research.pages import words
from research.studies.catalogue import contrast_rows

CELL, EPSILONS = "C1", (math.inf, 4.0, 1.0)
ABSTAINS = "abstains"


def contrast(table: pl.DataFrame) -> str:
    """Return the table; a method for exact counts is named as it is fed with noised ones."""
    pairs = [f"{side}: {words(epsilon)}" for epsilon in EPSILONS for side in ("paper", "here")]
    head = ["certificate", "here", *pairs, "zero at 4, paper", "here", "worst violations, paper", "here"]
    body = [_line(each, table.filter(population=CELL)) for each in contrast_rows()]
    title = (
        "Acceptance at each epsilon, share of trials without a certificate at epsilon 4, and the most violations of 200"
        " at any of the three:"
    )
    return "\n\n".join([title, markdown(head, body)])


def _line(each: dict[str, Any], table: pl.DataFrame) -> list[str]:
    found = [_row(table, each["exact" if math.isinf(epsilon) else "noised"], epsilon) for epsilon in EPSILONS]
    acceptances = [
        cell
        for epsilon, row in zip(EPSILONS, found, strict=True)
        for cell in (_share(each["acceptance"].get(f"{epsilon:g}")), _share(row["acceptance"]))
    ]
    zero, worst = f"{found[1]['zero_certificate_rate']:.3f}", max(row["violations"] for row in found)
    names = " / ".join(dict.fromkeys((each["exact"], each["noised"])))
    return [each["name"], names, *acceptances, f"{each['zero']:.3f}", zero, str(each["violations"]), str(worst)]


def _row(table: pl.DataFrame, method: str, epsilon: float) -> dict[str, Any]:
    return table.filter(method=method, epsilon=epsilon).row(0, named=True)


def _share(value: float | None) -> str:
    return ABSTAINS if value is None else f"{value:.3f}"
