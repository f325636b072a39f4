"""`fedsrc site`: a site of a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CA, FRESH, INSECURE, LEDGER, TABLE_OPTIONS, FilePath, options
from fedsrc.cli.streams import stop_on_terminate
from fedsrc.cli.table import ledger_of, table_at
from fedsrc.common.signing import load
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.node_keys import name_of_private, name_of_public
from fedsrc.federation.flower.processes import Tls, check_encrypted
from fedsrc.federation.flower.supernode import NodePlan
from fedsrc.federation.live.log import open_log
from fedsrc.federation.live.site_process import SitePlan, serve_site
from fedsrc.federation.live.site_socket import socket_of
from fedsrc.protocol.registration import Registration


@click.command("site")
@click.argument("registration", type=FilePath)
@click.argument("records", type=FilePath)
@click.option("--name", required=True, help="The site's name in the registration.")
@click.option("--key", type=FilePath, required=True, help="The site's private key, which signs releases.")
@LEDGER
@click.option("--socket", type=FilePath, help="Where a relay may knock  [default: beside the records]")
@click.option("--log", type=FilePath, help="A file for the log, which also goes to stderr.")
@click.option("--superlink", help="HOST:PORT of the server's SuperLink: a SuperNode is started beside the site.")
@click.option("--node-key", type=FilePath, help="The SuperNode's key: private with --superlink, else public.")
@CA
@INSECURE
@FRESH
@options(TABLE_OPTIONS)
def site_command(registration: Path, records: Path, name: str, key: Path, **given: Any) -> None:
    """At a site: serve RECORDS behind their ledger, to signed requests of REGISTRATION alone.

    The registration must have been allowed with `fedsrc allow`. Every refusal is in the log, with its reason.
    """
    stop_on_terminate()
    place = given["socket"] or socket_of(records)
    node_key, name_of = given["node_key"], name_of_private if given["superlink"] else name_of_public
    plan = SitePlan(
        Registration.read(registration), name, table_at(records, given), given["ledger"] or ledger_of(records),
        load(key), place, node_plan(name, records, place, given), node_key and name_of(node_key),
        given["fresh"],
    )  # fmt: skip
    with open_log(given["log"], aloud=True) as tell:
        serve_site(plan, tell)


def node_plan(name: str, records: Path, socket: Path, given: dict[str, Any]) -> NodePlan | None:
    """The SuperNode beside the site, if one is wanted."""
    if given["superlink"] is None:
        return None
    tls = Tls(given["ca"])
    check_encrypted(str(given["superlink"]).rpartition(":")[0], tls, given["insecure"])
    if given["node_key"] is not None and tls.ca is None:
        raise FedsrcError("--node-key needs --ca", hint="Flower takes node keys over TLS only")
    home = records.with_name(records.name + ".flower")
    return NodePlan(name, socket, given["superlink"], home, tls, given["node_key"])
