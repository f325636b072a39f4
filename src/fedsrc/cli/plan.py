"""`fedsrc plan`: choose what to register, for the units that are to calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, LEDGER_AND_TABLE, UNLABELLED, choices, options, output_file
from fedsrc.cli.output import show
from fedsrc.cli.registering import choices_of, say_development
from fedsrc.cli.streams import command, say
from fedsrc.cli.table import asking, mixture_words, read_table, unlabelled
from fedsrc.cli.types import COUNTS, NAMES, FilePath
from fedsrc.common.durable import write_whole
from fedsrc.common.places import ledger_beside
from fedsrc.errors import FedsrcError
from fedsrc.face import check_new, wished
from fedsrc.federation.local import plan_table
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, development_part


@click.command("plan")
@click.argument("records", type=FilePath)
@output_file("registration.toml")
@click.option("--units", type=COUNTS, help="How many units each site will calibrate with: NAME=N,...")
@click.option("--sites", type=NAMES, help="Site names, comma-separated  [default: those of the table]")
@UNLABELLED
@options(choices(Choices))
@options(choices(Wish))
@options(LEDGER_AND_TABLE)
@FORMAT
def plan_command(records: Path, target: Path, sites: tuple[str, ...] | None, output: str, **given: Any) -> None:
    """Choose the certificate and all that it registers on labelled development RECORDS, for --units to come.

    It prints what it chose, why, and what the other kind would cost, and writes the registration. RECORDS are released
    once, with noise, and can no longer calibrate.
    """
    check_new(target)
    table = asking(lambda settled: read_table(records, settled), given)
    picked = choices_of(given, table, records)
    rooms = given["units"] or picked.capacities
    if rooms is None:
        raise FedsrcError("a plan is for so many units", hint="say how many each site will have: --units north=300")
    wish = wished(given)
    if wish.certificate == "plain":
        raise FedsrcError(
            "this leaves nothing to plan: a plan decides on batches, rounds, policy and thresholds",
            hint="leave them out, or use `fedsrc register`",
        )
    part, place = development_part(table, picked.unit, 1.0), given["ledger"] or ledger_beside(records)
    say_development(table, part, picked, records, said=given["score_scale"] is not None)
    registration, planned = plan_table(
        picked, table, part, place, wish, units=rooms, sites=sites, fresh=given["fresh"],
        **unlabelled(given, table.columns),
    )  # fmt: skip
    if planned is None:
        raise FedsrcError(
            "there is nothing to plan on: noise would drown so few development units",
            hint="bring more of them, declare them public with --public-development, or use `fedsrc register`",
        )
    for line in (*planned.lines(), *mixture_words(registration)):
        say(line)
    write_whole(target, registration.to_toml().encode())
    found = {"registration": registration.digest, "file": str(target), "certificate": planned.kind,
             "expected": planned.expected._asdict(), "other": planned.other._asdict(),
             "cohort": None if planned.together is None else planned.together._asdict()}  # fmt: skip
    after = command("fedsrc", "certify", "FRESH.csv", "--registration", target)
    if registration.cohorts is not None:
        after = f"every site allows it, then {command('fedsrc', 'request', target)}"
    show(
        output,
        found,
        f"Registered {registration.digest}",
        f"Next: {after}",
    )
