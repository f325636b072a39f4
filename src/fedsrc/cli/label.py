"""`fedsrc label`: people label what an open round needs, in a local page or by file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, KEY, LEDGER, TABLE_OPTIONS, listening_port, options, run_folder, server_key
from fedsrc.cli.output import show
from fedsrc.cli.streams import stopped
from fedsrc.cli.table import table_at, to_label
from fedsrc.cli.types import FilePath
from fedsrc.common import signing
from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.labelling.queue import agreement, tasks, tidy_name, waiting
from fedsrc.labelling.texts import Text, table_texts
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration
from fedsrc.records.order import IN_ORDER
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.site.label_file import LabelFile, read_labels
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError, Round, due_at, open_rounds

Texts = Callable[[Collection[str]], Mapping[str, Text]]
Rounds = Callable[[], list[Round]]


@click.command("label")
@click.argument("records", type=FilePath)
@run_folder()
@LEDGER
@KEY
@click.option("--answers", type=FilePath, help="The texts by id, as JSON lines or Parquet, where the table has none.")
@click.option("--by", help="Who labels; the page then asks for no name.")
@listening_port(8766, "The page's port.")
@click.option("--export", "out", type=FilePath, help="Write what is to be labelled: .csv, .jsonl; .json: Label Studio.")
@click.option("--import", "taken", type=FilePath, help="Take the labels of such a file.")
@click.option("--close", is_flag=True, help="Close the round: what has no label counts as unsupported.")
@click.option("--agreement", "agree", is_flag=True, help="Show how often two people agree; for the site's own eyes.")
@options(TABLE_OPTIONS)
@FORMAT
def label_command(
    records: Path, folder: Path, ledger: Path | None, by: str | None, output: str, **given: Any
) -> None:  # fmt: skip
    """Label what the open round needs, in a local page or by file. Labels stay beside the table.

    If the run that asks is in the folder -o, it looks whenever a round is labelled, and opens the next or ends. A site
    of a run elsewhere answers when it is asked again.
    """
    chosen = [flag for flag in ("out", "taken", "close", "agree") if given[flag]]
    if len(chosen) > 1:
        raise FedsrcError("--export, --import, --close and --agreement are done one at a time")
    labels, who = labels_beside(records), tidy_name(by or "") or None
    if given["agree"]:
        show(output, agreement(read_labels(labels))._asdict(), agreement_words(labels))
        return
    place = ledger or ledger_beside(records)
    table = source_of(records, place, given).whole(labels="on demand")

    def rounds() -> list[Round]:
        with closing(Ledger(place, must_exist=True)) as book:
            return open_rounds(book, table)

    if not rounds():
        what = "no round of this table waits for labels"
        raise FedsrcError(what, where=str(records), hint="a run with labels on demand opens one when it asks the site")
    texts = texts_of(records, table, given["answers"])
    if given["close"]:
        show(output, {"closed": len(rounds())}, close(place, rounds))
    elif given["out"]:
        back = to_label(records, ledger, given, "--import", given["out"])
        words = export(given["out"], labels, rounds, texts, who, back)
        show(output, {"file": str(given["out"]), "next": back}, words)
    elif given["taken"]:
        added, words = take(given["taken"], labels, rounds, texts, who)
        show(output, {"file": str(given["taken"]), "labels": added}, words)
    else:
        serve(labels, rounds, texts, looking(records, rounds, folder, place, given), given["port"], who, output)


NEXT = "Nothing more is asked of you now; this page looks by itself whether another round is open."
ENDED = {
    "CERTIFIED": "CERTIFIED: you can stop labelling.",
    "ABSTAIN": "The run has ended without a certificate. There is nothing more to label.",
}


def looking(
    records: Path, rounds: Rounds, folder: Path, ledger: Path, given: Mapping[str, Any]
) -> Callable[[], str]:  # fmt: skip
    """Return what to do when everything is labelled: the run in this folder looks, if it is the one that asks. What a
    look shows is not said: labels must not depend on it."""
    held = folder / REGISTRATION
    asking = {each.registration.digest for each in rounds()}
    registration = Registration.read(held) if held.exists() else None

    def look() -> str:
        if registration is None or registration.digest not in asking or registration.key_of(registration.sites[0].name):
            return f"This round is labelled. {NEXT}"
        with closing(Ledger(ledger)) as book:
            orders = {intake.seed for each in book.waiting() for intake, _, _ in each.taken}
        table = source_of(records, ledger, given).whole(labels="on demand")
        key = signing.load_or_make(server_key(given["key"]))
        how: dict[str, Any] = {"labels": labels_beside(records), "in_order": IN_ORDER in orders}
        try:
            found = certify_table(registration, table, folder, ledger, key, **how)
        except NotYetError:
            return f"This round is labelled. {NEXT}"
        return ENDED[found.status]

    return look


def source_of(records: Path, ledger: Path, given: Mapping[str, Any]) -> Table:
    """Return the table as the registration says whose rounds wait for labels."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        asked = [(intake.site, each.request.registration) for each in book.waiting() for intake, _, _ in each.taken]
        allowed = [found for site, digest in asked if (found := book.permitted(site, digest)) is not None]
    table = table_at(records, given)
    return table.under(allowed[0]) if allowed else table


