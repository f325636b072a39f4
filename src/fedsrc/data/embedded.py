"""HaluEval score tables that come with the package: ids, losses and scores, no text."""

from __future__ import annotations

import io
from importlib.resources import files
from typing import Literal

import polars as pl

Task = Literal["qa", "dialogue", "summarization"]
Scored = Literal["qa-scores", "dialogue-scores", "summarization-scores"]
TASKS: tuple[Task, ...] = ("qa", "dialogue", "summarization")
SCORED: tuple[Scored, ...] = ("qa-scores", "dialogue-scores", "summarization-scores")


def score_table(task: Task | Scored) -> pl.DataFrame:
    """HaluEval responses of a task: id, source, loss and scores, to three decimals. No text.

    A task alone has every response with the basic scores; TASK-scores has 400 pairs with every score, among them
    scores fitted on other pairs.
    """
    return pl.read_parquet(io.BytesIO(files("fedsrc.data").joinpath(file_name(task)).read_bytes()))


def file_name(task: Task | Scored) -> str:
    return f"halueval-{task}.parquet"
