"""`fedsrc demo`: the whole flow on real answers, in one process or between many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from fedsrc.cli.certify import certified
from fedsrc.cli.options import FORMAT, KEY, run_folder, server_key
from fedsrc.cli.output import finish
from fedsrc.cli.registering import new_registration
from fedsrc.cli.streams import say, stop_on_terminate
from fedsrc.common.places import ledger_beside
from fedsrc.common.signing import load_or_make
from fedsrc.demo import answers_table as demo_data
from fedsrc.demo import unlabelled_log
from fedsrc.demo.parties import demo_live
from fedsrc.errors import FedsrcError
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, Labelled
from fedsrc.records.table import read_records
from fedsrc.server.verify import verify

WHO = "whoever ran the demo"
CLAIM = {"system": "fedsrc demo: answers of HaluEval QA", "issuer": WHO, "contact": WHO}


@click.command("demo")
@run_folder("fedsrc-demo")
@click.option("--live", is_flag=True, help="Five sites as processes of their own, over Flower with TLS and node keys.")
@click.option("--label", is_flag=True, help="From a log without labels: a stand-in labels what each round needs.")
@FORMAT
@KEY
def demo_command(folder: Path, live: bool, label: bool, output: str, key: Path | None) -> None:
    """The whole flow on 10,000 real answers: register, release, certify, verify.

    Exit status 0 certified, 1 abstained, 2 error.
    """
    if live and label:
        raise FedsrcError("--live and --label are two demos", hint="choose one of them")
    if live:
        stop_on_terminate()
        run, found = demo_live(folder, say)
        finish(found.signed, found.replay, run, output)
    table, run = (folder / name for name in (("log.csv", "log-run") if label else ("records.csv", "run")))
    demo_data.write_table(table, labels=not label)
    say(demo_data.ABOUT)
    labels: Labelled = "on demand" if label else "there"
    records = read_records(table, labels=labels)
    choices = Choices(0.2, 4.0, weights=dict.fromkeys(records.site_names, 0.2), labels=labels, claim=CLAIM)
    if label:
        say(unlabelled_log.ABOUT)
        choices = replace(choices, min_acceptance=unlabelled_log.FLOOR)
    wish = Wish(certificate="open" if label else None)  # whoever labels may look after any round
    registration = new_registration(records, choices, table, ledger_beside(table), wish, said=True)
    if label:
        unlabelled_log.certify_log(registration, records, table, run, load_or_make(server_key(key)), say)
    else:
        certified(registration, records, run, ledger_beside(table), key)
    found = verify(run)
    finish(found.signed, found.replay, run, output)
