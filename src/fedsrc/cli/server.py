"""`fedsrc server`: the server of a live run, over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CA, FORMAT, INSECURE, Option, listening, named, options, run_folder
from fedsrc.cli.output import finish
from fedsrc.cli.streams import say, stop_on_terminate
from fedsrc.cli.types import FilePath
from fedsrc.federation.flower.plans import run_server, server_plan
from fedsrc.federation.flower.processes import Tls
from fedsrc.federation.flower.superlink import Address
from fedsrc.federation.live.transport import Patience
from fedsrc.protocol.registration import Registration
from fedsrc.server.verify import verify

SECONDS = click.FloatRange(1, 1e6)


def _patience(name: str, about: str) -> Option[Any]:
    return click.option(f"--{name}-seconds", type=SECONDS, default=getattr(Patience, name), help=about)


@click.command("server")
@click.argument("registration", type=FilePath)
@run_folder()
@click.option("--key", type=FilePath, required=True, help="The server's private key, which signs requests.")
@options(listening(Address.port, "Where nodes connect.", least=1))
@click.option("--own-superlink", is_flag=True, help="The SuperLink at --host and --port runs already.")
@CA
@click.option("--certificate", type=FilePath, help="The server's certificate, with --ca.")
@click.option("--certificate-key", type=FilePath, help="Its private key.")
@click.option(
    "--node-key", "node_keys", multiple=True, callback=named, help="SITE=FILE, a SuperNode's public key; once for each."
)
@INSECURE
@_patience("start", "Wait for sites.")
@_patience("round", "Wait for answers.")
@_patience("missing", "Wait for a lost site.")
@FORMAT
def server_command(registration: Path, folder: Path, key: Path, output: str, **given: Any) -> None:
    """Run REGISTRATION live: start a SuperLink, ask the sites that connect, and certify.

    Killed at any point, the same command continues the transcript. Exit status 0 certified, 1 abstained, 2 error.
    """
    stop_on_terminate()
    registered = Registration.read(registration)
    plan = server_plan(
        registered, folder, key,
        address=Address(given["host"], given["port"]),
        tls=Tls(given["ca"], given["certificate"], given["certificate_key"]),
        node_keys={site: Path(file) for site, file in (given["node_keys"] or {}).items()},
        running=given["own_superlink"],
        insecure=given["insecure"],
        patience=Patience(given["start_seconds"], given["round_seconds"], given["missing_seconds"]),
    )  # fmt: skip
    run_server(registered, plan, say)
    found = verify(folder)
    finish(found.signed, found.replay, folder, output)
