"""A site's side of Flower: a SuperNode beside the site's process, restarted when it dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.processes import Child, Tls, end, environment, free_port, left_behind, program

Tell = Callable[[str], None]
LOG = "supernode.log"
FIRST_DELAY, LONGEST_DELAY = 5.0, 40.0  # seconds; inside Flower's heartbeat a node key cannot be used again
GRACE = 8.0  # seconds for what an earlier SuperNode has left to end by itself
SETTLED = 60.0  # seconds after which a SuperNode was accepted: a later crash resets the back-off


@dataclass(frozen=True)
class NodePlan:
    """The SuperNode that a site wants beside it."""

    site: str
    socket: Path
    superlink: str
    home: Path
    tls: Tls = field(default_factory=Tls)
    node_key: Path | None = None


def supernode_command(plan: NodePlan) -> list[str]:
    """Return the command that starts the SuperNode. Its configuration names the site and the socket only."""
    place = str(plan.socket.resolve())
    if "'" in place or "'" in plan.site:
        raise FedsrcError("a quote in the site's name or the socket's path", hint="choose another `socket=`")
    command = [program("flower-supernode"), "--superlink", plan.superlink, "--host", "127.0.0.1"]
    command += ["--port", str(free_port()), "--node-config", f"site='{plan.site}' socket='{place}'"]
    if plan.tls.ca is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(plan.tls.ca)]
    return command if plan.node_key is None else [*command, "--auth-supernode-private-key", str(plan.node_key)]


class NodeKeeper:
    """Keeps a SuperNode running until it is stopped."""

    def __init__(self, plan: NodePlan, tell: Tell) -> None:
        self._plan, self._tell = plan, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep)

    def start(self) -> None:
        supernode_command(self._plan)  # raises here what is wrong with the plan
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _keep(self) -> None:
        end(left_behind(self._plan.home), GRACE)  # of a site's process that was killed
        delay = FIRST_DELAY
        while not self._over.is_set():
            started = time.monotonic()
            try:
                ended = self._run_once()
            except (OSError, FedsrcError) as error:  # no memory, no disk, no program: a retry may succeed
                ended = str(error)
            if time.monotonic() - started > SETTLED:
                delay = FIRST_DELAY
            if not self._over.is_set():
                log = self._plan.home / LOG
                self._tell(f"SuperNode ended ({ended}; see {log}); it is started again in {delay:g} seconds")
            self._over.wait(delay)
            delay = min(2 * delay, LONGEST_DELAY)

    def _run_once(self) -> str:
        """Run a SuperNode until it ends or is stopped; return how it ended."""
        with Child(supernode_command(self._plan), environment(self._plan.home), self._plan.home / LOG) as child:
            self._tell(f"SuperNode started (process {child.pid})")
            while child.status is None and not self._over.wait(0.5):
                pass
            return f"status {child.status}"
