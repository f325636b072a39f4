"""The card and the live page in a real browser: `make test-browser`.

Mutants killed: a value printed unescaped, an inline style or script that the policy forbids, a chart without a name, a
colour with too little contrast, a page wider than a phone, labels of a chart that collide, a card of three printed
pages, a run that cannot be saved, an update that loses the reader's place, a live page that stops following.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from fedsrc.report.carried import carry
from fedsrc.report.html import page
from fedsrc.report.view import View, Watched, view_run
from fedsrc.server.verify import verify
from tests.browser.browse import WIDTHS, Scheme, visit
from tests.browser.runs import Stepped, abstention, by_scores, demo_run, grouped, hostile_run, live_page, twenty_sites
from tests.support.hostile import HOSTILE, poisoned

PATIENCE = 120_000  # milliseconds


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_run(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def card(run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("card") / "card.html"
    view = view_run(run)
    place.write_text(page(view, carried=carry(view)), encoding="utf-8")
    return place.as_uri()


@pytest.fixture(scope="session")
def views(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, View]:
    """Cards of all kinds: certified, abstained, contradicted by a monitor, of many sites, groups and scores."""
    alarm = Watched("alarm", "ALARM after 2,000 fresh records: the share of unsupported answers has risen above 20%.")
    return {
        "certified": view_run(run), "alarm": view_run(run, monitor=alarm),
        "abstained": view_run(abstention(tmp_path_factory.mktemp("abstained"))),
        "twenty sites": view_run(twenty_sites(tmp_path_factory.mktemp("twenty"))),
        "groups": view_run(grouped(tmp_path_factory.mktemp("groups"))),
        "scores": view_run(by_scores(tmp_path_factory.mktemp("scores"))),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["certified", "alarm", "abstained", "twenty sites", "groups", "scores"])
def test_cards_of_all_kinds(chromium: Browser, views: dict[str, View], tmp_path: Path, name: str) -> None:
    """Each prints on two pages; on a phone nothing is too wide, and no label of its chart meets another."""
    place = tmp_path / "card.html"
    place.write_text(page(views[name]), encoding="utf-8")
    with visit(chromium, place.as_uri()) as seen:
        assert seen.pages() <= 2
        assert seen.page.locator("s").count() == (name == "alarm")
        assert seen.page.locator("#status svg").count() == seen.page.locator("#status strong").count() == 1
    with visit(chromium, place.as_uri(), width=WIDTHS["phone"], scheme="dark") as seen:
        assert (seen.overflow(), seen.clipped(), seen.collisions(), seen.axe()["violations"]) == (0, [], [], [])


def test_the_run_is_saved_from_the_page(chromium: Browser, card: str, tmp_path: Path) -> None:
    """Without a script, under the strict policy; what is saved verifies."""
    with visit(chromium, card, script=False) as seen:
        with seen.page.expect_download() as found:
            seen.page.locator("#save").click()
        found.value.save_as(tmp_path / "run.zip")
        assert (found.value.suggested_filename, seen.console) == ("fedsrc-run.zip", [])
    shutil.unpack_archive(tmp_path / "run.zip", tmp_path / "run")
    assert verify(tmp_path / "run").certificate.status == "CERTIFIED"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [*WIDTHS.values(), 320])
def test_the_card(chromium: Browser, card: str, width: int, scheme: Scheme) -> None:
    with visit(chromium, card, width=width, scheme=scheme) as seen:
        assert seen.console == []
        assert seen.foreign() == []
        assert seen.overflow() == 0
        assert seen.axe()["violations"] == []
        for summary in seen.page.locator("summary").all():
            summary.click()
        assert seen.axe()["violations"] == []
        assert seen.overflow() == 0


def test_the_card_by_keyboard(chromium: Browser, card: str) -> None:
    with visit(chromium, card) as seen:
        assert seen.tab_stops() == [
            "s-threshold-numbers",
            "other-targets",
            "site-numbers",
            "save",
            "trusted",
            "recompute-now",
            "s-statistics",
        ]
        seen.page.locator("#s-statistics").focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.locator("#evidence table").is_visible()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text(chromium: Browser, run: Path, tmp_path: Path, text: str) -> None:
    place = tmp_path / "card.html"
    place.write_text(page(poisoned(view_run(run), text)), encoding="utf-8")
    with visit(chromium, place.as_uri(), width=WIDTHS["phone"]) as seen:
        assert (seen.console, seen.dialogs, seen.foreign()) == ([], [], [])
        assert seen.overflow() == 0
        assert seen.page.locator("script, img, iframe, a, b, i").count() == 0
        assert seen.page.locator("#sites tbody tr").count() == 5


def test_hostile_names_live(chromium: Browser, tmp_path: Path) -> None:
    with live_page(hostile_run(tmp_path)) as url, visit(chromium, url, width=WIDTHS["phone"]) as seen:
        seen.page.wait_for_selector("#sites tbody tr")
        seen.page.wait_for_timeout(2500)  # over some updates
        assert (seen.console, seen.dialogs) == ([], [])
        assert seen.foreign(urlsplit(url).netloc) == []
        assert seen.page.locator("#sites tbody tr").count() == 3
        assert seen.page.locator("img, iframe, a, b, #sites script").count() == 0


def test_the_policy_stops_what_is_not_ours(chromium: Browser, card: str, tmp_path: Path) -> None:
    """Even if text became markup, nothing would run, load or restyle the page."""
    evil = (
        "<script>document.title='owned'</script><style>h1{display:none}</style><img src='http://127.0.0.1:9/x.png'>"
        "<h2 style='display:none' id='styled'>x</h2><svg onload=\"document.title='owned'\"></svg>"
        "<iframe src='http://127.0.0.1:9/'></iframe><link rel='stylesheet' href='http://127.0.0.1:9/x.css'>"
    )
    place = tmp_path / "card.html"
    text = Path(urlsplit(card).path).read_text(encoding="utf-8")
    place.write_text(text.replace("<main>", f"<main>{evil}"), encoding="utf-8")
    with visit(chromium, place.as_uri()) as seen:
        assert seen.page.title() != "owned"
        assert seen.page.locator("h1").first.is_visible()
        assert seen.page.locator("#styled").is_visible()
        assert all("Content Security Policy" in line for line in seen.console)
        assert len(seen.console) >= 5


def test_a_run_watched_to_its_certificate(chromium: Browser, tmp_path: Path) -> None:
    """From before its first round: the page follows by itself, keeps the reader's place, and is never reloaded."""
    run = Stepped(tmp_path, batch=40)
    with live_page(run.run) as url, visit(chromium, url) as seen:
        page, news = seen.page, seen.page.locator("#news")
        expect(news).to_contain_text("round 1 ", timeout=PATIENCE)
        page.evaluate("window.mark = 'not reloaded'")
        assert seen.axe()["violations"] == []
        page.locator("#s-statistics").click()
        page.locator("#s-statistics").focus()
        told, more, number = [news.text_content()], True, 1
        while more:
            more, number = run.step(), number + 1
            if more:
                expect(news).to_contain_text(f"round {number} ", timeout=PATIENCE)
                told.append(news.text_content())
            assert page.evaluate("document.activeElement.id") == "s-statistics"
            assert page.locator("#for-statisticians").get_attribute("open") is not None
        expect(news).to_contain_text("CERTIFIED", timeout=PATIENCE)
        expect(page.locator("#checked")).to_contain_text("its signature fits", timeout=PATIENCE)
        assert all(words and words.startswith("OPEN") for words in told)
        assert page.evaluate("window.mark") == "not reloaded"
        assert page.title() == "CERTIFIED - fedsrc card"
        assert page.locator("#progress").is_hidden()
        assert seen.axe()["violations"] == []
        assert seen.console == []
        assert seen.foreign(urlsplit(url).netloc) == []


