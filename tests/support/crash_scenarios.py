"""What the crash tests run in child processes: whole runs, with a fault at one chosen durable operation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Literal

from fedsrc.common.durable import write_whole
from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.common.signing import public_hex
from fedsrc.errors import BusyError
from fedsrc.federation.local import certify_table, register_table
from fedsrc.planning.register import Aggregation, Choices, development_part
from fedsrc.protocol.registration import Registration
from fedsrc.records.table import read_records
from fedsrc.records.units import Records
from fedsrc.site.label_file import Label, LabelFile
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError, open_rounds
from research.attacks.struck import NAMES, answer_request, key, play_by_files, struck_run
from tests.support.helpers import registration, table

NOON = "2026-01-02T12:00:00Z"
Fault = Literal["none", "before", "torn", "after", "full"]
RECORDS = table(1500, sites=NAMES, ids=True)


def certify_registration(ledger: Path, aggregation: Aggregation) -> Registration:
    """From the table itself: its development part is released first."""
    choices = Choices(0.2, 4.0, batch=100, rounds=3, policy="final", aggregation=aggregation)
    return register_table(choices, RECORDS, development_part(RECORDS, "record", 0.2), ledger)


def files_registration() -> Registration:
    fields = registration(RECORDS, batch=60, rounds=2, policy="final", grid=True, thresholds=5).model_dump()
    fields["development"] = None
    fields["server_key"] = public_hex(key(9))
    fields["sites"] = [{"name": n, "key": public_hex(key(i)), "capacity": 150} for i, n in enumerate(NAMES)]
    return Registration.model_validate(fields)


def certify(folder: Path, run: str = "run", aggregation: Aggregation = "own") -> None:
    """The local mode, from a table to a certificate."""
    registered = certify_registration(folder / "ledger", aggregation)
    certify_table(registered, RECORDS, folder / run, folder / "ledger", key(9))


def by_holder(folder: Path, run: str = "run") -> None:
    """The same, with one release a round over all sites."""
    certify(folder, run, "holder")


def own(number: int) -> Records:
    """Return the table of a site."""
    return table(200, seed=number + 50, ids=True)


def by_files(folder: Path, run: str = "run") -> None:
    """The files mode: request, release and collect until the certificate."""
    play_by_files(files_registration(), folder, run, own)


def answer(folder: Path, path: Path) -> Path:
    return answer_request(folder, path, own)


def log_without_labels(folder: Path) -> Path:
    """The log of `labelled_on_demand`, written if it is not there. Of two processes that begin together, one could
    replace it while the other reads it, which is refused: write it before they start."""
    log = folder / "log.csv"
    if not log.exists():
        write_whole(log, b"id,score\n" + b"".join(b"u%d,0.%02d\n" % (i, i % 100) for i in range(240)))
    return log


def labelled_on_demand(folder: Path, run: str = "run") -> None:
    """The local mode on a log without labels: a round opens, people label, one is closed early, the run goes on."""
    log = log_without_labels(folder)
    reg = registration(RECORDS, batch=80, rounds=1, policy="final", grid=True, thresholds=5, aggregation="own")
    fields = {**reg.model_dump(), "development": None, "labelling": {"kind": "on demand"}, "sites": [{"name": "local"}]}
    reg, ledger, labels = Registration.model_validate(fields), ledger_beside(log), labels_beside(log)
    while True:
        records = read_records(log, labels="on demand")
        try:
            certify_table(reg, records, folder / run, ledger, key(9), labels=labels)
            return
        except NotYetError:
            with suppress(BusyError):  # then the other process gives the labels
                label_some(ledger, records, labels)


def label_some(ledger: Path, records: Records, labels: Path) -> None:
    """Give two of an open round's answers a label, if they have none yet, and close it."""
    with closing(Ledger(ledger)) as book, closing(LabelFile(labels)) as file:
        for each in open_rounds(book, records):
            done = {label.answer for label in file.labels if label.round == each.request.digest}
            for name in sorted(each.needed)[:2]:
                if name not in done:
                    loss = float(int(name[1:]) % 3 == 0)
                    file.add(
                        Label(answer=name, loss=loss, by="ann", at=NOON, shown="0" * 64, round=each.request.digest)
                    )
            book.close_round(each.request)


SCENARIOS: dict[str, Callable[..., None]] = {
    "certify": certify, "holder": by_holder, "files": by_files, "labels": labelled_on_demand,
}  # fmt: skip


def child(scenario: str, folder: str, fault: Fault, at: int, run: str = "run") -> None:
    """Run a scenario in this process with a fault; the exit status says how it ended."""
    struck_run(partial(SCENARIOS[scenario], Path(folder), run), Path(folder), fault, at)
