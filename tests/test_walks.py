"""Nothing is done twice: what each mode parses, checks and reads, counted on real runs of two sites and two rounds.

Mutants killed: a release that is parsed or whose signature is checked where it arrives and again where it is folded, a
request that is checked at the door and again behind it, a registration read back from the folder it was just written
to, a run replayed again to show how it ended, a table read anew for its columns, its names, its rows or every round, a
development part that is drawn again by everyone who asks for it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN
from fedsrc.protocol.registration import Registration
from research.walks import SITES, World, followed, write_table

ROUNDS = 2
RELEASES = ROUNDS * len(SITES)
PARSED = "protocol.messages:parse_release"
SIGNATURES = "protocol.documents:Release.signed_by"
ADMITTED = "site.admission:admit"
READ = "protocol.registration:Registration.read"
UNDERSTOOD = "protocol.registration:_parsed"
REPLAYED = "server.state:Replay.__init__"
OPENED = "records.scan:scan"
IN_MEMORY = "records.table:collect_records"
PASSED_OVER = "records.stream:Table._read"
DRAWN = "records.development:in_development"


def command(*words: object, status: int = 0) -> Counter[str]:
    """Run a command in this process, and count."""
    with followed() as walk:
        done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return walk.calls


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Too strict a target to certify."""
    return World(tmp_path, 400, target_risk=0.01, rounds=ROUNDS, batch=150)


def test_one_process(world: World) -> None:
    write_table(world.folder / "table.csv", SITES, 800)
    signed = ",".join(f"{site}={world.key(site)}" for site in SITES)
    calls = command(
        "certify", world.folder / "table.csv", "--registration", world.place, "--sign-with", signed,
        "-o", world.run, "--key", world.key("server"), status=1,
    )  # fmt: skip
    assert (calls[PARSED], calls[SIGNATURES], calls[ADMITTED]) == (RELEASES, RELEASES, RELEASES)
    assert (calls[READ], calls[UNDERSTOOD], calls[REPLAYED]) == (1, 1, 1)
    assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (1, 1, 0)


def test_one_process_that_sets_a_development_part_aside(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv", SITES, 800)
    hopeless = ("--target", 0.01, "--min-acceptance", 0.9)  # a quarter of the answers is unsupported
    how = (*hopeless, "--epsilon", 4, "--batch", 150, "--rounds", ROUNDS, "--key", tmp_path / "key")
    calls = command("certify", tmp_path / "table.csv", *how, "-o", tmp_path / "run", status=1)
    assert (calls[PARSED], calls[ADMITTED], calls[REPLAYED]) == (ROUNDS, RELEASES, 1)  # by one holder of the sites
    assert (calls[READ], calls[DRAWN]) == (0, 1)
    assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (1, 1, 0)


def test_files(world: World) -> None:
    server = ("--key", world.key("server"))
    calls = command("request", world.place, "-o", world.run, *server)
    assert (calls[READ], calls[UNDERSTOOD], calls[REPLAYED]) == (1, 1, 1)
    for number in range(1, ROUNDS + 1):
        releases = []
        for site, request in zip(SITES, sorted((world.run / "requests").glob(f"round-{number:04d}-*")), strict=True):
            releases.append(world.folder / site / "release.json")
            calls = command("release", request, world.table(site), "--key", world.key(site), "-o", releases[-1])
            assert (calls[ADMITTED], calls[READ]) == (1, 0)
            assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (1, 0, 1)
        calls = command(
            "collect", world.run, *releases, *server, status=int(number == ROUNDS)
        )  # open, then it abstains
        assert calls[PARSED] == len(SITES)
        assert calls[SIGNATURES] == number * len(SITES)  # another process checks the transcript that it resumes
        assert (calls[READ], calls[REPLAYED]) == (1, 1)


def test_live(world: World) -> None:
    with followed() as walk:
        post = world.play_live(Registration.read(world.place))
    calls = walk.calls
    assert all(reply.kind == GIVEN for reply in post.replies)
    assert (calls[PARSED], calls[SIGNATURES]) == (RELEASES, RELEASES)
    assert calls[ADMITTED] == len(SITES) + RELEASES  # a site is met once
    assert (calls[READ], calls[UNDERSTOOD], calls[REPLAYED]) == (1, 1, 1)
    assert (calls[OPENED], calls[IN_MEMORY], calls[PASSED_OVER]) == (len(SITES), 0, len(SITES))
