"""Every parser against mutated input: over 100,000 of them, no traceback, nothing foreign accepted.

Inputs are valid files damaged by bits, bytes, slices, odd tokens and odd values; seeds are fixed. A mutant that is
accepted must be the original, byte for byte (releases, requests), or be told by the chain's head (transcripts), or be a
valid file of its own (registrations, tables).
"""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import start
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.messages import parse_release, parse_request, read_request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Chain, Entry, checked
from fedsrc.records.table import read_records
from fedsrc.server.issue import issue
from fedsrc.server.state import Replay
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.mutants import damaged, twisted
from research.attacks.struck import NAMES, key
from tests.support.crash_scenarios import answer, by_files, files_registration

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")]
Accepts = Callable[[bytes], bool]


def parse(data: bytes, where: str) -> tuple[list[Entry], Chain, int]:
    """Parse a transcript's bytes; returns its entries, its chain and the number of whole bytes."""
    found = list(checked(io.BytesIO(data), where))
    chain = found[-1][1] if found else Chain()
    return [entry for entry, _ in found], chain, chain.size


def fuzz(seed: str, count: int, originals: list[bytes], accepts: Accepts, *, structured: bool = True) -> None:
    """Throw `count` mutants at a parser; anything but a clean refusal or a harmless acceptance fails."""
    rng = random.Random(seed)
    accepted = 0
    for i in range(count):
        original = rng.choice(originals)
        mutant = twisted(rng, original) if structured and i % 2 else damaged(rng, original)
        try:
            harmless = accepts(mutant)
        except FedsrcError:
            continue
        accepted += 1
        assert harmless, mutant[:500]
    for original in originals:
        assert accepts(original)
    assert accepted < count / 2  # most mutants must be refused, or the fuzzer does nothing


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    by_files(folder)
    return folder


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Replay, list[bytes], list[bytes]]:
    """A run that waits for its first round, its request files and their releases."""
    folder = tmp_path_factory.mktemp("open")
    reg = files_registration()
    for name in NAMES:
        with closing(Ledger(folder / f"{name}.ledger")) as ledger:
            allow(ledger, name, reg)
    waiting = start(reg, folder / "run", key(9)).waiting
    releases = [answer(folder, path).read_bytes() for path in waiting]
    entries = parse((folder / "run" / TRANSCRIPT).read_bytes(), "t")[0]
    assert read_request(waiting[0]).request.site == "a"
    return Replay(reg, entries), [path.read_bytes() for path in waiting], releases


@pytest.mark.parametrize("part", range(4))
def test_releases(open_run: tuple[Replay, list[bytes], list[bytes]], part: int) -> None:
    replay, _, releases = open_run

    def accepts(data: bytes) -> bool:
        release = parse_release(data)
        problem = replay.check(release)
        if problem is not None:
            raise FedsrcError(problem)
        return data in releases

    fuzz(f"release{part}", 10_000, releases, accepts)


@pytest.mark.parametrize("part", range(2))
def test_requests(open_run: tuple[Replay, list[bytes], list[bytes]], part: int) -> None:
    replay, requests, _ = open_run

    def accepts(data: bytes) -> bool:
        order = parse_request(data, "r")
        if not order.signed_by(replay.registration.server_key or ""):
            raise FedsrcError("not signed")
        return data in requests

    fuzz(f"request{part}", 10_000, requests, accepts)


@pytest.mark.parametrize("part", range(2))
def test_transcripts(world: Path, part: int) -> None:
    reg = Registration.read(world / "run" / REGISTRATION)
    original = (world / "run" / TRANSCRIPT).read_bytes()
    head = parse(original, "t")[1].head

    def accepts(data: bytes) -> bool:
        entries, chain, whole = parse(data, "t")
        if chain.head == head:
            return data[:whole] == original  # a torn tail after it was cut off
        if chain == Chain():
            raise FedsrcError("nothing left")
        Replay(reg, entries)
        return True  # a torn or changed tail: its head differs, so no certificate of the original fits it

    fuzz(f"transcript{part}", 10_000, [original], accepts, structured=False)


def test_transcript_lines(world: Path) -> None:
    """Lines with odd values, rehashed or not: refused where they stand or by the line after them."""
    reg = Registration.read(world / "run" / REGISTRATION)
    lines = (world / "run" / TRANSCRIPT).read_bytes().splitlines()

    def accepts(data: bytes) -> bool:
        Replay(reg, parse(data + b"\n", "t")[0])
        return data == lines[0]

    fuzz("lines", 5_000, [lines[0]], accepts)
    for line in lines[1:]:
        with pytest.raises(FedsrcError, match="is not a first line"):
            parse(line + b"\n", "t")


@pytest.mark.parametrize("part", range(2))
def test_certificates(world: Path, part: int) -> None:
    reg = Registration.read(world / "run" / REGISTRATION)
    entries, chain, _ = parse((world / "run" / TRANSCRIPT).read_bytes(), "t")
    expected = issue(reg, Replay(reg, entries), chain)
    original = (world / "run" / CERTIFICATE).read_bytes()

    def accepts(data: bytes) -> bool:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise FedsrcError("not text") from error
        check_same(Certificate.parse(text, "c"), expected, "c", server_key=reg.server_key)
        return data == original

    fuzz(f"certificate{part}", 6_000, [original], accepts)


@pytest.mark.parametrize("part", range(2))
def test_registrations(part: int) -> None:
    reg = files_registration()

    def accepts(data: bytes) -> bool:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise FedsrcError("not text") from error
        other = Registration.from_toml(text, where="r")
        return Registration.from_toml(other.to_toml()).digest == other.digest

    fuzz(f"registration{part}", 2_500, [reg.to_toml().encode()], accepts, structured=False)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_tables(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame(
        {"id": ["a", "b", "c", "d"], "site": ["n", "n", "s", "s"], "loss": [0.0, 1.0, 0.5, 1.0],
         "score": [0.1, 0.9, 1.0, 0.0], "source": ["x", "y", "z", "z"]}
    )  # fmt: skip
    path = tmp_path / f"t.{suffix}"
    getattr(frame, {"csv": "write_csv", "jsonl": "write_ndjson", "parquet": "write_parquet"}[suffix])(path)
    original = path.read_bytes()

    def accepts(data: bytes) -> bool:
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read_records(path)
        inside = [np.all((column >= 0) & (column <= 1)) for column in (found.score, found.loss)]
        return bool(all(inside)) and found.score.size == found.loss.size == found.site.size > 0

    rng = random.Random(suffix)
    refused = 0
    for _ in range(2_000):
        try:
            assert accepts(damaged(rng, original))
        except FedsrcError:
            refused += 1
    assert refused > 200
    assert accepts(original)
