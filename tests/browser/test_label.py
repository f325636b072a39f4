"""The labelling page in a real browser: `make test-browser`.

Mutants killed: a word lost or doubled when the server dies, a word acknowledged before it is on disk, a key that counts
twice, text that becomes markup, a match that is not found or not counted, a page too wide for a phone, a button too
small for a thumb, a colour with too little contrast.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from fedsrc.site.label_file import read_labels
from tests.browser.browse import WIDTHS, Scheme, visit
from tests.browser.runs import PATIENCE, begin, page_of, started
from tests.support.rounds import text

KILLS, ANSWERS = 20, 60
KEYS = {"s": 0.0, "u": 1.0, "?": None, "n": None}


def shown(page: Page) -> str:
    return page.evaluate("document.body.dataset.shown || ''")  # type: ignore[no-any-return]


def press(page: Page, key: str) -> None:
    """Press a key once the page takes it, and wait until it shows something else."""
    page.wait_for_timeout(300)
    before = shown(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.body.dataset.shown !== before || document.getElementById('task').hidden",
        arg=before, timeout=PATIENCE,
    )  # fmt: skip


def test_killed_twenty_times_no_word_is_lost_or_doubled(chromium: Browser, tmp_path: Path) -> None:
    """Sixty answers in three rounds, by keyboard, while the server dies at random instants and comes again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process, url = started(tmp_path, port)
    chance, over, kills = random.Random(20), threading.Event(), 0
    said: dict[str, float | None] = {}

    def strike() -> None:
        nonlocal process, kills
        while kills < KILLS:
            time.sleep(chance.uniform(0.05, 1.5))
            process.kill()
            process.communicate()
            kills += 1
            process = started(tmp_path, port)[0]
        over.set()

    with visit(chromium, url) as seen:
        begin(seen.page)
        killer = threading.Thread(target=strike)
        killer.start()
        try:
            while not seen.page.locator("#task").is_hidden() or len(said) < ANSWERS:
                expect(seen.page.locator("#task")).to_be_visible(timeout=PATIENCE)
                if len(said) == ANSWERS - 1:
                    over.wait()
                key = chance.choice("su?n")
                said[shown(seen.page)] = KEYS[key]
                press(seen.page, key)
                seen.page.wait_for_timeout(chance.choice([0, 0, 400]))
            expect(seen.page.locator("#news")).to_contain_text("CERTIFIED: stop labelling", timeout=PATIENCE)
        finally:
            killer.join()
            process.kill()
            process.communicate()
        assert seen.foreign(urlsplit(url).netloc) == []
        assert seen.dialogs == []
    labels = read_labels(tmp_path / "labels.jsonl")
    assert kills == KILLS
    assert {label.shown: label.loss for label in labels} == said
    assert set(Counter(label.answer for label in labels).values()) == {1}
    assert len(labels) == ANSWERS


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [*WIDTHS.values(), 320])
def test_the_page(chromium: Browser, tmp_path: Path, width: int, scheme: Scheme) -> None:
    with page_of(tmp_path) as url, visit(chromium, url, width=width, scheme=scheme) as seen:
        page = seen.page
        expect(page.locator("#who")).to_be_visible(timeout=PATIENCE)
        assert seen.axe()["violations"] == []
        begin(page)
        page.locator("#find").fill("the")
        assert seen.axe()["violations"] == []
        assert seen.overflow() == 0
        assert all(button.bounding_box()["height"] >= 44 for button in page.locator("button:visible").all())  # type: ignore[index]
        assert all(button.bounding_box()["width"] >= 44 for button in page.locator("button:visible").all())  # type: ignore[index]
        page.screenshot(path=tmp_path.parent / f"label-{width}-{scheme}.png")
        assert seen.console == []
        assert seen.foreign(urlsplit(url).netloc) == []


def test_what_is_shown_is_text_and_blind(chromium: Browser, tmp_path: Path) -> None:
    with page_of(tmp_path) as url, visit(chromium, url) as seen:
        begin(seen.page)
        response = seen.page.locator("#response").text_content() or ""
        name = response.removeprefix("<b>").removesuffix("</b> is known.")
        assert response == text(name).response
        assert seen.page.locator("#evidence").text_content() == text(name).evidence
        assert shown(seen.page) == text(name).digest
        assert seen.page.locator("#task b").count() == 0
        said = seen.page.locator("body").inner_text()
        assert "60" not in said
        assert "20" not in said.replace(name, "")
        assert "Unsure counts as unsupported." in said