def texts_of(records: Path, table: Records, answers: Path | None) -> Texts:
    """Return what finds the texts of answers: in a file of answers by id, or in the table's own columns."""
    if answers is None:
        names = [table.answer(row) for row in range(len(table))]
        return lambda wanted: table_texts(records, names, wanted)
    from fedsrc.data.answers import read_answers

    known = {each.id: Text(each.question, each.evidence, each.response) for each in read_answers(answers)}

    def find(wanted: Collection[str]) -> Mapping[str, Text]:
        missing = min(wanted - known.keys(), default=None)
        if missing is not None:
            hint = "answers are found by the id that they have in the table"
            raise FedsrcError(f"there is no answer {missing!r}", where=str(answers), hint=hint, private=(missing,))
        return known

    return find


def serve(
    labels: Path, rounds: Rounds, texts: Texts, advance: Callable[[], str], port: int, by: str | None, output: str
) -> None:  # fmt: skip
    """Serve the page until interrupted."""
    from fedsrc.labelling.desk import Desk
    from fedsrc.labelling.page import kept_secret, serving

    secret = kept_secret(labels.with_name(labels.name.removesuffix(".jsonl") + ".secret"))
    with closing(Desk(labels, rounds, texts, advance)) as desk, serving(desk, secret, port, by) as server:
        wait = stopped()
        words = f"Label here: {server.url}  (on this machine only; Ctrl-C ends it, and labels stay)"
        show(output, {"url": server.url}, words)
        wait()


def export(path: Path, labels: Path, rounds: Rounds, texts: Texts, by: str | None, back: str) -> str:
    """Write what is still to be labelled, by anybody or by one person; return words on it, with the way back."""
    from fedsrc.labelling.exchange import write_tasks

    left = waiting(tasks(rounds(), read_labels(labels)), by)
    made = write_tasks(path, left, texts({task.answer for task in left}))
    studio = f" {made[1]} is Label Studio's labelling configuration." if len(made) > 1 else ""
    return f"Wrote {path}: what {by or 'people'} can label now.{studio}\nNext: {back}, once it is filled in."


def take(path: Path, labels: Path, rounds: Rounds, texts: Texts, by: str | None) -> tuple[int, str]:
    """Add the labels of a file, all or none; return how many, and words on it."""
    from fedsrc.labelling.exchange import new_labels, read_words

    words = read_words(path, by)
    with closing(LabelFile(labels)) as book:
        found = tasks(rounds(), book.labels)
        silent = {word.answer for word in words if word.shown is None} & {task.answer for task in found}
        added = new_labels(words, found, texts(silent) if silent else {})
        book.add(*added)
    known = f"; {len(words) - len(added):,} were known" if len(words) > len(added) else ""
    return len(added), f"Took {count(len(added), 'label')} from {path}{known}."


def close(place: Path, rounds: Rounds) -> str:
    """Close the open rounds; return words on it."""
    for due in filter(None, (due_at(each.registration, each.opened) for each in rounds())):
        what = f"the round is answered at {due:%Y-%m-%d %H:%M} UTC, and not before, so that it cannot be closed"
        raise FedsrcError(what, hint="labels count until then, and what has none counts as unsupported")
    with closing(Ledger(place, must_exist=True)) as book:
        for each in rounds():
            book.close_round(each.request)
    return "Closed: what has no label counts as unsupported. The site answers when it is asked again."


def agreement_words(labels: Path) -> str:
    """Say how often two people agree on what both labelled."""
    found = agreement(read_labels(labels))
    if not found.both:
        return "No answer was labelled by two people."
    share = f"{found.alike / found.both:.1%}"
    return (
        f"Two people labelled {count(found.both, 'answer')} and agree on {found.alike:,} ({share}).\n"
        "This stays at the site, and shows nothing about what both miss."
    )
