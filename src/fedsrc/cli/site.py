"""`fedsrc site`: a site of a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CA, FORMAT, INSECURE, LEDGER_AND_TABLE, MASK_KEY, SITE_KEY, options
from fedsrc.cli.output import show
from fedsrc.cli.streams import stop_on_terminate
from fedsrc.cli.table import table_at
from fedsrc.cli.types import FilePath
from fedsrc.common.places import ledger_beside, mask_beside
from fedsrc.common.signing import load
from fedsrc.federation.flower.plans import node_name, node_plan
from fedsrc.federation.flower.processes import Tls
from fedsrc.federation.live.log import open_log
from fedsrc.federation.live.site_process import serve_site
from fedsrc.federation.live.site_socket import socket_of
from fedsrc.protocol.registration import Registration


@click.command("site")
@click.argument("registration", type=FilePath)
@click.argument("records", type=FilePath)
@click.option("--site", "--name", "name", required=True, help="The site's name in the registration.")
@SITE_KEY
@MASK_KEY
@click.option("--socket", type=FilePath, help="Where a relay connects  [default: beside the records]")
@click.option("--log", type=FilePath, help="A file for the log, which also goes to stderr.")
@click.option("--superlink", help="HOST:PORT of the server's SuperLink: a SuperNode is started beside the site.")
@click.option("--node-key", type=FilePath, help="The SuperNode's key: private with --superlink, else public.")
@CA
@INSECURE
@options(LEDGER_AND_TABLE)
@FORMAT
def site_command(registration: Path, records: Path, name: str, key: Path, output: str, **given: Any) -> None:
    """At a site: serve RECORDS behind their ledger, to signed requests of REGISTRATION alone.

    The registration must have been allowed with `fedsrc allow`. Every refusal is in the log, with its reason.
    """
    stop_on_terminate()
    place, link, node_key = given["socket"] or socket_of(records), given["superlink"], given["node_key"]
    node = node_plan(name, records, place, link, Tls(given["ca"]), node_key, given["insecure"]) if link else None
    registered, mask = Registration.read(registration), given["mask_key"]
    if mask is None and registered.cohorts is not None and mask_beside(key).exists():
        mask = mask_beside(key)

    def ready(units: int) -> None:
        if output == "json":
            show(output, {"site": name, "registration": registered.digest, "socket": str(place), "units": units})

    with open_log(given["log"], aloud=True) as tell:
        serve_site(
            registered, name, table_at(records, given), given["ledger"] or ledger_beside(records), load(key),
            mask=mask, socket=place, node=node,
            node_key=node_name(node_key, private=link is not None), fresh=given["fresh"], tell=tell,
            ready=ready,
        )  # fmt: skip
