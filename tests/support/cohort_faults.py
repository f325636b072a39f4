"""Cohorts whose members, nodes, server and machine are killed, or lie: real guards and ledgers, drawn from a seed.

A lying server sends members of one cohort different requests, or a second one for the same round, all signed by its
key. A lying member masks otherwise than it was asked.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Letter
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.messages import Request, SignedRequest, parse_release, parse_request
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Asked, Summed, read_transcript
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from tests.support.cohorts import SERVER, Member, cohort_registration, ledger_of, member, own_table
from tests.support.live_engine import Engine, Parcel
from tests.support.live_fate import struck
from tests.support.live_faults import Setting, asked_again, live_through
from tests.support.live_scenarios import PATIENCE, OwnClock, OwnPost

LAYOUTS = ((2,), (3,), (4,), (5,), (2, 3), (2, 2, 2), (3, 4), (5, 2))  # members of every cohort
HONEST, TWO_FACED, MISMASKED = "honest", "two-faced server", "lying member"
KINDS = (HONEST, TWO_FACED, HONEST, MISMASKED)
ROUNDS = 4


def sealed_in_cohorts(base: Registration, looks: Sequence[tuple[int, float]]) -> Registration:
    """The same registration with a sealed certificate, whose noise may be less than stated."""
    fields = base.model_dump()
    fields["thresholds"] |= {"origin": "declared"}
    fields["privacy"] |= {"adjacency": "replacement"}
    tests = ((0.2, 1.0, (0.6, 0.6)),)
    return seal(Registration.model_validate(fields), Seal((0.5, 0.6), (0.4, 0.6), tests, tuple(looks), "within"))


@lru_cache(maxsize=32)
def cohorts_of(sizes: tuple[int, ...], sealed: bool, colluding: int) -> tuple[Registration, tuple[Member, ...]]:
    """A registration of four rounds, and its members. No honest sum is refused: the chance is at most 1e-10 a run."""
    members = tuple(member(f"{'xyz'[i]}{j}") for i, size in enumerate(sizes) for j in range(size))
    names = iter([each.name for each in members])
    cohorts = {f"cohort {'xyz'[i]}": [next(names) for _ in range(size)] for i, size in enumerate(sizes)}
    reg = cohort_registration(members, cohorts, batch=30, rounds=ROUNDS, policy="final", colluding=colluding)
    fields = (sealed_in_cohorts(reg, ((2, 0.4), (ROUNDS, 0.6))) if sealed else reg).model_dump()
    fields["certificate"]["acceptance_budget"] += fields["certificate"]["refusal_budget"] - 1e-10
    fields["certificate"]["refusal_budget"] = 1e-10
    return Registration.model_validate(fields), members


def serve(reg: Registration, who: Member, ledger: Ledger) -> Guard:
    return Guard(reg, who.name, ledger, partial(own_table, who.name), who.key, mask=who.mask)


class TwoFaced(Engine):
    """The server's requests reach some members changed, and signed again; or another one reaches them first."""

    def _send(self, letter: Letter) -> str | None:
        number = super()._send(letter)
        if number is not None and letter.kind == "release" and self.rng.random() < 0.08:
            parcel = self.parcels[-1]
            forged = replace(letter, data=self._other(parse_request(letter.data, "a letter").request))
            if self.rng.random() < 0.5:
                parcel.letter = forged
            else:  # a second request for the round, whose answer nobody waits for
                self.parcels.append(Parcel(self.time, f"{number}-second", forged, self.link))
        return number

    def _other(self, request: Request) -> bytes:
        """Another request, which the server signs too."""
        parts = list(request.parts or ())
        kind = self.rng.choice(["moved", "less", "none", "round", "number", "site", "scale"])
        other = {"number": request.number + 1000, "round": request.round + 1, "scale": request.scale / 2}
        change: dict[str, Any] = {kind: other[kind]} if kind in other else {"site": "cohort y"}
        if kind in ("moved", "less", "none"):
            one, two = self.rng.sample(range(len(parts)), 2)
            off = parts[one] if kind == "none" else min(1, parts[one])
            parts[one] -= off
            parts[two] += off if kind == "moved" else 0
            change = {"parts": tuple(parts), "slots": max(1, sum(parts))}
        self.fate.journal(TWO_FACED, kind)
        return SignedRequest.by(Request.model_validate({**request.model_dump(), **change}), SERVER).to_bytes()


