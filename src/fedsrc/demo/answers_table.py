"""The demo's table: one response of each HaluEval pair, dealt to five sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.common.durable import write_whole
from fedsrc.data.embedded import score_table

SITES = ("central", "east", "north", "south", "west")
SEED = 20240101
SCORE = "lift"
ABOUT = (
    "10,000 HaluEval QA answers (one of each pair), scored by information lift with a small language model, dealt to"
    " five sites. In HaluEval, answer length alone separates right from hallucinated answers almost perfectly, so this"
    " shows the flow, not a good detector."
)


def one_of_each_pair(table: pl.DataFrame) -> pl.DataFrame:
    """Take one response of each pair, by a fixed coin, and deal them to the sites in turn."""
    pairs = table.height // 2
    coins = (np.random.PCG64(SEED).random_raw(pairs) >> np.uint64(63)).astype(np.int64)
    chosen = pl.Series(2 * np.arange(pairs) + coins)
    return table.select(pl.all().gather(chosen)).select(
        "id", pl.Series("site", [SITES[i % len(SITES)] for i in range(pairs)]), "loss", pl.col(SCORE).alias("score")
    )


def write_table(path: Path, *, labels: bool = True) -> None:
    """Write the demo's records, with their labels or without, where a user can look at them."""
    if not path.exists():
        table = one_of_each_pair(score_table("qa"))
        write_whole(path, (table if labels else table.drop("loss")).write_csv().encode())
