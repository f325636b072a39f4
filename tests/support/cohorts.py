"""Cohorts for tests: sites with keys and mask keys, each with a table and a ledger of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import digest
from fedsrc.common.signing import Key, public_hex
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import Release, Request, parse_release
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.server.recruiter import make_requests
from fedsrc.site.ledger import Ledger
from fedsrc.site.masks import masked
from fedsrc.site.policy import allow
from fedsrc.site.site import Site
from fedsrc.site.streamed import open_site
from tests.support.helpers import table

SERVER = Key.from_private_bytes(bytes(range(32)))


@dataclass(frozen=True)
class Member:
    """A site as its own people have it."""

    name: str
    key: Key
    mask: Key

    @property
    def word(self) -> MaskKey:
        return MaskKey.by(self.name, self.key, self.mask)


def member(name: str) -> Member:
    """A member whose keys follow from its name."""
    seed = digest(["member", name])
    return Member(name, Key.from_private_bytes(bytes.fromhex(seed)), Key.from_private_bytes(bytes.fromhex(seed)[::-1]))


def cohort_registration(
    members: Sequence[Member], cohorts: Mapping[str, Sequence[str]] | None = None, **choices: Any
) -> Registration:
    """A registration on a public grid whose sites are in cohorts: dropout is charged, 200 units at each site."""
    names = [each.name for each in members]
    settings: dict[str, Any] = {
        "target_risk": 0.2, "epsilon": 4.0, "grid": True, "thresholds": 5, "batch": 60, "rounds": 3,
        "aggregation": "cohorts", "cohorts": cohorts, "mask_keys": [each.word for each in members],
        "server_key": public_hex(SERVER), "capacities": dict.fromkeys(names, 200), **choices,
    }  # fmt: skip
    return register_grid(Choices(**settings), names)


def request_to(reg: Registration, slots: Sequence[int], round: int = 1) -> Request:
    """The server's first request of a round that asks every site for so many units."""
    return make_requests(reg, slots, number=round - 1, round=round)[0]


def unmasked(reg: Registration, request: Request, release: Release, who: Member) -> list[int]:
    """What a member sent, for whoever has its mask key."""
    sent = [*release.first, *release.second, release.check or 0]
    masks = masked(reg, request, who.name, who.mask, [0] * len(sent))
    return [(a - b + (1 << 63)) % (1 << 64) - (1 << 63) for a, b in zip(sent, masks, strict=True)]


def own_table(name: str, units: int = 200) -> Records:
    """The records of one site."""
    made = table(units, seed=int(digest(name)[:8], 16))
    return replace(made, site_names=(name,), digest=digest(["own", name, units]))


def ledger_of(folder: Path, who: Member, reg: Registration) -> Ledger:
    """A member's ledger, which allows the registration."""
    folder.mkdir(exist_ok=True)
    found = Ledger(folder / f"{who.name}.ledger")
    allow(found, who.name, reg)
    return found


@contextmanager
def site_of(folder: Path, who: Member, reg: Registration, records: Records | Table | None = None) -> Iterator[Site]:
    """A member's site, behind its own ledger."""
    with closing(ledger_of(folder, who, reg)) as ledger:
        yield open_site(reg, who.name, records or own_table(who.name), ledger, who.key, mask=who.mask, fresh=True)


def released(folder: Path, reg: Registration, request: Request, members: Sequence[Member]) -> list[Release]:
    """The real releases of some members for one request, each through its own ledger."""
    found = []
    for who in members:
        with site_of(folder, who, reg) as site:
            found.append(parse_release(site.answer(request)))
    return found
