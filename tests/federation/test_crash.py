"""Crashes: the process dies at every write, sync, move, link and commit in turn, and at random moments by SIGKILL.

After each, the run is simply started again. Nothing is lost, no unit is released twice with fresh noise, and the
certificate verifies and equals that of an unbroken run with the same releases. A full disk at every point is an error,
not a loss.

Mutants killed: the release sent before the ledger's commit, the transcript acted on before it is on disk, a torn line
taken for damage, an inbox that folds twice, a half-written file taken for a whole one, noise drawn again on restart.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.transcript import Arrived, read_transcript
from fedsrc.server.folder import read_registration
from fedsrc.server.verify import verify
from fedsrc.site.label_file import read_labels
from research.attacks.struck import CRASHED, REFUSED
from tests.support.crash_scenarios import SCENARIOS, Fault, child, files_registration, log_without_labels

pytestmark = pytest.mark.filterwarnings("ignore:.*torn by a crash:UserWarning")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.support.crash_scenarios"])
FAULTS = [fault for fault in get_args(Fault) if fault != "none"]


def strike(scenario: str, folder: Path, fault: Fault, at: int) -> int:
    """Run a scenario in a child that dies (or meets a full disk) at its at-th durable operation."""
    folder.mkdir(parents=True, exist_ok=True)
    process = CONTEXT.Process(target=child, args=(scenario, str(folder), fault, at))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def spends(folder: Path) -> list[tuple[str, int, int, str, bytes]]:
    """(ledger's intake, first, slots, request, release) of every release ever made."""
    rows = []
    for path in sorted(folder.glob("*ledger")):
        with closing(sqlite3.connect(path)) as sql:
            columns = "intake, first, slots, request, release"
            for intake, first, slots, request, release in sql.execute(
                f"SELECT {columns} FROM spend JOIN release USING (request) ORDER BY intake, first"
            ):
                rows.append((f"{path.name}:{intake}", first, slots, request, release))
    return rows


def developments(folder: Path) -> list[bytes]:
    """Every development release ever made."""
    rows = list[bytes]()
    for path in sorted(folder.glob("*ledger")):
        with closing(sqlite3.connect(path)) as sql:
            rows += [row[0] for row in sql.execute("SELECT release FROM development")]
    return rows


def registered_developments(run: Path) -> list[bytes]:
    """The one that a run's registration holds, if it has one."""
    part = read_registration(run).development
    return [] if part is None or part.release is None else [part.release.to_bytes()]


def check(scenario: str, folder: Path) -> None:
    """The invariants after the run was started again and came to its end."""
    body = verify(folder / "run").certificate
    assert body.status in ("CERTIFIED", "ABSTAIN")
    made = spends(folder)
    place: dict[str, int] = {}
    for intake, first, slots, _, _ in made:
        assert first == place.get(intake, 0)  # a prefix without gap or overlap: no unit twice, none skipped
        place[intake] = first + slots
    entries = read_transcript(folder / "run" / TRANSCRIPT)[0]
    folded = {e.release.request: e.release.to_bytes() for e in entries if isinstance(e, Arrived)}
    assert folded == {request: release for _, _, _, request, release in made}  # nothing lost, nothing made twice
    assert developments(folder) == registered_developments(folder / "run")
    for path in folder.glob("*.labels.jsonl"):
        given = [(label.answer, label.round) for label in read_labels(path)]
        assert len(given) == len(set(given))  # no label twice
    SCENARIOS[scenario](folder, "unbroken")
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (folder / "unbroken" / name).read_bytes() == (folder / "run" / name).read_bytes()


def operations(scenario: str, folder: Path) -> int:
    assert strike(scenario, folder, "none", 0) == 0
    return int((folder / "operations").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fault_at_every_durable_operation(tmp_path: Path, scenario: str, fault: Fault, part: int) -> None:
    total = operations(scenario, tmp_path / "count")
    assert total > 40
    for at in range(1 + part, total + 1, 4):
        folder = tmp_path / str(at)
        assert strike(scenario, folder, fault, at) == (REFUSED if fault == "full" else CRASHED), at
        SCENARIOS[scenario](folder)
        check(scenario, folder)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_a_random_moment(tmp_path: Path, scenario: str, seed: int) -> None:
    """Real SIGKILLs, three in a row, each somewhere in what is left of the run."""
    rng = random.Random(f"{scenario}{seed}")
    for _ in range(3):
        process = CONTEXT.Process(target=child, args=(scenario, str(tmp_path), "none", 0))
        process.start()
        process.join(rng.uniform(0.0, 0.25))
        process.kill()
        process.join()
    SCENARIOS[scenario](tmp_path)
    check(scenario, tmp_path)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_processes_on_the_same_ledgers(tmp_path: Path, scenario: str) -> None:
    """Whoever is first releases; the other gets the same bytes, and both end with the same certificate."""
    log_without_labels(tmp_path)
    both = [CONTEXT.Process(target=child, args=(scenario, str(tmp_path), "none", 0, run)) for run in ("run", "other")]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    check(scenario, tmp_path)
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_scenarios_release_with_noise() -> None:
    """Otherwise fresh noise on a repeated release could not be seen."""
    assert files_registration().privacy.private
