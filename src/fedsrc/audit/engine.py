"""Running a study: blocks of trials on all cores, one file per finished block, so that a stopped study goes on.

    folder/
      study.toml        the study, as run
      blocks/*.parquet  per-trial records, a file for each group of settings and block of trials
      manifest.json     digests, versions, wall time, peak memory

Blocks are independent and seeded by the study alone: their records do not depend on how many run at once, or where.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import happen
from fedsrc.audit.methods import METHODS
from fedsrc.audit.outcomes import Block, native_rows, rows
from fedsrc.audit.study import Boundary, Setting, Study, Table
from fedsrc.common.canonical import digest, file_digest
from fedsrc.common.durable import read_text, unwritable, write_whole
from fedsrc.errors import FedsrcError, MissingExtraError

try:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky import get_reusable_executor
except ImportError as error:
    raise MissingExtraError("joblib", "audit") from error

SHARED = (
    "case",
    "epsilon",
    "failure_probability",
    "min_acceptance",
    "queries",
    "reading",
    "delta",
)  # events do not see these
PER_SITE = ("local-only", "federated-")  # methods that read sums per site; native ones do too
Backend = Literal["processes", "ray", "dask", "given"]
WAVE = 256
DECIDING = ("audit", "maths", "planning", "protocol", "records", "server", "simulate")  # code that decides a record
LIBRARIES = ("fedsrc", "numpy", "scipy", "polars", "joblib")


@dataclass(frozen=True)
class Task:
    """One block of trials of settings that share their events."""

    group: int
    settings: tuple[int, ...]
    block: int
    first: int
    trials: int

    @property
    def file(self) -> str:
        return f"g{self.group:04d}-b{self.block:05d}.parquet"


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


def tasks(study: Study) -> list[Task]:
    """All blocks of a study, those of one group together."""
    groups: dict[str, list[int]] = {}
    for index, setting in enumerate(study.settings):
        groups.setdefault(_events_key(study, setting), []).append(index)
    blocks = range(0, study.trials, study.block)
    return [
        Task(group, tuple(settings), block, first, min(study.block, study.trials - first))
        for group, settings in enumerate(groups.values())
        for block, first in enumerate(blocks)
    ]


def _events_key(study: Study, setting: Setting) -> str:
    fields = setting.model_dump(exclude=set(SHARED))
    fields["policy"] = "recruit" if setting.policy == "recruit" else "all sites"
    if not isinstance(study.by_name[setting.population], Boundary) and not setting.withheld:
        del fields["target_risk"]
    return json.dumps(fields, sort_keys=True)


def run_task(text: str, folder: str, task: Task, stamp: str = "") -> Done:
    """One block, anywhere: everything it needs is in its arguments and in the study's tables; `stamp` tells tables of
    one name apart."""
    start = time.perf_counter()
    study = _study(text)
    seed, methods = (study.seed, task.block), study.methods
    per_site = bool(study.native) or any(name.startswith(PER_SITE) for name in methods)
    cells = [_cell(text, folder, index, stamp) for index in task.settings]
    events = happen(cells[0], trials=task.trials, seed=seed, per_site=per_site)
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
    text, tables = read_text(path, 1_000_000), tables or path.parent
    study = Study.from_toml(text, where=str(path))
    blocks, stamp = _open(folder, text, study, tables)
    with held(folder):
        todo = [task for task in tasks(study) if not (blocks / task.file).exists()]
        done, planned = len(tasks(study)) - len(todo), len(tasks(study))
        before, started = _spent(folder), time.perf_counter()
        calls = [delayed(run_task)(text, str(tables), task, stamp) for task in todo]
        with on(backend):
            for each in _finished(calls, jobs, backend):
                write_whole(blocks / each.task.file, each.data)
                done += 1
                now = before.plus(time.perf_counter() - started, each)
                before, started = now, time.perf_counter()
                write_whole(folder / "cost.json", json.dumps(vars(now)).encode())
                if progress is not None:
                    progress(Progress(done, planned, each.task.trials * len(each.task.settings)))
        _write_manifest(folder, study, tables)
    return study


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """One run at a time in a folder."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FedsrcError("another run is writing to this folder", where=str(folder)) from error
        yield


