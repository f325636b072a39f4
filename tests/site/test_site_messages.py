"""What leaves a site: a hello, a release or a refusal, nothing else, and always as many bytes.

Everything that `fedsrc site` sends goes through its socket, so the bytes are counted there, at a real one.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedsrc.common.canonical import digest
from fedsrc.federation.flower.app.fedsrc_relay import wire
from fedsrc.federation.live.guard import Guard, answer_size
from fedsrc.federation.live.site_socket import Door
from fedsrc.maths.arrays import Floats
from fedsrc.protocol.handshake import Challenge, Hello
from fedsrc.protocol.messages import Release, Request, SignedRequest
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.struck import key
from tests.support.crash_scenarios import files_registration
from tests.support.live_scenarios import SERVER

REG = files_registration()
TABLES: dict[str, tuple[Callable[[int], Floats], Callable[[int], Floats]]] = {
    "all supported, high scores": (np.ones, np.zeros),
    "all unsupported, low scores": (np.zeros, np.ones),
    "all unsupported, high scores": (np.ones, np.ones),
    "half and half": (lambda n: np.linspace(0, 1, n), lambda n: (np.arange(n) % 2).astype(np.float64)),
}


def records(kind: str, count: int = 200) -> Records:
    score, loss = (make(count) for make in TABLES[kind])
    ids = [f"u{i}" for i in range(count)]
    site = np.zeros(count, dtype=np.int64)
    return Records(digest([kind, count]), score, loss, site, ("a",), None, (), ids)


@contextmanager
def site(folder: Path, reg: Registration, table: Records) -> Iterator[Path]:
    """A guard behind a real socket."""
    place, doors = folder / "socket", queue.SimpleQueue[Door]()

    def serve() -> None:
        with closing(Ledger(folder / "ledger")) as ledger:
            allow(ledger, "a", reg, max_epsilon=10.0)
            door = Door(place, Guard(reg, "a", ledger, lambda: table, key(0)).letter)
            doors.put(door)
            door.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    door = doors.get(timeout=60)
    try:
        yield place
    finally:
        door.close()
        thread.join()


def all_bytes(place: Path, question: wire.Frame) -> bytes:
    """Every byte that comes back until the site hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(place))
        wire.send(link, question, 10.0)
        return b"".join(iter(lambda: link.recv(1 << 16), b""))


def request(reg: Registration, number: int) -> wire.Frame:
    scale = reg.mechanism.scale
    asked = Request(registration=reg.digest, number=number, round=number, site="a", slots=60, scale=scale)
    return wire.Frame(wire.RELEASE, SignedRequest.by(asked, SERVER).to_bytes())


def questions(reg: Registration) -> dict[str, wire.Frame]:
    return {
        "hello": wire.Frame(wire.HELLO, Challenge.by(SERVER, reg.digest, 7).to_bytes()),
        "release": request(reg, 1),
        "release again": request(reg, 1),
        "another release": request(reg, 2),
        "refused: all units are spent": request(reg, 3),
        "refused: not a request": wire.Frame(wire.RELEASE, b"{}"),
        "refused: a stranger's challenge": wire.Frame(wire.HELLO, Challenge.by(key(3), reg.digest, 7).to_bytes()),
    }


@pytest.mark.parametrize("kind", TABLES)
def test_every_answer_has_the_size_that_the_registration_gives(tmp_path: Path, kind: str) -> None:
    """Whatever the table holds, whatever is asked. Mutants killed: answers that are not padded; a size read off the
    release; a reason for a refusal put into the answer beyond its fixed words."""
    with site(tmp_path, REG, records(kind)) as place:
        seen = {name: all_bytes(place, question) for name, question in questions(REG).items()}
    assert {len(data) for data in seen.values()} == {wire.HEAD.size + answer_size(REG, "a")}
    kinds = {name: data[4:5] for name, data in seen.items()}
    assert kinds == {name: wire.REFUSED if name.startswith("refused") else wire.GIVEN for name in seen}


@pytest.mark.parametrize("kind", TABLES)
def test_only_release_and_metadata_leave(tmp_path: Path, kind: str) -> None:
    """Field by field: two vectors of the registered length, and public words that are the same for every table."""
    with site(tmp_path, REG, records(kind)) as place:
        hello, release = (
            json.loads(all_bytes(place, questions(REG)[name])[wire.HEAD.size :]) for name in ("hello", "release")
        )
    assert set(hello) == set(Hello.model_fields)
    assert hello["units"] == 150  # the registered capacity
    assert set(release) == set(Release.model_fields) - {"labels", "check"}
    length = REG.mechanism.basis.p
    assert [len(release[name]) for name in ("first", "second")] == [length, length]
    asked = SignedRequest.model_validate_json(request(REG, 1).data).request
    public = {name: release[name] for name in ("request", "site", "slots", "scale", "order")}
    assert public == {
        "request": asked.digest, "site": "a", "slots": 60, "scale": asked.scale, "order": "shuffled",
    }  # fmt: skip


def test_the_longest_release_fits() -> None:
    """A release of extreme numbers is not longer than the size of all answers."""
    length = REG.mechanism.basis.p
    numbers = (-(1 << 63),) * length
    longest = Release(
        request="f" * 64, site="a", slots=1 << 62, scale=1.2345678901234567e-300, order="shuffled",
        time="2026-01-02T03:04:05Z", place=1 << 62, before="f" * 64, tries=1 << 62, first=numbers, second=numbers,
        signature="f" * 128,
    )  # fmt: skip
    assert len(longest.to_bytes()) <= answer_size(REG, "a")
