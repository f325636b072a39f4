"""The server's side of Flower: a SuperLink, and runs of our app on it until there is a certificate.

Flower does not resume a run, but the transcript can be resumed: whatever dies, a new Flower run continues it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower import app as flower_app
from fedsrc.federation.flower import processes
from fedsrc.federation.flower.grid import VARIABLE, Settings
from fedsrc.federation.flower.node_proxy import Way
from fedsrc.federation.flower.processes import LOOPBACK, Child, Tls, environment, free_port, program
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.server.folder import LOG
from fedsrc.server.status import is_held

Tell = Callable[[str], None]
CONNECTION = "fedsrc"
HOME = "flower"  # in the run folder: Flower's own state and logs, nothing that the certificate needs
TRIES = 3  # Flower runs in a row that add nothing to the transcript
PAUSE = 5.0  # seconds after a Flower run that added nothing, the longer the more
GRACE = 6.0  # seconds for a Flower run to be over once our loop has let go of the transcript


@dataclass(frozen=True)
class Address:
    """Where nodes find the SuperLink."""

    host: str = "127.0.0.1"
    port: int = 8000


@dataclass(frozen=True)
class ServerPlan:
    """A live run as the server's operator wants it. With `running`, somebody else starts and stops its SuperLink."""

    settings: Settings
    address: Address = field(default_factory=Address)
    running: bool = False
    app: Path = Path(flower_app.__file__).parent
    tls: Tls = field(default_factory=Tls)
    node_keys: dict[str, Path] = field(default_factory=dict)  # public node key files by site
    inner_port: int = field(default_factory=free_port)

    @property
    def home(self) -> Path:
        return self.settings.folder / HOME

    @property
    def behind_door(self) -> bool:
        """Whether nodes of other machines connect through a proxy that passes their calls alone."""
        return not self.running and self.address.host not in LOOPBACK[:2]

    @property
    def superlink_port(self) -> int:
        """The port of 127.0.0.1 that the SuperLink listens at."""
        return self.inner_port if self.behind_door else self.address.port

    @property
    def door(self) -> Way:
        files = (str(path.resolve()) if path else "" for path in (self.tls.ca, self.tls.certificate, self.tls.key))
        return Way(self.address.host, self.address.port, self.superlink_port, *files)


def supervise(plan: ServerPlan, tell: Tell) -> None:
    """Start a SuperLink, submit runs until there is a certificate, and stop everything."""
    plan.settings.write()
    _write_connection(plan)
    certificate, failures = plan.settings.folder / CERTIFICATE, 0
    while not certificate.exists():
        try:
            with _SuperLink(plan, tell) as link:
                while link.status is None and failures < TRIES and not certificate.exists():
                    before = _size(plan)
                    link.register_nodes()
                    _submit(plan, link, tell)
                    failures = 0 if _size(plan) > before else failures + 1
                    time.sleep(PAUSE * failures)
        except FedsrcError as error:  # the SuperLink died before it listened, or while nodes were registered
            failures += 1
            if failures >= TRIES:
                raise
            tell(f"trying again: {error.what}")
        if failures >= TRIES:
            raise FedsrcError(
                f"{TRIES} Flower runs in a row added nothing to the transcript",
                where=str(plan.home),
                hint="its logs say why; the same command continues the run",
            )


def superlink_command(plan: ServerPlan) -> list[str]:
    """Return the command that starts the SuperLink."""
    tls = plan.tls
    command = [program("flower-superlink"), "--host", LOOPBACK[0], "--port", str(plan.superlink_port)]
    command += ["--database", str((plan.home / "state.db").resolve()), "--disable-runtime-dependency-installation"]
    if tls.ca is None or tls.certificate is None or tls.key is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(tls.ca), "--ssl-certfile", str(tls.certificate), "--ssl-keyfile", str(tls.key)]
    return [*command, "--enable-supernode-auth"] if plan.node_keys else command