def _finished(calls: list[Any], jobs: int, backend: Backend) -> Iterator[Done]:
    """Blocks as they finish. Ray's backend hands results over in lists only: a wave at a time."""
    if backend != "ray":
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(calls)
        if backend == "processes" and jobs != 1 and calls:
            get_reusable_executor().shutdown(wait=True)  # the next study measures its own memory
        return
    for start in range(0, len(calls), WAVE):
        yield from Parallel(n_jobs=jobs, batch_size=1)(calls[start : start + WAVE])


def on(backend: Backend) -> AbstractContextManager[Any]:
    """Where blocks run: processes of one thread each, a Ray cluster, the Dask cluster of the current client, or (given)
    whatever `joblib.parallel_config` the caller is in."""
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


@dataclass(frozen=True)
class Cost:
    """What a study took, all its runs together."""

    wall_seconds: float = 0.0
    block_seconds: float = 0.0
    peak_bytes: int = 0
    blocks: int = 0

    def plus(self, wall_seconds: float, done: Done) -> Cost:
        """With one more block."""
        return Cost(
            self.wall_seconds + wall_seconds, self.block_seconds + done.seconds, max(self.peak_bytes, done.peak_bytes),
            self.blocks + 1,
        )  # fmt: skip


def _spent(folder: Path) -> Cost:
    path = folder / "cost.json"
    return Cost(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Cost()


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Of the code that decides a record: other code may give other records."""
    root = Path(__file__).parent.parent
    parts = [path for path in sorted(root.rglob("*.py")) if path.relative_to(root).parts[0].split(".")[0] in DECIDING]
    return digest({str(path.relative_to(root)): file_digest(path) for path in parts})


def _open(folder: Path, text: str, study: Study, tables: Path) -> tuple[Path, str]:
    """The folder for blocks and a stamp of what decides them; one with another study, tables or code is refused."""
    try:
        (folder / "blocks").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    note, manifest = folder / "study.toml", folder / "inputs.json"
    known = {"study": study.digest, "tables": _tables(study, tables), "code": source_digest()}
    inputs = json.dumps(known, indent=1, sort_keys=True)
    if note.exists() and manifest.exists() and manifest.read_text(encoding="utf-8") != inputs:
        raise FedsrcError(
            "the folder holds blocks of another study, of other tables, or of another version of fedsrc",
            where=str(folder), hint="give a new folder",
        )  # fmt: skip
    write_whole(note, text.encode())
    write_whole(manifest, inputs.encode())
    return folder / "blocks", digest(known)


def _tables(study: Study, folder: Path) -> dict[str, str]:
    found = {}
    for population in study.populations:
        if isinstance(population, Table):
            if not (folder / population.table).is_file():
                raise FedsrcError(
                    f"there is no table {folder / population.table}", where=f"population {population.name}"
                )
            found[population.name] = file_digest(folder / population.table)
    return found


def _write_manifest(folder: Path, study: Study, tables: Path) -> None:
    blocks = sorted((folder / "blocks").glob("*.parquet"))
    manifest = {
        "study": study.name,
        "digest": study.digest,
        "seed": study.seed,
        "trials": study.trials,
        "settings": [_plain(setting.model_dump()) for setting in study.settings],
        "methods": {name: _about(name) for name in study.methods},
        "tables": _tables(study, tables),
        "blocks": {path.name: file_digest(path) for path in blocks},
        "versions": {name: version(name) for name in LIBRARIES},
        "cost": vars(_spent(folder)),
        "code": source_digest(),
    }
    write_whole(folder / "manifest.json", json.dumps(manifest, indent=1).encode())


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {key: "inf" if value == math.inf else value for key, value in fields.items()}


def _about(name: str) -> dict[str, Any]:
    method = METHODS[name]
    return {
        "role": method.role,
        "reads": method.reads,
        "assumptions": list(method.assumptions),
        "provenance": method.provenance,
    }


def read_trials(folder: Path) -> tuple[Study, pl.DataFrame]:
    """The study in a folder and all its per-trial records, those of native methods too."""
    path = folder / "study.toml"
    if not path.is_file():
        raise FedsrcError("this folder holds no study", where=str(folder), hint="run `fedsrc audit STUDY.toml` first")
    study = Study.read(path)
    missing = [task.file for task in tasks(study) if not (folder / "blocks" / task.file).is_file()]
    if missing:
        raise FedsrcError(
            f"{len(missing)} blocks are missing", where=str(folder), hint="run `fedsrc audit` again: it goes on"
        )
    frames = [pl.read_parquet(folder / "blocks" / task.file) for task in tasks(study)]
    return study, pl.concat(frames, how="diagonal").sort("setting", "method", "trial")
