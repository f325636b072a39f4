"""What became of every unit and release of a live run: the sites' ledgers held against the server's transcript."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Asked, read_transcript
from fedsrc.server.verify import verify


@dataclass(frozen=True)
class Spend:
    """A release as a site's ledger keeps it: for which request, which places of which intake, and its bytes."""

    site: str
    request: str
    intake: int
    first: int
    slots: int
    release: bytes


@dataclass(frozen=True)
class Account:
    """Counts. All below the line must be zero, whatever was killed."""

    status: str
    rounds: int
    releases: int  # made by sites
    folded: int
    lost: int  # made, and recorded absent: the round was closed before they arrived
    absent: int  # requests recorded absent, made or not
    units: int  # spent by sites
    undisturbed: bool  # nobody was late or absent: a run without faults on these releases is the same
    # ---
    units_twice: int
    folded_twice: int
    altered: int  # folded bytes that are not those of the ledger
    strays: int  # releases made for a request that the transcript does not hold
    unaccounted: int  # units spent that are in no release folded or recorded absent
    refused: int  # every site is honest here, so nothing may be refused

    @property
    def faultless(self) -> bool:
        wrong = (self.units_twice, self.folded_twice, self.altered, self.strays, self.unaccounted, self.refused)
        return not any(wrong)


def spends(ledger: Path, site: str) -> list[Spend]:
    """Every release that a ledger holds."""
    query = (
        "SELECT request, intake, first, slots, release FROM spend JOIN release USING (request) ORDER BY intake, first"
    )
    with closing(sqlite3.connect(ledger)) as sql:
        return [Spend(site, *row) for row in sql.execute(query)]


def account(run: Path, ledgers: Mapping[str, Path]) -> Account:
    """Verify a run that has ended, and hold it against the ledgers."""
    body = verify(run).certificate
    entries = read_transcript(run / TRANSCRIPT)[0]
    asked = {entry.request.digest: entry.request for entry in entries if isinstance(entry, Asked)}
    arrived = [entry.release for entry in entries if isinstance(entry, Arrived)]
    missing = [entry for entry in entries if isinstance(entry, Absent)]
    folded = {release.request: release.to_bytes() for release in arrived}
    made = [each for site, path in ledgers.items() for each in spends(path, site)]
    lost = {entry.request for entry in missing} & {each.request for each in made}
    places = Counter((each.site, each.intake, i) for each in made for i in range(each.first, each.first + each.slots))
    stored = {each.request: each.release for each in made}
    early = [entry.site for entry in entries[1 : 1 + len(ledgers)] if isinstance(entry, Announced)]
    explained = sum(asked[request].slots for request in (*folded, *lost))
    return Account(
        status=body.status,
        rounds=body.rounds,
        releases=len(made),
        folded=len(arrived),
        lost=len(lost),
        absent=len(missing),
        units=len(places),
        undisturbed=not missing and early == list(ledgers),
        units_twice=sum(times - 1 for times in places.values()),
        folded_twice=len(arrived) - len(folded),
        altered=sum(stored.get(request) != data for request, data in folded.items()),
        strays=sum(each.request not in asked for each in made) + (len(made) - len(stored)),
        unaccounted=abs(sum(each.slots for each in made) - explained),
        refused=sum(entry.refused for entry in missing),
    )
