"""Running a study: blocks of trials on all cores, one file per finished block, so that a stopped study resumes.

Blocks are independent and seeded by the study alone: their records do not depend on how many run at once, or where.
"""

from __future__ import annotations

import io
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import happen
from fedsrc.audit.methods import METHODS
from fedsrc.audit.outcomes import Block, native_rows, rows
from fedsrc.audit.study import MAX_BYTES, Study
from fedsrc.audit.study_folder import Task, held, open_folder, read_cost, tasks, write_cost, write_manifest
from fedsrc.common.durable import read_text, write_whole
from fedsrc.errors import FedsrcError, MissingExtraError

try:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky import get_reusable_executor
except ImportError as error:
    raise MissingExtraError("joblib", "audit") from error

PER_SITE = ("local-only", "federated-")  # methods that read sums per site; native ones do too
Backend = Literal["processes", "ray", "dask", "given"]
WAVE = 256


@dataclass(frozen=True)
class Done:
    """A finished block: its records as Parquet bytes, and what it took."""

    task: Task
    data: bytes
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Progress:
    """How far a study is."""

    done: int
    of: int
    trials: int


def run_task(text: str, folder: str, task: Task, stamp: str = "") -> Done:
    """Run one block, on any machine: it needs its arguments and the study's tables alone. `stamp` tells tables of one
    name apart."""
    start = time.perf_counter()
    study = _study(text)
    seed, methods = (study.seed, task.block), study.methods
    per_site = bool(study.native) or any(name.startswith(PER_SITE) for name in methods)
    cells = [_cell(text, folder, index, stamp) for index in task.settings]
    reads = {METHODS[name].reads for name in methods}
    events = happen(cells[0], trials=task.trials, seed=seed, per_site=per_site, reads=reads)
    blocks: dict[str, Block] = {}
    frames = []
    for index, cell in zip(task.settings, cells, strict=True):
        key = cell.setting.model_dump_json(exclude={"policy", "case"})
        if key not in blocks:
            blocks = {key: Block(cell, events, seed)}  # one at a time: neighbours differ in policy alone
        found = [rows(blocks[key], cell.setting.policy, methods, first=task.first)]
        if study.native:
            found.append(native_rows(blocks[key], study.native, first=task.first))
        frames += [each.with_columns(pl.lit(index).alias("setting")) for each in found]
    buffer = io.BytesIO()
    pl.concat(frames, how="diagonal").write_parquet(buffer, compression="zstd")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Done(task, buffer.getvalue(), time.perf_counter() - start, peak)


@lru_cache(maxsize=2)
def _study(text: str) -> Study:
    return Study.from_toml(text)


@lru_cache(maxsize=64)
def _cell(text: str, folder: str, index: int, stamp: str) -> Cell:
    del stamp  # a key of the cache
    study = _study(text)
    setting = study.settings[index]
    try:
        return build(setting, study.by_name[setting.population], seed=study.seed, folder=Path(folder))
    except FedsrcError as error:
        where = f"setting {index}" + (f", {error.where}" if error.where else "")
        raise FedsrcError(error.what, where=where, hint=error.hint) from error


def run_study(
    path: Path,
    folder: Path,
    *,
    tables: Path | None = None,
    jobs: int = -1,
    backend: Backend = "processes",
    progress: Callable[[Progress], None] | None = None,
) -> Study:
    """Run what is missing of the study at `path` into `folder`; its tables lie beside it, or in `tables`."""
    text, tables = read_text(path, MAX_BYTES), tables or path.parent
    study = Study.from_toml(text, where=str(path))
    stamp, blocks = open_folder(folder, text, study, tables), folder / "blocks"
    with held(folder):
        planned = tasks(study)
        todo = [task for task in planned if not (blocks / task.file).exists()]
        cost, started = read_cost(folder), time.perf_counter()
        calls = [delayed(run_task)(text, str(tables), task, stamp) for task in todo]
        with on(backend):
            for done, each in enumerate(_finished(calls, jobs, backend), len(planned) - len(todo) + 1):
                write_whole(blocks / each.task.file, each.data)
                now = time.perf_counter()
                cost, started = cost.plus(now - started, each.seconds, each.peak_bytes), now
                write_cost(folder, cost)
                if progress is not None:
                    progress(Progress(done, len(planned), each.task.trials * len(each.task.settings)))
        write_manifest(folder, study, tables)
    return study


def _finished(calls: list[Any], jobs: int, backend: Backend) -> Iterator[Done]:
    """Yield blocks as they finish. Ray's backend hands results over in lists only: a wave at a time."""
    if backend != "ray":
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(calls)
        if backend == "processes" and jobs != 1 and calls:
            get_reusable_executor().shutdown(wait=True)  # the next study measures its own memory
        return
    for start in range(0, len(calls), WAVE):
        yield from Parallel(n_jobs=jobs, batch_size=1)(calls[start : start + WAVE])


def on(backend: Backend) -> AbstractContextManager[Any]:
    """Say where blocks run: processes of one thread each, a Ray cluster, the Dask cluster of the current client, or
    ("given") the `joblib.parallel_config` that the caller is in."""
    if backend == "given":
        return nullcontext()
    if backend == "processes":
        return cast("AbstractContextManager[Any]", parallel_config("loky", inner_max_num_threads=1))
    try:
        if backend == "ray":
            import_module("ray.util.joblib").register_ray()
        else:
            import_module("dask.distributed")
    except ImportError as error:
        package = "ray" if backend == "ray" else "'dask[distributed]'"
        raise FedsrcError(f"{backend} is not installed", hint=f"pip install {package}") from error
    return cast("AbstractContextManager[Any]", parallel_config(backend))
