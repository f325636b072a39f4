"""`fedsrc choose`: one score of several, by a fixed criterion on development records, written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import polars as pl

from fedsrc.cli.options import FORMAT, FilePath
from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import SCORES
from fedsrc.scores.choose import CRITERION, choose, write_choice


@click.command("choose", epilog=f"The criterion: {CRITERION}.")
@click.argument("records", type=FilePath)
@click.option("--score", "names", multiple=True, required=True, help="A column of the table; repeatable.")
@click.option("-o", "--output", "target", type=FilePath, required=True, help="The file to write, such as choice.json.")
@FORMAT
def choose_command(records: Path, names: tuple[str, ...], target: Path, output: str) -> None:
    """Choose one score among columns of RECORDS, a table of development answers that `fedsrc score` wrote.

    Extra passes of the model are read from the table's manifest, which lies beside it.
    """
    sha256, table = file_digest(records), _table(records)
    choice = choose(table, names, _passes(records, names), records_sha256=sha256)
    write_choice(target, choice)
    if output == "json":
        click.echo(json.dumps(choice.model_dump()))
        return
    for name, each in sorted(choice.candidates.items(), key=lambda item: -item[1].auc):
        click.echo(f"{name}: AUC {each.auc:.3f}, {each.passes} extra passes")
    click.echo(f"Chosen: {choice.chosen}, on {choice.answers:,} answers. Wrote {target}.")


def _table(path: Path) -> pl.DataFrame:
    try:
        return pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error


def _passes(records: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Extra passes of each score: as the manifest says, or as the score declares."""
    manifest = records.with_name(f"{records.name}.manifest.json")
    said: dict[str, Any] = json.loads(manifest.read_bytes()).get("passes", {}) if manifest.is_file() else {}
    return {name: int(said.get(name, SCORES[name].passes if name in SCORES else 0)) for name in names}
