"""Make recorded lives of certificates: what lies beside a run once it is issued, made by the commands themselves.

    python -m tests.recorded.lives NAME...

A life holds a run and, as far as it comes to that, its monitor with the signed status for gates, the statement by which
one key succeeds another, a notice of revocation, and cards that carry the run. Like recorded runs they are frozen, and
lives.sha256 has their digests. Certificates are valid for as long as can be registered: what tests say of them does not
depend on the day.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

import fedsrc
from fedsrc.cli.main import cli
from fedsrc.protocol.names import STATUS
from tests.recorded.make import Recording, dated, wanted
from tests.recorded.one_table import NONE, Certified, key_file, under
from tests.recorded.tables import write_table
from tests.recorded.watched import Watched
from tests.support.recordings import FILES, LIFE_DIGESTS, LIVES, digests, read_files, write_files

LONG: dict[str, Any] = {"validity_days": 36_500}
GRID: dict[str, Any] = {"sites": ["local"], "grid": True, "thresholds": 4, "batch": 200, **LONG}
LISTED: dict[str, Any] = {"groups": ("day", "night"), "group_column": "group"}
DATES = {
    "fedsrc.protocol.monitor_status.utc_now": "2026-01-20T00:00:00Z",
    "fedsrc.protocol.succession.utc_now": "2026-01-31T00:00:00Z",
    "fedsrc.protocol.notices.utc_now": "2026-02-01T00:00:00Z",
}


@contextmanager
def at_work(work: Path) -> Iterator[None]:
    """Work in a folder, so that nothing names another place, on the days of DATES."""
    with ExitStack() as patches:
        for name, time in DATES.items():
            patches.enter_context(patch(name, lambda time=time: time))
        patches.enter_context(chdir(work))
        yield


def say(*words: str, status: int = 0) -> None:
    """Give a command, which must end with a status."""
    done = CliRunner().invoke(cli, list(words))
    if done.exit_code != status:
        raise RuntimeError(f"{' '.join(words)}: {done.output}") from done.exception


def unopened(work: Path) -> Path:
    """Certified without noise; its monitor has no fresh record yet."""
    Watched(Certified(0.2, NONE, options=LONG), ())(work)
    say("view", "run", "-o", "card.html")
    return work


def rung(work: Path) -> Path:
    """Certified under noise; its monitor rang in the second week."""
    Watched(Certified(0.2, 4.0, options=LONG), (0.35, 0.95))(work)
    say("view", "run", "--monitor", "monitor", "-o", "card.html", status=1)
    return work


def groups(work: Path, *, bad: float) -> Path:
    """Every group is watched at its own threshold."""
    Watched(Certified(0.25, 8.0, 2000, options={**LISTED, **LONG}), (0.35, bad), {"batch": 200})(work)
    return work


def succeeded(work: Path) -> Path:
    """A key takes the place of another, revokes what that one signed, and signs the renewal that supersedes it."""
    made = fedsrc.register(target=0.25, epsilon=8.0, **GRID)
    under(made, write_table(work / "table.csv", 800))
    key_file(work, "successor")
    say("keys", "succeed", "server.pem", "successor.pem", "-o", "succession.json")
    anew = fedsrc.register(renew=work / "run", **LONG)
    under(anew, write_table(work / "fresh.csv", 800), "renewal", server="successor")
    word = ("--reason", "renewed under another key", "--superseded-by", "renewal")
    say("revoke", "run", *word, "--key", "successor.pem", "--succession", "succession.json")
    say("view", "run", "--succession", "succession.json", "-o", "card.html", status=1)
    return work


MADE = {
    "unopened": Recording("a card that carries its run; a monitor without fresh records", unopened),
    "rung": Recording("a monitor that rang, and a card that carries both", rung),
    "groups-quiet": Recording("groups that are still supported", partial(groups, bad=0.35)),
    "groups-rung": Recording("groups of which some rang", partial(groups, bad=0.95)),
    "succeeded": Recording("revoked and superseded by the key that succeeds its own; a card that says so", succeeded),
}
FOLDERS = ("run", "monitor", "renewal")
KEPT = ("succession.json", "card.html", *(f"{folder}/{name}" for folder in FOLDERS for name in (*FILES, STATUS)))


def make(name: str, place: Path) -> None:
    """Live a certificate's life in a folder of its own, and put its files in their place."""
    with tempfile.TemporaryDirectory() as work, dated(), at_work(Path(work)):
        files = read_files(MADE[name].build(Path()), KEPT)
    write_files(place, files)
    print(f"{name}: {len(files)} files, {sum(map(len, files.values())):,} bytes")


def main(words: Sequence[str] | None = None) -> None:
    for name in wanted(words, MADE, LIVES):
        make(name, LIVES / name)
    LIFE_DIGESTS.write_text("\n".join([*digests(LIVES), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
