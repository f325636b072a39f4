"""A round of cohorts: what masks and sums cost at 5, 100 and 1,000 sites, in time and bytes, against own noise.

Writes docs/results/cohort-rounds.md. Run: python -m research.benchmarks.cohort_rounds (five minutes of CPU time, most
of it the one cohort of 1,000 members, in which half a million pairs share a secret)

Members, server and transcript are the real ones. Times are CPU seconds of one process that plays them in turn; what a
network, a ledger's disk and the reading of a table take is the same for every kind of aggregation, and left out.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsrc.common.clock import utc_now
from fedsrc.common.signing import Key, public_hex
from fedsrc.maths.arrays import Ints
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import START, Link, Request, SignedRequest
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Transcript
from fedsrc.records.masses import counted
from fedsrc.records.units import Units
from fedsrc.server.loop import ask, begin, close
from fedsrc.server.state import Replay
from fedsrc.site.masks import mask_release
from fedsrc.site.release import make_release
from research.pages import markdown, publish

LAYOUTS = {  # by sites and members of a cohort, 1 for own noise: how many rounds
    5: {1: 20, 5: 20},
    100: {1: 5, 5: 5, 20: 5, 100: 3},
    1_000: {1: 2, 20: 2, 1_000: 1},
}
SLOTS, THRESHOLDS, ROUNDS = 20, 20, 20
SERVER = Key.generate()


class Person(NamedTuple):
    """A site's two keys."""

    key: Key
    mask: Key


class Cost(NamedTuple):
    """What one round takes: CPU seconds of a site, and of the server a site; bytes of messages and transcript."""

    site: float
    server: float
    request: int
    release: int
    transcript: float  # a site


def registered(people: dict[str, Person], size: int) -> Registration:
    """Register sites in cohorts of one size, or with their own noise."""
    names = list(people)
    choices = Choices(
        target_risk=0.2, epsilon=4.0, grid=True, thresholds=THRESHOLDS, batch=SLOTS, rounds=ROUNDS, policy="final",
        dropout="adversarial", capacities=dict.fromkeys(names, SLOTS * ROUNDS), server_key=public_hex(SERVER),
        site_keys={name: public_hex(each.key) for name, each in people.items()},
    )  # fmt: skip
    if size > 1:
        cohorts = {f"cohort {i // size}": names[i : i + size] for i in range(0, len(names), size)}
        words = [MaskKey.by(name, *each) for name, each in people.items()]
        choices = Choices(**{**vars(choices), "aggregation": "cohorts", "cohorts": cohorts, "mask_keys": words})
    return register_grid(choices, names)


def counts_of(registration: Registration, rng: np.random.Generator) -> Ints:
    """Return what a site's slots count."""
    loss = (rng.random(SLOTS) < 0.3).astype(np.float64)
    return counted(registration, Units(np.arange(SLOTS + 1), rng.random(SLOTS) * (1 - 0.3 * loss), loss, None))


def answer(registration: Registration, request: Request, name: str, who: Person, counts: Ints, link: Link) -> bytes:
    """Do what a site does between counting and sending: noise, masks in a cohort, signature."""
    release = make_release(registration, request, counts, link, order="shuffled", time=utc_now())
    if request.of_cohort:
        release = mask_release(registration, request, release, name, SLOTS, who.mask)
    return release.signed(who.key).to_bytes()


def cost(sites: int, size: int, rounds: int) -> Cost:
    """Play so many rounds; return the medians."""
    people = {f"site {i:04d}": Person(Key.generate(), Key.generate()) for i in range(sites)}
    registration, rng = registered(people, size), np.random.default_rng(sites)
    counts = {name: counts_of(registration, rng) for name in people}
    links, seconds, server = dict.fromkeys(people, Link(before=START)), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder, closing(Transcript(Path(folder) / "transcript")) as transcript:
        replay = Replay(registration)
        begin(replay, transcript)
        for _ in range(rounds):
            before, asked = transcript.chain.size, ask(replay, transcript)
            answers = dict[str, dict[str, bytes]]()
            for request in asked:
                for name in registration.answering(request):
                    begun = time.process_time()
                    given = answer(registration, request, name, people[name], counts[name], links[name])
                    seconds.append(time.process_time() - begun)
                    answers.setdefault(request.digest, {})[name] = given
            begun = time.process_time()
            several = {each.digest: answers[each.digest] for each in asked}
            close(replay, transcript, several if size > 1 else {d: next(iter(e.values())) for d, e in several.items()})
            server.append((time.process_time() - begun) / sites)
            links = {name: Link(chain.place + 1, chain.head) for name, chain in replay.chains.items()}
            if replay.refused or replay.absent:
                raise SystemExit(f"error: {sites} sites in cohorts of {size}: a release was refused")
        one = asked[0]
        lines = (transcript.chain.size - before) / sites
    return Cost(
        statistics.median(seconds), statistics.median(server), len(SignedRequest.by(one, SERVER).to_bytes()),
        len(given), lines,
    )  # fmt: skip


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.{0 if seconds >= 0.01 else 1}f} ms"


def row(sites: int, size: int, found: Cost, own: Cost) -> list[str]:
    """A line of the table: figures, and in brackets how many times those of own noise."""

    def against(value: float, base: float, words: str) -> str:
        return words if size == 1 else f"{words} ({value / base:.2g}x)"

    return [
        f"{sites:,} sites, {'own noise' if size == 1 else f'cohorts of {size:,}'}",
        against(found.site, own.site, milliseconds(found.site)),
        against(found.server, own.server, milliseconds(found.server)),
        against(found.request, own.request, f"{found.request:,}"),
        against(found.release, own.release, f"{found.release:,}"),
        against(found.transcript, own.transcript, f"{found.transcript:,.0f}"),
    ]


HEAD = f"""\
# What a round of cohorts takes

In a cohort every two members share a secret, and each member masks its release with all of them. So a member's time
grows with its cohort; the server adds up, and its work for a site is about that of own noise. Made by

    python -m research.benchmarks.cohort_rounds

{THRESHOLDS} thresholds, {SLOTS} records a site and round, epsilon 4, one colluding member; medians. A site's time is
that of noise, masks and signature; the server's is for each site, to read, check, add up, write down and fold. In
brackets: how many times that of own noise, in the same run and for the same sites."""

HEADER = ("", "a site, CPU", "server, CPU a site", "request, bytes", "release, bytes", "transcript, bytes a site")

READING = """\
A request to a cohort names the slots of all its members, and goes to each of them. The transcript has it once.
A masked integer has 64 bits, which is why a release is longer."""


def main() -> None:
    begun, rows = time.perf_counter(), list[list[str]]()
    for sites, sizes in LAYOUTS.items():
        found = {size: cost(sites, size, rounds) for size, rounds in sizes.items()}
        rows += [row(sites, size, each, found[1]) for size, each in found.items()]
    machine = f"""\
Times are of one machine ({platform.machine()}, {os.cpu_count()} cores shared with other work, Python
{platform.python_version()}) and will differ on another; ratios carry over better. All of it took
{(time.perf_counter() - begun) / 60:.0f} minutes. Nothing in the tests depends on a clock."""
    publish("cohort-rounds.md", [HEAD, markdown(HEADER, rows), READING, machine])


if __name__ == "__main__":
    main()
