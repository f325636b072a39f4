"""`fedsrc audit`: run a study, on our certificate and on every method it is compared with, and see what holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from fedsrc.cli.options import FORMAT, JOBS
from fedsrc.cli.output import show
from fedsrc.cli.progress import progress
from fedsrc.cli.streams import say
from fedsrc.cli.types import FilePath, FolderPath
from fedsrc.errors import FedsrcError

if TYPE_CHECKING:
    from fedsrc.audit import engine

BACKENDS = ("processes", "ray", "dask")
ABOUT_LOOKS = "Also keep every look of the first N trials (of all, if there are no more): bounds of all thresholds."


@click.command("audit")
@click.argument("study", type=FilePath)
@click.option("-o", "--output", "folder", type=FolderPath, help="Where records and tables go.  [default: STUDY-audit]")
@click.option("--tables", type=FolderPath, help="Where the study's own tables lie.  [default: beside STUDY]")
@JOBS
@click.option("--backend", type=click.Choice(BACKENDS), default="processes")
@click.option("--scheduler", help="Address of the Dask scheduler.")
@click.option("--looks", type=click.IntRange(0), default=0, help=ABOUT_LOOKS)
@click.option("--splits", is_flag=True, help="Also write down which record is in which part, and at which site.")
@FORMAT
def audit_command(
    study: Path, folder: Path | None, tables: Path | None, jobs: int, backend: str, scheduler: str | None, looks: int,
    splits: bool, output: str,
) -> None:  # fmt: skip
    """Run the STUDY (a TOML file) and print its table; per-trial records are kept as Parquet.

    A study that was stopped resumes: finished blocks of trials are not run again.
    """
    from fedsrc.audit import engine
    from fedsrc.audit.assignments import assignments
    from fedsrc.audit.heldout import by_threshold
    from fedsrc.audit.looks import looks as all_looks
    from fedsrc.audit.page import write_summary
    from fedsrc.audit.summary import summarise

    folder, tables = folder or Path(f"{study.stem}-audit"), tables or study.parent
    with _client(backend, scheduler), progress(counted=True) as step:
        done = engine.run_study(
            study, folder, tables=tables, jobs=jobs, backend=cast("engine.Backend", backend),
            progress=lambda seen: step("blocks of trials", seen.done, seen.of),
        )  # fmt: skip
    found, made = summarise(folder, tables)
    write_summary(folder, found, made)
    if (held := by_threshold(done, tables)).height:
        held.write_csv(folder / "heldout.csv")
    if splits:
        assignments(done, tables).write_parquet(folder / "splits.parquet")
    if looks:
        all_looks(done, tables, trials=looks).write_parquet(folder / "looks.parquet")
    say(f"Records, summary.csv, summary.md and manifest.json are in {folder}.")
    rows = _json([*made.methods.to_dicts(), *made.native.to_dicts()])
    show(output, {"folder": str(folder), "methods": rows}, (folder / "summary.md").read_text().strip())


def _json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write infinity, which JSON has not, as text, and NaN as null."""
    named = {"inf": "inf", "nan": None}
    return [{key: named.get(str(value), value) for key, value in row.items()} for row in rows]


@contextmanager
def _client(backend: str, scheduler: str | None) -> Iterator[None]:
    """Open the client that Dask needs: of the given scheduler, or of a cluster on this machine."""
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
