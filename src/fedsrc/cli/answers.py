"""`fedsrc answers`: from a collection of answers, by path or by name, to one file of answers and its manifest."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, output_file
from fedsrc.cli.streams import command, say
from fedsrc.cli.types import FilePath, Parsed
from fedsrc.data.logs import Reading
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
@click.option("--label-from", multiple=True, help="Of a log: under this name people spoke; repeatable.")
@click.option("--score-from", multiple=True, help="Of a log: only this judge's scores; repeatable.")
@click.option("--source-from", help="Of a log: the field that tells units apart, such as a session's or a user's.")
@click.option("--unsupported", multiple=True, metavar="WORD", help="Of a log: a label that means unsupported.")
@click.option("--supported", multiple=True, metavar="WORD", help="Of a log: a label that means supported.")
@FORMAT
def answers_command(collection: str, target: Path, parts_file: Path | None, output: str, **choices: Any) -> None:
    """Answers of a COLLECTION, chosen and audited, in one file with its manifest beside it.

    COLLECTION is a file or folder, or a public collection's name: ragtruth, halueval/qa, halueval/dialogue or
    halueval/summarization, fetched once and kept in FEDSRC_CACHE or your cache folder.

    Or it is a log: a file or folder of Inspect (.eval, .json) or of evaluation events as JSON lines (OpenTelemetry,
    Phoenix, Langfuse), or mlflow:EXPERIMENT. What people said there becomes the label, the worst if they differ; what
    judges said, columns of scores.
    """
    reading = Reading(**{each.name: choices.pop(each.name) for each in fields(Reading)})
    chosen = Selection(**choices)
    manifest_file, manifest = prepare(collection, target, chosen, reading=reading, parts_file=parts_file, tell=say)
    if "read" in manifest:
        say(f"Next: {command('fedsrc', 'inspect', target)}")
    click.echo(json.dumps(manifest) if output == "json" else f"Wrote {target} and {manifest_file}")
