"""What held, and must hold on: kills, faults of the disk, forged transcripts and certificates, damaged files.

Whole runs in child processes, in one process (`local`) and by files (`files`): killed at random moments, or struck at
one durable operation. Then the run is started again. Nothing may be lost, and nothing released or folded twice.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import random
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import public_hex, sign
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.messages import parse_release
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import ENTRIES, Arrived, Chain, Entry, checked, read_transcript
from fedsrc.records.units import Records
from fedsrc.server.issue import issue
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from research.attacks.mutants import damaged, places, twisted
from research.attacks.sections import Record, Row, Section, in_blocks, recorded, some, totals
from research.attacks.struck import CRASHED, NAMES, REFUSED, key, play_by_files, struck_run
from research.pages import markdown, records_of

KILLS, EACH, BLOCK = 500, 30, 10  # kills in both modes; strikes in each of them
MUTANTS = {"release": 8_000, "transcript": 4_000, "certificate": 4_000, "registration": 2_000}
FAULTS = {
    "killed before it": "before", "killed in the middle of it": "torn", "killed after it": "after",
    "disk full": "full", "input/output error": "error",
}  # fmt: skip
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["research.attacks.faults"])


def parse(data: bytes, where: str) -> tuple[list[Entry], Chain, int]:
    """Parse a transcript's bytes; returns its entries, its chain and the number of whole bytes."""
    found = list(checked(io.BytesIO(data), where))
    chain = found[-1][1] if found else Chain()
    return [entry for entry, _ in found], chain, chain.size


@lru_cache(maxsize=8)
def table(count: int, seed: int, sites: tuple[str, ...] = ("local",)) -> Records:
    """Records whose score orders their loss well."""
    rng = np.random.default_rng(seed)
    loss = (rng.random(count) < 0.4).astype(np.float64)
    score = np.clip(0.5 + 0.25 * (1 - 2 * loss) + 0.15 * rng.standard_normal(count), 0, 1)
    return records_of(score, loss, np.arange(count) % len(sites), sites)


def registered(**more: Any) -> Registration:
    """Three sites, noised releases, every key and capacity registered."""
    keys = {"server_key": public_hex(key(9)), "site_keys": {n: public_hex(key(i)) for i, n in enumerate(NAMES)}}
    settings = {"policy": "final", "grid": True, "thresholds": 5, "capacities": dict.fromkeys(NAMES, 150)}
    return register_grid(Choices(0.2, 4.0, **{**settings, **keys, **more}), NAMES)


def local(folder: Path, run: str = "run") -> None:
    """From a table to a certificate in one process."""
    reg = register_grid(Choices(0.2, 4.0, grid=True, thresholds=5, batch=20, rounds=12, policy="final"), NAMES)
    certify_table(reg, table(1200, 0, NAMES), folder / run, folder / "ledger", key(9))


def files(folder: Path, run: str = "run", **more: Any) -> None:
    """Request, release and collect until the certificate."""
    reg = registered(**{"batch": 40, "rounds": 3, **more})
    play_by_files(reg, folder, run, lambda number: table(200, number + 50))


MODES: dict[str, Callable[..., None]] = {"local": local, "files": files}


# ---------------------------------------------------------------- kills and faults


def child(mode: str, folder: str, fault: str, at: int) -> None:
    """Play a run in this process, struck at its at-th durable operation."""
    struck_run(partial(MODES[mode], Path(folder)), Path(folder), FAULTS.get(fault, "none"), at)


def begun(mode: str, folder: Path, fault: str = "", at: int = 0) -> multiprocessing.process.BaseProcess:
    process = CONTEXT.Process(target=child, args=(mode, str(folder), fault, at))
    process.start()
    return process


