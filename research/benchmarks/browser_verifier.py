"""How long a browser takes to recompute the run that a card carries, beside `fedsrc verify`.

Writes docs/results/browser-verifier.md. Needs Playwright and a Chromium, as `make test-browser` does.
Run: .venv/browser/bin/python -m research.benchmarks.browser_verifier
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright  # type: ignore[import-not-found, unused-ignore]

from fedsrc.report.carried import carry
from fedsrc.report.html import page, verifier_script
from fedsrc.report.view import view_run
from fedsrc.server.verify import verify
from research.pages import ROOT, markdown, publish

RUNS = ROOT / "tests" / "recorded" / "runs"
NAMES = ("certify-private", "certify-open", "sealed-sources", "moments", "demo", "hundred-rounds")
TIMES = 7
CHECK = """async () => {
  const [button, result] = ["recompute-now", "recompute-result"].map((id) => document.getElementById(id));
  const begun = performance.now();
  button.click();
  while (!result.querySelector("strong")) await new Promise((go) => setTimeout(go, 1));
  const took = performance.now() - begun;
  const verdict = result.querySelector("strong").textContent;
  result.replaceChildren();
  return [took, verdict];
}"""


class Timed(NamedTuple):
    """Medians in milliseconds, and what was checked."""

    run: str
    lines: int
    looks: int
    thresholds: int
    page: int
    browser: float
    python: float


def timed(found: Browser, name: str, folder: Path) -> Timed:
    """Recompute one recorded run in the browser and by `verify`, some times each."""
    view = view_run(RUNS / name)
    place = folder / f"{name}.html"
    place.write_text(page(view, carried=carry(view)), encoding="utf-8")
    seen = found.new_page()
    seen.goto(place.as_uri())
    answers = [seen.evaluate(CHECK) for _ in range(TIMES)]
    seen.close()
    assert {verdict for _, verdict in answers} == {"VERIFIED"}, name
    python = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        verify(RUNS / name)
        python.append(1000 * (time.perf_counter() - begun))
    certificate = view["certificate"]
    looks, thresholds = len(certificate.evidence), len(certificate.thresholds)
    took = statistics.median(each for each, _ in answers)
    lines, size = certificate.transcript_lines, place.stat().st_size
    return Timed(name, lines, looks, thresholds, size, took, statistics.median(python))


def main() -> None:
    """Time, and write."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        place = os.environ.get("FEDSRC_CHROMIUM") or shutil.which("chromium")
        found = driver.chromium.launch(executable_path=place, args=["--no-sandbox", "--disable-gpu"])
        rows = [timed(found, name, Path(folder)) for name in NAMES]
        about = (
            f"Chromium {found.version}, Python {platform.python_version()}, {os.cpu_count()} cores; load average"
            f" {load:.2f} when it began"
        )
        found.close()
    header = ("recorded run", "lines", "looks", "thresholds", "bytes of the page", "browser, ms", "`verify`, ms")
    table = [
        (each.run, f"{each.lines}", f"{each.looks}", f"{each.thresholds}", f"{each.page:,}", f"{each.browser:.0f}",
         f"{each.python:.0f}")
        for each in rows
    ]  # fmt: skip
    publish("browser-verifier.md", [
        "# Recomputing a run in the browser",
        f"Medians of {TIMES}, from the click to the verdict, all of it checked: files, signatures, chain, protocol,"
        " bounds, certificate. `verify` is fedsrc's own in a process that is already running. "
        f"{about}. The script has {len(verifier_script().encode()):,} bytes.",
        markdown(header, table),
        "Made by `python -m research.benchmarks.browser_verifier`.",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
