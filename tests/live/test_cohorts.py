"""Cohorts over Flower, in real processes: to a certificate, through kills of a site, a node and the server, without a
member, and with one that waits for its labels.

In every run a request ends in one sum or one void, and nothing is spent twice; where nothing is void, the files mode on
the same ledgers writes the same transcript and certificate.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.transcript import Absent, read_transcript
from tests.live.world import Started, World, check_by_files, finish, gone, running, until
from tests.support.cohort_faults import CohortAccount, account

pytest.importorskip("flwr")
THREE, ROUNDS = ("north", "south", "west"), 3


def play(world: World, fault: str) -> None:
    """Play a run to its end, with one fault in its second round."""
    with running(world) as sites:
        server = Started([*world.server(), "--start-seconds", "40", "--missing-seconds", "90"], world.folder / "out")
        until(partial(world.reached, 1))
        if fault == "server":
            server.end(signal.SIGKILL)
            family, server = server.family, Started(world.server(), world.folder / "out")
            server.family |= family
        elif fault == "site":
            sites["south"].look()
            sites["south"].end(signal.SIGKILL)
            again = Started(world.site("south"), world.folder / "south.out")
            again.family |= sites["south"].family
            sites["south"] = again
        elif fault == "node":
            pid = sites["south"].child("flower-supernode")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        assert finish(server) in (0, 1)
        until(partial(gone, server.family))


def held(world: World) -> CohortAccount:
    """What became of a run, in which nothing went wrong that can be counted."""
    found = account(world.run, {name: world.ledger(name) for name in world.sites})
    assert found.faultless, found
    assert found.refused == 0
    if found.void == 0:
        check_by_files(world)
    return found


@pytest.mark.parametrize("fault", ["none", "site", "node", "server"])
def test_a_cohort_comes_to_a_certificate(tmp_path: Path, fault: str) -> None:
    """Whatever is killed comes back within the server's patience, and answers by the same bytes."""
    world = World(tmp_path, THREE, ROUNDS, cohorts={"all": THREE})
    play(world, fault)
    found = held(world)
    assert (found.status, found.opened, found.void) == ("CERTIFIED", ROUNDS, 0)


def test_a_member_that_never_comes_voids_its_cohorts_rounds(tmp_path: Path) -> None:
    """The other cohort's are opened; the slots of the void ones are charged, and `account` counts them."""
    world = World(tmp_path, (*THREE, "east"), 2, cohorts={"here": THREE[:2], "half": (THREE[2], "east")})
    with running(world, without="east"):
        server = Started([*world.server(), "--start-seconds", "30", "--missing-seconds", "5"], tmp_path / "out")
        assert finish(server) in (0, 1)
        until(partial(gone, server.family))
    found = held(world)
    assert (found.opened, found.void) == (2, 2)
    entries = read_transcript(world.run / TRANSCRIPT)[0]
    assert {entry.reason for entry in entries if isinstance(entry, Absent)} == {
        "site 'east' is not connected: no node speaks for the site"
    }


def test_people_label_at_every_member_while_the_server_waits(tmp_path: Path) -> None:
    """Members say "not yet" until their labels are there: nobody is missing, and every round is opened."""
    world = World(tmp_path, THREE[:2], 2, on_demand=True, cohorts={"all": THREE[:2]})

    def over() -> bool:
        world.label()
        return server.process.poll() is not None

    with running(world):
        server = Started(world.server(), tmp_path / "out")
        until(over)
        assert finish(server) in (0, 1)
        until(partial(gone, server.family))
    found = held(world)
    assert (found.opened, found.void) == (2, 0)
    assert "refused: not yet" in (world.trial / "north" / "site.log").read_text()
