"""Where our certificate loses to other methods of a study: said first, and computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from fedsrc.audit.page import markdown
from research.pages import words

OURS = {"baselines": "betting-ladder", "planned-baselines": "registered"}
KEYS = ("case", "release", "epsilon", "adjacency")
FIGURES = ("fired", "acceptance", "records")
NEXT = {
    "baselines": "betting-ladder is the old default. What is the default now, a plan, stands beside the same methods"
    " [on a page of its own](planned-baselines.md).",
    "planned-baselines": "Without privacy an open plan keeps the seven thresholds that are certified soonest. The"
    " mixture of the Dirichlet sites has less risk than the development records that a plan is made on, so there its"
    " thresholds are higher than needed, with privacy too. The others are not planned on development records: the"
    " e-values have one bet, for half the target, whose evidence shrinks where the risk is near the target, and NPRR"
    " bets evenly on all thresholds.",
}
SAME = "nprr-as-registered"  # what nprr is, without privacy and where replacement is registered
Row = dict[str, Any]


def losses(name: str, table: pl.DataFrame) -> str:
    """Return in how many comparisons ours fires less often, accepts less or needs more records, with all of them."""
    ours, keys = OURS[name], [key for key in KEYS if key in table.columns]
    pairs = list(_pairs(ours, table, keys))
    rare, less, more = ([pair for pair in pairs if one(*pair)] for one in (_fires_less, _accepts_less, _needs_more))
    lost = [pair for pair in pairs if pair in [*rare, *less, *more]]
    said = (
        f"Where {ours} loses. Beside the other methods with a private release and, without privacy, beside exact counts"
        f" too, in {len(pairs)} comparisons of the same case, epsilon and events: it fires less often in {len(rare)};"
        f" where both fire in most trials, it accepts less in {len(less)}{_records(pairs, more)}."
        f"{_releases(lost, keys)} {NEXT[name]}"
    )
    body = [_line(*pair, keys) for pair in lost]
    sides = [f"{side}: {figure}" for side in (ours, "other") for figure in FIGURES]
    return "\n\n".join([said, markdown([*keys, "other method", *sides], body)])


def _pairs(ours: str, table: pl.DataFrame, keys: list[str]) -> Iterator[tuple[Row, Row]]:
    """Yield ours with every other certificate of the same setting that has the same protection."""
    for _, part in table.group_by(keys, maintain_order=True):
        mine = part.row(by_predicate=pl.col("method") == ours, named=True)
        free = math.isinf(mine["epsilon"])
        roles = ("certificate", "reference") if free else ("certificate",)
        twice = [SAME] if free or mine.get("adjacency") == "replacement" else []
        others = part.filter(pl.col("role").is_in(roles) & ~pl.col("method").is_in([ours, *twice]))
        yield from ((mine, other) for other in others.iter_rows(named=True))


def _records(pairs: list[tuple[Row, Row]], more: list[tuple[Row, Row]]) -> str:
    """Say in how many ours needs more records, where methods may take different numbers."""
    both = [pair for pair in pairs if _both(*pair)]
    if all(round(mine["records"]) == round(other["records"]) for mine, other in both):
        return "; all take the same records"
    return f" and needs more records in {len(more)}"


def _releases(lost: list[tuple[Row, Row]], keys: list[str]) -> str:
    """Say how many of the losses are on which release."""
    if "release" not in keys:
        return ""
    own = sum(mine["release"] == "default" for mine, _ in lost)
    return (
        f" Of these {len(lost)} lines, {len(lost) - own} are on the paper's release, a foreign one, {own} on its own."
    )


def _fires_less(mine: Row, other: Row) -> bool:
    return bool(mine["fired"] < other["fired"])


def _accepts_less(mine: Row, other: Row) -> bool:
    return _both(mine, other) and bool(round(mine["acceptance"], 3) < round(other["acceptance"], 3))


def _needs_more(mine: Row, other: Row) -> bool:
    return _both(mine, other) and bool(round(mine["records"]) > round(other["records"]))


def _both(mine: Row, other: Row) -> bool:
    """Whether both fire in most trials."""
    return all(row["fired"] * 2 > row["trials"] for row in (mine, other))


def _line(mine: Row, other: Row, keys: list[str]) -> list[str]:
    figures = [cell for row in (mine, other) for cell in _figures(row)]
    return [*(words(mine[key]) if key == "epsilon" else mine[key] for key in keys), other["method"], *figures]


def _figures(row: Row) -> list[str]:
    if not row["fired"]:
        return [f"0/{row['trials']}", "–", "–"]
    return [f"{row['fired']}/{row['trials']}", f"{row['acceptance']:.3f}", f"{row['records']:,.0f}"]
