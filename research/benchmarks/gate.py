"""How fast the gate decides, in process and as a service under load, and what 100 renewals under load do to it.

Writes docs/results/gate.md and, for every request, research/results/gate.parquet.
Run: python -m research.benchmarks.gate
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.common.canonical import digest_bytes
from fedsrc.gate.gate import Gate
from fedsrc.protocol.names import CERTIFICATE
from research.benchmarks.gate_common import TRUSTED, certified, process, renewed, service
from research.pages import FIGURES, markdown, publish

AIM = 100_000  # decisions a second
SCORES = [float(score) for score in np.random.default_rng(1).random(1_000)]
THREADS = (1, 4)
CLIENTS, SECONDS, TURNS = (1, 16, 64), 4.0, 3
RELOADS, PRESSING = 100, 16
PARTS = ("fastapi", "uvicorn", "h11")
WAYS = (
    "floor: a function that returns `score >= threshold`", "`gate.accept(score)`", "`gate.decide(score)`",
    "`gate.decide_all(scores)`, 1,000 scores",
)  # fmt: skip
ENDPOINTS = ("floor: an empty endpoint", "`/v1/decide`")
HOST = "host: 127.0.0.1"  # the service answers to no other name than its own
KEPT = FIGURES / "gate.parquet"
MEASURED = {"rate": pl.Float64(), "microseconds": pl.Int32(), "wrong": pl.Boolean(), "seconds": pl.Float64()}
QUANTILES = (0.5, 0.9, 0.99, 0.999)


# ---------------------------------------------------------------- in process


def each(decide: Callable[[float], object]) -> None:
    for score in SCORES:
        decide(score)


def _turn(work: Callable[[], object], threads: int, seconds: float) -> float:
    done, end = [0] * threads, time.perf_counter() + seconds

    def loop(k: int) -> None:
        while time.perf_counter() < end:
            work()
            done[k] += len(SCORES)

    workers = [threading.Thread(target=loop, args=(k,)) for k in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - start)


def in_process(path: Path) -> Iterator[pl.DataFrame]:
    """Decisions a second of each way by so many threads: a row per turn."""
    gate = Gate(path, trusted=[TRUSTED])
    threshold = gate.status().threshold
    assert threshold is not None
    works: list[Callable[[], object]] = [
        partial(each, lambda score: score >= threshold),
        partial(each, gate.accept),
        partial(each, gate.decide),
        partial(gate.decide_all, SCORES),
    ]
    for name, work in zip(WAYS, works, strict=True):
        for threads in THREADS:
            rates = [_turn(work, threads, 1.0) for _ in range(TURNS)]
            yield kept("in process", name, threads, rate=rates)


def process_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """The best turn of each way."""
    for name in WAYS:
        rates = [max(part(frame, "in process", name, threads)["rate"].to_list()) for threads in THREADS]
        verdict = "" if name == WAYS[0] else f"at least {AIM:,}: {'yes' if min(rates) >= AIM else 'no'}"
        yield [name, *(f"{each_:,.0f}" for each_ in rates), f"{1e6 / rates[0]:.2g}", verdict]


# ---------------------------------------------------------------- the service under load


@dataclass
class Load:
    """What clients saw: seconds of each request, whether its response was wrong, requests without a response."""

    taken: list[float] = field(default_factory=list)
    wrong: list[bool] = field(default_factory=list)
    dropped: int = 0
    thresholds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def rows(self, table: str, what: str, clients: int) -> pl.DataFrame:
        """A row per request, in microseconds, none where there was no response."""
        whole = [*(round(1e6 * each_) for each_ in self.taken), *[None] * self.dropped]
        return kept(
            table, what, clients, microseconds=whole, wrong=[*self.wrong, *[None] * self.dropped], seconds=self.seconds
        )


def request(path: str, score: float) -> bytes:
    body = f'{{"score": {score!r}}}'.encode()
    head = f"POST {path} HTTP/1.1\r\n{HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def client(port: int, path: str, stop: asyncio.Event, load: Load, start: int) -> None:
    """One keep-alive connection, one request after another."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    at = start
    while not stop.is_set():
        score = SCORES[at % len(SCORES)]
        at += 1
        begin = time.perf_counter()
        try:
            writer.write(request(path, score))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            load.dropped += 1
            break
        load.taken.append(time.perf_counter() - begin)
        load.wrong.append(not head.startswith(b"HTTP/1.1 200 ") or not right(body, score, load))
    writer.close()


