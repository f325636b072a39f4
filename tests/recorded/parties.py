"""Recorded runs of sites apart, each with its own table, ledger and key: by files, live, and in cohorts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import Release, Request, parse_release, read_request
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from tests.recorded.tables import write_table
from tests.support.live_scenarios import PATIENCE, Behaviour, OwnClock, OwnPost
from tests.support.recordings import key, public

Missing = Collection[tuple[int, str]]  # rounds, and who does not answer in them
Cheat = Callable[[int, Release], Release]  # what a site sends in a round, in place of its release


def honest(_: int, release: Release) -> Release:
    return release


@dataclass(frozen=True)
class Parties:
    """Sites with keys, `units` of each, under a registration on a public grid."""

    target: float
    epsilon: float
    sites: Sequence[str] = ("north", "south")
    units: int = 400
    table: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Registration], Registration] = lambda made: made
    missing: Missing = ()
    cheat: Cheat = honest
    capacities: bool = True
    rounds: int | None = None  # after which the server stops for good

    def register(self) -> Registration:
        """Register, with the keys of everybody."""
        known: dict[str, Any] = {"site_keys": {site: public(site) for site in self.sites}}
        known |= {"capacities": dict.fromkeys(self.sites, self.units)} if self.capacities else {}
        if self.options.get("aggregation") == "cohorts":
            known["mask_keys"] = [MaskKey.by(site, key(site), key(f"{site} mask")) for site in self.sites]
        settings = {"thresholds": 4, "batch": 100, "rounds": 4, **known, **self.options}
        choices = Choices(self.target, self.epsilon, grid=True, server_key=public("server"), **settings)
        return self.change(register_grid(choices, self.sites))

    def tables(self, work: Path) -> dict[str, Path]:
        """Write the table of every site."""
        return {site: write_table(work / site / f"{site}.csv", self.units, **self.table) for site in self.sites}

    def sent(self, round: int, data: bytes) -> bytes:
        """What a site sends, signed by itself, honest or not."""
        release = parse_release(data)
        other = self.cheat(round, release)
        return data if other is release else other.signed(key(other.site)).to_bytes()


@dataclass(frozen=True)
class ByFiles(Parties):
    """Requests and releases are files."""

    def __call__(self, work: Path) -> Path:
        registered, tables = self.register(), self.tables(work)
        allowed(registered, work, self.sites)
        state = start(registered, work / "run", key("server"))
        while state.certificate is None and state.replay.rounds != self.rounds:
            files = [self._answer(work, tables, path, site) for path, site in self._asked(registered, state.waiting)]
            state = collect(work / "run", files, key("server"), without_missing=True)
        return work / "run"

    def _asked(self, registered: Registration, waiting: Sequence[Path]) -> Iterator[tuple[Path, str]]:
        """Every request, with each site that answers it."""
        for path in waiting:
            request = read_request(path).request
            for site in registered.answering(request):
                if (request.round, site) not in self.missing:
                    yield path, site

    def _answer(self, work: Path, tables: Mapping[str, Path], path: Path, site: str) -> Path:
        request: Request = read_request(path).request
        with closing(Ledger(work / site / "ledger")) as ledger:
            mask = key(f"{site} mask") if request.of_cohort else None
            data = answer_file(path, lambda: Table(tables[site]), ledger, key(site), mask=mask)
        place = work / site / f"{path.name}.release"
        place.write_bytes(self.sent(request.round, data))
        return place


def allowed(registered: Registration, work: Path, sites: Sequence[str]) -> None:
    """Allow the registration at every site."""
    for site in sites:
        (work / site).mkdir(parents=True, exist_ok=True)
        with closing(Ledger(work / site / "ledger")) as ledger:
            allow(ledger, site, registered)


@dataclass(frozen=True)
class Live(Parties):
    """A live run whose letters are carried inside this process; sites in `away` never come."""

    away: Collection[str] = ()
    nodes: bool = False  # whether sites name the key of the node that carries their word

    def __call__(self, work: Path) -> Path:
        registered, tables, post = self.register(), self.tables(work), OwnPost(OwnClock())
        allowed(registered, work, self.sites)
        with ExitStack() as opened:
            for number, site in enumerate(self.sites, start=1):
                ledger = opened.enter_context(closing(Ledger(work / site / "ledger")))
                guard = Guard(
                    registered, site, ledger, partial(Table, tables[site]), key(site), node_key=self.node(site)
                )
                if site not in self.away:
                    post.join(number, self.behaviour(guard, work, tables[site]), self.node(site) or "")
            play(registered, work / "run", key("server"), post, patience=PATIENCE, clock=post.clock)
        return work / "run"

    def behaviour(self, guard: Guard, _work: Path, _table: Path) -> Behaviour:
        """How a site answers letters."""
        return guard.answer

    def node(self, site: str) -> str | None:
        """The key of a site's node, where it is said."""
        return public(f"{site} node") if self.nodes else None


def implausible(round: int, release: Release) -> Release:
    """In the second round, one site sends totals that no honest site has."""
    if (round, release.site) != (2, "south"):
        return release
    return release.model_copy(update={"first": tuple(each + (1 << 40) for each in release.first)})


def masked_otherwise(round: int, release: Release) -> Release:
    """In the first round, the masks of one member do not cancel."""
    if (round, release.site) != (1, "b") or release.check is None:
        return release
    return release.model_copy(update={"check": release.check ^ 1})
