"""Real processes: SuperLink, SuperNodes, sites and server on this machine, with TLS and node keys, killed by their ids.

Slow; `make test-live` runs them where Flower is installed. Nothing here looks at how long anything takes, except to
give up after a while.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from fedsrc.planning.plan import Wish
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE
from tests.live.faults import PROCESSES, play_with_kills
from tests.live.world import Started, World, check, finish, gone, running, until

pytest.importorskip("flwr")


def test_killed_again_and_again_it_certifies(tmp_path: Path) -> None:
    """The server app, then the SuperLink, then `fedsrc server` itself: each killed by its id, mid-round."""
    world = World(tmp_path, ("north", "south"), rounds=4)
    with running(world):
        server = Started(world.server(), tmp_path / "server.out")
        for number, name in enumerate(("flwr-serverapp", "flower-superlink"), start=1):
            until(partial(world.reached, number))
            pid = server.child(name)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        until(partial(world.reached, 3))
        server.end(signal.SIGKILL)
        again = Started(world.server(), tmp_path / "server.out")
        assert finish(again) == 0
        until(partial(gone, server.family | again.family))
    check(world)


def test_a_site_and_its_node_die_and_come_back(tmp_path: Path) -> None:
    world = World(tmp_path, ("north", "south"), rounds=3)
    with running(world) as sites:
        server = Started(world.server(), tmp_path / "server.out")
        until(partial(world.reached, 1))
        sites["south"].look()
        sites["south"].end(signal.SIGKILL)
        sites["south"] = Started(world.site("south"), tmp_path / "south.out")
        assert finish(server) == 0
        until(partial(gone, server.family))
    check(world)


def test_each_kind_of_process_killed_at_a_random_moment(tmp_path: Path) -> None:
    """One of the runs of `tests/live/publish.py`."""
    outcome = play_with_kills(tmp_path, seed=0)
    assert {kill.kind for kill in outcome.kills} == {*PROCESSES}
    assert outcome.account.faultless, outcome
    assert outcome.account.units_twice == outcome.account.folded_twice == 0


def test_a_planned_sealed_run_certifies(tmp_path: Path) -> None:
    """Three sites and two registered looks; `check` verifies the folder, and plays it again by files."""
    world = World(tmp_path, ("north", "south", "west"), Wish("sealed", looks=2))
    with running(world):
        server = Started(world.server(), tmp_path / "server.out")
        assert finish(server) == 0
        until(partial(gone, server.family))
    assert check(world).status == "CERTIFIED"
    found = Certificate.read(world.run / CERTIFICATE)
    assert (found.method, found.registration) == ("sealed", world.registration.digest)


def test_people_label_while_the_server_waits(tmp_path: Path) -> None:
    """Sites whose labels come on demand say "not yet" until theirs are there; the folder verifies, and by files the
    same ledgers give the same run."""
    world = World(tmp_path, ("north", "south"), Wish("sealed", looks=2), on_demand=True)

    def over() -> bool:
        world.label()
        return server.process.poll() is not None

    with running(world):
        server = Started(world.server(), tmp_path / "server.out")
        until(over)
        assert finish(server) == 0
        until(partial(gone, server.family))
    assert check(world).status in ("CERTIFIED", "ABSTAIN")
    log = (world.trial / "north" / "site.log").read_text()
    assert "refused: not yet" in log
    assert "released" in log
