"""Large data: ten million records from Parquet into a release, its memory by the number of rows, and the verification
of a transcript with ten thousand releases.

Writes docs/results/large.md. Run: python -m research.benchmarks.large
(two minutes, 400 MB of temporary files, 2 GB of memory)

Every figure comes from a process of its own, because peak memory is a process's.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.common.clock import utc_now
from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.airgap import answer_file, start
from fedsrc.maths.arrays import Floats
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.messages import Answer, Link, Request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Announced, Transcript
from fedsrc.records.masses import histogram
from fedsrc.records.stream import AHEAD, BATCH, Table
from fedsrc.records.table import read_records
from fedsrc.records.units import Records, Units
from fedsrc.server.issue import issue
from fedsrc.server.loop import begin, record, run
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.release import make_release
from research.pages import markdown, publish, records_of

MILLION = 1_000_000
SIZES = (1 * MILLION, 3 * MILLION, 10 * MILLION, 30 * MILLION)
FEW, MOST = 200, 10 * MILLION  # MOST is also the most that one request may ask for
THRESHOLDS, REPEATS = 20, 3
SITES, ROUNDS, SLOTS = 100, 100, 20
Figures = dict[str, Any]


def drawn(rows: int) -> tuple[Floats, Floats]:
    """Scores that order losses a little."""
    rng = np.random.default_rng(0)
    loss = (rng.random(rows) < 0.3).astype(np.float64)
    return rng.random(rows) * (1.0 - 0.3 * loss), loss


def registered(names: Sequence[str], server: Key, keys: Sequence[Key], capacity: int, **choices: Any) -> Registration:
    """The default preset at epsilon 4 on a public grid of thresholds."""
    small = records_of(*drawn(100), np.zeros(100, np.int64), ("a",))
    settings = Choices(
        target_risk=0.2,
        epsilon=4.0,
        grid=True,
        thresholds=THRESHOLDS,
        policy="final",
        server_key=public_hex(server),
        site_keys={name: public_hex(key) for name, key in zip(names, keys, strict=True)},
        capacities=dict.fromkeys(names, capacity),
        **choices,
    )
    return register(settings, small, development_part(small, "record", 1.0), sites=names)


def table_of(folder: Path, rows: int) -> Path:
    return folder / f"{rows}.parquet"


def make_table(folder: Path, rows: int) -> Figures:
    """A Parquet file with the writer's own row groups."""
    score, loss = drawn(rows)
    path = table_of(folder, rows)
    pl.DataFrame({"score": score, "loss": loss}).write_parquet(path)
    return {"bytes": path.stat().st_size}


def bare_count(folder: Path, rows: int) -> Figures:
    """What any histogram costs, with everything in memory: the bin of every score, and how many scores a bin has."""
    frame = pl.read_parquet(table_of(folder, rows))
    score, edges = frame["score"].to_numpy(), np.arange(1, THRESHOLDS + 1) / (THRESHOLDS + 1)
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        np.bincount(np.searchsorted(edges, score, side="right"), minlength=THRESHOLDS + 1)
        taken.append(time.perf_counter() - begun)
    return {"seconds": float(np.median(taken))}


def release(folder: Path, rows: int, slots: int, find: Callable[[Path], Records | Table]) -> Figures:
    """A first request to a site that has never seen the table, answered as `fedsrc release` does."""
    server, key = Key.generate(), Key.generate()
    registration = registered(["a"], server, [key], rows, batch=slots)
    with tempfile.TemporaryDirectory(dir=folder) as place, closing(Ledger(Path(place, "ledger"))) as ledger:
        allow(ledger, "a", registration)
        request = start(registration, Path(place, "run"), server).waiting[0]
        begun = time.perf_counter()
        answer_file(request, lambda: find(table_of(folder, rows)), ledger, key)
        return {"seconds": time.perf_counter() - begun}


def in_batches(folder: Path, rows: int, slots: int) -> Figures:
    return release(folder, rows, slots, Table)


def in_memory(folder: Path, rows: int, slots: int) -> Figures:
    return release(folder, rows, slots, read_records)


def nothing(_: Path) -> Figures:
    """What the program itself needs."""
    return {}


def make_run(folder: Path) -> Figures:
    """A run of many sites over many rounds: the real loop with real noise and signatures, on drawn records."""
    names = [f"site {i:03d}" for i in range(SITES)]
    server, keys = Key.generate(), [Key.generate() for _ in names]
    registration = registered(names, server, keys, SLOTS * ROUNDS, batch=SLOTS, rounds=ROUNDS)
    pool, by_name, rng = drawn(100_000), dict(zip(names, keys, strict=True)), np.random.default_rng(1)
    links = dict.fromkeys(names, Link())

    def carry(requests: Sequence[Request], /) -> list[Answer]:
        return [answer(request) for request in requests]

    def answer(request: Request) -> bytes:
        rows = rng.integers(0, pool[0].size, request.slots)
        units = Units(np.arange(request.slots + 1, dtype=np.int64), pool[0][rows], pool[1][rows], None)
        counts = histogram(registration, units)
        link = links[request.site]
        made = make_release(registration, request, counts, link, order="shuffled", time=utc_now())
        signed = made.signed(by_name[request.site])
        links[request.site] = Link(link.place + 1, signed.digest)
        return signed.to_bytes()

    begun = time.perf_counter()
    write_whole(folder / "run" / REGISTRATION, registration.to_toml().encode())
    with closing(Transcript(folder / "run" / TRANSCRIPT)) as transcript:
        replay = Replay(registration)
        begin(replay, transcript)
        record(replay, transcript, *(Announced(site=name, units=SLOTS * ROUNDS) for name in names))
        run(replay, transcript, carry)
        issue(registration, replay, transcript.chain).signed(server).save(folder / "run" / CERTIFICATE)
    return {"seconds": time.perf_counter() - begun}


