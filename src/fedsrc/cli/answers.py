"""`fedsrc answers`: from a collection of answers, by path or by name, to one file of answers and its manifest."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, FilePath
from fedsrc.cli.streams import say
from fedsrc.common.canonical import digest_bytes
from fedsrc.common.durable import write_whole
from fedsrc.data.answers import answers_bytes
from fedsrc.data.audit import audit, audit_lines
from fedsrc.data.choose import Choice, choose
from fedsrc.data.collection import Collection, open_collection
from fedsrc.data.split import DEFAULT, PARTS, write_assignments
from fedsrc.errors import FedsrcError

SHARES = ",".join(f"{DEFAULT[part]:g}" for part in PARTS)


def shares_of(_: click.Context, __: click.Parameter, value: str) -> dict[str, float]:
    """Three numbers, in the order of the parts."""
    try:
        numbers = [float(each) for each in value.split(",")]
        return dict(zip(PARTS, numbers, strict=True))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not three numbers such as {SHARES}") from error


@click.command("answers")
@click.argument("collection")
@click.option("-o", "--output", "target", type=FilePath, default="answers.jsonl", show_default=True)
@click.option("--task", help="Only this task (the answers' group); for HaluEval, which file.")
@click.option("--generator", "generators", multiple=True, help="Only answers of this generator; repeatable.")
@click.option("--split", help="Only this original split.")
@click.option("--pairs", type=click.IntRange(1), help="Only the first pairs of HaluEval, this many.")
@click.option("--join-sources", is_flag=True, help="Sources with the same evidence become one.")
@click.option("--one-per-source", is_flag=True, help="One answer of each source, by a hash of the seed.")
@click.option("--part", type=click.Choice(PARTS), help="Only this part of a three-way split by source.")
@click.option("--parts", "parts_file", type=FilePath, help="Write down which source is in which part.")
@click.option("--seed", type=int, default=0, show_default=True, help="Public seed of the split and of the choice.")
@click.option("--shares", default=SHARES, show_default=True, callback=shares_of, help=f"Shares of {', '.join(PARTS)}.")
@FORMAT
def answers_command(collection: str, target: Path, parts_file: Path | None, output: str, **choices: Any) -> None:
    """Answers of a COLLECTION, chosen and audited, in one file with its manifest beside it.

    COLLECTION is a file or folder, or a public collection's name: ragtruth, halueval/qa, halueval/dialogue or
    halueval/summarization, fetched once and kept in FEDSRC_CACHE or your cache folder.
    """
    choice = Choice(**choices)
    found = open_collection(collection, task=choice.task, pairs=choice.pairs, tell=say)
    manifest_file = target.with_name(target.name + ".manifest.json")
    refuse_overlap(Path(collection), found, [path for path in (target, manifest_file, parts_file) if path])
    chosen = choose(found.answers, choice)
    audited = audit(
        chosen.answers,
        name=found.name,
        annotation=found.annotation,
        files=found.files,
        notes=found.notes,
        more=chosen.findings,
    )
    for line in audit_lines(audited):
        say(line)
    if audited.errors:
        raise FedsrcError("the audit found errors; nothing was written", hint="mend or leave out those answers")
    data = answers_bytes(chosen.answers)
    written = {"name": target.name, "bytes": len(data), "sha256": digest_bytes(data)}
    manifest = {**audited.plain(), "chosen": asdict(choice), "written": written}
    write_whole(target, data)
    write_whole(manifest_file, json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
    if parts_file is not None:
        write_assignments(parts_file, chosen.parts, choice.seed)
    click.echo(json.dumps(manifest) if output == "json" else f"Wrote {target} and {manifest_file}")


def refuse_overlap(source: Path, found: Collection, targets: list[Path]) -> None:
    """Refuse to write over what was read, or two files under one name."""
    folder = (source if source.is_dir() else source.parent).resolve()
    places = [folder / file.name for file in found.files]
    for target in targets:
        place = target.resolve()
        if place in places:
            raise FedsrcError("is read here, or written twice", where=str(target), hint="choose another name")
        places.append(place)
