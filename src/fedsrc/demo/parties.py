"""The demo between real processes: five sites, a SuperNode beside each, a SuperLink, TLS and node keys, all here.

Every party has a folder of its own, as if it were a machine, with its records, ledger and private keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import load, public_hex
from fedsrc.data.embedded import score_table
from fedsrc.demo.answers_table import SITES, one_of_each_pair
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.flower.plans import server_plan
from fedsrc.federation.flower.processes import Child, Tls, environment, free_port, program
from fedsrc.federation.flower.superlink import Address, supervise
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.federation.live.site_socket import socket_of, too_long
from fedsrc.federation.local import register_table
from fedsrc.planning.register import Choices, development_part
from fedsrc.protocol.certificate import Certificate, MonitorAccount
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_rows
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.server.verify import Verified, verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow

Tell = Callable[[str], None]
SHARE = 0.2  # of the records choose thresholds, as in the demo on one table


@dataclass(frozen=True)
class Parties:
    """Where everything of a trial on one machine lies."""

    folder: Path
    sites: tuple[str, ...] = SITES
    port: int = field(default_factory=free_port)

    @property
    def registration(self) -> Path:
        return self.folder / REGISTRATION

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def ca(self) -> Path:
        return self.folder / "parties" / "ca.pem"

    def of(self, party: str, name: str) -> Path:
        """Return the path of a party's file."""
        return self.folder / "parties" / party / name

    def table(self, site: str) -> Path:
        return self.of(site, "records.csv")

    def ledger(self, site: str) -> Path:
        return self.of(site, "records.csv.ledger")

    def site_command(self, site: str) -> list[str]:
        """Return the command that starts a site, with a SuperNode beside it."""
        return [
            program("fedsrc"), "site", str(self.registration), str(self.table(site)), "--name", site,
            "--key", str(self.of(site, "site.key")), "--log", str(self.of(site, "site.log")),
            "--superlink", f"127.0.0.1:{self.port}", "--ca", str(self.ca),
            "--node-key", str(self.of(site, "node.key")),
        ]  # fmt: skip


def demo_live(folder: Path, tell: Tell) -> tuple[Path, Verified]:
    """Play the demo between processes, and the same run by files beside it; return its folder and verdict."""
    program("flower-superlink")
    parties = Parties(folder)
    registration = set_up(parties)
    tell(f"Five sites and a server, each with its own folder in {folder / 'parties'}.")
    play_live(parties, registration, tell)
    found, again = verify(parties.run), folder / "by-files"
    certificate = found.certificate
    by_files(parties, registration, again)
    if all((again / name).read_bytes() == (parties.run / name).read_bytes() for name in (TRANSCRIPT, CERTIFICATE)):
        tell("Played again by files on the same releases: transcript and certificate are the same, byte for byte.")
    elif certificate.absent + certificate.refused == 0 and all(site.records for site in certificate.sites):
        raise FedsrcError("the run by files differs from the live one", where=str(folder))
    else:
        tell("Played again by files it is another run: live, a site did not come or did not answer in time.")
    return parties.run, found


def set_up(parties: Parties) -> Registration:
    """Make keys, certificates and tables of every party, register, and allow the registration at each site."""
    if any(too_long(socket_of(parties.table(site).absolute())) for site in parties.sites):
        what = "the folder's path is too long for the sites' sockets"
        raise FedsrcError(what, where=str(parties.folder), hint="choose a shorter `output=`")
    if not parties.registration.exists():
        public = make_trial(parties.folder / "parties", parties.sites)
        write_whole(parties.registration, _register(parties, public).to_toml().encode())
    registration = Registration.read(parties.registration)
    for site in parties.sites:
        with closing(Ledger(parties.ledger(site))) as ledger:
            allow(ledger, site, registration, max_epsilon=registration.privacy.epsilon)
    write_whole(parties.run / REGISTRATION, registration.to_toml().encode())
    return registration


def _register(parties: Parties, public: dict[str, str]) -> Registration:
    """Register with thresholds from the demo's development records, which here the server has."""
    whole = parties.of("server", "all.csv")
    write_whole(whole, one_of_each_pair(score_table("qa")).write_csv().encode())
    frame, records = pl.read_csv(whole), read_records(whole)
    chosen = pl.Series(development_rows(records, development_part(records, "record", SHARE), "record"))
    whole.unlink()
    development = parties.of("server", "development.csv")
    write_whole(development, frame.filter(chosen).write_csv().encode())
    own = {site: frame.filter(~chosen & (pl.col("site") == site)).drop("site") for site in parties.sites}
    for site, table in own.items():
        write_whole(parties.table(site), table.write_csv().encode())
    choices = Choices(
        target_risk=0.2, epsilon=4.0, batch=100, weights=dict.fromkeys(parties.sites, 1 / len(parties.sites)),
        server_key=public["server"], site_keys={site: public[site] for site in parties.sites},
        capacities={site: table.height for site, table in own.items()},
    )  # fmt: skip
    developing = read_records(development)
    part, ledger = development_part(developing, "record", 1.0), parties.of("server", "development.csv.ledger")
    return register_table(choices, developing, part, ledger, sites=parties.sites)


@contextmanager
def sites_running(parties: Parties, tell: Tell) -> Iterator[dict[str, Child]]:
    """Run every site in a process of its own, and end it with all that it started."""
    with ExitStack() as stack:
        running = {}
        for site in parties.sites:
            log = parties.of(site, "output.log")
            running[site] = stack.enter_context(Child(parties.site_command(site), environment(log.parent), log))
            tell(f"site {site!r} started (process {running[site].pid}); its log is {parties.of(site, 'site.log')}")
        yield running


def play_live(parties: Parties, registration: Registration, tell: Tell) -> None:
    """Run sites, nodes and server until there is a certificate. A call that was stopped resumes."""
    plan = server_plan(
        registration, parties.run, parties.of("server", "server.key"), address=Address(port=parties.port),
        tls=Tls(parties.ca, parties.of("server", "tls.pem"), parties.of("server", "tls.key")),
        node_keys={site: parties.of(site, "node.pub") for site in parties.sites},
    )  # fmt: skip
    with sites_running(parties, tell):
        supervise(plan, tell)


def by_files(parties: Parties, registration: Registration, folder: Path) -> Certificate | MonitorAccount:
    """Play the same run by files: the sites' ledgers give the same releases for the same requests."""
    key = load(parties.of("server", "server.key"))
    if registration.server_key != public_hex(key):
        raise FedsrcError("the folder holds another server's key", where=str(parties.folder))
    done = start(registration, folder, key)
    while done.certificate is None:
        done = collect(folder, [_carry(parties, path) for path in done.waiting], key)
    return done.certificate


def _carry(parties: Parties, request: Path) -> Path:
    """Carry a request file to its site, and return its release file."""
    site = read_request(request).request.site
    with closing(Ledger(parties.ledger(site))) as ledger:
        data = answer_file(request, lambda: Table(parties.table(site)), ledger, load(parties.of(site, "site.key")))
    place = request.with_name(request.name.replace("request", "release"))
    write_whole(place, data)
    return place
