"""Attacks on what runs and what reads (A1 to A3): the gate, the node door, and files of a stranger.

Real processes, sockets and files. Seconds are of the machine that ran this, and say only what is fast and what hangs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.node_proxy import Way, make_app, make_server
from fedsrc.federation.local import certify_table
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.records.table import read_records
from research.attacks.sections import Record, Row, Section, recorded, some

SIGNALS, IDLE, PATIENCE, MEMORY = 200_000, (0, 64, 256), 60.0, 4 << 30
KEY = Key.from_private_bytes(b"\x07" * 32)
CALL = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"


def certified(folder: Path) -> Path:
    """The folder of a run that ends in a certificate."""
    rng, path = np.random.default_rng(1), folder / "t.csv"
    loss = (rng.random(3000) < 0.3) * 1.0
    score = np.clip(np.where(loss, 0.35, 0.75) + 0.12 * rng.standard_normal(3000), 0, 1)
    pl.DataFrame({"id": np.arange(3000), "score": score, "loss": loss}).write_csv(path)
    records = read_records(path)
    reg = register(Choices(0.2, 4.0, public_development=True), records, development_part(records, "record", 0.2))
    certify_table(reg, records, folder / "run", folder / "ledger", KEY)
    return folder / "run"


# ---------------------------------------------------------------- A1: the gate


@contextlib.contextmanager
def gate(run_folder: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """`fedsrc gate serve` as a process, and a way to ask it about a score of 1."""
    command = [sys.executable, "-m", "fedsrc.cli", "gate", "serve", str(run_folder), "--trust", public_hex(KEY)]
    started = subprocess.Popen([*command, "--port", "0", "--reload-seconds", "0.05"], stderr=subprocess.PIPE, text=True)
    try:
        assert started.stderr is not None
        port = int(next(line for line in started.stderr if line.startswith("Gate at http")).split(":")[2])
        yield started, lambda: _decided(port)
    finally:
        started.kill()
        started.communicate()


def _decided(port: int) -> str:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("POST", "/v1/decide", b'{"score": 1}', {"content-type": "application/json"})
        return str(json.loads(connection.getresponse().read())["reason"])


def halts(run_folder: Path, signals: int) -> Record:
    """Halted by a signal, killed with -9 and started again; then a storm of signals."""
    with gate(run_folder) as (running, ask):
        before = ask()
        running.send_signal(signal.SIGUSR1)
        halted = _until(ask, lambda said: said != before)
        start, note = time.monotonic(), run_folder / f"{CERTIFICATE}.halt"
        _until(lambda: str(note.is_file()), lambda said: said == "True")
        written = time.monotonic() - start
        running.kill()
        running.wait(PATIENCE)
    with gate(run_folder) as (running, ask):
        restarted = ask()
        for _ in range(signals):
            os.kill(running.pid, signal.SIGUSR1)
        return {"before": before, "halted": halted, "written": written, "restarted": restarted, "signals": signals,
                "after_storm": ask(), "alive": running.poll() is None}  # fmt: skip


def _until(ask: Callable[[], str], true: Callable[[str], bool]) -> str:
    end = time.monotonic() + PATIENCE
    while not true(said := ask()) and time.monotonic() < end:
        time.sleep(0.02)
    return said


# ---------------------------------------------------------------- A2: the node door


def waits(idle: int) -> float:
    """Seconds until a node's call is answered while a stranger holds so many bodies that never end."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(b"fine"))

    superlink = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://superlink")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=300)))
        server = make_server(make_app(superlink), Way("127.0.0.1", 0, 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            for _ in range(idle):
                link = stack.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
                link.sendall(CALL)
            start = time.monotonic()
            with socket.create_connection(listener.getsockname(), 2 * PATIENCE) as node:
                node.sendall(CALL + b"x")
                assert node.recv(100).startswith(b"HTTP/1.1 200")
            return time.monotonic() - start
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


# ---------------------------------------------------------------- A3: files of a stranger


def strange_files(run_folder: Path, folder: Path) -> list[Record]:
    """`fedsrc verify` of a run folder in which one file is a device or a pipe, within 4 GiB."""
    found = []
    for name in (REGISTRATION, TRANSCRIPT, CERTIFICATE):
        for kind in ("device", "pipe"):
            place = folder / f"{kind}-{name}"
            shutil.copytree(run_folder, place)
            (place / name).unlink()
            (place / name).symlink_to("/dev/zero") if kind == "device" else os.mkfifo(place / name)
            found.append({"file": name, "kind": kind, **_command("verify", str(place))})
    return found


def _command(*args: str) -> Record:
    """A command, its exit status, what it said, and its seconds; a command that hangs is stopped."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fedsrc.cli", *args], capture_output=True, text=True, check=False, timeout=PATIENCE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"exit": None, "said": "it hangs", "seconds": PATIENCE}
    said = next((line for line in done.stderr.splitlines() if line.startswith("error")), done.stderr[-200:])
    return {"exit": done.returncode, "said": said.rpartition("/")[2], "seconds": time.monotonic() - start}


def bombs(folder: Path, rows_of: int) -> list[Record]:
    """Small files that unfold: a dotted TOML key of 40 kB, and a Parquet file of very many equal rows."""
    text = ".".join(["a"] * 20_000) + " = 1"
    start = time.monotonic()
    said = _refusal(lambda: Registration.from_toml(text))
    found = [{"what": f"a dotted TOML key of {len(text):,} bytes", "said": said, "seconds": time.monotonic() - start}]
    path, half = folder / "bomb.parquet", pl.repeat(0.5, rows_of, dtype=pl.Float64)
    pl.select(score=half, loss=half).write_parquet(path, compression="zstd")
    start = time.monotonic()
    said = _refusal(lambda: read_records(path))
    what = f"a Parquet file of {path.stat().st_size:,} bytes and {rows_of:,} rows"
    return [*found, {"what": what, "said": said, "seconds": time.monotonic() - start}]


def _refusal(read: Callable[[], Any]) -> str:
    try:
        read()
    except FedsrcError as error:
        return error.what
    return "read"


# ---------------------------------------------------------------- the section


def run(scale: float = 1.0) -> Record:
    """The gate, the door, and files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_folder = certified(folder)
        gates = folder / "gate"
        shutil.copytree(run_folder, gates)
        return {
            "gate": halts(gates, some(SIGNALS, scale)),
            "door": [{"idle": idle, "seconds": waits(idle)} for idle in IDLE],
            "files": strange_files(run_folder, folder),
            "bombs": bombs(folder, max(4_000_000, some(30_000_000, scale))),
        }


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    found, door, files = record["gate"], record["door"], record["files"]
    refused = sum(each["exit"] == 1 for each in files)
    toml, parquet = record["bombs"]
    return [
        Row(
            "A1: a halted gate is killed with -9 and started again",
            recorded("it accepts"),
            f"halted: “{found['halted']}”; started again: “{found['restarted']}”",
            "What the gate says to a score of 1. The halt lies beside the certificate; it was there"
            f" {found['written']:.2f} s after the first answer that said so. A kill in between can make it forgotten.",
        ),
        Row(
            f"A1: {found['signals']:,} signals in a row",
            recorded("the process dies"),
            f"{'alive' if found['alive'] else 'DEAD'}, “{found['after_storm']}”",
            "SIGUSR1 halts a gate; the handler sets a flag.",
        ),
        Row(
            "A2: a stranger holds bodies open that never end",
            recorded("a node's call waits 29 s with 64 of them, 119 s with 256"),
            ", ".join(f"{each['seconds']:.2f} s with {each['idle']}" for each in door),
            "Seconds until a node's call is answered by the node door, over a socket.",
        ),
        Row(
            "A3: a file of a run folder is a device without end, or a pipe",
            recorded("`verify` hangs or is killed"),
            f"{refused} of {len(files)} refused with exit status 1, at most"
            f" {max(each['seconds'] for each in files):.1f} s: “{files[0]['said']}”",
            "`fedsrc verify` as a process of its own, within 4 GiB; most of the time is its start.",
        ),
        Row(
            f"A3: {toml['what']}",
            recorded("3.8 s"),
            f"{toml['seconds']:.3f} s: “{toml['said']}”",
            "It is refused before the parser sees it.",
        ),
        Row(
            f"A3: {parquet['what']}",
            recorded("`--check` passes 60 s and 1.5 GB"),
            f"{parquet['seconds']:.3f} s: “{parquet['said']}”",
            "It is refused by its footer, before a row is unpacked.",
        ),
    ]


SECTION = Section("service", "Services and files of a stranger", run, rows)
