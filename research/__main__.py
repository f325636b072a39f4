"""`python -m research`: the paper's experiments and ours, from registered studies to pages, tables and figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from fedsrc.cli.options import FORMAT, JOBS
from fedsrc.cli.progress import progress
from fedsrc.cli.streams import say
from fedsrc.cli.types import FolderPath
from fedsrc.errors import FedsrcError
from research.studies import reproduce as publisher
from research.studies.catalogue import LONG, NAMES, study_of
from research.studies.results import Places


@click.command("reproduce")
@click.argument("names", nargs=-1)
@click.option(
    "-o", "--output", "folder", type=FolderPath,
    help="A folder for pages/ and records/  [default: docs/results/studies and research/results/studies]",
)  # fmt: skip
@click.option("--tables", type=FolderPath, default=Path("tables"), show_default=True, help="Score tables of real data.")
@click.option("--data", type=FolderPath, help="A RAGTruth folder: its detector scores become a table.")
@click.option("--work", type=FolderPath, default=Path("reproduce-work"), show_default=True, help="Per-trial records.")
@JOBS
@click.option("--list", "listed", is_flag=True, help="Only list the studies.")
@FORMAT
def reproduce_command(
    names: tuple[str, ...], folder: Path | None, tables: Path, data: Path | None, work: Path, jobs: int, listed: bool,
    output: str,
) -> None:  # fmt: skip
    """Run the named studies (without NAMES: all but the longest) and publish their pages, tables and figures.

    Studies whose tables are not in the --tables folder are left out and named. A run that was stopped resumes.
    """
    if listed:
        found = {name: study_of(name) for name in (*NAMES, *LONG)}
        lines = [
            f"{name:20} {len(each.settings):4} settings, {each.trials:6,} trials each: {each.name}"
            for name, each in found.items()
        ]
        click.echo(json.dumps(list(found)) if output == "json" else "\n".join(lines))
        return
    if data is not None and not publisher.detector_table(data, tables):
        raise FedsrcError(f"there is no {publisher.DETECTORS}", where=str(data))
    places = Places() if folder is None else Places(folder / "pages", folder / "records")
    with progress(counted=True) as step:
        ran = publisher.reproduce(
            names, places, tables=tables, work=work, jobs=jobs, tell=lambda name, seen: step(name, seen.done, seen.of)
        )
    for name, lacking in ran.left_out.items():
        say(f"left out: {name}, which needs {', '.join(lacking)} in {tables}")
    summary = {
        "published": list(ran.published),
        "left_out": ran.left_out,
        "pages": str(places.pages),
        "records": str(places.records),
    }
    if names and ran.left_out:
        raise FedsrcError(
            "a study that was asked for could not be run", hint="docs/audit.md says how its tables are made"
        )
    text = f"Published {len(ran.published)} studies: start at {places.pages / 'README.md'}."
    click.echo(json.dumps(summary) if output == "json" else text)


if __name__ == "__main__":
    try:
        reproduce_command(prog_name="python -m research")
    except FedsrcError as error:
        say(f"error: {error}")
        sys.exit(2)
