"""Files that come from somebody else: devices, pipes, sockets, files without end, files that unfold to far more.

Mutants killed: a size believed because the system says it, a file opened before it is looked at, a reader
that goes around `durable`, a link to a regular file refused, a line without end.
"""

from __future__ import annotations

import io
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import polars as pl
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.audit.study import Study
from fedsrc.common import parquet, signing, toml
from fedsrc.common.canonical import file_digest
from fedsrc.common.durable import open_regular, read_bytes, read_lines, read_text
from fedsrc.data.answers import read_answers
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import collect
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, REFUSED, RELEASE, Frame
from fedsrc.federation.flower.plans import name_of_private, name_of_public
from fedsrc.federation.live import log
from fedsrc.federation.live.guard import Guard
from fedsrc.gate.gate import Gate
from fedsrc.protocol.messages import Request, SignedRequest, read_request
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Transcript, read_transcript
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.report.view import view_run
from fedsrc.server.folder import LOG
from fedsrc.server.status import is_held, run_state
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.attacks.struck import key
from tests.support.crash_scenarios import by_files, files_registration
from tests.support.helpers import registration
from tests.support.live_scenarios import SERVER

GUARD = 60  # seconds after which a test that hangs fails; nothing here takes one
MEMORY = 4 << 30
REG = files_registration()


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    """A read that hangs is a failure, not a hanging test."""

    def hung(_: int, __: FrameType | None) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(GUARD)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")


def folder(path: Path) -> None:
    path.mkdir()


