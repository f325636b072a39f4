"""Look at card, live page and labelling page, and write down what was seen: `python -m tests.browser.verdicts docs`.

Makes docs/results/browser.md and the pictures in docs/images.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from fedsrc.common.durable import write_whole
from fedsrc.report.carried import carry
from fedsrc.report.html import page, policy, verifier_page
from fedsrc.report.view import Watched, view_run
from tests.browser.browse import AXE, WIDTHS, Scheme, Visit, browser, visit
from tests.browser.runs import (
    PATIENCE,
    Stepped,
    abstention,
    begin,
    by_scores,
    demo_run,
    grouped,
    live_page,
    page_of,
    twenty_sites,
)
from tests.support import palette
from tests.support.hostile import HOSTILE, poisoned

SCHEMES: tuple[Scheme, ...] = ("light", "dark")
COLOURS = 64
NAMES = (
    "page", "width", "colours", "console messages", "requests to other hosts", "rules violated", "rules passed",
    "left to a person", "pixels too wide",
)  # fmt: skip
ABOUT = """# The card, its verifier, the live page and the labelling page in a browser

All were opened in a real browser. `make test-browser` makes this page and its pictures; it fails where one of the
verdicts is not what it should be.

This run: Chromium {version}, axe-core {axe} with all its rules. "Other hosts" are requests to anywhere but the page's
own file or server. Axe cannot judge the contrast of the labels inside charts and leaves it to a person: of all the
page's text colours on all its backgrounds, light, dark and printed, the lowest contrast is {contrast:.2f} to 1.

"""


def main(docs: Path) -> None:
    """Look, and write."""
    with tempfile.TemporaryDirectory() as place, browser() as found:
        docs = docs.absolute()
        os.chdir(place)
        folder = Path(place)
        for name in ("demo", "watched"):
            Path(name).mkdir()
        run = demo_run(Path("demo"))
        card = folder / "card.html"
        view = view_run(run)
        card.write_text(page(view, carried=carry(view)), encoding="utf-8")
        head = ABOUT.format(version=found.version, axe=_axe_version(), contrast=palette.lowest())
        table = [f"| {' | '.join(NAMES)} |", "| --- | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: |"]
        Path("labels").mkdir()
        labels = _labelling(found, Path("labels").absolute())
        lines = [
            *table,
            *_card(found, card, docs),
            *_verifier(found, card, folder),
            *labels,
            *_live(found, Path("watched"), docs),
        ]
        text = head + "\n".join([*lines, "", *_hostile(found, run, folder), "", *_facts(found, card, docs)])
    write_whole(docs / "results" / "browser.md", text.encode() + b"\n")


def _axe_version() -> str:
    return AXE[: AXE.index("\n")].split(" v")[1]


def _row(name: str, width: str, scheme: str, seen: Visit, host: str | None) -> str:
    found = seen.axe()
    cells = [name, str(WIDTHS[width]), scheme, str(len(seen.console)), str(len(seen.foreign(host)))]
    cells += [str(len(found["violations"])), str(len(found["passes"])), ", ".join(found["incomplete"]) or "none"]
    return f"| {' | '.join([*cells, str(seen.overflow())])} |"


def _card(found: Browser, card: Path, docs: Path) -> list[str]:
    rows = []
    for width, pixels in WIDTHS.items():
        for scheme in SCHEMES:
            with visit(found, card.as_uri(), width=pixels, scheme=scheme) as seen:
                rows.append(_row("card", width, scheme, seen, None))
                _picture(seen.page, docs / "images" / f"card-{width}-{scheme}.png")
    return rows


def _verifier(found: Browser, card: Path, folder: Path) -> list[str]:
    """The verifier page, with the demo's card checked on it."""
    rows, place = [], folder / "verifier.html"
    place.write_text(verifier_page(), encoding="utf-8")
    for width, pixels in WIDTHS.items():
        for scheme in SCHEMES:
            with visit(found, place.as_uri(), width=pixels, scheme=scheme) as seen:
                seen.page.locator("#chosen").set_input_files(card)
                expect(seen.page.locator("#recompute-result strong")).to_have_text("VERIFIED", timeout=PATIENCE)
                rows.append(_row("verifier", width, scheme, seen, None))
    return rows


def _labelling(found: Browser, folder: Path) -> list[str]:
    """The labelling page with an answer on it."""
    rows = []
    with page_of(folder) as url:
        for width, pixels in WIDTHS.items():
            for scheme in SCHEMES:
                with visit(found, url, width=pixels, scheme=scheme) as seen:
                    begin(seen.page)
                    rows.append(_row("labelling", width, scheme, seen, urlsplit(url).netloc))
    return rows