def test_the_evidence_is_searched(chromium: Browser, tmp_path: Path) -> None:
    with page_of(tmp_path) as url, visit(chromium, url) as seen:
        page = seen.page
        begin(page)
        page.keyboard.press("/")
        page.keyboard.type("IS")
        expect(page.locator("#matches")).to_have_text("1 of 2")
        assert page.locator("mark").all_text_contents() == ["is", "is"]
        page.keyboard.press("Enter")
        expect(page.locator("#matches")).to_have_text("2 of 2")
        page.keyboard.press("Shift+Enter")
        expect(page.locator("#matches")).to_have_text("1 of 2")
        page.locator("#up").click()
        expect(page.locator("#matches")).to_have_text("2 of 2")
        page.locator("#find").fill("known of")  # over the end of a line
        expect(page.locator("#matches")).to_have_text("1 of 1")
        page.locator("#find").fill("(.*")
        expect(page.locator("#matches")).to_have_text("none")
        page.locator("#find").fill("")
        expect(page.locator("#matches")).to_have_text("")
        page.locator("#find").press("s")  # typed, not a word
        assert read_labels(tmp_path / "labels.jsonl") == []
        page.keyboard.press("Escape")
        press(page, "s")
        assert [each.loss for each in read_labels(tmp_path / "labels.jsonl")] == [0.0]


@pytest.mark.parametrize("width", WIDTHS.values())
def test_a_match_far_down_is_in_sight(chromium: Browser, tmp_path: Path, width: int) -> None:
    """Between the search, which stays, and the buttons."""
    with page_of(tmp_path) as url, visit(chromium, url, width=width) as seen:
        begin(seen.page)
        seen.page.locator("#find").fill("there it ends")
        expect(seen.page.locator("#matches")).to_have_text("1 of 1")
        places = [seen.page.locator(each).bounding_box() for each in ("#search", "mark", "#words")]
        top, mark, bottom = [(each["y"], each["y"] + each["height"]) for each in places if each is not None]
        assert 0 <= top[0] < top[1] <= mark[0] < mark[1] <= bottom[0] < bottom[1] <= 900


def test_back_and_a_change_of_mind(chromium: Browser, tmp_path: Path) -> None:
    with page_of(tmp_path) as url, visit(chromium, url, width=WIDTHS["phone"]) as seen:
        page = seen.page
        begin(page)
        first = shown(page)
        press(page, "s")
        second = shown(page)
        page.locator("#back").click()
        page.wait_for_function("one => document.body.dataset.shown === one", arg=first)
        expect(page.locator("#news")).to_have_text("You said: supported.")
        expect(page.locator("[data-word=supported]")).to_have_attribute("aria-pressed", "true")
        page.wait_for_timeout(300)
        page.locator("[data-word=unsupported]").click()
        page.wait_for_function("two => document.body.dataset.shown === two", arg=second)
        labels = read_labels(tmp_path / "labels.jsonl")
        assert [(each.shown, each.loss) for each in labels] == [(first, 0.0), (first, 1.0)]
        page.reload()
        page.wait_for_function("two => document.body.dataset.shown === two", arg=second)  # the name is kept


def test_a_key_that_is_held_or_pressed_too_soon_counts_once(chromium: Browser, tmp_path: Path) -> None:
    with page_of(tmp_path) as url, visit(chromium, url) as seen:
        page = seen.page
        begin(page)
        page.wait_for_timeout(300)
        first = shown(page)
        for _ in range(8):  # down again and again without up: as a held key repeats
            page.keyboard.down("s")
        page.wait_for_function("one => document.body.dataset.shown !== one", arg=first)
        page.keyboard.down("s")
        page.wait_for_timeout(600)
        assert len(read_labels(tmp_path / "labels.jsonl")) == 1


def test_two_windows_of_one_person(chromium: Browser, tmp_path: Path) -> None:
    """The later window's word on what was labelled meanwhile is turned away, and it says so."""
    with page_of(tmp_path) as url, visit(chromium, url) as one, visit(chromium, url) as other:
        begin(one.page)
        begin(other.page)
        assert shown(one.page) == shown(other.page)
        press(one.page, "s")
        press(other.page, "u")
        expect(other.page.locator("#news")).to_contain_text("Not saved")
        assert [each.loss for each in read_labels(tmp_path / "labels.jsonl")] == [0.0]


def test_two_people_do_not_meet(chromium: Browser, tmp_path: Path) -> None:
    with page_of(tmp_path) as url, visit(chromium, url) as one, visit(chromium, url) as other:
        begin(one.page, "ada")
        begin(other.page, "ben")
        press(one.page, "s")
        press(other.page, "u")
        labels = read_labels(tmp_path / "labels.jsonl")
        assert [each.by for each in labels] == ["ada", "ben"]
        assert len({each.answer for each in labels}) == 2


def test_a_word_that_was_not_sent_is_sent_by_the_page_that_is_loaded_again(chromium: Browser, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process, url = started(tmp_path, port)
    with visit(chromium, url) as seen:
        page = seen.page
        begin(page)
        page.wait_for_timeout(300)
        first = shown(page)
        process.kill()
        process.communicate()
        page.keyboard.press("u")
        expect(page.locator("#news")).to_contain_text("Not saved yet", timeout=PATIENCE)
        assert read_labels(tmp_path / "labels.jsonl") == []
        process, again = started(tmp_path, port)
        assert again == url
        page.reload()
        page.wait_for_function("one => (document.body.dataset.shown || one) !== one", arg=first, timeout=PATIENCE)
        assert [(each.shown, each.loss) for each in read_labels(tmp_path / "labels.jsonl")] == [(first, 1.0)]
    process.kill()
    process.communicate()