def problems(mode: str, folder: Path) -> Counter[str]:
    """What is wrong after a run was started again and has ended: nothing, it must be."""
    found: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torn last line is cut with a warning
        MODES[mode](folder)
    made = [each for path in sorted(folder.glob("*ledger")) for each in _spends(path)]
    place: dict[str, int] = {}
    for intake, first, slots, _, _ in made:
        found["units twice or skipped"] += first != place.get(intake, 0)
        place[intake] = first + slots
    arrived = [e.release for e in read_transcript(folder / "run" / TRANSCRIPT)[0] if isinstance(e, Arrived)]
    folded = {each.request: each.to_bytes() for each in arrived}
    found["releases folded twice"] += len(arrived) - len(folded)
    found["releases lost or made twice"] += folded != {request: release for _, _, _, request, release in made}
    try:
        verify(folder / "run")
    except FedsrcError:
        found["runs that do not verify"] += 1
    MODES[mode](folder, "unbroken")
    both = (TRANSCRIPT, CERTIFICATE)
    same = ((folder / "unbroken" / name).read_bytes() == (folder / "run" / name).read_bytes() for name in both)
    found["runs that differ from an unbroken one"] += not all(same)
    return found


def _spends(path: Path) -> Iterator[tuple[str, int, int, str, bytes]]:
    query = (
        "SELECT intake, first, slots, request, release FROM spend JOIN release USING (request) ORDER BY intake, first"
    )
    with closing(sqlite3.connect(path)) as sql:
        for intake, first, slots, request, release in sql.execute(query).fetchall():
            yield f"{path.name}:{intake}", first, slots, request, bytes(release)


def kills(mode: str, first: int, count: int, folder: Path) -> dict[str, int]:
    """So many SIGKILLs at random moments, up to five in a run."""
    rng, done, runs, found = random.Random(f"{mode}{first}"), 0, 0, dict[str, int]()
    longest = _seconds(mode, folder / "whole")
    while done < count:
        place = folder / str(runs)
        place.mkdir()
        struck, runs = 0, runs + 1
        for _ in range(min(5, count - done)):
            process = begun(mode, place)
            process.join(rng.uniform(0.0, longest))
            struck += process.is_alive()
            process.kill()
            process.join()
        found = totals([found, problems(mode, place)])
        done += struck
    return {"kills": done, "runs": runs, **found}


def _seconds(mode: str, folder: Path) -> float:
    """How long a whole run takes, once everything is loaded."""
    folder.mkdir()
    for number in range(3):
        (folder / str(number)).mkdir()
        begins = time.monotonic()
        begun(mode, folder / str(number)).join()
    return time.monotonic() - begins