def verify_run(folder: Path) -> Figures:
    """Recompute the certificate from the transcript, and check chain and signatures."""
    begun = time.perf_counter()
    certificate = verify(folder / "run").certificate
    assert certificate.refused == 0
    seconds = time.perf_counter() - begun
    size = (folder / "run" / TRANSCRIPT).stat().st_size
    names = ("releases", "rounds", "records", "status", "transcript_lines")
    return {"seconds": seconds, "bytes": size, **{name: getattr(certificate, name) for name in names}}


STEPS: dict[str, Callable[..., Figures]] = {
    step.__name__: step for step in (make_table, bare_count, in_batches, in_memory, nothing, make_run, verify_run)
}


def measured(step: Callable[..., Figures], folder: Path, *numbers: int) -> Figures:
    """A step in a process of its own: what it says, and its peak memory in MiB."""
    command = [sys.executable, "-m", "research.benchmarks.large", step.__name__, str(folder), *map(str, numbers)]
    found: Figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def child(name: str, folder: str, *numbers: str) -> None:
    found = STEPS[name](Path(folder), *map(int, numbers))
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    print(json.dumps({**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit}))


def repeated(step: Callable[..., Figures], folder: Path, *numbers: int) -> Figures:
    """Median seconds and largest peak."""
    runs = [measured(step, folder, *numbers) for _ in range(REPEATS)]
    return {
        "seconds": float(np.median([each["seconds"] for each in runs])),
        "peak": max(each["peak"] for each in runs),
    }


def release_rows(folder: Path) -> Iterator[list[str]]:
    """Seconds and peak memory of releases, by rows and by how the table is read."""
    for rows in SIZES:
        many = min(rows, MOST)
        kinds = [("in batches", in_batches, many), ("in batches", in_batches, FEW), ("in memory", in_memory, many)]
        bare = measured(bare_count, folder, rows)["seconds"]
        for name, step, slots in kinds if rows <= MOST else kinds[:2]:
            found = repeated(step, folder, rows, slots)
            figures = [f"{found['seconds']:.2f}", f"{found['seconds'] / bare:.1f}", f"{found['peak']:.0f}"]
            yield [f"{rows:,}", f"{slots:,}", name, f"{bare:.3f}", *figures]


def verify_rows(found: Figures) -> Iterator[list[str]]:
    lines, seconds = found["transcript_lines"], found["seconds"]
    yield ["releases", f"{found['releases']:,} ({SITES} sites, {found['rounds']} rounds)"]
    yield ["transcript", f"{lines:,} lines, {found['bytes'] / MILLION:.1f} MB"]
    yield ["verified in", f"{seconds:.1f} s"]
    yield ["lines per second", f"{lines / seconds:,.0f}"]
    yield ["peak memory, MiB", f"{found['peak']:.0f}"]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = [measured(make_table, folder, rows)["bytes"] / MILLION for rows in SIZES]
        releases = markdown(RELEASE_HEADER, list(release_rows(folder)))
        base = measured(nothing, folder)["peak"]
        measured(make_run, folder)
        checks = markdown(("", ""), verify_rows(measured(verify_run, folder)))
    machine = f"""\
Times are of one machine ({platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()},
numpy {np.__version__}, polars {pl.__version__}) and will differ on another; ratios carry over better. Nothing in the
tests depends on a clock."""
    files = f"The files have {', '.join(f'{size:.0f}' for size in sizes)} MB; the program itself needs {base:.0f} MiB."
    publish("large.md", [HEAD, machine, RELEASE_HEAD, releases, files, RELEASE_READING, VERIFY_HEAD, checks])


RELEASE_HEADER = ("records", "released", "read", "bare count, s", "release, s", "ratio", "peak memory, MiB")

HEAD = """\
# Large data: ten million records into a release, and ten thousand releases verified

Made by

    python -m research.benchmarks.large"""

RELEASE_HEAD = f"""\
## Records from Parquet into a release

What `fedsrc release` does with a table that the site has never seen, from the request file to the signed release:
checking every value, the table's digest, the intake in the ledger, the choice of the units in the intake's shuffled
order, the histogram, exact discrete noise, the spend, the signature. The registration has {THRESHOLDS} thresholds and
epsilon 4; the table has a score and a loss per record, in the row groups that the writer chose. The request asks for
all records at once ({MOST:,} at most), or for {FEW} of them.

The bare count is what any histogram costs with all scores in memory as an array:
`np.bincount(np.searchsorted(thresholds, scores, side="right"))`, median of 5. It reads no file, checks nothing, and
knows no loss. Releases: median seconds of {REPEATS} processes, largest peak memory of them (`ru_maxrss`, with the
interpreter and its libraries)."""

RELEASE_READING = f"""\
In batches, at most {BATCH:,} rows are counted at once and the reader is at most {AHEAD} batches ahead, so peak memory
is flat in the number of rows. {FEW} units cost about as much as all: every release checks the whole table and looks
at every row's place in the order. A table in memory is what `fedsrc certify` uses, and `fedsrc release` for sources.

A row group's bytes are read together: where a writer put all rows into one row group, memory grows with what the
columns of scores and losses take in the file."""

VERIFY_HEAD = """\
## A long transcript, verified

A run through the real loop with noise and signatures, verified as `fedsrc verify` does: the hash chain, every site's
signature, every request against the registered rule, every round's bounds, and the whole certificate."""


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
