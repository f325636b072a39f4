"""`fedsrc audit`: run a study, on our certificate and on every method it is compared with, and see what holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedsrc.cli.options import FORMAT, JOBS, FilePath, FolderPath
from fedsrc.cli.streams import say
from fedsrc.errors import FedsrcError

if TYPE_CHECKING:
    from fedsrc.audit import engine

BACKENDS = ("processes", "ray", "dask")


@click.command("audit")
@click.argument("study", type=FilePath)
@click.option("-o", "--output", "folder", type=FolderPath, help="Where records and tables go.  [default: STUDY-audit]")
@click.option("--tables", type=FolderPath, help="Where the study's own tables lie.  [default: beside STUDY]")
@JOBS
@click.option("--backend", type=click.Choice(BACKENDS), default="processes", show_default=True)
@click.option("--scheduler", help="Address of the Dask scheduler.")
@click.option("--looks", type=click.IntRange(0), default=0, help="Also keep every look of the first N trials.")
@FORMAT
def audit_command(
    study: Path, folder: Path | None, tables: Path | None, jobs: int, backend: str, scheduler: str | None, looks: int,
    output: str,
) -> None:  # fmt: skip
    """Run the STUDY (a TOML file) and print its table; per-trial records are kept as Parquet.

    A study that was stopped goes on where it was: finished blocks of trials are not run again.
    """
    from fedsrc.audit import engine
    from fedsrc.audit.looks import looks as all_looks
    from fedsrc.audit.page import write_summary
    from fedsrc.audit.summary import summarise

    folder, tables = folder or Path(f"{study.stem}-audit"), tables or study.parent
    with _client(backend, scheduler), _bar() as progress:
        done = engine.run_study(
            study, folder, tables=tables, jobs=jobs, backend=cast("engine.Backend", backend), progress=progress
        )
    found, made = summarise(folder, tables)
    write_summary(folder, found, made)
    if looks:
        all_looks(done, tables, trials=looks).write_parquet(folder / "looks.parquet")
    say(f"Records, summary.csv, summary.md and manifest.json are in {folder}.")
    click.echo(
        json.dumps(_json([*made.methods.to_dicts(), *made.native.to_dicts()]))
        if output == "json"
        else (folder / "summary.md").read_text().strip()
    )


def _json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON has no infinity, which is written as text, and no NaN, which is nothing."""
    named = {"inf": "inf", "nan": None}
    return [{key: named.get(str(value), value) for key, value in row.items()} for row in rows]


@contextmanager
def _client(backend: str, scheduler: str | None) -> Iterator[None]:
    """Dask needs a client: of the given scheduler, or of a cluster on this machine."""
    if backend != "dask":
        if scheduler is not None:
            raise FedsrcError("--scheduler belongs to --backend dask")
        yield
        return
    try:
        from dask.distributed import Client
    except ImportError as error:
        raise FedsrcError("dask is not installed", hint="pip install 'dask[distributed]'") from error
    with Client(scheduler) as _:
        yield


@contextmanager
def _bar() -> Iterator[Callable[[engine.Progress], None] | None]:
    """A progress bar on a terminal, nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("blocks of trials"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=None)
        yield lambda seen: bar.update(task, completed=seen.done, total=seen.of)