def strikes(mode: str, fault: str, first: int, count: int, folder: Path) -> dict[str, int]:
    """So many runs, each struck at another durable operation."""
    whole = folder / "whole"
    whole.mkdir()
    begun(mode, whole).join()
    operations, found, wrong = int((whole / "operations").read_text()), dict[str, int](), 0
    for number in range(first, first + count):
        place = folder / str(number)
        place.mkdir()
        process = begun(mode, place, fault, 1 + number * operations // EACH % operations)
        process.join()
        wrong += process.exitcode != (CRASHED if "killed" in fault else REFUSED)
        found = totals([found, problems(mode, place)])
    return {"struck": count, "ended otherwise than by the fault": wrong, **found}


# ---------------------------------------------------------------- forging


class Forger:
    """A server with its own key that changes an honest run, chains it anew, issues and signs it."""

    def __init__(self, folder: Path) -> None:
        files(folder, dropout="adversarial", thresholds=20, batch=50, rounds=3, weights={"a": 0.4, "b": 0.3, "c": 0.3})
        self.folder, self.reg = folder, Registration.read(folder / "run" / REGISTRATION)
        data = (folder / "run" / TRANSCRIPT).read_bytes()
        self.lines = [json.loads(line) for line in data.splitlines()]
        for line in self.lines:
            del line["n"], line["prev"]
        self.honest = json.loads((folder / "run" / CERTIFICATE).read_text())

    def says(self, lines: list[Any], reg: Registration | None = None) -> str | None:
        """What it says, if verify accepts it as ended with nothing charged; the transcript's digest aside."""
        place, reg = self.folder / "forged", reg or self.reg
        place.mkdir(exist_ok=True)
        (place / REGISTRATION).write_text(reg.to_toml())
        try:
            chain, data, replay = Chain(), b"", Replay(reg)
            for fields in lines:
                entry = ENTRIES.validate_python(deepcopy(fields))
                line, chain = chain.line(entry)
                data += line
                replay.step(entry)
            (place / TRANSCRIPT).write_bytes(data)
            issue(reg, replay, chain).signed(key(9)).save(place / CERTIFICATE)
            body = verify(place, trusted=(public_hex(key(9)),)).certificate
        except (FedsrcError, ValueError):
            return None
        ended = body.status != "OPEN" and not body.absent and not body.refused
        return body.model_copy(update={"transcript": "", "key": None, "signature": None}).text if ended else None

    def transcripts(self) -> Iterator[list[Any]]:
        """The transcript with a line dropped, doubled, moved or cut off, or with something in it changed."""
        lines = self.lines
        for i, line in enumerate(lines):
            yield lines[:i] + lines[i + 1 :]
            yield [*lines[: i + 1], line, *lines[i + 1 :]]
            yield lines[:i]
            if i + 1 < len(lines):
                yield [*lines[:i], lines[i + 1], line, *lines[i + 2 :]]
            for changed in self._changes(line):
                yield [*lines[:i], changed, *lines[i + 1 :]]

    def _changes(self, line: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if line["kind"] == "arrived":
            release = line["release"]
            other = {"slots": 49, "scale": 1.0, "time": "2020-01-01T00:00:00Z", "order": "in order", "place": 9,
                     "before": "f" * 64, "tries": 7, "signature": None, "site": "a" if release["site"] != "a" else "b",
                     "first": [release["first"][0] + 1, *release["first"][1:]]}  # fmt: skip
            for name, value in other.items():
                yield {**line, "release": {**release, name: value}}
            unsigned = parse_release(canonical_bytes({**release, "signature": None}))
            yield {**line, "release": json.loads(unsigned.signed(key(8)).to_bytes())}
            for refused in (True, False):
                for kept in (release, None):
                    request = release["request"]
                    yield {"kind": "absent", "request": request, "refused": refused, "reason": "x", "release": kept}
        if line["kind"] == "asked":
            for name, value in {"slots": 20, "scale": 1.0, "round": 9, "number": 99, "site": "z"}.items():
                yield {**line, "request": {**line["request"], name: value}}
        if line["kind"] == "closed":
            yield {**line, "round": line["round"] + 1}

    def registrations(self) -> Iterator[Registration]:
        """The registration with another target, other weights, or none."""
        fields = self.reg.model_dump()
        for section, name, value in (
            ("claim", "target_risk", 0.3),
            ("schedule", "rounds", 2),
            ("privacy", "delta", 1e-5),
        ):
            yield Registration.model_validate({**fields, section: {**fields[section], name: value}})
        sites = [{**site, "weight": weight} for site, weight in zip(fields["sites"], (0.8, 0.1, 0.1), strict=True)]
        yield Registration.model_validate({**fields, "sites": sites})

    def certificates(self) -> Iterator[Any]:
        """The certificate with one field changed: another number, another word, or none."""
        body = {name: value for name, value in self.honest.items() if name not in ("key", "signature")}
        for path in places(body)[1:]:
            changed: Any = deepcopy(body)
            *way, last = path
            inside = changed
            for step in way:
                inside = inside[step]
            old = inside[last]
            inside[last] = (not old if isinstance(old, bool) else old + 1 if isinstance(old, int | float)
                            else old + "x" if isinstance(old, str) else None if old else 1)  # fmt: skip
            yield changed

    def accepts_certificate(self, body: Any) -> bool:
        """Whether a changed certificate, signed by the server's own key, verifies beside the honest run."""
        replay = Replay(self.reg, read_transcript(self.folder / "run" / TRANSCRIPT)[0])
        expected = issue(self.reg, replay, read_transcript(self.folder / "run" / TRANSCRIPT)[1])
        try:
            found = Certificate.parse(_forged(body), "c")
            check_same(found, expected, "c", server_key=self.reg.server_key)
        except (FedsrcError, ValueError):
            return False
        return True


def _forged(plain: dict[str, Any]) -> str:
    """The text of these values, signed by the server's own key, without any check."""
    whole = {**plain, "key": public_hex(key(9))}
    signed = {**whole, "signature": sign(key(9), canonical_bytes(whole))}
    return json.dumps(json.loads(canonical_bytes(signed)), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def forging(_: int, __: int, folder: Path) -> dict[str, int]:
    """Transcripts, registrations and certificates forged by the server: how many were tried, and accepted."""
    forger = Forger(folder)
    honest, said = forger.says(forger.lines), [forger.says(lines) for lines in forger.transcripts()]
    for reg in forger.registrations():
        said.append(forger.says([{**forger.lines[0], "registration": reg.digest}, *forger.lines[1:]], reg))
    certificates = [forger.accepts_certificate(body) for body in forger.certificates()]
    return {"honest": int(honest is not None), "transcripts": len(said),
            "saying the same": sum(each == honest for each in said),
            "saying other": sum(each not in (None, honest) for each in said),
            "fields": len(certificates), "fields accepted": sum(certificates)}  # fmt: skip


# ---------------------------------------------------------------- damaged files


def fuzzed(what: str, first: int, count: int, folder: Path) -> dict[str, int]:
    """Mutants of a file at its parser: refused, accepted because they are the original or harmless, or worse."""
    files(folder)
    run, rng = folder / "run", random.Random(f"{what}{first}")
    original = _original(what, folder)
    accepts = partial(_PARSERS[what], run, original)
    found = Counter(tried=count, refused=0, harmless=0, foreign=0, crashed=0)
    structured = what in ("release", "certificate")
    for i in range(count):
        mutant = twisted(rng, original) if structured and i % 2 else damaged(rng, original)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found["harmless" if accepts(mutant) else "foreign"] += 1
        except FedsrcError:
            found["refused"] += 1
        except Exception:
            found["crashed"] += 1
    return dict(found)


def _original(what: str, folder: Path) -> bytes:
    names = {"transcript": TRANSCRIPT, "certificate": CERTIFICATE, "registration": REGISTRATION}
    return (folder / "run" / names[what] if what in names else next((folder / "stick").iterdir())).read_bytes()


def _release(run: Path, original: bytes, data: bytes) -> bool:
    release = parse_release(data)
    if release.signed_by(Registration.read(run / REGISTRATION).site(release.site).key or ""):
        return data == original
    raise FedsrcError("not the site's own")


def _transcript(run: Path, original: bytes, data: bytes) -> bool:
    entries, chain, whole = parse(data, "t")
    if chain == Chain():
        raise FedsrcError("nothing left")
    Replay(Registration.read(run / REGISTRATION), entries)
    return original.startswith(data[:whole])  # a tail cut off: its head differs, so the certificate does not fit it


def _certificate(run: Path, original: bytes, data: bytes) -> bool:
    reg = Registration.read(run / REGISTRATION)
    entries, chain, _ = parse((run / TRANSCRIPT).read_bytes(), "t")
    expected = issue(reg, Replay(reg, entries), chain)
    check_same(Certificate.parse(_text(data), "c"), expected, "c", server_key=reg.server_key)
    return data == original


def _registration(_: Path, __: bytes, data: bytes) -> bool:
    other = Registration.from_toml(_text(data), where="r")
    return Registration.from_toml(other.to_toml()).digest == other.digest


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FedsrcError("not text") from error


_PARSERS: dict[str, Callable[[Path, bytes, bytes], bool]] = {
    "release": _release, "transcript": _transcript, "certificate": _certificate, "registration": _registration,
}  # fmt: skip


# ---------------------------------------------------------------- the section


def run(scale: float = 1.0) -> Record:
    """Every loop, in both modes."""
    return {
        "kills": {mode: totals(in_blocks(partial(kills, mode), some(KILLS // 2, scale), 25)) for mode in MODES},
        "strikes": {fault: _struck(fault, some(EACH, scale)) for fault in FAULTS},
        "forging": totals(in_blocks(forging, 1, 1)),
        "fuzz": {what: totals(in_blocks(partial(fuzzed, what), some(n, scale), 1000)) for what, n in MUTANTS.items()},
    }


def _struck(fault: str, count: int) -> dict[str, int]:
    return totals(part for mode in MODES for part in in_blocks(partial(strikes, mode, fault), count, BLOCK))


def _wrong(found: dict[str, int]) -> int:
    """Everything that must not be, added up."""
    return sum(count for name, count in found.items() if name not in ("kills", "runs", "struck"))


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    forged, fuzz = record["forging"], totals(record["fuzz"].values())
    killed, struck = record["kills"], record["strikes"]
    disk = [name for name in FAULTS if "killed" not in name]
    return [
        Row(
            "SIGKILL at random moments, in one process and by files",
            recorded("525 kills, nothing lost"),
            "; ".join(
                f"{mode}: {found['kills']} kills in {found['runs']} runs, {_wrong(found)} wrong"
                for mode, found in killed.items()
            ),
            "Wrong: a unit twice or skipped, a release lost, made or folded twice, a run that does not verify, or one"
            " that differs from an unbroken one.",
        ),
        Row(
            "Killed at one durable operation: before, in the middle of, after it",
            "not counted",
            f"{sum(struck[name]['struck'] for name in FAULTS if name not in disk)} kills,"
            f" {sum(_wrong(struck[name]) for name in FAULTS if name not in disk)} wrong",
            "Operations are writes, syncs, moves, links and commits, over the length of a run.",
        ),
        Row(
            "Disk full, and input/output errors, at one durable operation",
            recorded("57 and 63 runs, nothing lost"),
            " and ".join(f"{struck[name]['struck']}" for name in disk)
            + f" runs, {sum(_wrong(struck[name]) for name in disk)} wrong",
            "The command ends with an error, and goes on once there is room.",
        ),
        Row(
            "The server forges its own run: transcripts and registrations changed, chained and signed anew",
            recorded("187 refused"),
            f"{forged['transcripts']} tried, {forged['saying the same']} accepted that say the same,"
            f" {forged['saying other']} that say anything else",
            "Accepted: an ended run that verifies and charges nothing. Lines of one round in another order say what the"
            " honest run says.",
        ),
        Row(
            "The server signs a certificate with one field changed",
            recorded("503 refused"),
            f"{forged['fields']} tried, {forged['fields accepted']} accepted",
            "`verify` recomputes every field.",
        ),
        Row(
            "Damaged releases, transcripts, certificates and registrations at their parsers",
            recorded("45 hostile inputs"),
            f"{fuzz['tried']:,} tried: {fuzz['refused']:,} refused, {fuzz['harmless']:,} harmless,"
            f" {fuzz['foreign']} foreign accepted, {fuzz['crashed']} crashes",
            "Harmless: the original, a transcript with its tail cut off (its certificate does not fit it), or a"
            " registration of its own.",
        ),
    ]


def more(record: Record) -> list[str]:
    """What struck, by kind."""
    names = ["units twice or skipped", "releases folded twice", "releases lost or made twice",
             "runs that do not verify", "runs that differ from an unbroken one"]  # fmt: skip
    shown = [
        (what, f"{found.get('kills', found.get('struck')):,}", *(f"{found.get(name, 0)}" for name in names))
        for what, found in [
            *((f"SIGKILL, {mode}", found) for mode, found in record["kills"].items()), *record["strikes"].items()
        ]
    ]  # fmt: skip
    return [
        markdown(("struck by", "times", *names), shown),
        "Live runs, in which the server app, the SuperLink, SuperNodes and sites are killed, have a page and a command"
        " of their own, where Flower is installed: [live-faults.md](live-faults.md).",
    ]


SECTION = Section("faults", "What held", run, rows, more)
