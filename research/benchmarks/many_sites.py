"""A thousand sites: 100,000 releases through a live run, its time, memory and transcript, and how they grow.

Writes docs/results/many-sites.md. Run: python -m research.benchmarks.many_sites
(half an hour of CPU time, an hour where
others want the cores too; 1 GB of temporary files, 2 GB of memory)

Every figure comes from a process of its own, because peak memory is a process's, and the one that starts them stays
small, because they inherit its peak. The server's loop and carrier are those of a live run; the sites' guards
answer in other processes, over pipes in place of a network, so that the server's time and memory are its own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.common.signing import Key, load, load_or_make, public_hex
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, REFUSED, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Letter, Node, Patience, Reply
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Transcript
from fedsrc.records.stream import Table
from fedsrc.server.folder import replay_run
from fedsrc.server.issue import issue
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.pages import markdown, publish

SITES, ROUNDS, SLOTS, THRESHOLDS = (10, 100, 1_000), 100, 20, 20
CUTS = (25, 50, 100)  # rounds
WORKERS = 2
HALF = 600  # bytes a site has written of a round by the middle of it: its request, and a release of some sites
KINDS = {"hello": HELLO, "release": RELEASE}
MILLION = 1_000_000
PLAYED = ("releases", "rounds", "records", "status", "absent", "refused")
Figures = dict[str, Any]


def name_of(site: int) -> str:
    return f"site {site:04d}"


def prepare(folder: Path, sites: int) -> Figures:
    """Sites with a key, a table and a ledger each, all on disk, and a registration that each of them has allowed."""
    names = [name_of(i) for i in range(sites)]
    server = load_or_make(folder / "server.pem")
    keys = {name: public_hex(load_or_make(folder / f"{name}.pem")) for name in names}
    registration = register_grid(
        Choices(
            target_risk=0.2,
            epsilon=4.0,
            grid=True,
            thresholds=THRESHOLDS,
            batch=SLOTS,
            rounds=ROUNDS,
            policy="final",
            server_key=public_hex(server),
            site_keys=keys,
            capacities=dict.fromkeys(names, SLOTS * ROUNDS),
        ),
        names,
    )
    (folder / REGISTRATION).write_text(registration.to_toml())
    for i, name in enumerate(names):
        make_table(folder / f"{name}.csv", seed=i)
        with closing(Ledger(folder / f"{name}.ledger")) as ledger:
            allow(ledger, name, registration, max_epsilon=10.0)
    return {"bytes": (folder / REGISTRATION).stat().st_size}


def make_table(path: Path, seed: int) -> None:
    """As many records as will be asked for; their scores order their losses a little."""
    rng = np.random.default_rng(seed)
    loss = (rng.random(SLOTS * ROUNDS) < 0.3).astype(np.int64)
    pl.DataFrame({"score": rng.random(loss.size) * (1.0 - 0.3 * loss), "loss": loss}).write_csv(path)


def serve(link: Connection, folder: Path, mine: range) -> None:
    """Some sites' guards, answering whatever comes, until the other end closes."""
    registration = Registration.read(folder / REGISTRATION)
    guards = {i: guard_of(folder, registration, name_of(i)) for i in mine}
    for guard in guards.values():
        guard.open()
    link.send("ready")
    while (questions := link.recv()) is not None:
        begun = time.process_time()
        answers = [(number, guards[site].answer(Frame(*frame))) for number, site, frame in questions]
        link.send((answers, time.process_time() - begun))
    link.send(peak_memory())


def guard_of(folder: Path, registration: Registration, name: str) -> Guard:
    ledger = Ledger(folder / f"{name}.ledger", must_exist=True)
    return Guard(registration, name, ledger, lambda: Table(folder / f"{name}.csv"), load(folder / f"{name}.pem"))


