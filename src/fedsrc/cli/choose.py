"""`fedsrc choose`: one score of several, by a fixed criterion on development records, written down."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click
import polars as pl

from fedsrc.cli.options import FORMAT, LEDGER, output_file
from fedsrc.cli.output import show
from fedsrc.cli.table import ledger_of
from fedsrc.cli.types import FilePath
from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.records.rows import Rows, tidy
from fedsrc.records.units import Names
from fedsrc.scores.choose import CRITERION, choose, write_choice
from fedsrc.scores.score_file import extra_passes
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import note_used


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
    with closing(Ledger(ledger or ledger_of(records))) as book:
        note_used(sha256, table.height, _names(table), book)
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


def _names(table: pl.DataFrame) -> Names:
    """Return what the ledger knows rows by: ids, sources and digests."""
    rows = Rows(table)
    ids = tidy(table["id"]).to_list() if "id" in table.columns else None
    return Names(ids, tidy(table["source"]).unique().to_list(), (rows.digests,), rows.width)
