"""HaluEval score tables that come with the package: ids, losses and scores, no text."""

from __future__ import annotations

import io
from importlib.resources import files
from typing import Literal, get_args

import polars as pl

from fedsrc.data.halueval import TASKS, Task

__all__ = ["SCORED", "TASKS", "Scored", "Task", "file_name", "score_table"]

Scored = Literal["qa-scores", "dialogue-scores", "summarization-scores"]
SCORED: tuple[Scored, ...] = get_args(Scored)


def score_table(task: Task | Scored) -> pl.DataFrame:
    """Read HaluEval responses of a task: id, source, loss and scores, to three decimals. No text.

    A task alone has every response with the basic scores; TASK-scores has 400 pairs with every score, among them
    scores fitted on other pairs.
    """
    return pl.read_parquet(io.BytesIO(files("fedsrc.data").joinpath(file_name(task)).read_bytes()))


def file_name(task: Task | Scored) -> str:
    return f"halueval-{task}.parquet"
