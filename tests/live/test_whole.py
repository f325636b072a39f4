"""Whole live runs with nothing killed: the demo from one command, and somebody's own SuperLink and SuperNodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedsrc.demo.parties import Parties, by_files, set_up
from fedsrc.federation.flower.grid import SETTINGS, VARIABLE
from fedsrc.federation.flower.processes import Child, environment, free_port, program
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.server.verify import verify

pytest.importorskip("flwr")
BIN = Path(sys.executable).parent
FEDSRC = str(BIN / "fedsrc")
SECONDS = 600.0


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short name: the sites' sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="fl") as folder:
        yield Path(folder)


def test_five_sites_from_one_command(tmp_path: Path) -> None:
    """TLS and node keys on loopback; it certifies, verifies, and equals the files mode."""
    command = [FEDSRC, "demo", "--live", "-o", str(tmp_path / "demo"), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert (body["status"], len(body["sites"])) == ("CERTIFIED", 5)
    assert "the same, byte for byte" in done.stderr
    assert verify(tmp_path / "demo" / "run").certificate.transcript == body["transcript"]
    for name in (TRANSCRIPT, CERTIFICATE):
        live, files = (tmp_path / "demo" / mode / name for mode in ("run", "by-files"))
        assert live.read_bytes() == files.read_bytes()


def test_ones_own_superlink_and_supernodes(tmp_path: Path) -> None:
    """Flower's processes are started by hand, as docs/live.md says; `fedsrc server` submits, `fedsrc site` answers."""
    parties = Parties(tmp_path, ("central", "east"), free_port())
    registration = set_up(parties)
    settings = parties.run.resolve() / SETTINGS
    place = f"127.0.0.1:{parties.port}"
    superlink = [
        program("flower-superlink"), "--host", "127.0.0.1", "--port", str(parties.port),
        "--ssl-ca-certfile", str(parties.ca), "--ssl-certfile", str(parties.of("server", "tls.pem")),
        "--ssl-keyfile", str(parties.of("server", "tls.key")), "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    server = [
        FEDSRC, "server", str(parties.registration), "-o", str(parties.run), "--own-superlink",
        "--port", str(parties.port), "--ca", str(parties.ca), "--key", str(parties.of("server", "server.key")),
    ]  # fmt: skip
    with ExitStack() as stack:
        home = environment(tmp_path / "flower", {VARIABLE: str(settings)})
        stack.enter_context(Child(superlink, home, tmp_path / "superlink.log"))
        for site in parties.sites:
            server += ["--node-key", f"{site}={parties.of(site, 'node.pub')}"]
            socket = parties.of(site, "socket")
            guard = [
                FEDSRC, "site", str(parties.registration), str(parties.table(site)), "--name", site,
                "--key", str(parties.of(site, "site.key")), "--socket", str(socket),
                "--node-key", str(parties.of(site, "node.pub")),
            ]  # fmt: skip
            stack.enter_context(Child(guard, dict(os.environ), parties.of(site, "out.log")))
        process = stack.enter_context(Child(server, dict(os.environ), tmp_path / "server.log"))
        registered = tmp_path / "server.log"
        wait(lambda: registered.exists() and "submitting" in registered.read_text(), process)
        for site in parties.sites:
            node = [
                program("flower-supernode"), "--superlink", place, "--host", "127.0.0.1", "--port", str(free_port()),
                "--root-certificates", str(parties.ca),
                "--auth-supernode-private-key", str(parties.of(site, "node.key")),
                "--node-config", f"site='{site}' socket='{parties.of(site, 'socket')}'",
            ]  # fmt: skip
            stack.enter_context(Child(node, environment(tmp_path / f"node-{site}"), parties.of(site, "node.log")))
        wait(lambda: process.status is not None, process)
        assert process.status == 0, registered.read_text()
    verify(parties.run)
    by_files(parties, registration, tmp_path / "by-files")
    assert (tmp_path / "by-files" / CERTIFICATE).read_bytes() == (parties.run / CERTIFICATE).read_bytes()


def wait(condition: Callable[[], bool], process: Child) -> None:
    end = time.monotonic() + SECONDS
    while not condition() and process.status is None:
        assert time.monotonic() < end, process.log.read_text()
        time.sleep(0.5)
