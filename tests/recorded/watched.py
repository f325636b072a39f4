"""Recorded monitors of certificates that are deployed, fed with fresh tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsrc.monitor.fresh import monitor_table, open_monitor
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.records.table import read_records
from tests.recorded.one_table import Certified
from tests.recorded.tables import write_table
from tests.support.recordings import key


@dataclass(frozen=True)
class Watched:
    """A certified table, then weeks of fresh records, each with its share of unsupported answers."""

    certified: Certified
    weeks: Sequence[float] = (0.35,)
    choices: dict[str, Any] = field(default_factory=dict)
    units: int = 600

    def __call__(self, work: Path) -> Path:
        registered = register_monitor(self.certified(work), MonitorChoices(**self.choices))
        for week, bad in enumerate(self.weeks):
            path = write_table(work / f"week{week}.csv", self.units, **{**self.certified.table, "bad": bad})
            records = read_records(path)
            keys = {site: key(site) for site in self.choices.get("site_keys", ())}
            ledger = work / "table.csv.ledger"
            monitor_table(registered, records, work / "monitor", ledger, key("server"), site_keys=keys)
        if not self.weeks:
            open_monitor(registered, work / "monitor", key("server"))
        return work / "monitor"
