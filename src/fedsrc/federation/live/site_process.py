"""A site's own process: guard, socket and, if wanted, a SuperNode beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fedsrc.common.places import sent_beside
from fedsrc.common.signing import Key, load
from fedsrc.federation.flower.supernode import NodeKeeper, NodePlan
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.site_socket import Door
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.site.ledger import Ledger


def serve_site(
    registration: Registration, name: str, table: Table, ledger: Path, key: Key, *, mask: Path | None = None,
    socket: Path, node: NodePlan | None, node_key: str | None, fresh: bool, tell: Callable[[str], None],
    ready: Callable[[int], None] = lambda _: None,
) -> None:  # fmt: skip
    """Answer until interrupted. `mask` is the file of the site's mask key, in a cohort; `node_key` names the key of the
    node that carries its messages; `ready` is called with the site's units once it listens."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        secret, sent = (None, None) if mask is None else (load(mask), sent_beside(mask))
        guard = Guard(
            registration, name, book, lambda: table, key, mask=secret, sent=sent, fresh=fresh, node_key=node_key,
            tell=tell,
        )  # fmt: skip
        units = guard.open()
        door = Door(socket, guard.letter, tell=tell)
        keeper = None if node is None else NodeKeeper(node, tell)
        tell(f"site {name!r} listens at {socket} with {units:,} units, for {registration.digest}")
        ready(units)
        try:
            if keeper is not None:
                keeper.start()
            door.serve()
        finally:
            if keeper is not None:
                keeper.stop()
            door.close()
            tell(f"site {name!r} has stopped")
