"""`fedsrc site` and `fedsrc server`: the live mode, between real processes over Flower."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, NoReturn

import click

from fedsrc.cli_common import FORMAT, FilePath, FolderPath, say
from fedsrc.cli_run import FRESH, LEDGER, TABLE_OPTIONS, finish, ledger_of, options, table_at
from fedsrc.common.durable import write_whole
from fedsrc.common.signing import load
from fedsrc.demo.live import Parties, by_files, play_live, set_up
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.grid import Settings
from fedsrc.federation.flower.node_keys import name_of_private, name_of_public
from fedsrc.federation.flower.processes import Tls, check_encrypted, program
from fedsrc.federation.flower.superlink import Address, ServerPlan, supervise
from fedsrc.federation.flower.supernode import NodePlan
from fedsrc.federation.live.log import open_log
from fedsrc.federation.live.play import check_live, finished
from fedsrc.federation.live.site_process import SitePlan, serve_site
from fedsrc.federation.live.site_socket import socket_of
from fedsrc.federation.live.transport import Patience
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.server.verify import verify

CA = click.option("--ca", type=FilePath, help="Certificate of the authority that both ends trust: connections use TLS.")
INSECURE = click.option("--insecure", is_flag=True, help="Talk to another machine without encryption.")
PATIENCE = Patience()
SECONDS = click.FloatRange(1, 1e6)
COMPARED = (TRANSCRIPT, CERTIFICATE)


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
    check_live(registered, folder, signer)
    plan = server_plan(registered, folder, key, given)
    write_whole(folder / REGISTRATION, registered.to_toml().encode())
    if finished(registered, folder, signer) is None:
        program("flower-superlink")
        supervise(plan, say)
    finish(verify(folder).body, folder, output)


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


def demo_live(folder: Path, output: str) -> NoReturn:
    """The demo between processes, and the same run by files beside it."""
    stop_on_terminate()
    program("flower-superlink")
    parties = Parties(folder)
    registration = set_up(parties)
    say(f"Five sites and a server, each with its own folder in {folder / 'parties'}.")
    play_live(parties, say)
    body = verify(parties.run).body
    by_files(parties, registration, folder / "by-files")
    same = all((folder / "by-files" / name).read_bytes() == (parties.run / name).read_bytes() for name in COMPARED)
    if same:
        say("Played again by files on the same releases: transcript and certificate are the same, byte for byte.")
    elif body["absent"] + body["refused"] == 0 and all(site["records"] for site in body["sites"]):
        raise FedsrcError("the run by files differs from the live one", where=str(folder))
    else:
        say("Played again by files it is another run: live, a site did not come or did not answer in time.")
    finish(body, parties.run, output)


def named_file(text: str) -> tuple[str, Path]:
    """SITE=FILE."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise FedsrcError(f"{text!r} is not of the form north=north.pub")
    return name, Path(path)


def show_trial(folder: Path, public: dict[str, str], output: str) -> None:
    """A trial set: where it lies, and what goes into the registration."""
    if output == "json":
        click.echo(json.dumps({"folder": str(folder), "public": public}))
        return
    server, sites = public["server"], {name: key for name, key in public.items() if name != "server"}
    click.echo(f"Wrote {folder}: certificates, node keys and release keys of {len(sites)} sites, for trials only.")
    click.echo(f"Register with --server-key {server}")
    click.echo(f"  --site-keys {','.join(f'{name}={key}' for name, key in sites.items())}")


def stop_on_terminate() -> None:
    """A request to terminate is an interruption: everything that was started is stopped."""

    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
