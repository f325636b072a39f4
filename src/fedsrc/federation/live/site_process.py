"""A site's own process: guard, socket and, if wanted, a SuperNode beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedsrc.common.signing import Key
from fedsrc.federation.flower.supernode import NodeKeeper, NodePlan
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.site_socket import Door
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.site.ledger import Ledger


@dataclass(frozen=True)
class SitePlan:
    """How an operator wants a site to run."""

    registration: Registration
    name: str
    table: Table
    ledger: Path
    key: Key
    socket: Path
    node: NodePlan | None = None
    node_key: str | None = None  # name of the key of the node that carries its messages
    fresh: bool = False


def serve_site(plan: SitePlan, tell: Callable[[str], None]) -> None:
    """Answer until interrupted."""
    with closing(Ledger(plan.ledger, must_exist=True)) as ledger:
        guard = Guard(
            plan.registration, plan.name, ledger, lambda: plan.table, plan.key,
            fresh=plan.fresh, node_key=plan.node_key, tell=tell,
        )  # fmt: skip
        units = guard.open()
        door = Door(plan.socket, guard.letter, tell=tell)
        keeper = None if plan.node is None else NodeKeeper(plan.node, tell)
        tell(f"site {plan.name!r} listens at {plan.socket} with {units:,} units, for {plan.registration.digest}")
        try:
            if keeper is not None:
                keeper.start()
            door.serve()
        finally:
            if keeper is not None:
                keeper.stop()
            door.close()
            tell(f"site {plan.name!r} has stopped")
