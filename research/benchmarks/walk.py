"""How far data walks through the package: modules, changes of module, and what is done more than once.

    python -m research.benchmarks.walk

Plays the same two sites through `fedsrc certify`, through files (request, release, collect) and live without an
engine, each with one round and with two, and counts the calls of the package's own functions. A change of module is a
call from a function of one module to a function of another (what is called for every value or row is left out);
the second round's are the difference between both runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from fedsrc.cli.main import cli
from research.walks import SITES, Walk, World, followed, write_table

COUNTED = {
    "releases parsed": ("messages:parse_release",),
    "signatures of releases checked": ("documents:Release.signed_by",),
    "signatures checked in all": ("signing:signed_by",),
    "questions checked at a site": ("admission:admit",),
    "registration files read": ("registration:Registration.read",),
    "registrations parsed": ("registration:_parsed",),
    "transcripts replayed": ("state:Replay.__init__",),
    "tables opened": ("scan:scan",),
    "passes over a table": ("stream:Table._read", "table:collect_records"),
    "development parts found": ("development:in_development",),
}


def command(walk: Walk, *words: object) -> None:
    """Run a command in this process; an abstention leaves with 1."""
    with followed(walk):
        done = CliRunner().invoke(cli, [str(word) for word in words])
    if done.exit_code not in (0, 1):
        raise SystemExit(done.output)


def world_of(folder: Path, rounds: int) -> World:
    """Two sites of which every round is played."""
    return World(folder, 600, target_risk=0.2, rounds=rounds, batch=200, policy="final")


def local(folder: Path, rounds: int) -> Walk:
    """`fedsrc certify` on a table of two sites."""
    walk = Walk()
    write_table(folder / "table.csv", SITES, 1500)
    table, run, key = folder / "table.csv", folder / "run", folder / "server.key"
    how = ("--target", 0.25, "--epsilon", 4, "--unit", "record", "--batch", 200, "--rounds", rounds, "--use-all")
    command(walk, "certify", table, *how, "-o", run, "--key", key)
    return walk


def files(folder: Path, rounds: int) -> Walk:
    """`fedsrc request`, then for every round `fedsrc release` at both sites and `fedsrc collect`."""
    walk, world = Walk(), world_of(folder, rounds)
    run, key = world.run, world.key("server")
    command(walk, "request", world.place, "-o", run, "--key", key)
    for number in range(1, rounds + 1):
        releases: list[Path] = []
        for site, request in zip(SITES, sorted((run / "requests").glob(f"round-{number:04d}-*.json")), strict=True):
            releases.append(folder / site / f"{number}.release.json")
            command(walk, "release", request, world.table(site), "--key", world.key(site), "-o", releases[-1])
        command(walk, "collect", run, *releases, "--key", key)
    return walk


def live(folder: Path, rounds: int) -> Walk:
    """Guards with their tables, and a live run that asks them."""
    world = world_of(folder, rounds)
    with followed() as walk:
        world.play_live(world.registration)
    return walk


def measure(mode: Callable[[Path, int], Walk], rounds: int) -> Walk:
    """Play a mode once to have everything imported and compiled, then once to be counted."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            walk = mode(Path(folder), rounds)
    return walk


def main() -> None:
    modes = (local, files, live)
    one, two = [measure(mode, 1) for mode in modes], [measure(mode, 2) for mode in modes]
    rows: dict[str, list[int]] = {
        "modules": [len(walk.modules) for walk in one],
        "changes of module, one round": [walk.changes.total() for walk in one],
        "changes of module, the second round": [
            b.changes.total() - a.changes.total() for a, b in zip(one, two, strict=True)
        ],
        **{what: [walk.of(names) for walk in one] for what, names in COUNTED.items()},
    }
    print(f"{'one round, two sites, two releases':<40}{'local':>8}{'files':>8}{'live':>8}")
    for what, counts in rows.items():
        print(f"{what:<40}" + "".join(f"{count:>8,}" for count in counts))


if __name__ == "__main__":
    main()