def listener(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:  # by a short name: a socket's path has a limit
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": pipe,
    "a device": device,
    "a folder": folder,
    "a socket": listener,
}
READERS: dict[str, Callable[[Path], object]] = {
    "bytes": lambda path: read_bytes(path, 10),
    "text": lambda path: read_text(path, 10),
    "lines": lambda path: list(read_lines(path, 10)),
    "digest": file_digest,
    "registration": Registration.read,
    "transcript": read_transcript,
    "request": read_request,
    "key": signing.load,
    "node key": name_of_private,
    "public node key": name_of_public,
    "lock": is_held,
    "certificate.json": lambda path: Gate(path.parent, trusted=["0" * 64]),
    "answers.jsonl": read_answers,
    "answers.parquet": read_answers,
    "table.csv": read_records,
    "table.jsonl": read_records,
    "table.parquet": read_records,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read(tmp_path: Path, kind: str, reader: str) -> None:
    """Attack A3: whatever reads a file refuses one that may have no end."""
    path = tmp_path / reader
    KINDS[kind](path)
    with pytest.raises(FedsrcError, match=f"is {kind}, not a file"):
        READERS[reader](path)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one\ntwo\n")
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link", 8) == b"one\ntwo\n"
    assert list(read_lines(tmp_path / "link", 8)) == [b"one\n", b"two\n"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")
def test_a_size_is_not_believed() -> None:
    """The system says 0 bytes of this file, and there are thousands."""
    endless = Path("/proc/self/maps")
    assert endless.stat().st_size == 0
    for read in (read_bytes, lambda path, limit: list(read_lines(path, limit))):
        with pytest.raises(FedsrcError, match="larger than 100 bytes"):
            read(endless, 100)


def test_limits_are_met_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345\n1234\n")
    assert read_bytes(path, 11) == path.read_bytes()
    assert b"".join(read_lines(path, 11, longest=6)) == path.read_bytes()
    assert list(read_lines(path, 11, start=6)) == [b"1234\n"]
    for read in (lambda: read_bytes(path, 10), lambda: list(read_lines(path, 10))):
        with pytest.raises(FedsrcError, match="larger than 10 bytes"):
            read()
    with pytest.raises(FedsrcError, match="a line of more than 5 bytes"):
        list(read_lines(path, 11, longest=5))


def test_a_file_that_becomes_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at it and its opening. Mutant killed: a blocking open, or no second look."""
    path, regular = tmp_path / "file", Path(__file__).stat()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda _, **__: regular)
    with pytest.raises(FedsrcError, match="is a pipe"):
        open_regular(path)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has its certificate."""
    place = tmp_path_factory.mktemp("done")
    by_files(place)
    return place / "run"


COMMANDS: dict[str, Callable[[Path], object]] = {"verify": verify, "status": run_state, "view": view_run}


@pytest.mark.parametrize("name", [REGISTRATION, TRANSCRIPT, CERTIFICATE])
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_run_folder_of_a_stranger(done: Path, tmp_path: Path, kind: str, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(done, run)
    (run / name).unlink()
    KINDS[kind](run / name)
    for words, read in COMMANDS.items():
        if (words, name) == ("status", CERTIFICATE):
            continue  # only whether it is there
        with pytest.raises(FedsrcError, match=kind):
            read(run)


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_the_log_of_a_stranger(done: Path, tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(done, run)
    KINDS[kind](run / LOG)
    for read in (run_state, view_run):
        with pytest.raises(FedsrcError, match=kind):
            read(run)


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_transcript_is_not_written_into_a_device(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "transcript.jsonl")
    with pytest.raises(FedsrcError):
        Transcript(tmp_path / "transcript.jsonl")


def test_a_release_that_is_a_pipe(done: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(done, run)
    os.mkfifo(tmp_path / "release.json")
    with pytest.raises(FedsrcError, match="is a pipe"):
        collect(run, [tmp_path / "release.json"], key(9))


@pytest.mark.thorough
@pytest.mark.parametrize("name", [REGISTRATION, TRANSCRIPT, CERTIFICATE])
def test_verify_of_a_file_without_end(done: Path, tmp_path: Path, name: str) -> None:
    """As the attack was: a link to /dev/zero, within 4 GiB of memory."""
    run = tmp_path / "run"
    shutil.copytree(done, run)
    (run / name).unlink()
    (run / name).symlink_to("/dev/zero")
    found = subprocess.run(
        [sys.executable, "-m", "fedsrc.cli", "verify", str(run)],
        capture_output=True, text=True, check=False, timeout=GUARD,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip
    assert (found.returncode, "is a device" in found.stderr, "Traceback" in found.stderr) == (1, True, False)


# TOML

LONG = ".".join("a" * (toml.PARTS + 1))
TRICKS = {
    "a key": f"{LONG} = 1",
    "a key with blanks": LONG.replace(".", " \t.\t ") + " = 1",
    "a quoted key": ".".join(["'a.b'", '"c\\"d"'] * toml.PARTS) + " = 1",
    "a table": f"[{LONG}]",
    "a list of tables": f"[[ {LONG} ]]",
    "inline": f"x = {{ y = 1, {LONG} = 1 }}",
    "after a string of five quotes": f'x = {{ y = """z""""", {LONG} = 1 }} # "',
    "after a string of four quotes": f"x = {{ y = '''z'''', {LONG} = 1 }} # '",
    "after an escaped quote": f'x = "\\\\"\n{LONG} = "1"',
    "after a comment with a quote": f"# it's\n{LONG} = 'here'",
    "after many lines": 'x = """\n#"""\n' + f"{LONG} = 1",
    "deep lists": "x = " + "[" * (toml.DEPTH + 1) * 2,
    "deep and whole": "x = " + "[" * (toml.DEPTH + 40) + "]" * (toml.DEPTH + 40),
    "deep tables": "x = " + "{y=" * (toml.DEPTH + 40) + "1" + "}" * (toml.DEPTH + 40),
    "deep in turns": "x = " + "[{y=" * (toml.DEPTH + 8) + "1" + "}]" * (toml.DEPTH + 8),
    "many keys": "a=1\n" * (toml.KEYS + 1),
    "many long keys": f"[{LONG[2:]}]\n" + "".join(f"a{i}.{LONG[4:]}=1\n" for i in range(toml.DOTS // 14)),
    "a key with dashes": ".".join(["a-"] * (toml.PARTS + 1)) + " = 1",
    "many keys with dashes": f"[{LONG[2:]}]\n" + "".join(f"-{i}{'.a-' * 14}=1\n" for i in range(toml.DOTS // 14)),
    "many long names": "".join(f"[a{i}.{LONG[4:]}]\n" for i in range(toml.DOTS // 14)),
}


def unreached(_: str) -> dict[str, Any]:
    raise AssertionError("the parser was reached")


@pytest.mark.parametrize("end", ["", "\\", "a", "\\\\", '\\"'])
def test_a_string_without_end_is_looked_over_once(end: str) -> None:
    """It is one match to the end of the text: if it were none, every quote in it would be tried again, and the time
    would grow with the square of the length. A backslash at the very end is the trick."""
    text = '"""' + '\n\\"""a' * 50 + end
    found = toml.QUOTED.match(text)
    assert found is not None
    assert found.end() == len(text)


def test_a_name_is_looked_over_once() -> None:
    """From its first letter: if every other began one too, time would grow with the square of its length."""
    assert toml.NAMED.match("a" * 50 + "=") is not None
    assert toml.NAMED.match("a" * 50 + "=", 1) is None


@pytest.mark.parametrize("trick", TRICKS)
def test_costly_toml_never_reaches_its_parser(monkeypatch: pytest.MonkeyPatch, trick: str) -> None:
    """Attack A3: a dotted key of 40 kB cost seconds. Mutants killed: strings left in, or too much taken for one."""
    monkeypatch.setattr(tomllib, "loads", unreached)
    for read in (Registration.from_toml, Study.from_toml):
        with pytest.raises(FedsrcError, match="more than"):
            read(TRICKS[trick])


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{LONG}"', f"x = '{LONG}' # {LONG}", f'x = """{LONG}\n{LONG}"""', "x = [" + "0.5, " * 1000 + "]",
        f"x = '''\n{LONG}\n'''", "[[x]]\n" * 1000, "x = '" + "[" * 1000 + "'",
        ".".join("a" * toml.PARTS) + " = 1.5", "x = [" + "0.5, 1.5, " * toml.DOTS + "2]",
        "x = " + "[" * toml.DEPTH + "]" * toml.DEPTH,
    ],
)  # fmt: skip
def test_what_only_looks_nested_is_read(text: str) -> None:
    assert toml.parse_toml(text) == tomllib.loads(text)


VALUES = st.recursive(
    st.text(max_size=30) | st.integers(-9, 9) | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_whatever_is_written_is_read(values: dict[str, Any]) -> None:
    """Keys and strings of any characters: nothing that a writer makes of a few levels is refused."""
    text = tomli_w.dumps(values)
    assert toml.parse_toml(text) == tomllib.loads(text)


def many_sites(count: int) -> str:
    """A registration with so many sites, as it is written."""
    sites = [{"name": f"s{i}"} for i in range(count)]
    return tomli_w.dumps({**registration().model_dump(exclude_none=True), "sites": sites})


def test_a_hundred_thousand_sites_pass_the_look_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tomllib, "loads", lambda text: {"length": len(text)})
    text = many_sites(100_000)
    assert toml.parse_toml(text) == {"length": len(text)}


@pytest.mark.thorough
def test_a_hundred_thousand_sites_are_read() -> None:
    assert len(Registration.from_toml(many_sites(100_000)).sites) == 100_000


# Parquet


def constant(path: Path, rows: int) -> None:
    half = pl.repeat(0.5, rows, dtype=pl.Float64)
    pl.select(score=half, loss=half).write_parquet(path, compression="zstd")


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def test_a_small_file_of_very_many_rows(tmp_path: Path) -> None:
    """Attack A3, at four of its thirty million rows: refused before a row is read, whole or in batches."""
    path = tmp_path / "table.parquet"
    constant(path, 4_000_000)
    assert path.stat().st_size < 100_000
    for read in (lambda: read_records(path), lambda: Table(path).present, lambda: read_answers(path)):
        with pytest.raises(FedsrcError, match="unpacks to 4,000,000 rows"):
            read()


def test_a_small_file_of_one_very_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"score": [0.5], "loss": [0.0], "id": ["x" * 1_000_000]}).write_parquet(path, compression="zstd")
    assert read_records(path).score.size == 1
    monkeypatch.setattr(parquet, "FREE_BYTES", 100_000)
    with pytest.raises(FedsrcError, match=r"unpacks to 1,000,\d{3} bytes"):
        read_records(path)


@pytest.mark.parametrize("sort", [False, True])
def test_honest_tables_are_far_from_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: bool) -> None:
    """Scores of 21 values and rare losses, even sorted: read with no row free. A seed fixes them: no false alarm."""
    monkeypatch.setattr(parquet, "FREE_ROWS", 0)
    rng, path = np.random.default_rng(0), tmp_path / "table.parquet"
    score, loss = rng.integers(0, 21, 1_000_000) / 20, (rng.random(1_000_000) < 0.01) * 1.0
    pl.DataFrame({"score": np.sort(score) if sort else score, "loss": loss}).write_parquet(path)
    assert read_records(path).score.size == 1_000_000
    constant(path, 1_000_000)
    with pytest.raises(FedsrcError, match="unpacks to"):
        read_records(path)


KINDS_OF = ("zstd", "snappy", "uncompressed")


def small_file() -> bytes:
    file = io.BytesIO()
    pl.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}).write_parquet(file)
    return file.getvalue()


WHOLE = small_file()
FOOTER = footer_of(WHOLE)


def rows_by_polars(footer: bytes) -> int:
    """The rows of the small file with another footer; none where polars refuses it."""
    file = WHOLE[: -8 - len(FOOTER)] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    try:
        return int(pl.scan_parquet(io.BytesIO(file)).select(pl.len()).collect().item())
    except parquet.UNREADABLE:
        return 0


def rows_said(footer: bytes) -> int | None:
    """The rows that a footer has before a reader sees it; None where it is refused."""
    try:
        return parquet.unpacked(footer).rows
    except ValueError:
        return None


@given(rows=st.integers(0, 300), columns=st.integers(1, 20), group=st.integers(1, 300), level=st.sampled_from(KINDS_OF))
def test_a_footer_says_what_polars_reads(rows: int, columns: int, group: int, level: Any) -> None:
    """Mutants killed: long lists, large field numbers or negative numbers misread; a row group left out."""
    kinds = (pl.Float64, pl.String)
    frame = pl.select(pl.int_range(rows).cast(kinds[i % 2]).alias(f"c{i}") for i in range(columns))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.parquet")
        frame.write_parquet(path, row_group_size=group, compression=level)
        assert parquet.unpacked(footer_of(path.read_bytes())).rows == rows


@given(st.binary(max_size=200), st.integers(0, 1000), st.integers(0, 255))
def test_a_damaged_footer_is_refused_or_read(noise: bytes, place: int, byte: int) -> None:
    """Mutants killed: an error that is not a ValueError, a footer whose end is never found."""
    whole = bytearray(FOOTER)
    whole[place % len(whole)] = byte
    for data in (noise, bytes(whole), FOOTER[: place % len(FOOTER)]):
        said = rows_said(data)
        assert said is None or said >= rows_by_polars(data)


def test_no_changed_byte_of_a_footer_hides_rows() -> None:
    """A reader never finds more rows than the footer was taken to have. Mutants killed: rows of the row groups alone,
    of the file alone, or the lesser of both; numbers halved."""
    more = 0
    for place, byte in itertools.product(range(len(FOOTER)), (0, 2, 6, 20, 126)):
        data = FOOTER[:place] + bytes([byte]) + FOOTER[place + 1 :]
        said, found = rows_said(data), rows_by_polars(data)
        assert said is None or said >= found, (place, byte)
        more += found > 2
    assert more >= 3


@pytest.mark.parametrize("data", [
        b"\x19" * 100_000, b"\x1c" * 100_000, b"\x1b\xff\xff\xff\xff\x0f\x11", b"\x19\xf7\xff\xff\xff\xff\xff\x0f",
        b"\x19\xf8\xff\xff\xff\xff\xff\x0f\xff\xff\xff\x0f",
    ])  # fmt: skip
def test_a_deep_or_long_footer_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FedsrcError, match="cannot be read as parquet"):
        read_records(path)


# The log of a site

NAMES_OF = "patient-777"


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_a_log_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack P5: under an ordinary umask, turned over, and where wider logs of before stand there already."""
    monkeypatch.setattr(log, "BYTES", 60)
    for name in ("site.log", "site.log.2"):
        (tmp_path / name).write_text("before\n")
        (tmp_path / name).chmod(0o644)
    before = os.umask(0o022)
    try:
        with log.open_log(tmp_path / "site.log") as tell:
            for number in range(6):
                tell(f"line {number} of the log")
    finally:
        os.umask(before)
    assert set(modes(tmp_path)) >= {"site.log", "site.log.1", "site.log.2", "site.log.3"}
    assert set(modes(tmp_path).values()) == {0o600}


def test_a_device_keeps_its_mode() -> None:
    """Mutant killed: a log to /dev/null that closes /dev/null to everybody."""
    mode = Path("/dev/null").stat().st_mode
    with log.open_log(Path("/dev/null")) as tell:
        tell("nothing")
    assert Path("/dev/null").stat().st_mode == mode


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FedsrcError, match="cannot be written"), log.open_log(tmp_path / "file" / "site.log"):
        pass


def ask(number: int) -> Frame:
    asked = Request(registration=REG.digest, number=number, round=number, site="a", slots=60, scale=REG.mechanism.scale)
    return Frame(RELEASE, SignedRequest.by(asked, SERVER).to_bytes())


ROWS = "".join(f"patient-{i},0.{i % 10},{i % 2}\n" for i in range(200))
CHANGED = {
    "known before": ROWS + f"{NAMES_OF},0.5,1\n",
    "twice": ROWS.replace("patient-1,", f"{NAMES_OF},").replace("patient-2,", f"{NAMES_OF},"),
    "for a score": ROWS.replace("patient-1,0.1", f"patient-1,{NAMES_OF}"),
    "twice, and more": ROWS.replace("patient-1,", f"{NAMES_OF},").replace("patient-2,0.2", f"{NAMES_OF},seven"),
}


@pytest.mark.parametrize("how", CHANGED)
def test_a_log_names_no_patient(tmp_path: Path, how: str) -> None:
    """A table changed under a running site: its log says why it refuses, and names nobody; by hand it is named."""
    path, lines = tmp_path / "r.csv", list[str]()
    path.write_text("id,score,loss\n" + ROWS)
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        allow(ledger, "a", REG, max_epsilon=10.0)
        guarded = Guard(REG, "a", ledger, lambda: Table(path), key(0), tell=lines.append)
        assert guarded.answer(ask(1)).kind == GIVEN
        path.write_text("id,score,loss\n" + CHANGED[how])
        assert guarded.answer(ask(2)).kind == REFUSED
        assert guarded.answer(ask(2)).kind == REFUSED
        assert "patient-" not in "".join(lines)
        assert "(not in the log)" in lines[-1]
        with pytest.raises(FedsrcError, match="patient-"):
            guarded.open()


def test_a_fault_is_told_without_its_words(tmp_path: Path) -> None:
    def broken() -> Table:
        raise KeyError(NAMES_OF)

    lines = list[str]()
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        allow(ledger, "a", REG, max_epsilon=10.0)
        Guard(REG, "a", ledger, broken, key(0), tell=lines.append).answer(ask(1))
    assert "a fault in fedsrc, KeyError" in lines[0]
    assert "in broken" in lines[0]
    assert NAMES_OF not in lines[0]