class _SuperLink(AbstractContextManager["_SuperLink"]):
    """The SuperLink that runs are submitted to: ours, with the door for nodes of other machines before it, or one that
    runs already. When a process of ours ends, all are stopped; a SuperLink of somebody else is left alone."""

    def __init__(self, plan: ServerPlan, tell: Tell) -> None:
        self._plan, self._tell = plan, tell
        self._children: list[Child] = []
        self._registered = False
        if plan.running:
            place = f"{plan.address.host}:{plan.address.port}"
            tell(f"using the SuperLink at {place}; it must have been started with {VARIABLE}={plan.settings.path}")
            return
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise

    def _start_all(self) -> None:
        plan, (host, port) = self._plan, (self._plan.address.host, self._plan.address.port)
        processes.end(processes.left_behind(plan.home), GRACE)  # of a `fedsrc server` that was killed
        processes.check_free(LOOPBACK[0], plan.superlink_port)
        if plan.behind_door:
            processes.check_free(host, port)
        more = {VARIABLE: str(plan.settings.path)}
        link = self._start(superlink_command(plan), environment(plan.home, more), plan.home / "superlink.log")
        processes.wait_for_port(LOOPBACK[0], plan.superlink_port, link)
        self._tell(f"SuperLink is up at 127.0.0.1:{plan.superlink_port} (process {link.pid})")
        if plan.behind_door:
            door = self._start(plan.door.command(), environment(plan.home), plan.home / "door.log")
            processes.wait_for_port(host, port, door)
            self._tell(f"nodes of other machines connect at {host}:{port} (process {door.pid})")

    def _start(self, command: list[str], env: dict[str, str], log: Path) -> Child:
        self._children.append(Child(command, env, log))
        return self._children[-1]

    @property
    def status(self) -> int | None:
        """The exit status of the first process that ended, or None while all run."""
        return next((child.status for child in self._children if child.status is not None), None)

    def register_nodes(self) -> None:
        """Make the node keys known: once to a SuperLink of ours, always to another, which may have been restarted."""
        if self._plan.running or not self._registered:
            for site, key in self._plan.node_keys.items():
                _register_node(self._plan, site, key, self._tell)
        self._registered = True

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.stop()


def _register_node(plan: ServerPlan, site: str, key: Path, tell: Tell) -> None:
    """Register a node key; one that is known already stays."""
    command = [program("flwr"), "supernode", "register", str(key.resolve()), CONNECTION, "--name", site]
    lines: list[str] = []
    with Child(command, environment(plan.home), plan.home / "nodes.log", lines.append) as child:
        while child.status is None:
            time.sleep(0.1)
    text = " ".join(lines)
    if child.status != 0 and "already" not in text and "in use" not in text:
        raise FedsrcError(f"node key of site {site!r} was not accepted: {text[:300]}", where=str(key))
    tell(f"node key of site {site!r} is registered")


def _submit(plan: ServerPlan, link: _SuperLink, tell: Tell) -> None:
    """Submit one Flower run and follow it until it is over.

    The run loop holds the transcript while it lives. Once it has let go, the run ends soon, or the loop was killed,
    which Flower would notice only a minute later.
    """
    command = [program("flwr"), "run", str(plan.app), CONNECTION, "--stream"]
    tell("submitting a Flower run that continues the transcript")
    log, held, let_go = plan.home / "run.log", False, 0.0
    with _Tail(plan.settings.folder / LOG, tell) as tail, Child(command, environment(plan.home), log) as stream:
        while stream.status is None and link.status is None:
            if is_held(plan.settings.folder / TRANSCRIPT):
                held, let_go = True, time.monotonic()
            elif held and time.monotonic() - let_go > GRACE:
                return
            tail.read()
            time.sleep(0.5)


class _Tail(AbstractContextManager["_Tail"]):
    """Tells new lines of the run loop's log as they are written: Flower passes its own logs on late."""

    def __init__(self, path: Path, tell: Tell) -> None:
        path.touch(mode=0o600)
        self._file, self._tell = path.open("rb"), tell
        self._file.seek(0, os.SEEK_END)

    def read(self) -> None:
        for line in self._file.readlines():
            self._tell(line.decode(errors="replace").rstrip())

    def __exit__(self, *_: object) -> None:
        with self._file:
            self.read()


def _size(plan: ServerPlan) -> int:
    path = plan.settings.folder / TRANSCRIPT
    return path.stat().st_size if path.exists() else 0


def _write_connection(plan: ServerPlan) -> None:
    """Tell Flower's command line where the SuperLink is."""
    host = plan.address.host if plan.running else LOOPBACK[0]
    place: dict[str, object] = {"address": f"{host}:{plan.superlink_port}"}
    if plan.tls.ca is None:
        place["insecure"] = True
    else:
        place["root-certificates"] = str(plan.tls.ca.resolve())
    text = tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: place}})
    write_whole(plan.home / "config.toml", text.encode())
