"""`fedsrc choose`: one score of several, by a fixed criterion on development records, written down."""

from __future__ import annotations

from pathlib import Path

import click
import polars as pl

from fedsrc.cli.options import FORMAT, LEDGER, output_file
from fedsrc.cli.output import show
from fedsrc.cli.table import note_used_up
from fedsrc.cli.types import FilePath
from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.records.rows import Rows
from fedsrc.scores.choose import CRITERION, choose, write_choice
from fedsrc.scores.score_answers import extra_passes


@click.command("choose", epilog=f"The criterion: {CRITERION}.")
@click.argument("records", type=FilePath)
@click.option("--score", "names", multiple=True, required=True, help="A column of the table; repeatable.")
@output_file(required=True, help="The file to write, such as choice.json.")
@LEDGER
@FORMAT
def choose_command(records: Path, names: tuple[str, ...], target: Path, ledger: Path | None, output: str) -> None:
    """Choose one score among columns of RECORDS, a table of development answers that `fedsrc score` wrote.

    Extra passes of the model are read from the table's manifest, which lies beside it. The ledger notes the records,
    so that they cannot calibrate what was chosen on them. What is written of them is exact: no privacy covers it.
    """
    sha256, table = file_digest(records), _table(records)
    choice = choose(table, names, extra_passes(records, names), records_sha256=sha256)
    note_used_up(records, ledger, sha256, table, Rows(table))
    write_choice(target, choice)
    ranked = sorted(choice.candidates.items(), key=lambda item: -item[1].auc)
    show(
        output,
        choice.model_dump(),
        *(f"{name}: AUC {each.auc:.3f}, {each.passes} extra passes" for name, each in ranked),
        f"Chosen: {choice.chosen}, on {choice.answers:,} answers. Wrote {target}.",
    )


def _table(path: Path) -> pl.DataFrame:
    try:
        return pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise FedsrcError(f"cannot be read: {error}", where=str(path)) from error
