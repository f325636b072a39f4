"""The server's work grows with the releases, not with releases times sites: counted, not timed.

Counted are calls of the cryptographic check itself and lines of fedsrc that run, so nothing of fedsrc is replaced.
What happens inside one C call (copying a list) does not show; docs/results/many-sites.md measures that.

Mutants killed: a release checked once as it comes in and again as it is written down, a signature checked twice in
`verify`, a scan over all sites or all requests for every release. Chance of a false alarm: below 1e-6; the lines that
run hardly depend on the noise, and what each round costs by itself is a twentieth of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import fedsrc
from fedsrc.common.canonical import digest_bytes
from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key, public_hex
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.messages import START, Answer, Link, Request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Announced, Transcript
from fedsrc.records.units import units_of
from fedsrc.server.issue import issue
from fedsrc.server.loop import begin, record, run
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from tests.support.helpers import release_of, table

ROUNDS, SLOTS = 3, 5
SERVER, SITE = Key.from_private_bytes(bytes([1]) * 32), Key.from_private_bytes(bytes([2]) * 32)
SOURCE = str(Path(fedsrc.__file__).parent)


def registered(sites: int) -> Registration:
    names = [f"site {i}" for i in range(sites)]
    return register_grid(
        Choices(
            target_risk=0.2,
            epsilon=4.0,
            grid=True,
            thresholds=4,
            batch=SLOTS,
            rounds=ROUNDS,
            policy="final",
            server_key=public_hex(SERVER),
            site_keys=dict.fromkeys(names, public_hex(SITE)),
            capacities=dict.fromkeys(names, SLOTS * ROUNDS),
        ),
        names,
    )


class Answers:
    """Signed releases, made when they are first asked for and then the same."""

    def __init__(self, reg: Registration) -> None:
        self.reg, self.made = reg, dict[tuple[str, int], bytes]()

    def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
        return [self.made.get((each.site, each.round)) or self._make(each) for each in requests]

    def _make(self, request: Request) -> bytes:
        before = self.made.get((request.site, request.round - 1))
        link = Link(request.round, START if before is None else digest_bytes(before))
        release = release_of(self.reg, request, units_of(table(SLOTS, seed=request.number), "local", "record"), link)
        return self.made.setdefault((request.site, request.round), release.signed(SITE).to_bytes())


def play(reg: Registration, folder: Path, carry: Answers) -> None:
    """A run from nothing to its certificate."""
    write_whole(folder / REGISTRATION, reg.to_toml().encode())
    with closing(Transcript(folder / TRANSCRIPT)) as transcript:
        replay = Replay(reg)
        begin(replay, transcript)
        record(replay, transcript, *(Announced(site=site.name, units=SLOTS * ROUNDS) for site in reg.sites))
        run(replay, transcript, carry)
        issue(reg, replay, transcript.chain).signed(SERVER).save(folder / CERTIFICATE)
    assert replay.tally.noises == len(reg.sites) * ROUNDS


def signature_checks(work: Callable[[], object]) -> int:
    """How often Ed25519 verified something."""
    found = 0

    def note(_: FrameType, event: str, what: Any) -> None:
        nonlocal found
        found += event == "c_call" and what.__name__ == "verify" and "Ed25519" in type(what.__self__).__name__

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of fedsrc ran, every turn of a loop counted."""
    found = 0

    def note(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal found
        found += event == "line"
        return note if frame.f_code.co_filename.startswith(SOURCE) else None

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return found


def test_a_signature_is_checked_once_in_the_run_and_once_in_verify(tmp_path: Path) -> None:
    reg = registered(20)
    carry = Answers(reg)
    assert signature_checks(lambda: play(reg, tmp_path, carry)) == 20 * ROUNDS
    assert signature_checks(lambda: verify(tmp_path)) == 20 * ROUNDS + 1  # and the certificate's own


def test_a_release_costs_no_more_among_more_sites(tmp_path: Path) -> None:
    """What a round costs by itself is shared by more releases, so that lines per release must fall a little."""
    played, verified = list[float](), list[float]()
    for sites in (20, 160):
        reg, folder = registered(sites), tmp_path / str(sites)
        carry = Answers(reg)
        play(reg, folder / "first", carry)
        played.append(lines_run(partial(play, reg, folder / "again", carry)) / (sites * ROUNDS))
        verified.append(lines_run(partial(verify, folder / "again")) / (sites * ROUNDS))
    assert played[1] < played[0]
    assert verified[1] < verified[0]
