"""Runs to look at: the demo's, one with hostile names, panels, and one that is played round by round."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, expect

from fedsrc import Choices
from fedsrc.common.signing import Key
from fedsrc.demo import answers_table as demo
from fedsrc.federation.local import certify_table, register_table
from fedsrc.planning.register import development_part
from fedsrc.protocol.scale import Scale
from fedsrc.records.table import read_records
from tests.support import ROOT
from tests.support.helpers import changed, registration, table

PATIENCE = 120_000  # milliseconds
KEY = Key.from_private_bytes(b"b" * 32)
NAMES = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "שלום | ](x) " + "w" * 88)


def demo_run(folder: Path, *, batch: int = 100, watch: Any = lambda _: None) -> Path:
    """The demo's records, certified."""
    demo.write_table(folder / "records.csv")
    records = read_records(folder / "records.csv")
    choices = Choices(target_risk=0.2, epsilon=4.0, batch=batch, weights=dict.fromkeys(records.site_names, 0.2))
    registered = register_table(choices, records, development_part(records, "record", 0.2), folder / "ledger")
    certify_table(registered, records, folder / "run", folder / "ledger", KEY, watch=watch)
    return folder / "run"


def hostile_run(folder: Path) -> Path:
    """Site names and a folder name that try to be more than names."""
    records, run = table(900, sites=NAMES), folder / "<b>\u202e" / "run"
    certify_table(registration(records, batch=40, rounds=2), records, run, folder / "ledger", KEY)
    return run


def abstention(folder: Path) -> Path:
    """A run that ends without a claim: of so few records no bets could win enough."""
    records = table(900)
    certify_table(
        registration(records, batch=40, rounds=2, target_risk=0.02), records, folder / "run", folder / "l", KEY
    )
    return folder / "run"


def twenty_sites(folder: Path) -> Path:
    """A run of many sites with long names, all words of its claim stated, on a scale of its own."""
    names = tuple(f"hospital {k:02} of the northern region" for k in range(20))
    records = table(6000, sites=names)
    said = {"system": "assistant 3 of the support desk, with retrieval", "issuer": "Example Health, safety department",
            "contact": "safety@example.org, +00 000 000 000", "score": "grounding", "column": "groundedness_percent",
            "scale": {"worst": 0.0, "best": 100.0}}  # fmt: skip
    made = registration(records, batch=100, rounds=3, policy="final", weights=dict.fromkeys(names, 0.05))
    certify_table(changed(made, claim=said), records, folder / "run", folder / "l", KEY)
    return folder / "run"


def grouped(folder: Path) -> Path:
    """A panel of twelve groups with long names, one of which has no answer that is right."""
    names = tuple(f"ward {k:02}, paediatric oncology" for k in range(12))
    rng = np.random.default_rng(3)
    records, group = table(12_000), rng.integers(len(names), size=12_000)
    records = replace(records, group=group, group_names=names, loss=np.where(group == 0, 1.0, records.loss))
    made = registration(records, batch=3000, rounds=3, policy="final", epsilon=8.0, groups=names, min_acceptance=0.005)
    certify_table(made, records, folder / "run", folder / "l", KEY)
    return folder / "run"


def by_scores(folder: Path) -> Path:
    """A panel of two scores, one of which is on a scale of its own and has checkpoints."""
    records = table(4000)
    records = replace(records, others=np.clip(records.score + 0.05, 0, 1)[:, None])
    scores = {"also_scores": (("least_of_the_prefixes", Scale(worst=0.0, best=100.0)),),
              "checkpoints": {"least_of_the_prefixes": (30, 60, 120)}}  # fmt: skip
    made = registration(records, batch=1000, rounds=3, policy="final", epsilon=8.0, **scores)
    certify_table(made, records, folder / "run", folder / "l", KEY)
    return folder / "run"


class Stepped:
    """A run in a thread of its own that plays one round whenever it is told to."""

    def __init__(self, folder: Path, batch: int) -> None:
        self.folder = folder
        self.run = folder / "run"
        self._go, self._played = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._play, args=(batch,), daemon=True)
        self._thread.start()
        self._played.acquire()

    def _play(self, batch: int) -> None:
        demo_run(self.folder, batch=batch, watch=self._wait)
        self._played.release()

    def _wait(self, replay: Any) -> None:
        if replay.ended is None:
            self._played.release()
            self._go.acquire()

    def step(self) -> bool:
        """Play a round; whether the run goes on after it."""
        self._go.release()
        self._played.acquire()
        self._thread.join(0.5)
        return self._thread.is_alive()


@contextmanager
def live_page(run: Path) -> Iterator[str]:
    """The real command, and the address that it prints."""
    command = [sys.executable, "-m", "fedsrc.cli", "view", str(run), "--live", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[2]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def started(folder: Path, port: int) -> tuple[subprocess.Popen[str], str]:
    """A labelling page in a process of its own, and its address."""
    command = [sys.executable, "-m", "tests.browser.labels", str(folder), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@contextmanager
def page_of(folder: Path) -> Iterator[str]:
    """The address of a labelling page that ends with the block."""
    process, url = started(folder, 0)
    try:
        yield url
    finally:
        process.kill()
        process.communicate()


def begin(page: Page, name: str = "ada") -> None:
    """Give a name, and wait for an answer to label."""
    page.locator("#by").fill(name)
    page.keyboard.press("Enter")
    expect(page.locator("#task")).to_be_visible(timeout=PATIENCE)
