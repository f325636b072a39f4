"""False certificates as counts: how many trials of which setting made one, and the tables that say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from fedsrc.maths.binomial import clopper_pearson
from research.pages import markdown

SCHEMA = {"part": pl.String(), "setting": pl.String(), "false": pl.Int32(), "trials": pl.Int32()}
KEYS = ("part", "setting")


class Count(NamedTuple):
    """So many of a setting's trials made a false certificate."""

    part: str
    setting: str
    false: int
    trials: int


def frame(counts: Iterable[Count]) -> pl.DataFrame:
    return pl.DataFrame(list(counts), schema=SCHEMA, orient="row")


def counts(kept: pl.DataFrame, part: str) -> list[Count]:
    """Return the counts of one part of a page, in their order."""
    return [Count(*row) for row in kept.filter(pl.col("part") == part).iter_rows()]


def table(kept: pl.DataFrame, part: str) -> str:
    """One row for each setting: how often its certificates were false, with a 95% interval."""
    return markdown(("setting", "false certificates", "share", "95% interval"), map(_row, counts(kept, part)))


def _row(each: Count) -> list[str]:
    low, high = clopper_pearson(each.false, each.trials)
    share = f"{each.false / each.trials:.4f}"
    return [each.setting, f"{each.false:,} of {each.trials:,}", share, f"[{low:.4f}, {high:.4f}]"]
