"""`fedsrc demo`: the whole flow on real answers, in one process or between many."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from fedsrc.cli.certify import certified
from fedsrc.cli.options import FORMAT, KEY, FolderPath
from fedsrc.cli.output import finish
from fedsrc.cli.registering import new_registration
from fedsrc.cli.streams import say, stop_on_terminate
from fedsrc.cli.table import ledger_of
from fedsrc.demo import table as demo_data
from fedsrc.demo.live import Parties, by_files, play_live, set_up
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.processes import program
from fedsrc.planning.register import Choices
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.records.table import read_records
from fedsrc.server.verify import verify

COMPARED = (TRANSCRIPT, CERTIFICATE)


@click.command("demo")
@click.option("-o", "--output", "folder", type=FolderPath, default="fedsrc-demo", show_default=True)
@click.option("--live", is_flag=True, help="Five sites as processes of their own, over Flower with TLS and node keys.")
@FORMAT
@KEY
def demo_command(folder: Path, live: bool, output: str, key: Path | None) -> None:
    """The whole flow on 10,000 real answers: register, release, certify, verify."""
    if live:
        demo_live(folder, output)
    table = folder / "records.csv"
    demo_data.write_table(table)
    say(demo_data.ABOUT)
    records = read_records(table)
    weights = dict.fromkeys(records.site_names, 0.2)
    registration = new_registration(records, Choices(0.2, 4.0, batch=100, weights=weights), ledger_of(table))
    certified(registration, records, folder / "run", ledger_of(table), key)
    found = verify(folder / "run")
    finish(found.signed, found.replay, folder / "run", output)


def demo_live(folder: Path, output: str) -> NoReturn:
    """The demo between processes, and the same run by files beside it."""
    stop_on_terminate()
    program("flower-superlink")
    parties = Parties(folder)
    registration = set_up(parties)
    say(f"Five sites and a server, each with its own folder in {folder / 'parties'}.")
    play_live(parties, say)
    found = verify(parties.run)
    certificate = found.certificate
    by_files(parties, registration, folder / "by-files")
    same = all((folder / "by-files" / name).read_bytes() == (parties.run / name).read_bytes() for name in COMPARED)
    if same:
        say("Played again by files on the same releases: transcript and certificate are the same, byte for byte.")
    elif certificate.absent + certificate.refused == 0 and all(site.records for site in certificate.sites):
        raise FedsrcError("the run by files differs from the live one", where=str(folder))
    else:
        say("Played again by files it is another run: live, a site did not come or did not answer in time.")
    finish(certificate, found.replay, parties.run, output)