def _live(found: Browser, folder: Path, docs: Path) -> list[str]:
    """A run watched from its first round to its certificate, in every window at once."""
    run, rows, told = Stepped(folder, batch=40), [], []
    with live_page(run.run) as url:
        host = urlsplit(url).netloc
        for width, pixels in WIDTHS.items():
            with visit(found, url, width=pixels) as seen:
                expect(seen.page.locator("#news")).to_contain_text("OPEN", timeout=PATIENCE)
                rows.append(_row("live, run open", width, "light", seen, host))
        with visit(found, url) as seen:
            news, more, number = seen.page.locator("#news"), True, 1
            while more:
                expect(news).to_contain_text(f"round {number} ", timeout=PATIENCE)
                told.append(news.text_content() or "")
                if number == 2:
                    expect(seen.page.locator("#progress")).to_contain_text("an estimate", timeout=PATIENCE)
                    _picture(seen.page, docs / "images" / "live-desktop.png")
                more, number = run.step(), number + 1
            expect(news).to_contain_text("CERTIFIED", timeout=PATIENCE)
            told.append(news.text_content() or "")
            rows.append(_row("live, watched to its end", "desktop", "light", seen, host))
        with visit(found, url, width=WIDTHS["phone"], scheme="dark") as seen:
            expect(seen.page.locator("#news")).to_contain_text("CERTIFIED", timeout=PATIENCE)
            rows.append(_row("live, run ended", "phone", "dark", seen, host))
    return [*rows, "", "What the watched page said, one line after another, without being reloaded:", "",
            *(f"    {line}" for line in told)]  # fmt: skip


def _hostile(found: Browser, run: Path, folder: Path) -> list[str]:
    """Hostile text in every place that somebody else can fill."""
    console = dialogs = foreign = wide = 0
    for text in HOSTILE:
        place = folder / "hostile.html"
        place.write_text(page(poisoned(view_run(run), text)), encoding="utf-8")
        with visit(found, place.as_uri(), width=WIDTHS["phone"]) as seen:
            console, dialogs = console + len(seen.console), dialogs + len(seen.dialogs)
            foreign, wide = foreign + len(seen.foreign()), max(wide, seen.overflow())
    return [
        f"{len(HOSTILE)} hostile texts (markup, script, right-to-left and control characters, Markdown, templates,",
        "10,000 letters, stacked accents), each in every name, reason, claim, command and log line of a card:",
        f"{console} console messages, {dialogs} dialogs, {foreign} requests to other hosts, {wide} pixels too wide.",
    ]


def _facts(found: Browser, card: Path, docs: Path) -> list[str]:
    printed = [f"{name} {pages}" for name, pages in _others(found, docs).items()]
    with visit(found, card.as_uri()) as seen:
        pages, stops, met = seen.pages(), seen.tab_stops(), seen.collisions()
    return [
        f"The demo's card is {card.stat().st_size:,} bytes with its run in it, and prints on {pages} A4 pages;"
        " so many does",
        f"the card of {', '.join(printed)}. Labels of its chart that meet each other: {len(met)}. The Tab key leads to",
        f"{', '.join(stops)}, each with a visible outline.",
        "",
        "The policy of the card, and of the live page:",
        "",
        f"    {policy(live=False, checks=True)}",
        f"    {policy(live=True, header=True)}",
    ]


def _others(found: Browser, docs: Path) -> dict[str, int]:
    """Print the cards of other runs: an abstention, an alarm, twenty sites, groups, scores. A picture of two."""
    for name in ("few", "many", "groups", "scores"):
        Path(name).mkdir()
    many, printed = twenty_sites(Path("many")), dict[str, int]()
    alarm = Watched("alarm", "ALARM after 2,000 fresh records: the share of unsupported answers has risen above 20%.")
    views = {
        "an abstention": view_run(abstention(Path("few"))), "an alarm": view_run(many, monitor=alarm),
        "twenty sites": view_run(many), "twelve groups": view_run(grouped(Path("groups"))),
        "two scores": view_run(by_scores(Path("scores"))),
    }  # fmt: skip
    for name, view in views.items():
        place = Path("other.html").absolute()
        place.write_text(page(view), encoding="utf-8")
        with visit(found, place.as_uri(), width=800) as seen:
            printed[name] = seen.pages()
            if name == "an alarm":
                _picture(seen.page, docs / "images" / "card-alarm.png")
            if name == "twenty sites":
                seen.page.emulate_media(media="print")
                _picture(seen.page, docs / "images" / "card-print.png")
    return printed


def _picture(seen: Page, target: Path) -> None:
    image = Image.open(io.BytesIO(seen.screenshot(full_page=True))).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    write_whole(target, buffer.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
