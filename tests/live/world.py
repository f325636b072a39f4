"""Real processes on this machine: a world with keys, certificates and tables, and our commands in the background."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from fedsrc.common.clock import utc_now
from fedsrc.common.places import labels_beside, mask_beside
from fedsrc.common.signing import load
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.flower.processes import Process, descendants, free_port
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.federation.local import plan_table
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import read_request
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.site.label_file import Label, LabelFile, read_labels
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.rounds import open_rounds
from tests.support.live_account import Account, account

FEDSRC = str(Path(sys.executable).parent / "fedsrc")
PATIENCE = float(os.environ.get("FEDSRC_TEST_SECONDS", "300"))


class World:
    """A folder with everything that a live run of a few sites needs: so many rounds on a grid, or a planned run, whose
    labels may come on demand; sites may be in cohorts."""

    def __init__(
        self, folder: Path, sites: tuple[str, ...], rounds: int | Wish, *, on_demand: bool = False,
        cohorts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.sites, self.port = folder, sites, free_port()
        self.trial, self.run = folder / "t", folder / "run"
        self.truth = dict[str, float]()  # of answers that people label
        public = make_trial(self.trial, sites)
        choices = Choices(
            target_risk=0.3, epsilon=4.0, server_key=public["server"], site_keys={name: public[name] for name in sites},
            capacities=dict.fromkeys(sites, 400), labels="on demand" if on_demand else "there",
        )  # fmt: skip
        if cohorts is not None:
            words = [(self.trial / name / f"{name}.mask.json").read_bytes() for name in sites]
            keys = [MaskKey.model_validate_json(each) for each in words]
            choices = replace(choices, aggregation="cohorts", cohorts=cohorts, mask_keys=keys)
        self.registration = self._planned(choices, rounds) if isinstance(rounds, Wish) else register_grid(
            replace(choices, batch=60, rounds=rounds, policy="final", thresholds=10, grid=True), sites
        )  # fmt: skip
        self.registration_file = folder / "registration.toml"
        self.registration_file.write_text(self.registration.to_toml())
        for i, name in enumerate(sites):
            write_table(self.table(name), name, seed=i)
            if on_demand:
                frame = pl.read_csv(self.table(name))
                self.truth |= dict(zip(frame["id"], map(float, frame["loss"]), strict=True))
                frame.drop("loss").write_csv(self.table(name))
            with closing(Ledger(self.ledger(name))) as ledger:
                allow(ledger, name, self.registration, max_epsilon=4.0)

    def _planned(self, choices: Choices, wish: Wish) -> Registration:
        """A registration that the server plans on a table of its own, which is released with noise."""
        place = self.trial / "server" / "development.csv"
        write_table(place, "development", seed=9)
        table = read_records(place)
        part, ledger = development_part(table, "record", 1.0), place.with_suffix(".ledger")
        units = dict.fromkeys(self.sites, 400)
        return plan_table(choices, table, part, ledger, wish, units=units, sites=self.sites)[0]

    def label(self) -> None:
        """Label whatever is open at any site, from the truth."""
        for name in self.sites:
            labels = labels_beside(self.table(name))
            with closing(Ledger(self.ledger(name))) as ledger:
                found = open_rounds(ledger, read_records(self.table(name), labels="on demand").at(name))
            done = {(label.answer, label.round) for label in read_labels(labels)}
            for each in found:
                said = {"by": "ann", "at": utc_now(), "shown": "0" * 64, "round": each.request.digest}
                with closing(LabelFile(labels)) as file:
                    file.add(*(Label.model_validate({"answer": answer, "loss": self.truth[answer], **said})
                               for answer in each.needed if (answer, each.request.digest) not in done))  # fmt: skip

    def table(self, site: str) -> Path:
        return self.trial / site / "records.csv"

    def ledger(self, site: str) -> Path:
        return self.trial / site / "records.csv.ledger"

    def site(self, name: str) -> list[str]:
        own = self.trial / name
        return [
            FEDSRC, "site", str(self.registration_file), str(self.table(name)), "--name", name,
            "--key", str(own / "site.key"), "--log", str(own / "site.log"), "--superlink", f"127.0.0.1:{self.port}",
            "--ca", str(self.trial / "ca.pem"), "--node-key", str(own / "node.key"),
        ]  # fmt: skip

    def server(self) -> list[str]:
        own = self.trial / "server"
        nodes = [part for name in self.sites for part in ("--node-key", f"{name}={self.trial / name / 'node.pub'}")]
        return [
            FEDSRC, "server", str(self.registration_file), "-o", str(self.run), "--key", str(own / "server.key"),
            "--port", str(self.port), "--ca", str(self.trial / "ca.pem"), "--certificate", str(own / "tls.pem"),
            "--certificate-key", str(own / "tls.key"), *nodes,
        ]  # fmt: skip

    def lines(self) -> str:
        path = self.run / TRANSCRIPT
        return path.read_text() if path.exists() else ""

    @property
    def closed(self) -> int:
        """How many rounds are over."""
        return self.lines().count('"kind":"closed"')

    def reached(self, round: int) -> bool:
        return self.closed >= round

    def ended(self) -> bool:
        return (self.run / CERTIFICATE).exists()

    def account(self) -> Account:
        return account(self.run, {name: self.ledger(name) for name in self.sites})

    def by_files(self, folder: Path) -> None:
        """The files mode on the same ledgers: asked the same requests, they give the same releases."""
        key = load(self.trial / "server" / "server.key")
        done = start(self.registration, folder, key)
        while done.certificate is None:
            done = collect(folder, [file for path in done.waiting for file in self._answers(path)], key)

    def _answers(self, path: Path) -> Iterator[Path]:
        for site in self.registration.answering(read_request(path).request):
            table, key = Table(self.table(site)), self.trial / site / "site.key"
            mask = None if self.registration.cohorts is None else load(mask_beside(key))
            with closing(Ledger(self.ledger(site))) as ledger:
                data = answer_file(path, lambda table=table: table, ledger, load(key), mask=mask)
            target = self.folder / f"{site}.{path.name.replace('request', 'release')}"
            target.write_bytes(data)
            yield target


def write_table(path: Path, site: str, seed: int) -> None:
    rng = random.Random(seed)
    with path.open("w") as file:
        print("id,score,loss", file=file)
        for i in range(400):
            loss = int(rng.random() < 0.35)
            score = min(1.0, max(0.0, rng.gauss(0.4 if loss else 0.75, 0.15)))
            print(f"{site}-{i},{score:.3f},{loss}", file=file)


class Started:
    """A command of ours in the background, ended with all that it started."""

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        self.family = set[Process]()

    def look(self) -> list[Process]:
        """All that it has started and that runs now; remembered, so that nothing can be left behind unseen."""
        found = descendants(self.process.pid)
        self.family.update(found)
        return found

    def child(self, name: str) -> int | None:
        """The process that runs one of Flower's commands below this one."""
        return next((each.pid for each in self.look() if name in words_of(each.pid)), None)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.look()
        self.process.send_signal(how)
        self.process.wait()


def words_of(pid: int) -> str:
    """A process's command line; nothing if it has gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


@contextmanager
def running(world: World, *, without: str = "") -> Iterator[dict[str, Started]]:
    """The sites, each with its SuperNode; one of them may be left out."""
    there = [name for name in world.sites if name != without]
    sites = {name: Started(world.site(name), world.folder / f"{name}.out") for name in there}
    try:
        yield sites
    finally:
        for each in sites.values():
            each.end()
        for each in sites.values():
            until(partial(gone, each.family))


def gone(family: set[Process]) -> bool:
    for each in family:
        with suppress(OSError):
            fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(") ")[2].split()
            if fields[19] == each.started and fields[0] not in "ZX":
                return False
    return True


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.2)


def finish(server: Started) -> int:
    try:
        return server.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        server.end()
        raise


def check(world: World) -> Account:
    """It verifies, nothing was spent or folded twice, and the files mode on the same releases says the same."""
    found = world.account()
    assert found.faultless, found
    if found.undisturbed:
        check_by_files(world)
    return found


def check_by_files(world: World) -> None:
    """The files mode on the same ledgers writes the same transcript and certificate."""
    world.by_files(world.folder / "files")
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (world.folder / "files" / name).read_bytes() == (world.run / name).read_bytes()
