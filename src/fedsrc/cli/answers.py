"""`fedsrc answers`: from a collection of answers, by path or by name, to one file of answers and its manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, output_file
from fedsrc.cli.streams import say
from fedsrc.cli.types import FilePath, Parsed
from fedsrc.data.prepare import prepare
from fedsrc.data.selection import Selection
from fedsrc.data.split import DEFAULT, PARTS

SHARES = ",".join(f"{DEFAULT[part]:g}" for part in PARTS)


def _shares(text: str) -> dict[str, float]:
    try:
        return dict(zip(PARTS, map(float, text.split(",")), strict=True))
    except ValueError:
        raise ValueError(f"{text!r} is not three numbers such as {SHARES}") from None


@click.command("answers")
@click.argument("collection")
@output_file("answers.jsonl")
@click.option("--task", help="Only this task (the answers' group); for HaluEval, which file.")
@click.option("--generator", "generators", multiple=True, help="Only answers of this generator; repeatable.")
@click.option("--split", help="Only this original split.")
@click.option("--pairs", type=click.IntRange(1), help="Only the first pairs of HaluEval, this many.")
@click.option("--join-sources", is_flag=True, help="Sources with the same evidence become one.")
@click.option("--one-per-source", is_flag=True, help="One answer of each source, by a hash of the seed.")
@click.option("--part", type=click.Choice(PARTS), help="Only this part of a three-way split by source.")
@click.option("--parts", "parts_file", type=FilePath, help="Write down which source is in which part.")
@click.option("--seed", type=int, default=0, help="Public seed of the split and of the choice.")
@click.option("--shares", type=Parsed("shares", _shares), default=SHARES, help=f"Shares of {', '.join(PARTS)}.")
@FORMAT
def answers_command(collection: str, target: Path, parts_file: Path | None, output: str, **choices: Any) -> None:
    """Answers of a COLLECTION, chosen and audited, in one file with its manifest beside it.

    COLLECTION is a file or folder, or a public collection's name: ragtruth, halueval/qa, halueval/dialogue or
    halueval/summarization, fetched once and kept in FEDSRC_CACHE or your cache folder.
    """
    manifest_file, manifest = prepare(collection, target, Selection(**choices), parts_file=parts_file, tell=say)
    click.echo(json.dumps(manifest) if output == "json" else f"Wrote {target} and {manifest_file}")