class Pipes:
    """A live run's post: letters to sites in other processes, over pipes. Notes what a round takes."""

    def __init__(self, folder: Path, sites: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.sites, self.letters = sites, 0
        self.waiting: set[Connection] = set()
        self.links: list[Connection] = []
        self.times: list[tuple[float, float, float, float, float]] = []
        self.away, self.sites_cpu = 0.0, 0.0
        for worker in range(WORKERS):
            ours, theirs = context.Pipe()
            context.Process(target=serve, args=(theirs, folder, range(worker, sites, WORKERS)), daemon=True).start()
            self.links.append(ours)
        for link in self.links:
            link.recv()

    def nodes(self) -> list[Node]:
        return [Node(site + 1) for site in range(self.sites)]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str | None]:  # noqa: ARG002
        if letters[0].kind == "release":
            self.note()
        numbers = [f"letter-{self.letters + i}" for i in range(1, len(letters) + 1)]
        self.letters += len(letters)
        posted = list(zip(numbers, letters, strict=True))
        begun = time.perf_counter()
        for worker, link in enumerate(self.links):
            mine = [(n, x.node - 1, (KINDS[x.kind], x.data)) for n, x in posted if (x.node - 1) % WORKERS == worker]
            if mine:
                link.send(mine)
                self.waiting.add(link)
        self.away += time.perf_counter() - begun
        return list(numbers)

    def pull(self, numbers: Sequence[str]) -> list[Reply]:  # noqa: ARG002
        """Waits for every answer that is under way: these sites are never late."""
        begun, replies = time.perf_counter(), list[Reply]()
        for link in list(self.waiting):
            answers, cpu = link.recv()
            self.sites_cpu += cpu
            replies += [reply_of(number, Frame(*answer)) for number, answer in answers]
            self.waiting.remove(link)
        self.away += time.perf_counter() - begun
        return replies

    def note(self) -> None:
        """Where things stand: called when a round's requests are posted, and after the last round."""
        now = (time.perf_counter(), self.away, time.process_time(), self.sites_cpu, peak_memory())
        self.times.append(now)

    def close(self) -> list[float]:
        """Ends the sites' processes; returns their peak memory."""
        for link in self.links:
            link.send(None)
        return [link.recv() for link in self.links]


def reply_of(number: str, answer: Frame) -> Reply:
    data = answer.data.rstrip(b" ")  # a site's answers are padded to one size
    if answer.kind == GIVEN:
        return Reply(number, data)
    return Reply(number, problem=data.decode(), refused=answer.kind == REFUSED)


def play_run(folder: Path, sites: int) -> Figures:
    """A whole live run, to its certificate."""
    registration, post = Registration.read(folder / REGISTRATION), Pipes(folder, sites)
    base = peak_memory()
    certificate = play(registration, folder / "run", server_key(folder), post, patience=Patience(round=3600.0))
    post.note()
    rounds = np.diff(np.asarray(post.times), axis=0)
    return {
        "base": base,
        "round": rounds[:, 0].tolist(),
        "away": rounds[:, 1].tolist(),
        "server_cpu": rounds[:, 2].tolist(),
        "sites_cpu": rounds[:, 3].tolist(),
        "peak_after": [each[4] for each in post.times[1:]],
        "sites_peak": post.close(),
        **{name: getattr(certificate, name) for name in PLAYED},
    }


def server_key(folder: Path) -> Key:
    return load(folder / "server.pem")


def cut(folder: Path, rounds: int, after: int) -> Figures:
    """The run as it stood when so many rounds were closed and so many bytes of the next had been written."""
    closed, target = 0, folder / f"cut-{rounds}-{after}"
    target.mkdir()
    shutil.copy(folder / REGISTRATION, target)
    with (folder / "run" / TRANSCRIPT).open("rb") as whole, (target / TRANSCRIPT).open("wb") as kept:
        while closed < rounds:
            line = whole.readline()
            kept.write(line)
            closed += b'"kind":"closed"' in line
        kept.write(whole.read(after))
    return {"folder": str(target)}


def sign_cut(place: Path) -> Figures:
    """What the server would sign of a run that stands there: still open."""
    replay, chain = replay_run(place)
    issue(replay.registration, replay, chain).signed(server_key(place.parent)).save(place / CERTIFICATE)
    return {}


def verify_run(folder: Path) -> Figures:
    """Recompute the certificate from the transcript, and check chain and signatures."""
    begun, cpu = time.perf_counter(), time.process_time()
    certificate = verify(folder).certificate
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    size = (folder / TRANSCRIPT).stat().st_size
    names = ("releases", "rounds", "status", "transcript_lines")
    return {"seconds": seconds, "cpu": cpu, "bytes": size, **{name: getattr(certificate, name) for name in names}}


def resume(folder: Path) -> Figures:
    """What a server that was killed does before it asks again: open the transcript and replay it."""
    begun, cpu = time.perf_counter(), time.process_time()
    registration = Registration.read(folder / REGISTRATION)
    with closing(Transcript(folder / TRANSCRIPT)) as transcript:
        replay = Replay(registration, transcript.entries)
        waiting = len(replay.asked) + len(replay.due)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "rounds": replay.rounds, "waiting": waiting}