def right(body: bytes, score: float, load: Load) -> bool:
    """Whether a decision is the one of the certificate that it names."""
    if not load.thresholds:
        return True
    text = body.decode()
    digest = text.split('"certificate":"')[1][:64]
    threshold = load.thresholds.get(digest)
    return threshold is not None and ('"accepted":true' in text) == (score >= threshold)


async def press(port: int, path: str, clients: int, load: Load, until: Callable[[], object]) -> None:
    """Keep clients busy while `until` runs in a thread."""
    stop, begin = asyncio.Event(), time.perf_counter()
    busy = [asyncio.create_task(client(port, path, stop, load, 37 * k)) for k in range(clients)]
    await asyncio.to_thread(until)
    stop.set()
    await asyncio.gather(*busy)
    load.seconds += time.perf_counter() - begin


def latencies(gate_port: int, floor_port: int, thresholds: dict[str, float]) -> Iterator[pl.DataFrame]:
    """Turn about, so that both meet the same machine."""
    for clients in CLIENTS:
        floor, gate = Load(), Load(thresholds=thresholds)
        for _ in range(TURNS):
            for port, path, load in ((floor_port, "/empty", floor), (gate_port, "/v1/decide", gate)):
                asyncio.run(press(port, path, clients, load, partial(time.sleep, SECONDS)))
        for what, load in zip(ENDPOINTS, (floor, gate), strict=True):
            yield load.rows("service", what, clients)


def seen(rows: pl.DataFrame) -> list[str]:
    """Requests a second, and quantiles of their times."""
    answered = rows.drop_nulls("microseconds")
    taken = np.repeat(answered["microseconds"].to_numpy(), answered["count"].to_numpy())
    times = np.quantile(taken, QUANTILES) / 1e3
    return [f"{taken.size / rows['seconds'][0]:,.0f}", *(f"{value:.3g}" for value in times)]


def faults(rows: pl.DataFrame) -> tuple[int, int, int]:
    """Wrong responses, requests without one, and responses."""
    whether = pl.col("wrong"), pl.col("wrong").is_null(), pl.col("wrong").is_not_null()
    wrong, dropped, answered = (int(rows.filter(which)["count"].sum()) for which in whether)
    return wrong, dropped, answered


def service_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for clients in CLIENTS:
        for what in ENDPOINTS:
            rows = part(frame, "service", what, clients)
            wrong, dropped, answered = faults(rows)
            yield [what, str(clients), *seen(rows), f"{wrong} / {dropped} of {answered:,}"]


def renewal_row(frame: pl.DataFrame) -> list[str]:
    rows = part(frame, "renewals", ENDPOINTS[1], PRESSING)
    wrong, dropped, answered = faults(rows)
    return [f"{RELOADS}", *seen(rows), f"{wrong}", f"{dropped}", f"{answered:,}"]


