"""Recorded runs whose labels people give on demand, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl

import fedsrc
from fedsrc.common.clock import TIME, utc_now
from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.federation.flower.app.fedsrc_relay.wire import REFUSED, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.local import certify_table, plan_table
from fedsrc.labelling.queue import tasks, waiting
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, development_part
from fedsrc.protocol.messages import Refusal
from fedsrc.protocol.registration import Registration
from fedsrc.records.table import read_records
from fedsrc.site.label_file import Label, LabelFile
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError, open_rounds
from tests.recorded.parties import ByFiles, Live, Parties
from tests.recorded.tables import write_table
from tests.support.live_scenarios import Behaviour
from tests.support.recordings import key

PEOPLE = ("ann", "ben", "cem")


@dataclass(frozen=True)
class OnDemand:
    """A log without labels, certified by people who label what a round needs; planned on its own part, or on a grid."""

    target: float
    epsilon: float
    units: int = 900
    grid: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, work: Path) -> Path:
        truth = _truth(write_table(work / "truth.csv", self.units))
        table = work / "log.csv"
        pl.read_csv(work / "truth.csv").drop("loss").write_csv(table)
        registered, records = self._register(table), read_records(table, labels="on demand")
        while True:
            try:
                certify_table(
                    registered, records, work / "run", ledger_beside(table), key("server"), labels=labels_beside(table)
                )
                return work / "run"
            except NotYetError:
                _label(table, truth)

    def _register(self, table: Path) -> Registration:
        if self.grid:
            settings: dict[str, Any] = {"thresholds": 4, "batch": 150, "rounds": 3, **self.options}
            return fedsrc.register(
                target=self.target, epsilon=self.epsilon, grid=True, sites=["local"], labels="on demand", **settings
            )
        choices, records = Choices(self.target, self.epsilon, labels="on demand", **self.options), read_records(
            table, labels="on demand"
        )  # fmt: skip
        part = development_part(records, "record", 0.3)
        return plan_table(choices, records, part, ledger_beside(table), Wish("open"))[0]


def _truth(table: Path) -> dict[str, float]:
    return dict(pl.read_csv(table).select("id", "loss").iter_rows())


def _label(table: Path, truth: dict[str, float], ledger: Path | None = None) -> None:
    """Label all that the open round needs; every seventh answer is said to be unsupported by one person alone."""
    records = read_records(table, labels="on demand")
    with closing(Ledger(ledger or ledger_beside(table))) as book, closing(LabelFile(labels_beside(table))) as file:
        for turn, who in enumerate(PEOPLE):
            left = waiting(tasks(open_rounds(book, records), file.labels), who)
            file.add(*(
                Label(
                    answer=task.answer, loss=1.0 if turn == 1 and n % 7 == 0 else truth[task.answer], by=who,
                    at=utc_now(), shown="0" * 64, round=task.round.request.digest,
                )
                for n, task in enumerate(left)
            ))  # fmt: skip


@dataclass(frozen=True)
class Timed(OnDemand):
    """The same with a registered time, after which a round is answered with the labels that are there."""

    def __call__(self, work: Path) -> Path:
        later = iter(range(1, 1_000_000))

        def soon() -> str:
            """The time, an hour after it was asked for last."""
            return (datetime(2026, 1, 2, 3, 4, 5) + timedelta(hours=next(later))).strftime(TIME)

        with patch("fedsrc.site.rounds.utc_now", soon), patch("fedsrc.site.ledger.utc_now", soon):
            return super().__call__(work)


@dataclass(frozen=True)
class _Unlabelled(Parties):
    """Sites with keys whose logs have no labels; the truth lies elsewhere, for the people of each site."""

    def tables(self, work: Path) -> dict[str, Path]:
        logs = dict[str, Path]()
        for site, truth in super().tables(work / "truth").items():
            logs[site] = work / site / truth.name
            logs[site].parent.mkdir(parents=True, exist_ok=True)
            pl.read_csv(truth).drop("loss").write_csv(logs[site])
        return logs


def _label_at(work: Path, log: Path) -> None:
    """Label what the open round of a site needs."""
    site = log.parent
    _label(log, _truth(work / "truth" / site.name / log.name), site / "ledger")


@dataclass(frozen=True)
class LabelledByFiles(_Unlabelled, ByFiles):
    """By files: a site answers once its people have labelled the round."""

    def _answer(self, work: Path, tables: Mapping[str, Path], path: Path, site: str) -> Path:
        while True:
            try:
                return super()._answer(work, tables, path, site)
            except NotYetError:
                _label_at(work, tables[site])


@dataclass(frozen=True)
class LabelledLive(_Unlabelled, Live):
    """Live: people label when a site has said that it waits for them, and it is asked again."""

    def behaviour(self, guard: Guard, work: Path, table: Path) -> Behaviour:
        def answer(question: Frame) -> Frame:
            found = guard.answer(question)
            if found == Frame(REFUSED, Refusal.NOT_YET.encode()):
                _label_at(work, table)
            return found

        return answer
