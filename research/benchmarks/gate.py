"""How fast the gate decides, in process and as a service under load, and what 100 renewals under load do to it.

Writes docs/results/gate.md. Run: python -m research.benchmarks.gate
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

from fedsrc.common.canonical import digest_bytes
from fedsrc.gate.gate import Gate
from fedsrc.protocol.names import CERTIFICATE
from research.benchmarks.gate_common import TRUSTED, certified, process, renewed, service
from research.pages import markdown, publish

AIM = 100_000  # decisions a second
SCORES = [float(score) for score in np.random.default_rng(1).random(1_000)]
THREADS = (1, 4)
CLIENTS, SECONDS, TURNS = (1, 16, 64), 4.0, 3
RELOADS = 100
QUANTILES = (0.5, 0.9, 0.99, 0.999)


# ---------------------------------------------------------------- in process


def each(decide: Callable[[float], object]) -> None:
    for score in SCORES:
        decide(score)


def rate(work: Callable[[], object], threads: int, seconds: float = 1.0) -> float:
    """Decisions a second of so many threads, the best of three turns. `work` decides on all SCORES."""
    return max(_turn(work, threads, seconds) for _ in range(3))


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


def in_process(path: Path) -> Iterator[list[str]]:
    gate = Gate(path, trusted=[TRUSTED])
    threshold = gate.status().threshold
    assert threshold is not None
    ways: dict[str, Callable[[], object]] = {
        "floor: a function that returns `score >= threshold`": partial(each, lambda score: score >= threshold),
        "`gate.accept(score)`": partial(each, gate.accept),
        "`gate.decide(score)`": partial(each, gate.decide),
        "`gate.decide_all(scores)`, 1,000 scores": partial(gate.decide_all, SCORES),
    }
    for name, work in ways.items():
        rates = [rate(work, threads) for threads in THREADS]
        least = min(rates)
        verdict = "" if name.startswith("floor") else f"at least {AIM:,}: {'yes' if least >= AIM else 'no'}"
        yield [name, *(f"{each_:,.0f}" for each_ in rates), f"{1e6 / rates[0]:.2g}", verdict]


# ---------------------------------------------------------------- the service under load


@dataclass
class Load:
    """What clients saw: seconds of each request, responses that were wrong, requests without a response."""

    taken: list[float] = field(default_factory=list)
    wrong: list[bytes] = field(default_factory=list)
    dropped: int = 0
    thresholds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def row(self) -> list[str]:
        times = np.quantile(self.taken, QUANTILES) * 1e3
        return [f"{len(self.taken) / self.seconds:,.0f}", *(f"{value:.3g}" for value in times)]


def request(path: str, score: float) -> bytes:
    body = f'{{"score": {score!r}}}'.encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: gate\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
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
        if not head.startswith(b"HTTP/1.1 200 ") or not right(body, score, load):
            load.wrong.append(head + body)
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


def latencies(gate_port: int, floor_port: int, thresholds: dict[str, float]) -> Iterator[list[str]]:
    """Turn about, so that both meet the same machine."""
    for clients in CLIENTS:
        floor, gate = Load(), Load(thresholds=thresholds)
        for _ in range(TURNS):
            for port, path, load in ((floor_port, "/empty", floor), (gate_port, "/v1/decide", gate)):
                asyncio.run(press(port, path, clients, load, partial(time.sleep, SECONDS)))
        yield ["floor: an empty endpoint", str(clients), *floor.row(), counts(floor)]
        yield ["`/v1/decide`", str(clients), *gate.row(), counts(gate)]


def counts(load: Load) -> str:
    return f"{len(load.wrong)} / {load.dropped} of {len(load.taken):,}"


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

    asyncio.run(press(port, "/v1/decide", 16, load, renew))
    return load


def wait_for(port: int, digest: str) -> None:
    """Until the service decides by that certificate."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), 60) as connection, connection.makefile("rb") as reader:
            connection.sendall(request("/v1/decide", 0.5).replace(b"host: gate", b"host: gate\r\nconnection: close"))
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


def main() -> None:
    certificate = certified()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / CERTIFICATE
        texts = [renewed(certificate, 60 + i, (0.25, 0.75)[i % 2]) for i in range(RELOADS + 1)]
        thresholds = {digest_bytes(text.encode()): (0.25, 0.75)[i % 2] for i, text in enumerate(texts)}
        path.write_text(texts[0])
        decided = markdown(IN_PROCESS, in_process(path))
        with service(path) as port, process("-c", FLOOR) as floor_port:
            served = markdown(SERVED, latencies(port, floor_port, thresholds))
            load = reloads(port, path, texts[1:], thresholds)
    renewals = markdown(RENEWED, [[f"{RELOADS}", *load.row(), f"{len(load.wrong)}", f"{load.dropped}",
                                   f"{len(load.taken):,}"]])  # fmt: skip
    publish("gate.md", [HEAD, machine(), PROCESS_HEAD, decided, SERVICE_HEAD, served, RELOAD_HEAD, renewals])
    if load.wrong or load.dropped:
        sys.exit(1)


def machine() -> str:
    parts = ", ".join(f"{name} {version(name)}" for name in ("fastapi", "uvicorn", "h11"))
    return f"""\
Times are of one machine ({platform.machine()}, {os.cpu_count()} cores that clients, service and other work share;
load average {os.getloadavg()[0]:.1f} at the end; Python {platform.python_version()}, {parts}) and will differ on
another. Compare with the floor, which was measured in the same run. Nothing in the tests depends on a clock."""


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

16 clients ask without a pause while the certificate is replaced {RELOADS} times, threshold 0.25 and 0.75 by turns:
every other time in one step, every other time written in two pieces with a pause between. Wrong is a decision that is
not the one of the certificate it names, or any status but 200; dropped is a request without a response."""


if __name__ == "__main__":
    main()
