"""Make recorded runs by the real code, with real noise.

    python -m tests.recorded.make NAME...

Recordings are frozen: made again, a run has other noise and other bytes, and an implementation that is to read what was
written yesterday is tested on what was written yesterday. So a recording that is there is not replaced, unless
--replace is said; and that is for a recording that was wrong from the start. Signing keys follow from names
(tests/support/recordings.py) and releases are dated from 2026-01-02 on, a minute after each other; all else is as in
any run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from fedsrc.common.clock import TIME
from fedsrc.errors import FedsrcError
from fedsrc.server.verify import verify
from tests.recorded.one_table import NONE, Build, Certified, Registered, demo
from tests.recorded.parties import ByFiles, Live
from tests.support.recordings import RUNS, read_files, write_files

FIRST = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HALVES = {"north": 0.5, "south": 0.5}
PAPER = {"preset": "paper", "policy": "first"}


class Recording(NamedTuple):
    """What a run shows that no other does, or commonly, and how it is made."""

    covers: str
    build: Build


MADE: dict[str, Recording] = {
    "certify-private": Recording(
        "`fedsrc certify` with epsilon: sealed, contrasts, noised thresholds, one site", Certified(0.2, 4.0)
    ),
    "certify-exact": Recording(
        "`fedsrc certify` without privacy: betting, complementary histograms, policy enough", Certified(0.2, NONE)
    ),
    "certify-holder": Recording(
        "several sites in one table, weights declared: one holder, sealed",
        Certified(0.2, 4.0, table={"sites": ("north", "south")}, options={"weights": HALVES}),
    ),
    "certify-open": Recording(
        "with epsilon and looks at any time: betting, a planned prior for bets",
        Certified(0.2, 8.0, options={"certificate": "open"}),
    ),
    "demo": Recording("what `fedsrc demo` writes", demo),
    "files": Recording(
        "by files: two sites with keys, weights and capacities, each with its own noise; certified",
        ByFiles(0.25, 8.0, options={"weights": HALVES, "policy": "final"}),
    ),
    "files-charged": Recording(
        "dropout charged: capacities registered, one release absent; names beyond ASCII; policy final",
        ByFiles(
            0.3,
            8.0,
            sites=("nörd", "süd", "日本"),
            missing={(2, "süd")},
            options={"dropout": "adversarial", "policy": "final", "claim": {"loss": "nicht gestützt"}},
        ),
    ),
    "live": Recording(
        "live: sites say under their own signature what they have; no capacity is registered",
        Live(0.25, 8.0, capacities=False, options={"weights": HALVES, "policy": "final"}),
    ),
    "abstain": Recording("nothing is certified: rounds used", Registered(0.02, 2.0, options={"rounds": 3})),
    "paper-contrast": Recording(
        "the paper's contrast: paired, plain bins, zero-out, its conversion",
        Registered(0.35, 8.0, units=2000, options={**PAPER, "method": "contrast"}),
    ),
    "paper-variance": Recording(
        "the paper's variance-adaptive certificate",
        Registered(0.35, 8.0, 2000, options={**PAPER, "method": "variance-adaptive"}),
    ),
    "paper-ratio": Recording(
        "the paper's ratio certificate", Registered(0.35, 8.0, 2000, options={**PAPER, "method": "ratio"})
    ),
    "open": Recording(
        "stopped after two rounds: no certificate, which does not verify",
        ByFiles(0.02, 8.0, rounds=2, options={"weights": HALVES}),
    ),
}


@contextmanager
def dated() -> Iterator[None]:
    """Date releases a minute after each other."""
    numbers = count()
    with patch("fedsrc.site.site.utc_now", lambda: (FIRST + timedelta(seconds=61 * next(numbers))).strftime(TIME)):
        yield


def make(name: str, place: Path) -> None:
    """Play a run in a folder of its own, check it, and put its files in their place."""
    with tempfile.TemporaryDirectory() as work, dated():
        run = MADE[name].build(Path(work))
        try:
            found = verify(run)
            print(f"{name}: {found.signed.status}, {found.signed.records} records, {found.signed.rounds} rounds")
        except FedsrcError as error:
            print(f"{name}: {error.what}")
        files = read_files(run)
    write_files(place, files)
    print(f"  {sum(map(len, files.values())):,} bytes")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make recorded runs.")
    parser.add_argument("names", nargs="+", metavar="NAME", choices=[*MADE, "all"], help="a run, or `all` that lack")
    parser.add_argument("--replace", action="store_true", help="make a recording anew that is there already")
    given = parser.parse_args(words)
    lacking = [name for name in MADE if not (RUNS / name).exists()]
    names = lacking if given.names == ["all"] else given.names
    there = [name for name in names if (RUNS / name).exists()]
    if there and not given.replace:
        parser.error(f"recorded already, and frozen: {', '.join(there)}")
    for name in names:
        make(name, RUNS / name)


if __name__ == "__main__":
    main()
