"""Bytes of the messages of one trial of the registered audit, as server and sites write them, beside its payload.

Writes docs/results/message-bytes.md. Run: python -m research.studies.message_bytes

Counts are those of one trial of the study `registered` on its surrogate C2, which needs no table; noise is seeded, keys
and digests have one length whatever they are. What carries a message (HTTP, TLS, files) adds its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import happen
from fedsrc.audit.evidence import payload_bytes
from fedsrc.common.signing import Key
from fedsrc.maths.arrays import Ints
from fedsrc.protocol.messages import START, Release, Request, SignedRequest
from fedsrc.simulate.trials import discrete_gaussian
from research.pages import markdown, publish, words
from research.studies.catalogue import study_of

STUDY, POPULATION, TARGET = "registered", "C2 (surrogate)", 0.2
RELEASES = {"paper": "the paper's", "default": "the default preset's"}
TIME, KEY = "2026-01-01T00:00:00Z", Key.from_private_bytes(bytes(32))
HEAD = [
    "release", "epsilon", "releases", "payload", "requests", "releases as written", "together", "times the payload",
]  # fmt: skip


class Bytes(NamedTuple):
    """Of all messages of one trial."""

    releases: int
    payload: int
    requests: int
    written: int


def cells() -> Iterator[tuple[str, Cell]]:
    """Yield the study's registrations at every epsilon, with both releases."""
    study = study_of(STUDY)
    wanted = {"population": POPULATION, "target_risk": TARGET, "policy": "final"}
    for setting in study.settings:
        if all(getattr(setting, key) == value for key, value in wanted.items()):
            for release in RELEASES:
                chosen = setting.model_copy(update={"release": release})
                yield release, build(chosen, study.by_name[POPULATION], seed=study.seed, folder=Path())


def messages(cell: Cell, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield every request of one trial and what the site answers."""
    events, rule = happen(cell, trials=1, seed=(seed, 0), per_site=True), cell.registration.mechanism
    assert events.by_site is not None  # what was asked for
    counts = np.diff(events.by_site[0], axis=0, prepend=0)
    slots = np.diff(events.slots[0], axis=0, prepend=0)
    rng, names = np.random.default_rng(seed), [site.name for site in cell.registration.sites]
    for number, (t, k) in enumerate(np.ndindex(slots.shape), 1):
        request = Request(
            registration=START, number=number, round=t + 1, site=names[k], slots=int(slots[t, k]), scale=rule.scale
        )
        sums = rule.basis.encode(counts[t, k]) + discrete_gaussian(rng, rule.scale, rule.shape)
        yield SignedRequest.by(request, KEY).to_bytes(), answer(request, sums, rule.lengths[0], t + 1)


def answer(request: Request, sums: Ints, length: int, place: int) -> bytes:
    """Write a site's release."""
    flat = sums.ravel().tolist()
    release = Release(
        request=request.digest, site=request.site, slots=request.slots, scale=request.scale, order="shuffled",
        time=TIME, place=place, before=START, tries=1, first=tuple(flat[:length]), second=tuple(flat[length:]),
    )  # fmt: skip
    return release.signed(KEY).to_bytes()


def measured(cell: Cell, seed: int) -> Bytes:
    """Add up the bytes of one trial."""
    both = [(len(asked), len(given)) for asked, given in messages(cell, seed)]
    requests, written = map(sum, zip(*both, strict=True))
    return Bytes(len(both), len(both) * payload_bytes(cell.registration), requests, written)


def row(release: str, cell: Cell, found: Bytes) -> list[str]:
    whole = found.requests + found.written
    figures = [f"{each:,}" for each in (*found, whole)]
    return [RELEASES[release], words(cell.setting.epsilon), *figures, f"{whole / found.payload:.2f}"]


def main() -> None:
    study = study_of(STUDY)
    rows = [row(release, cell, measured(cell, study.seed)) for release, cell in cells()]
    setting = next(cells())[1].setting
    publish("message-bytes.md", [
        "# Bytes of a trial's messages",
        f"All requests and releases of one trial of [the registered audit](studies/{STUDY}.md) ({setting.sites} sites,"
        f" {setting.rounds} rounds, {setting.thresholds} thresholds), as server and sites write and sign them. Payload"
        " is what the study's table counts: eight bytes for every released value. What carries a message adds its own.",
        markdown(HEAD, rows),
        "Messages are canonical JSON: a small integer takes fewer than eight bytes, names, digests and signatures take"
        f" the rest. Counts are of {POPULATION}, noise is seeded. Made by `python -m research.studies.message_bytes`.",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
