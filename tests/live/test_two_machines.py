"""Two machines as far as the network can tell: namespaces with addresses of their own, and if this Python can be run by
others, a SuperNode that runs as another user than the site. Needs root and `ip`; skipped elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from fedsrc.demo.parties import Parties
from fedsrc.federation.flower.processes import Child, environment, program
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow

pytest.importorskip("flwr")
FEDSRC = str(Path(sys.executable).parent / "fedsrc")
SECONDS = float(os.environ.get("FEDSRC_TEST_SECONDS", "300"))
NAMES = ("fedsrc-server", "fedsrc-site")
ADDRESSES = ("10.213.7.1", "10.213.7.2")
PORT = 8443
NOBODY = 65534


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def machines() -> Iterator[None]:
    """Two network namespaces, joined by a cable."""
    try:
        for name in NAMES:
            ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        ip("link", "add", "veth0", "netns", NAMES[0], "type", "veth", "peer", "name", "veth0", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            for words in (["addr", "add", f"{address}/24", "dev", "veth0"], ["link", "set", "veth0", "up"]):
                ip("-n", name, *words)
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in NAMES:
            ip("netns", "del", name)


def at(name: str, command: list[str]) -> list[str]:
    return [shutil.which("ip") or "ip", "netns", "exec", name, *command]


def wait(condition: Callable[[], bool], *processes: Child) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        logs = [process.log.read_text() for process in processes]
        assert time.monotonic() < end, logs
        assert all(process.status is None for process in processes), logs
        time.sleep(0.5)


def prepared(folder: Path) -> Parties:
    """One site on a public grid."""
    parties = Parties(folder, ("north",), PORT)
    public = make_trial(folder / "parties", parties.sites, ADDRESSES[:1])
    rows = [f"n{i},{(i * 37 % 100) / 100},{int(i * 37 % 100 < 30)}" for i in range(600)]
    parties.table("north").write_text("\n".join(["id,score,loss", *rows, ""]))
    choices = Choices(
        target_risk=0.2, epsilon=8.0, batch=150, rounds=4, grid=True, server_key=public["server"],
        site_keys={"north": public["north"]}, capacities={"north": 600},
    )  # fmt: skip
    registration = register_grid(choices, parties.sites)
    parties.registration.write_text(registration.to_toml())
    with closing(Ledger(parties.ledger("north"))) as ledger:
        allow(ledger, "north", registration, max_epsilon=8.0)
    return parties


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_site_on_another_machine(tmp_path: Path) -> None:
    parties = prepared(tmp_path / "t")
    own = tmp_path / "t" / "parties" / "north"
    door = Path(os.environ.get("TMPDIR", "/tmp")) / f"fedsrc-{os.getpid()}"  # pytest's folders are closed to others
    door.mkdir()
    os.chown(door, 0, NOBODY)
    door.chmod(0o2750)  # what lies in it belongs to the group
    for name in ("node.key", "node.pub"):
        shutil.copy(own / name, door / name)
        os.chown(door / name, NOBODY, NOBODY)
    shutil.copy(parties.ca, door / "ca.pem")
    (door / "ca.pem").chmod(0o644)
    (door / "home").mkdir()
    os.chown(door / "home", NOBODY, NOBODY)
    own.chmod(0o700)
    guard = [
        FEDSRC, "site", str(parties.registration), str(parties.table("north")), "--name", "north",
        "--key", str(own / "site.key"), "--socket", str(door / "socket"), "--node-key", str(own / "node.pub"),
    ]  # fmt: skip
    server = [
        FEDSRC, "server", str(parties.registration), "-o", str(parties.run), "--host", ADDRESSES[0],
        "--port", str(PORT), "--ca", str(parties.ca), "--certificate", str(parties.of("server", "tls.pem")),
        "--certificate-key", str(parties.of("server", "tls.key")), "--key", str(parties.of("server", "server.key")),
        "--node-key", f"north={own / 'node.pub'}",
    ]  # fmt: skip
    other = other_user()
    node = [
        program("flower-supernode"), "--superlink", f"{ADDRESSES[0]}:{PORT}", "--root-certificates",
        str(door / "ca.pem"), "--auth-supernode-private-key", str(door / "node.key"),
        "--node-config", f"site='north' socket='{door / 'socket'}'",
    ]  # fmt: skip
    if other:
        reads = subprocess.run([*other, "cat", str(parties.table("north"))], capture_output=True, check=False)
        assert reads.returncode != 0, "the SuperNode's user can read the records"
    try:
        with machines(), ExitStack() as stack:
            start = stack.enter_context
            start(Child(at(NAMES[1], guard), dict(os.environ), own / "out.log"))
            process = start(Child(at(NAMES[0], server), dict(os.environ), tmp_path / "server.log"))
            wait(lambda: "submitting" in process.log.read_text(), process)
            assert knock(tmp_path, parties.ca) == {"/v1/fleet/pull-messages": 4, "/v1/control/list-runs": 404, "/": 404}
            env = environment(door / "home") | {"HOME": str(door / "home")}
            start(Child(at(NAMES[1], [*other, *node]), env, own / "node.log"))
            wait(lambda: process.status is not None or (parties.run / CERTIFICATE).exists())
            while process.status is None:
                time.sleep(0.5)
            assert process.status == 0, process.log.read_text()
    finally:
        shutil.rmtree(door)
    verify(parties.run)


def other_user() -> list[str]:
    """How to run something as a user who owns nothing; empty where such a user cannot run this Python."""
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    tried = subprocess.run([*words, "sh", "-c", f"'{sys.executable}' -c pass"], capture_output=True, check=False)
    return words if tried.returncode == 0 else []


def knock(folder: Path, ca: Path) -> dict[str, int]:
    """Asked from the site's machine: which of Flower's paths lead anywhere (4: an error of Flower's own)."""
    script = folder / "knock.py"
    script.write_text(
        "import http.client, json, ssl, sys\n"
        "found = {}\n"
        "for path in ('/v1/fleet/pull-messages', '/v1/control/list-runs', '/'):\n"
        f"    link = http.client.HTTPSConnection({ADDRESSES[0]!r}, {PORT}, timeout=20,"
        f" context=ssl.create_default_context(cafile={str(ca)!r}))\n"
        "    link.request('POST', path, b'nonsense')\n"
        "    status = link.getresponse().status\n"
        "    found[path] = status if status == 404 else status // 100\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run(at(NAMES[1], [sys.executable, str(script)]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found
