"""Plays a choice of everything that can be chosen, from tables to a verified end, in the mode that it names."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl

from fedsrc.common.clock import TIME
from fedsrc.common.places import labels_beside
from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.flower.app.fedsrc_relay.wire import REFUSED, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play as play_live
from fedsrc.federation.local import certify_table
from fedsrc.monitor.fresh import monitor_table
from fedsrc.planning.renew import renew
from fedsrc.protocol.messages import Refusal, read_request
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.server.verify import Verified, verify
from fedsrc.site.label_file import Label, LabelFile
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.rounds import NotYetError, open_rounds
from tests.support.combinations import GROUPS, HOLDER, OTHER, SERVER, UNITS, Choice, members_of, registration_of
from tests.support.live_scenarios import PATIENCE, OwnClock, OwnPost

START = datetime(2026, 1, 2, tzinfo=UTC)
EVERY = 50  # so many answers, one has no label yet where people label on demand
BAD = 0.1  # the share of unsupported answers, which scores tell well


def play(folder: Path, choice: Choice) -> Verified:
    """Play a choice to its end and verify it; a renewal is of the same choice, made and certified before."""
    registered = registration_of({**choice, "renewal": "a new claim"})
    found = Life(folder, choice, "first").play(registered)
    if choice["renewal"] == "renewal":
        masks = [each.word for each in members_of(choice, "again")] if registered.cohorts is not None else None
        again = renew(folder / "first" / "run", mask_keys=masks)
        found = Life(folder, choice, "again").play(again)
        assert found.replay.registration.renews is not None
    return found


class Life:
    """One run of a choice: its tables and its run folder; ledgers are those of the folder."""

    def __init__(self, folder: Path, choice: Choice, name: str) -> None:
        self.folder, self.name, self.choice = folder, name, choice
        self.run = folder / name / "run"
        self.members = {each.name: each for each in members_of(choice, "" if name == "first" else name)}
        self.truth: dict[str, float] = {}
        self._labelled: set[tuple[Path, str]] = set()

    def play(self, registered: Registration) -> Verified:
        """Play a registration in the mode of the choice, and verify what it came to."""
        modes = {"local": self._local, "files": self._files, "live": self._live}
        with patch("fedsrc.site.rounds.utc_now", self._now), patch("fedsrc.site.ledger.utc_now", self._now):
            modes[self.choice["mode"]](registered)
        assert registered.on_demand == bool(self._labelled)
        return verify(self.run, trusted=(public_hex(SERVER),))

    def _local(self, registered: Registration) -> None:
        path, ledger = self._table(*self.members), self.folder / "ledger"
        keys = {name: each.key for name, each in self.members.items()} if not registered.held else {"holder": HOLDER}
        closing(Ledger(ledger)).__exit__(None, None, None)
        while not (self.run / CERTIFICATE).exists():
            records = _read(path, registered)
            try:
                if registered.monitor is not None:
                    monitor_table(registered, records, self.run, ledger, SERVER, site_keys=keys)
                else:
                    labels = labels_beside(path) if registered.on_demand else None
                    certify_table(registered, records, self.run, ledger, SERVER, site_keys=keys, labels=labels)
            except NotYetError:
                with closing(Ledger(ledger)) as opened:
                    self._label(registered, path, opened)

    def _files(self, registered: Registration) -> None:
        tables = {name: self._table(name) for name in self.members}
        with self._ledgers(registered) as ledgers:
            state, number = start(registered, self.run, SERVER), 0
            while state.certificate is None and state.waiting:
                given = list[Path]()
                for request in state.waiting:
                    for name in registered.answering(read_request(request).request):
                        given.append(self.folder / self.name / f"{(number := number + 1)}.release")
                        given[-1].write_bytes(self._answer(registered, request, name, tables[name], ledgers[name]))
                state = collect(self.run, given, SERVER)

    def _answer(self, registered: Registration, request: Path, name: str, table: Path, ledger: Ledger) -> bytes:
        """What a site answers to a request file, once its people have labelled what it needs."""
        who = self.members[name]
        while True:
            try:
                return answer_file(request, lambda: Table(table), ledger, who.key, mask=self._mask(registered, name))
            except NotYetError:
                self._label(registered, table, ledger)

    def _live(self, registered: Registration) -> None:
        post = OwnPost(OwnClock())
        with self._ledgers(registered) as ledgers:
            for number, (name, who) in enumerate(self.members.items(), start=1):
                table, mask = self._table(name), self._mask(registered, name)
                guard = Guard(registered, name, ledgers[name], lambda table=table: Table(table), who.key, mask=mask)  # type: ignore[misc]
                post.join(number, lambda frame, it=(guard, table, ledgers[name]): self._asked(registered, frame, *it))  # type: ignore[misc]
            play_live(registered, self.run, SERVER, post, patience=PATIENCE, clock=post.clock)

    def _asked(self, registered: Registration, frame: Frame, guard: Guard, table: Path, ledger: Ledger) -> Frame:
        """What a site answers to a letter; people label after it said that it waits."""
        answer = guard.answer(frame)
        if answer.kind == REFUSED and answer.data.strip() == Refusal.NOT_YET.encode():
            self._label(registered, table, ledger)
        return answer

    def _mask(self, registered: Registration, name: str) -> Key | None:
        return self.members[name].mask if registered.cohorts is not None else None

    @contextmanager
    def _ledgers(self, registered: Registration) -> Iterator[dict[str, Ledger]]:
        """The ledger of every site, which allows the registration."""
        with ExitStack() as opened:
            found = {
                name: opened.enter_context(closing(Ledger(self.folder / f"{name}.ledger"))) for name in self.members
            }
            for name, ledger in found.items():
                allow(ledger, name, registered)
            yield found

    def _now(self) -> str:
        """The time as sites have it: people label the round of a site for two hours."""
        return (START + timedelta(hours=2 * len(self._labelled))).strftime(TIME)

    def _label(self, registered: Registration, path: Path, ledger: Ledger) -> None:
        """Label the open rounds of a table as the truth is."""
        for each in open_rounds(ledger, _read(path, registered)):
            if (path, each.request.digest) in self._labelled:
                continue
            with closing(LabelFile(labels_beside(path))) as file:
                for name in each.needed:
                    loss = self.truth[name]
                    file.add(
                        Label(
                            answer=name, loss=loss, by="ann", at=self._now(), shown="0" * 64, round=each.request.digest
                        )
                    )
            self._labelled.add((path, each.request.digest))

    def _table(self, *sites: str) -> Path:
        """Write the table of some sites; where people label on demand, some lack their label."""
        path = self.folder / self.name / ("table.csv" if len(sites) > 1 else f"{sites[0]}.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        draw, rows, choice = random.Random(f"{self.name} {sites}"), list[dict[str, Any]](), self.choice
        answers = 2 if choice["unit"] == "sources of several answers" else 1
        levels = (0.5, 1.0) if choice["losses"] == "graded losses" else (1.0,)
        for site in sites:
            for i in range(UNITS * answers):
                name, loss = f"{self.name}-{site}-{i}", draw.choice(levels) if draw.random() < BAD else 0.0
                row: dict[str, Any] = {"id": name, "site": site, "group": draw.choice(GROUPS)}
                row |= {} if choice["unit"] == "records" else {"source": f"{self.name}-{site}-s{i // answers}"}
                row |= {
                    each: round(min(1.0, max(0.0, draw.gauss(0.8 - 0.5 * loss, 0.1))), 3) for each in ("score", OTHER)
                }
                asked = choice["labelling"] != "labels there" and i % EVERY == 0
                rows.append({**row, "loss": None if asked else loss})
                self.truth[name] = loss
        pl.DataFrame(rows).write_csv(path)
        return path


def _read(path: Path, registered: Registration) -> Records:
    return Table(path).under(registered).whole(labels="on demand" if registered.on_demand else "there")