def reloads(port: int, path: Path, texts: Sequence[str], thresholds: dict[str, float]) -> Load:
    """Renew again and again under load: in one step, or in two with half a file between."""
    load = Load(thresholds=thresholds)

    def renew() -> None:
        for i, text in enumerate(texts):
            if i % 2:
                path.write_text(text[: len(text) // 2])
                time.sleep(0.05)
                path.write_text(text)
            else:
                other = path.with_suffix(".new")
                other.write_text(text)
                other.replace(path)
            wait_for(port, digest_bytes(text.encode()))

    asyncio.run(press(port, "/v1/decide", PRESSING, load, renew))
    return load


def wait_for(port: int, digest: str) -> None:
    """Until the service decides by that certificate."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), 60) as connection, connection.makefile("rb") as reader:
            closing = f"{HOST}\r\nconnection: close".encode()
            connection.sendall(request("/v1/decide", 0.5).replace(HOST.encode(), closing))
            if digest.encode() in reader.read():
                return
    raise SystemExit("error: a renewed certificate was not taken within a minute")


FLOOR = """
import sys
from fastapi import FastAPI
from fastapi.responses import JSONResponse
import fedsrc.gate.service.serving as module
from fedsrc.gate.service.throttle import Throttle, Limits

app = FastAPI()

@app.post("/empty")
async def empty() -> JSONResponse:
    return JSONResponse({"accepted": False})

module.service = lambda gate, limits: Throttle(app, limits, lambda status: None)
listener = module.bind("127.0.0.1", 0)
ready = lambda: print(f"http://127.0.0.1:{listener.getsockname()[1]}:", file=sys.stderr, flush=True)
module.serve(None, listener, Limits(rate=1e9), ready)
"""


def measured() -> pl.DataFrame:
    """Measure everything, with the machine."""
    certificate = certified()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / CERTIFICATE
        texts = [renewed(certificate, 60 + i, (0.25, 0.75)[i % 2]) for i in range(RELOADS + 1)]
        thresholds = {digest_bytes(text.encode()): (0.25, 0.75)[i % 2] for i, text in enumerate(texts)}
        path.write_text(texts[0])
        found = list(in_process(path))
        with service(path) as port, process("-c", FLOOR) as floor_port:
            found += latencies(port, floor_port, thresholds)
            found.append(reloads(port, path, texts[1:], thresholds).rows("renewals", ENDPOINTS[1], PRESSING))
    facts = {
        "machine": platform.machine(), "cores": str(os.cpu_count()), "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(), **{name: version(name) for name in PARTS},
    }  # fmt: skip
    return tally(pl.concat(found)).with_columns(pl.lit(value).alias(name) for name, value in facts.items())


def tally(frame: pl.DataFrame) -> pl.DataFrame:
    """Count rows that say the same, so that a file of all requests is small; only their order is lost."""
    counted = frame.group_by(frame.columns, maintain_order=True).len("count")
    return counted.sort("table", "what", "clients", "microseconds", "rate", "wrong")


def kept(table: str, what: str, clients: int, **columns: object) -> pl.DataFrame:
    """Rows of one setting; what was not measured there is none."""
    frame = pl.DataFrame({**dict.fromkeys(MEASURED), **columns}, schema=MEASURED)
    return frame.select(
        pl.lit(table).alias("table"), pl.lit(what).alias("what"), pl.lit(clients).alias("clients"), pl.all()
    )


def part(frame: pl.DataFrame, table: str, what: str, clients: int) -> pl.DataFrame:
    """Return the rows of one setting; of threads in process, of clients elsewhere."""
    return frame.filter((pl.col("table") == table) & (pl.col("what") == what) & (pl.col("clients") == clients))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from all turns and requests."""
    decided, served = markdown(IN_PROCESS, process_rows(frame)), markdown(SERVED, service_rows(frame))
    renewals = markdown(RENEWED, [renewal_row(frame)])
    return [
        HEAD, machine(frame.row(0, named=True)), PROCESS_HEAD, decided, SERVICE_HEAD, served, RELOAD_HEAD, renewals
    ]  # fmt: skip


def main() -> None:
    frame = measured()
    frame.write_parquet(KEPT, compression="zstd", compression_level=19)
    publish("gate.md", page(frame))
    if any(faults(frame.filter(pl.col("table") == "renewals"))[:2]):
        sys.exit(1)


def machine(on: dict[str, str]) -> str:
    parts = ", ".join(f"{name} {on[name]}" for name in PARTS)
    return f"""\
Times are of one machine ({on["machine"]}, {on["cores"]} cores that clients, service and other work share;
load average {on["load"]} at the end; Python {on["python"]}, {parts}) and will differ on
another. Compare with the floor, which was measured in the same run. Nothing in the tests depends on a clock. Each turn,
and the time of every request to the microsecond, is in `research/results/gate.parquet`."""


IN_PROCESS = ("what", *(f"decisions a second, {n} thread{'s' * (n > 1)}" for n in THREADS), "µs a call", "requirement")
TIMES = tuple(f"p{100 * q:g} ms" for q in QUANTILES)
SERVED = ("what", "clients", "requests a second", *TIMES, "wrong / dropped")
RENEWED = ("renewals", "requests a second", *TIMES, "wrong", "dropped", "requests")

HEAD = """\
# The gate: decisions a second, latency under load, renewals under load

Made by

    python -m research.benchmarks.gate"""

PROCESS_HEAD = """\
## In process

1,000 random scores, again and again, for a second; the best of three turns. Python runs one thread at a time, so four
threads share what one has. Every call looks at the clock, the score and the certificate in force."""

SERVICE_HEAD = f"""\
## As a service on loopback

`fedsrc gate serve` as a process of its own, one process on one core. Clients with keep-alive connections, each sending
one request after another, for {TURNS} turns of {SECONDS:g} seconds, turn about with the floor: an empty endpoint of the
same FastAPI, uvicorn, limits and settings, which reads no body and decides nothing. With more clients than the service
can keep up with, latency is the time in the queue. Each response was checked: its decision must be the one of the
certificate that it names."""

RELOAD_HEAD = f"""\
## {RELOADS} renewals under load

{PRESSING} clients ask without a pause while the certificate is replaced {RELOADS} times, threshold 0.25 and 0.75 by
turns: every other time in one step, every other time written in two pieces with a pause between. Wrong is a decision
that is not the one of the certificate it names, or any status but 200; dropped is a request without a response."""


if __name__ == "__main__":
    main()