class Mismasked(Engine):
    """A member now and then sends its release with another mask on its slots, rightly signed."""

    def _post(self, parcel: Parcel, answer: Frame) -> None:
        if parcel.letter.kind == "release" and answer.kind == GIVEN and self.rng.random() < 0.05:
            release = parse_release(answer.data.rstrip(b" "))
            self.fate.journal(MISMASKED, release.site)
            release = release.model_copy(update={"check": self.rng.randrange(-(2**63), 2**63)})
            answer = Frame(GIVEN, release.signed(member(release.site).key).to_bytes())
        super()._post(parcel, answer)


ENGINES: dict[str, type[Engine]] = {HONEST: Engine, TWO_FACED: TwoFaced, MISMASKED: Mismasked}


def drawn(seed: int) -> tuple[tuple[int, ...], str]:
    """The layout of a run, and who lies in it: 25 seeds in a row have five layouts, each with every liar."""
    return LAYOUTS[seed // 5 % len(LAYOUTS)], KINDS[seed % len(KINDS)]


def in_cohorts(seed: int) -> Setting:
    """The cohorts of a run, and who lies in it, drawn from its seed."""
    rng = random.Random(f"cohorts {seed}")
    sizes, kind = drawn(seed)
    reg, members = cohorts_of(sizes, rng.random() < 0.5, rng.randint(0, 1))
    return Setting(reg, SERVER, {who.name: partial(serve, reg, who) for who in members}, ENGINES[kind])


@dataclass(frozen=True)
class CohortAccount:
    """A run of cohorts that has ended. All below the line must be zero, whatever struck and whoever lied."""

    status: str
    opened: int  # sums
    void: int
    refused: int  # of the void ones, those that somebody's answer spoiled
    # ---
    not_once: int  # requests to a cohort that have another number than one of sums and voids
    altered: int  # summed releases that are not those of the members' ledgers
    units_twice: int
    rounds_twice: int  # rounds for which a ledger answered two requests
    two_faced: int  # sums opened although a member had answered another request for the round
    miscounted: int  # units spent that are not those of the requests, or folded or charged ones that are not

    @property
    def faultless(self) -> bool:
        wrong = (self.not_once, self.altered, self.units_twice, self.rounds_twice, self.two_faced, self.miscounted)
        return not any(wrong)


def account(run: Path, ledgers: Mapping[str, Path]) -> CohortAccount:
    """Verify a run of cohorts that has ended, and hold it against every member's ledger."""
    found = verify(run)
    reg, tally = found.replay.registration, found.replay.tally
    entries = read_transcript(run / TRANSCRIPT)[0]
    asked = {each.request.digest: each.request for each in entries if isinstance(each, Asked)}
    sums = [each for each in entries if isinstance(each, Summed)]
    voids = [each for each in entries if isinstance(each, Absent)]
    ends = Counter([*(each.request for each in sums), *(each.request for each in voids)])
    books = {name: Book.read(path) for name, path in ledgers.items()}
    return CohortAccount(
        status=found.certificate.status,
        opened=len(sums),
        void=len(voids),
        refused=sum(each.refused for each in voids),
        not_once=sum(ends[digest] != 1 for digest in asked) + len({*ends} - {*asked}),
        altered=sum(books[one.site].released.get(each.request) != one.to_bytes() for each in sums
                    for one in each.members),
        units_twice=sum(book.units_twice for book in books.values()),
        rounds_twice=sum(len(several) > 1 for book in books.values() for several in book.rounds.values()),
        two_faced=sum(books[one.site].rounds[asked[each.request].round] != {each.request}
                      for each in sums for one in each.members),
        miscounted=sum(_misspent(reg, name, book, asked) for name, book in books.items())
        + abs(tally.arrived - sum(asked[each.request].slots for each in sums))
        + abs(sum(tally.missing) - sum(asked[each.request].slots for each in voids)),
    )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A run from a seed: who lied, what struck, and what became of it."""

    seed: int
    kind: str
    method: str
    struck: Counter[str]
    lives: int
    account: CohortAccount
    repeated: int  # requests that a member answered more than once
    differing: int  # of these, answered otherwise the second time


def run_in_cohorts(folder: Path, seed: int) -> Outcome:
    """A run from its seed to its certificate, held against every member's ledger."""
    setting = in_cohorts(seed)
    for name in setting.sites:
        ledger_of(folder, member(name), setting.registration).close()
    lives = live_through(folder, seed, in_cohorts)
    counts = Counter(str(line["kind"]) for line in struck(folder))
    found = account(folder / "run", {name: folder / f"{name}.ledger" for name in setting.sites})
    method = setting.registration.judgement.method
    return Outcome(seed, drawn(seed)[1], method, counts, lives, found, *asked_again(folder))


@dataclass(frozen=True)
class Book:
    """What a member's ledger holds: requests by round, units spent by request, and releases."""

    rounds: Mapping[int, set[str]]
    spent: Mapping[str, int]
    released: Mapping[str, bytes]
    units_twice: int

    @classmethod
    def read(cls, path: Path) -> Book:
        with closing(sqlite3.connect(path)) as sql:
            opened = sql.execute("SELECT round, request FROM opened").fetchall()
            spends = sql.execute("SELECT request, intake, first, slots FROM spend").fetchall()
            released = dict(sql.execute("SELECT request, release FROM release"))
        rounds = defaultdict[int, set[str]](set)
        for round, request in opened:
            rounds[round].add(request)
        places = Counter((intake, i) for _, intake, first, slots in spends for i in range(first, first + slots))
        spent = Counter[str]()
        for request, _, _, slots in spends:
            spent[request] += slots
        return cls(rounds, spent, released, sum(places.values()) - len(places))


def _misspent(reg: Registration, name: str, book: Book, asked: Mapping[str, Request]) -> int:
    """How many of the units that a member spent for requests of the transcript are not what these ask of it."""
    mine = {digest: reg.parts(asked[digest]).get(name, 0) for digest in book.released if digest in asked}
    return sum(abs(book.spent.get(digest, 0) - slots) for digest, slots in mine.items())


def same_by_files(folder: Path, reg: Registration, members: Sequence[Member], run: Path) -> bool:
    """Whether the files mode, asked the same on the same ledgers, writes the same transcript and certificate."""
    done = start(reg, folder / "files", SERVER)
    while done.certificate is None:
        files = []
        for request in done.waiting:
            cohort = parse_request(request.read_bytes(), "a request").request.site
            for who in (each for each in members if reg.asked_for(each.name)[0] == cohort):
                files.append(folder / f"{request.name}.{who.name}")
                with closing(Ledger(folder / f"{who.name}.ledger")) as ledger:
                    find = partial(own_table, who.name)
                    files[-1].write_bytes(answer_file(request, find, ledger, who.key, mask=who.mask))
        done = collect(folder / "files", files, SERVER)
    return all(
        (folder / "files" / name).read_bytes() == (run / name).read_bytes() for name in (TRANSCRIPT, CERTIFICATE)
    )


@contextmanager
def guards(folder: Path, reg: Registration, members: Sequence[Member], told: list[str]) -> Iterator[dict[str, Guard]]:
    """A guard for every member, on ledgers in a folder."""
    ledgers = {who.name: ledger_of(folder, who, reg) for who in members}
    try:
        yield {
            who.name: Guard(reg, who.name, ledgers[who.name], partial(own_table, who.name), who.key, mask=who.mask,
                            tell=told.append)
            for who in members
        }  # fmt: skip
    finally:
        for ledger in ledgers.values():
            ledger.close()


def live(
    folder: Path,
    reg: Registration,
    members: Sequence[Member],
    post: OwnPost | None = None,
    *,
    change: Callable[[dict[str, Guard], OwnPost], None] = lambda *_: None,
    told: list[str] | None = None,
) -> Certificate:
    """A live run in which the i-th member is behind node i, from 1; `change` may touch guards and post first."""
    told = [] if told is None else told
    with guards(folder, reg, members, told) as sites:
        post = post or OwnPost(OwnClock())
        for i, who in enumerate(members, start=1):
            post.join(i, sites[who.name].answer)
        change(sites, post)
        return play(reg, folder / "run", SERVER, post, patience=PATIENCE, clock=post.clock, tell=told.append)
