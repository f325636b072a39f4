"""`fedsrc server`: the server of a live run, over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import CA, FORMAT, INSECURE, FilePath, FolderPath
from fedsrc.cli.output import finish
from fedsrc.cli.streams import say, stop_on_terminate
from fedsrc.common.durable import write_whole
from fedsrc.common.signing import load
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.grid import Settings
from fedsrc.federation.flower.node_keys import name_of_public
from fedsrc.federation.flower.processes import Tls, check_encrypted, program
from fedsrc.federation.flower.superlink import Address, ServerPlan, supervise
from fedsrc.federation.live.play import finished, live_session
from fedsrc.federation.live.transport import Patience
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration
from fedsrc.server.verify import verify

PATIENCE = Patience()
SECONDS = click.FloatRange(1, 1e6)


@click.command("server")
@click.argument("registration", type=FilePath)
@click.option("-o", "--output", "folder", type=FolderPath, default="run", show_default=True)
@click.option("--key", type=FilePath, required=True, help="The server's private key, which signs requests.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where nodes connect.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option("--own-superlink", is_flag=True, help="The SuperLink at --host and --port runs already.")
@CA
@click.option("--certificate", type=FilePath, help="The server's certificate, with --ca.")
@click.option("--certificate-key", type=FilePath, help="Its private key.")
@click.option("--node-key", "node_keys", multiple=True, help="SITE=FILE, a SuperNode's public key; once for each.")
@INSECURE
@click.option("--start-seconds", type=SECONDS, default=PATIENCE.start, show_default=True, help="Wait for sites.")
@click.option("--round-seconds", type=SECONDS, default=PATIENCE.round, show_default=True, help="Wait for answers.")
@click.option(
    "--missing-seconds", type=SECONDS, default=PATIENCE.missing, show_default=True, help="Wait for a lost site."
)
@FORMAT
def server_command(registration: Path, folder: Path, key: Path, output: str, **given: Any) -> None:
    """Run REGISTRATION live: start a SuperLink, ask the sites that connect, and certify.

    Killed at any point, the same command continues the transcript.
    """
    stop_on_terminate()
    registered, signer = Registration.read(registration), load(key)
    session = live_session(registered, folder, signer)
    plan = server_plan(registered, folder, key, given)
    if finished(session) is None:
        program("flower-superlink")
        write_whole(folder / REGISTRATION, registered.to_toml().encode())
        supervise(plan, say)
    found = verify(folder)
    finish(found.certificate, found.replay, folder, output)


def server_plan(registration: Registration, folder: Path, key: Path, given: dict[str, Any]) -> ServerPlan:
    """What the operator asked for, checked."""
    tls = Tls(given["ca"], given["certificate"], given["certificate_key"])
    parts = (tls.certificate, tls.key) if given["own_superlink"] else (tls.ca, tls.certificate, tls.key)
    if given["own_superlink"] and any(parts):
        raise FedsrcError("--certificate belongs to the SuperLink, which runs already", hint="give --ca alone")
    if any(parts) and not all(parts):
        raise FedsrcError("--ca, --certificate and --certificate-key belong together")
    check_encrypted(given["host"], tls, given["insecure"])
    pairs = [named_file(each) for each in given["node_keys"]]
    node_keys = dict(pairs)
    unknown = sorted(set(node_keys) - {site.name for site in registration.sites})
    if unknown or len(node_keys) < len(pairs):
        what = f"{unknown[0]!r} is not a registered site" if unknown else "a site has two node keys"
        raise FedsrcError(f"--node-key: {what}")
    missing = [site.name for site in registration.sites if node_keys and site.name not in node_keys]
    if missing:
        raise FedsrcError(f"site {missing[0]!r} has no --node-key", hint="with node keys, every site needs one")
    if node_keys and tls.ca is None:
        raise FedsrcError("--node-key needs --ca", hint="Flower takes node keys over TLS only")
    patience = Patience(given["start_seconds"], given["round_seconds"], given["missing_seconds"])
    names = {name: name_of_public(path) for name, path in node_keys.items()}
    if len(set(names.values())) < len(names):
        raise FedsrcError("two sites have the same node key", hint="every SuperNode has its own")
    settings = Settings(folder.resolve(), key.resolve(), names, patience)
    address = Address(given["host"], given["port"])
    return ServerPlan(settings, address, given["own_superlink"], tls=tls, node_keys=node_keys)


def named_file(text: str) -> tuple[str, Path]:
    """SITE=FILE."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise FedsrcError(f"{text!r} is not of the form north=north.pub")
    return name, Path(path)
