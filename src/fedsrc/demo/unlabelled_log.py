"""A log that nobody has labelled, and a stand-in who labels what each round needs, from the truth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from fedsrc.common.canonical import digest
from fedsrc.common.clock import utc_now
from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.common.signing import Key
from fedsrc.common.words import count, risk_words
from fedsrc.data.embedded import score_table
from fedsrc.demo.answers_table import one_of_each_pair
from fedsrc.federation.local import certify_table
from fedsrc.labelling.queue import tasks, waiting
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records
from fedsrc.server.state import Replay
from fedsrc.site.label_file import Label, LabelFile, read_labels
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError, open_rounds

NAME = "stand-in"
FLOOR = 0.15
ABOUT = (
    "Nobody has labelled them here. Wanted is a threshold that accepts 15% of the answers or more, for few labels."
    " A stand-in who knows the truth labels what a round asks for; of your own log, people do that with `fedsrc label`."
)


def certify_log(
    registration: Registration, records: Records, log: Path, folder: Path, key: Key, tell: Callable[[str], None]
) -> None:
    """Look, label what the open round needs, and look again, until the run ends. A call that was stopped resumes."""
    labels, ledger, given = labels_beside(log), ledger_beside(log), 0

    def watch(replay: Replay) -> None:
        if replay.ended is None:
            now = replay.trace[-1]
            drawn = f"{now.records:,} of {len(records):,} answers drawn so far"
            tell(f"Round {now.round}: {count(given, 'label')} given; {drawn}; {risk_words(now.risk_upper)}.")

    while True:
        try:
            certify_table(registration, records, folder, ledger, key, labels=labels, watch=watch)
            break
        except NotYetError:
            given = label_rounds(records, ledger, labels)
    labelled = len({label.answer for label in read_labels(labels)})
    tell(f"{labelled:,} of {len(records):,} answers were labelled: those of its rounds that a threshold may accept.")


def label_rounds(records: Records, ledger: Path, labels: Path) -> int:
    """Label all that open rounds still need, and return how many labels that took."""
    truth = dict(one_of_each_pair(score_table("qa")).select("id", "loss").iter_rows())
    with closing(Ledger(ledger, must_exist=True)) as book, closing(LabelFile(labels)) as file:
        left = waiting(tasks(open_rounds(book, records), file.labels), NAME)
        file.add(*(
            Label(
                answer=task.answer, loss=truth[task.answer], by=NAME, at=utc_now(), shown=digest(task.answer),
                round=task.round.request.digest,
            )
            for task in left
        ))  # fmt: skip
    return len(left)