def test_opened_before_the_run_it_waits(chromium: Browser, tmp_path: Path) -> None:
    """No folder is there yet: the page says so, and shows the run once it begins."""
    with live_page(tmp_path / "run") as url, visit(chromium, url) as seen:
        expect(seen.page.locator("#head")).to_contain_text("WAITING", timeout=PATIENCE)
        assert seen.page.title() == "Waiting - fedsrc card"
        assert seen.axe()["violations"] == []
        run = Stepped(tmp_path, batch=40)
        expect(seen.page.locator("#news")).to_contain_text("OPEN: round 1 ", timeout=PATIENCE)
        while run.step():
            pass
        expect(seen.page.locator("#checked")).to_contain_text("its signature fits", timeout=PATIENCE)
        assert (seen.console, seen.foreign(urlsplit(url).netloc)) == ([], [])


def test_without_scripts_the_page_reloads_itself(chromium: Browser, run: Path) -> None:
    with live_page(run) as url, visit(chromium, url, script=False) as seen:
        seen.page.wait_for_selector("h1")
        first = len(seen.requests)
        seen.page.wait_for_timeout(6500)
        assert len(seen.requests) > first
        assert seen.console == []


def test_a_lost_server_is_said(chromium: Browser, run: Path) -> None:
    with live_page(run) as url, visit(chromium, url) as seen:
        news = seen.page.locator("#news")
        expect(news).to_contain_text("CERTIFIED", timeout=PATIENCE)
        seen.page.route("**/card", lambda route: route.abort())
        expect(news).to_contain_text("lost its server", timeout=PATIENCE)
        seen.page.unroute("**/card")
        expect(news).to_contain_text("CERTIFIED", timeout=PATIENCE)
