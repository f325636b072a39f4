"""A site's own process, put together: guard, door, log and, if wanted, a SuperNode beside them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path

from fedsrc.federation.guard import Guard
from fedsrc.federation.site_socket import Door
from fedsrc.federation.supernode import NodeKeeper, NodePlan
from fedsrc.keys import Key
from fedsrc.ledger import Ledger
from fedsrc.registration import Registration
from fedsrc.stream import Table

LOG_BYTES, LOG_FILES = 10_000_000, 5  # whoever knocks cannot fill the disk


@dataclass(frozen=True)
class SitePlan:
    """A site as its operator wants it to run."""

    registration: Registration
    name: str
    table: Table
    ledger: Path
    key: Key
    socket: Path
    node: NodePlan | None = None
    node_key: str | None = None  # the name of the node key that carries its word
    fresh: bool = False


def serve_site(plan: SitePlan, tell: Callable[[str], None]) -> None:
    """Answer until interrupted."""
    with closing(Ledger(plan.ledger, must_exist=True)) as ledger:
        guard = Guard(
            plan.registration, plan.name, ledger, lambda: plan.table, plan.key,
            fresh=plan.fresh, node_key=plan.node_key, tell=tell,
        )  # fmt: skip
        units = guard.open()
        door = Door(plan.socket, guard.answer, tell=tell)
        keeper = None if plan.node is None else NodeKeeper(plan.node, tell)
        tell(f"site {plan.name!r} listens at {plan.socket} with {units:,} units, for {plan.registration.digest}")
        try:
            if keeper is not None:
                keeper.start()
            door.serve()
        finally:
            door.close()
            if keeper is not None:
                keeper.stop()
            tell(f"site {plan.name!r} has stopped")


def open_log(path: Path | None) -> Callable[[str], None]:
    """The site's own log: stderr, and a file that does not grow without end."""
    log = logging.getLogger("fedsrc.site")
    log.setLevel(logging.INFO)
    log.propagate = False
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8"))
    words = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    words.converter = time.gmtime
    for each in handlers:
        each.setFormatter(words)
    log.handlers = handlers
    return lambda text: log.info(_one_line(text))


def _one_line(text: str) -> str:
    """A line of the log is one event, whatever the other end put into it."""
    return " | ".join("".join(c if c.isprintable() else "?" for c in line[:500]) for line in text.splitlines())
