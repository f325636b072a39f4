"""`fedsrc demo`: the whole flow on real answers, in one process or between many."""

from __future__ import annotations

from pathlib import Path

import click

from fedsrc.cli.certify import certified
from fedsrc.cli.options import FORMAT, KEY, run_folder
from fedsrc.cli.output import finish
from fedsrc.cli.registering import new_registration
from fedsrc.cli.streams import say, stop_on_terminate
from fedsrc.common.places import ledger_beside
from fedsrc.demo import answers_table as demo_data
from fedsrc.demo.parties import demo_live
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices
from fedsrc.records.table import read_records
from fedsrc.server.verify import verify


@click.command("demo")
@run_folder("fedsrc-demo")
@click.option("--live", is_flag=True, help="Five sites as processes of their own, over Flower with TLS and node keys.")
@FORMAT
@KEY
def demo_command(folder: Path, live: bool, output: str, key: Path | None) -> None:
    """The whole flow on 10,000 real answers: register, release, certify, verify."""
    if live:
        stop_on_terminate()
        run, found = demo_live(folder, say)
        finish(found.signed, found.replay, run, output)
    table = folder / "records.csv"
    demo_data.write_table(table)
    say(demo_data.ABOUT)
    records = read_records(table)
    weights = dict.fromkeys(records.site_names, 0.2)
    registration = new_registration(records, Choices(0.2, 4.0, weights=weights), ledger_beside(table), Wish())
    certified(registration, records, folder / "run", ledger_beside(table), key)
    found = verify(folder / "run")
    finish(found.signed, found.replay, folder / "run", output)
