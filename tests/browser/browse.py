"""A real browser that notes everything: console, dialogs, requests, and an accessibility checker's verdict.

Chromium is the machine's own (FEDSRC_CHROMIUM, or `chromium` on the PATH); axe-core comes with a Python package.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

Scheme = Literal["light", "dark"]
WIDTHS = {"desktop": 1280, "phone": 390}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip
COLLISIONS = """() => [...document.querySelectorAll("svg.chart")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  const labels = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const out = labels.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1);
  const met = labels.filter(([, a], k) => labels.slice(0, k).some(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3));
  return [...out, ...met].map(([words]) => words);
})"""
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@dataclass
class Visit:
    """A page, and what happened on it."""

    page: Page
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def foreign(self, host: str | None = None) -> list[str]:
        """Requests to anywhere but the page's own host (or file)."""
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme not in ("file", "data") and urlsplit(url).netloc != host
        ]

    def axe(self) -> dict[str, list[str]]:
        """The accessibility checker's verdict: rules violated, passed and left to a person."""
        self.page.evaluate(AXE)
        found: dict[str, Any] = self.page.evaluate("() => axe.run()")
        return {kind: [rule["id"] for rule in found[kind]] for kind in ("violations", "passes", "incomplete")}

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width

    def pages(self) -> int:
        """Sheets of paper that the page prints on."""
        return self.page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n")

    def collisions(self) -> list[str]:
        """Labels of charts that meet another or leave their picture."""
        found: list[str] = self.page.evaluate(COLLISIONS)
        return found

    def clipped(self) -> list[str]:
        """Tables that are seen in part only; what is folded does not count."""
        found: list[str] = self.page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter((e) => !e.closest('details:not([open])')"
            " && e.scrollWidth > e.clientWidth).map((e) => e.id)"
        )
        return found

    def tab_stops(self) -> list[str]:
        """Where the Tab key leads, in order, each with a visible outline."""
        stops: list[str] = []
        self.page.evaluate("document.activeElement && document.activeElement.blur()")
        while len(stops) < 100:
            self.page.keyboard.press("Tab")
            name, outline = self.page.evaluate(
                "[document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
            )
            if not name:  # past the last one
                break
            assert outline != "none", name
            stops.append(name)
        return stops


@contextmanager
def browser() -> Iterator[Browser]:
    """The machine's own Chromium."""
    place = os.environ.get("FEDSRC_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert place, "no Chromium: install one, or name it in FEDSRC_CHROMIUM"
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=place, args=FLAGS)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def visit(
    found: Browser, url: str, *, width: int = 1280, scheme: Scheme = "light", script: bool = True
) -> Iterator[Visit]:
    """Open an address in a fresh window."""
    context = found.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
    )
    page = context.new_page()
    seen = Visit(page)
    page.on("console", lambda message: seen.console.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.console.append(f"error: {error}"))
    page.on("request", lambda request: seen.requests.append(request.url))

    def dismiss(dialog: Any) -> None:
        seen.dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    try:
        page.goto(url)
        yield seen
    finally:
        context.close()
