"""`fedsrc certify`: from a labelled table to a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import (
    FORMAT,
    LEDGER,
    UNLABELLED,
    WHOLE_TABLE,
    choices,
    given_choices,
    options,
    run_folder,
    server_key,
)
from fedsrc.cli.output import finish, show
from fedsrc.cli.progress import progress
from fedsrc.cli.registering import choices_of, draft_registration, new_registration
from fedsrc.cli.streams import in_flags, say
from fedsrc.cli.table import SAID, asking, listed, said_by, table_at, table_options, to_label, unlabelled, uses
from fedsrc.cli.types import FilePath
from fedsrc.common import signing
from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.face import no_listed, wished
from fedsrc.federation.local import certify_table
from fedsrc.planning.inspect import copies_words
from fedsrc.planning.plan import Wish, check_planned
from fedsrc.planning.register import Choices, for_table
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import calibrating
from fedsrc.records.listed import check_registered
from fedsrc.records.stream import Table
from fedsrc.records.units import Records
from fedsrc.server.state import Replay
from fedsrc.server.status import run_state, shown_words
from fedsrc.site.rounds import NotYetError

DEFAULTS = {
    "rounds": "30, or what the table needs",
    "policy": "enough; first where the sites have no weights, and in the paper's preset",
}


@click.command("certify")
@click.argument("records", type=FilePath)
@click.option("--registration", type=FilePath, help="What was registered; without it, part of the table is set apart.")
@run_folder()
@LEDGER
@UNLABELLED
@click.option("--use-all", is_flag=True, help="Use every unit before deciding (policy final).")
@click.option("--check", is_flag=True, help="Read the table, say what would be used, and spend nothing.")
@options(choices(Choices, DEFAULTS))
@options(choices(Wish))
@options(WHOLE_TABLE)
@FORMAT
def certify_command(records: Path, registration: Path | None, folder: Path, output: str, **given: Any) -> None:
    """From a labelled table to a signed certificate (or an honest abstention).

    Exit status 0 certified, or labels are awaited, 1 abstained, 2 error.
    """
    asking(lambda settled: _certify(records, registration, folder, output, settled), given)


def _certify(records: Path, registration: Path | None, folder: Path, output: str, given: dict[str, Any]) -> None:
    source = table_at(records, given)
    registered = None if registration is None else Registration.read(registration)
    if registered is not None:
        source = source.under(registered)
    on_demand = registered.on_demand if registered is not None else given.get("labels") == "on demand"
    table = source.whole(labels="on demand" if on_demand else "there")
    how: dict[str, Any] = {name: given[name] for name in ("in_order", "fresh")}
    outlook: list[str] = []
    _check_flags(given)
    if given["use_all"]:
        given["policy"] = "final"
    if registered is not None:
        flags = {"--use-all": given["use_all"], "--unlabelled": given["unlabelled"]}
        fixed = [*(flag for flag, value in flags.items() if value), *given_choices(given, Choices, Wish)]
        if fixed:
            raise FedsrcError(f"{fixed[0]} is fixed by the registration", hint="leave it out, or register anew")
        _check_groups(registered, table, records)
        say(
            uses(table, source.present, registered.privacy.unit, registered=True, grouped=registered.groups is not None)
        )
        for line in copies_words(table):
            say(f"warning: {line}")
    else:
        picked = for_table(choices_of(given, table, records), table, given)
        said = given["score_scale"] is not None
        say(uses(table, source.present, picked.unit, grouped=picked.groups is not None))
        check_planned(picked, wished(given), unlabelled=given["unlabelled"] is not None)
        if given["check"]:
            registered, outlook = draft_registration(table, picked, wished(given), records, said=said)
        else:
            place = given["ledger"] or ledger_beside(records)
            registered = new_registration(
                table, picked, records, place, wished(given), said=said, **unlabelled(given, table.columns), **how
            )
    if given["check"]:
        show_check(source, table, registered, outlook, output)
        return
    how["site_keys"] = {name: signing.load(Path(path)) for name, path in (given["sign_with"] or {}).items()}
    how["labels"] = labels_beside(records) if on_demand else None
    place = given["ledger"] or ledger_beside(records)
    try:
        found, replay = certified(registered, table, folder, place, given["key"], **how)
    except NotYetError as wait:
        show_waiting(wait, to_label(records, given["ledger"], given, "-o", folder), folder, output)
        return
    for line in spent_words(found, replay, sum(map(len, calibrating(registered, table).values()))):
        say(line)
    finish(found, replay, folder, output, development=None if registration else [records, *table_options(given)])


def _check_flags(given: dict[str, Any]) -> None:
    """Refuse flags of which one would be dropped beside the other."""
    if given["use_all"] and given["policy"] not in (None, "final"):
        raise FedsrcError(f"--use-all is --policy final, not {given['policy']}", hint="leave one of them out")
    if given["check"] and given["unlabelled"] is not None:
        raise FedsrcError("--check does not look at unlabelled records", hint="leave --unlabelled out of it")


def _check_groups(registered: Registration, table: Records, records: Path) -> None:
    """Refuse a table without any of the registered groups, and a column of groups where none are registered."""
    if registered.groups is None and said_by("group_column") in SAID:
        raise no_listed("`group_column=`", "no groups are registered")
    if (told := check_registered(registered, table, str(records))) is not None:
        say(f"warning: {told}")


def spent_words(found: Certificate, replay: Replay, units: int) -> list[str]:
    """Say how much of the table was used, why it stopped there, what is spent, and which try this is."""
    unit, policy = replay.registration.privacy.unit, replay.registration.schedule.policy
    why = {
        "certified": "more would have gained little" if policy == "enough" else "it is certified (--use-all goes on)",
        "rounds used": "the registered rounds are over",
        "units used": "nothing was left to ask",
    }.get(replay.ended or "", "the run has ended")
    left = units - found.records
    lines = [f"{left:,} of {count(units, unit)} unused: it stopped because {why}."] if left > 0 else []
    lines.append(f"{count(found.records, unit)} {'is' if found.records == 1 else 'are'} spent: no other certificate can"
                 " be calibrated with them.")  # fmt: skip
    if found.tries > 1:
        lines.append(f"This is try {found.tries} on these records: that any of these certificates is wrong has a"
                     f" probability of at most {found.failure_probability_of_all_tries:g}.")  # fmt: skip
    return lines


def show_waiting(wait: NotYetError, label: str, folder: Path, output: str) -> None:
    """Print what an open round waits for, where the run stands, and what to do."""
    state = run_state(folder)
    so_far = [] if not state.rounds else [
        f"So far: {state.records:,} units in {count(state.rounds, 'round')}, {state.shown}"
        f" (target {state.target_risk:g})."
    ]  # fmt: skip
    show(
        output,
        {
            "status": "OPEN",
            "labels_wanted": wait.missing,
            "folder": str(folder),
            "rounds": state.rounds,
            "records": state.records,
            "risk_upper": state.risk_upper,
        },
        f"{wait.what[0].upper()}{wait.what[1:]}.",
        *so_far,
        f"Next: {label} (or with --export, as a file); then run the same command again to look.",
    )


def show_check(
    source: Table, table: Records, registration: Registration, outlook: Sequence[str], output: str
) -> None:  # fmt: skip
    """Print what a run would use of a table, and what it may come to."""
    units = {name: len(each) for name, each in calibrating(registration, table).items()}
    used, unused = table.columns.used(source.present), table.columns.unused(source.present)
    unit, total = registration.privacy.unit, sum(units.values())
    sites = listed([f"{name} {number:,}" for name, number in units.items()])
    most = min(total, registration.most_units)
    account = {"rows": len(table), "unit": unit, "calibrating": units}
    show(
        output,
        {"status": "CHECKED", "columns": used, "unused": unused, "outlook": [*map(in_flags, outlook)], **account},
        f"{source.path}: {count(len(table), 'row')}; {count(total, unit)} could calibrate ({sites}).",
        f"A run would ask for {most:,} of them at most. Whether some were used before was not looked at.",
        *map(in_flags, outlook),
        "Nothing was spent and nothing was written. Run it without --check to certify.",
    )


def certified(
    registration: Registration, table: Records, folder: Path, ledger: Path, key: Path | None, **how: Any
) -> tuple[Certificate, Replay]:
    """Run with progress on the terminal; return the certificate and the state of the run that ended in it."""
    signer, states = signing.load_or_make(server_key(key)), list[Replay]()
    with progress() as step:

        def watch(replay: Replay) -> None:
            states[:] = [replay]
            if replay.trace:
                now = replay.trace[-1]
                step(f"round {now.round}: {now.records:,} records, {shown_words(replay)}")

        return certify_table(registration, table, folder, ledger, signer, watch=watch, **how), states[0]