def nothing(_: Path) -> Figures:
    """What the program itself needs."""
    return {}


STEPS: dict[str, Callable[..., Figures]] = {
    step.__name__: step for step in (prepare, play_run, cut, sign_cut, verify_run, resume, nothing)
}


def peak_memory() -> float:
    """The largest that this process has been, in MiB."""
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def measured(step: Callable[..., Figures], folder: Path, *numbers: int) -> Figures:
    """A step in a process of its own: what it says, and its peak memory."""
    command = [sys.executable, "-m", "research.benchmarks.many_sites", step.__name__, str(folder), *map(str, numbers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | QUIET)
    found: Figures = json.loads(done.stdout)
    return found


def child(name: str, folder: str, *numbers: str) -> None:
    found = STEPS[name](Path(folder), *map(int, numbers))
    print(json.dumps({**found, "peak": peak_memory()}))


def played(folder: Path, sites: int) -> Figures:
    """A run, and what its verification and its resumption took."""
    folder.mkdir()
    measured(prepare, folder, sites)
    done = measured(play_run, folder, sites)
    if (done["releases"], done["absent"], done["refused"]) != (sites * ROUNDS, 0, 0):
        raise SystemExit(f"error: {done['absent']} releases are absent and {done['refused']} were refused")
    return {"run": done, "size": standing(folder, ROUNDS, sites)}


def standing(folder: Path, rounds: int, sites: int) -> Figures:
    """Verification of the run as it stood after a round, and resumption after a kill in the middle of that round."""
    place = folder / "run"
    if rounds < ROUNDS:
        place = Path(measured(cut, folder, rounds, 0)["folder"])
        measured(sign_cut, place)
    broken = Path(measured(cut, folder, rounds - 1, HALF * sites)["folder"])
    found = {"verify": measured(verify_run, place), "resume": measured(resume, broken)}
    if found["resume"]["rounds"] != rounds - 1 or not 0 < found["resume"]["waiting"] < sites:
        raise SystemExit("error: the run was not cut in the middle of a round")
    return found


def growth_row(done: Figures, found: Figures, rounds: int, base: float) -> dict[str, float]:
    """What may grow, for a run that stands after so many rounds. Memory is what is needed beyond the start."""
    verified, resumed = found["verify"], found["resume"]
    return {
        "releases": verified["releases"],
        "server, CPU s": sum(done["server_cpu"][:rounds]),
        "sites, CPU s": sum(done["sites_cpu"][:rounds]),
        "server, MiB": done["peak_after"][rounds - 1] - done["base"],
        "transcript, MB": verified["bytes"] / MILLION,
        "verify, CPU s": verified["cpu"],
        "verify, MiB": verified["peak"] - base,
        "resume, CPU s": resumed["cpu"],
        "resume, MiB": resumed["peak"] - base,
    }


def growth_table(what: str, rows: dict[int, dict[str, float]]) -> str:
    """The rows, and the power of the releases that fits each column best."""
    columns = list(next(iter(rows.values())))
    lines = [[f"{n:,}", *(digits(row[column]) for column in columns)] for n, row in rows.items()]
    releases = [row["releases"] for row in rows.values()]
    powers = [f"{power(releases, [row[column] for row in rows.values()]):.2f}" for column in columns[1:]]
    return markdown((what, *columns), [*lines, ["power of releases", "", *powers]])


def power(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y on log x by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def round_rows(done: Figures) -> Iterator[list[str]]:
    """Medians over all rounds, the first ten and the last ten."""
    wall, away = np.asarray(done["round"]), np.asarray(done["away"])
    columns = [
        ("a round, s", wall),
        ("of it the sites' work and the pipes, s", away),
        ("of it the server's own, s", wall - away),
        ("the server's own, CPU s", np.asarray(done["server_cpu"])),
        ("all sites', CPU s", np.asarray(done["sites_cpu"])),
    ]
    for name, values in columns:
        yield [name, *(digits(float(np.median(part))) for part in (values, values[:10], values[-10:]))]


def memory_rows(done: Figures) -> Iterator[list[str]]:
    yield ["before the first round", f"{done['base']:.0f}"]
    for quarter in (25, 50, 75, 100):
        yield [f"after round {quarter * ROUNDS // 100}", f"{done['peak_after'][quarter * ROUNDS // 100 - 1]:.0f}"]


def size_rows(done: Figures, found: Figures) -> Iterator[list[str]]:
    verified, resumed = found["verify"], found["resume"]
    yield ["releases", f"{done['releases']:,} of {done['records']:,} records; {done['status']}"]
    yield ["transcript", f"{verified['transcript_lines']:,} lines, {verified['bytes']:,} bytes"]
    yield ["transcript per release, bytes", f"{verified['bytes'] / verified['releases']:.0f}"]
    yield ["verified in", f"{verified['seconds']:.1f} s (CPU {verified['cpu']:.1f} s), {verified['peak']:.0f} MiB"]
    yield ["resumed in", f"{resumed['seconds']:.1f} s (CPU {resumed['cpu']:.1f} s), {resumed['peak']:.0f} MiB"]
    yield ["sites' processes, MiB each", ", ".join(f"{each:.0f}" for each in done["sites_peak"])]


def main() -> None:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = measured(nothing, folder)["peak"]
        runs = {sites: played(folder / str(sites), sites) for sites in SITES}
        most, done = SITES[-1], runs[SITES[-1]]["run"]
        cuts = {rounds: standing(folder / str(most), rounds, most) for rounds in CUTS[:-1]}
    cuts[ROUNDS] = runs[most]["size"]
    by_sites = {sites: growth_row(each["run"], each["size"], ROUNDS, base) for sites, each in runs.items()}
    by_rounds = {rounds: growth_row(done, found, rounds, base) for rounds, found in cuts.items()}
    machine = f"""\
Times are of one machine ({platform.machine()}, {os.cpu_count()} cores shared with other work, Python
{platform.python_version()}, numpy {np.__version__}) and will differ on another; CPU seconds and powers carry over
better. All of it took {(time.perf_counter() - begun) / 60:.0f} minutes. Nothing in the tests depends on a clock."""
    rounds = markdown(("", "all rounds", "first ten", "last ten"), round_rows(done))
    memory = markdown(("", "server's peak, MiB"), memory_rows(done))
    sizes = markdown(("", ""), size_rows(done, cuts[ROUNDS]))
    growth = [BY_SITES, growth_table("sites", by_sites), BY_ROUNDS, growth_table("rounds", by_rounds), READING]
    publish("many-sites.md", [HEAD, machine, RUN_HEAD, rounds, memory, sizes, SIZE_READING, GROWTH_HEAD, *growth])


QUIET = {"OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PYTHONWARNINGS": "ignore"}  # a torn line is meant

HEAD = """\
# A thousand sites: 100,000 releases through a live run

Made by

    python -m research.benchmarks.many_sites"""

RUN_HEAD = f"""\
## One run of {SITES[-1]:,} sites and {ROUNDS} rounds

Every site has its own key, its own table of {SLOTS * ROUNDS:,} records, its own ledger on disk and its own guard, and
gives {SLOTS} records a round with exact discrete noise at epsilon 4, {THRESHOLDS} thresholds, signed. The registration
names all keys and capacities and uses all rounds (policy `final`). The server runs the live mode's own loop and
carrier: signed hellos, signed requests, every release checked, every line on disk before it is acted on. In place of a
network there are pipes to {WORKERS} processes, each with the guards of {SITES[-1] // WORKERS:,} sites; the server's
process holds nothing of the sites, so its time and memory are its own. Sites of one process read the registration's
text once; in life each would."""

SIZE_READING = """\
Verified as `fedsrc verify` does: the hash chain, every site's signature, every request against the registered rule,
every round's bounds, and the whole certificate, one line at a time. Resumed: a server that was killed in the middle of
the last round, while it wrote a line, opens the transcript and replays it, up to where it asks again. A live server
keeps the entries of its transcript in memory; verification does not."""

GROWTH_HEAD = """\
## Growth

CPU seconds and memory beyond what the process had before the run (the server) or with nothing but the program (verify
and resume), in processes of their own. The power is the slope of the logarithm on that of the number of releases, by
least squares over the three rows: 1 is linear growth, 2 quadratic."""

BY_SITES = f"""\
### By sites, {ROUNDS} rounds each"""

BY_ROUNDS = f"""\
### By rounds, {SITES[-1]:,} sites

The same run as it stood after that round: its transcript up to there, with a certificate that is still open."""

READING = """\
A power is a little below 1 where every process needs something once, whatever the run: the registration with all its
sites, and memory that a small run never has to ask the system for. Other work on the machine moves CPU seconds by up
to a half, in either direction, and with them a power by two tenths; it moves a round's wall time by far more."""


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
