"""A site's own process: guard, socket and, if wanted, a SuperNode beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fedsrc.common.signing import Key
from fedsrc.federation.flower.supernode import NodeKeeper, NodePlan
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.site_socket import Door
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.site.ledger import Ledger


def serve_site(
    registration: Registration, name: str, table: Table, ledger: Path, key: Key, *, socket: Path,
    node: NodePlan | None, node_key: str | None, fresh: bool, tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Answer until interrupted. `node_key` names the key of the node that carries the site's messages."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        guard = Guard(registration, name, book, lambda: table, key, fresh=fresh, node_key=node_key, tell=tell)
        units = guard.open()
        door = Door(socket, guard.letter, tell=tell)
        keeper = None if node is None else NodeKeeper(node, tell)
        tell(f"site {name!r} listens at {socket} with {units:,} units, for {registration.digest}")
        try:
            if keeper is not None:
                keeper.start()
            door.serve()
        finally:
            if keeper is not None:
                keeper.stop()
            door.close()
            tell(f"site {name!r} has stopped")
