"""The check on a card and the verifier page in a real browser: `make test-browser`.

Mutants killed: a script that the policy forbids, a request to anywhere, a changed run that passes, text of a run that
becomes markup, a result that is not announced, a page that needs its script to be read.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fedsrc.report.carried import LINK, carry
from fedsrc.report.html import page, verifier_page
from fedsrc.report.view import view_run
from tests.browser.browse import WIDTHS, Scheme, Visit, visit
from tests.browser.test_card import PATIENCE
from tests.support.recordings import LIVES, RUNS

RESULT = "#recompute-result"


def written(folder: Path, name: str) -> Path:
    """The card of a recorded run."""
    view = view_run(RUNS / name)
    place = folder / f"{name}.html"
    place.write_text(page(view, carried=carry(view)), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("cards")
    return {
        name: written(folder, name)
        for name in ("certify-private", "certify-open", "revoked", "hundred-rounds", "groups")
    }


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("verifier") / "verifier.html"
    place.write_text(verifier_page(), encoding="utf-8")
    return place.as_uri()


def changed(card: Path, target: Path, name: str, old: bytes, new: bytes) -> Path:
    """A card whose run was changed after it was signed."""
    text = card.read_text(encoding="utf-8")
    (link,) = re.findall(f'href="{LINK}([^"]*)"', text)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(link))) as archive, zipfile.ZipFile(packed, "w") as other:
        for each in archive.namelist():
            data = archive.read(each)
            assert each != name or old in data
            other.writestr(each, data.replace(old, new, 1) if each == name else data)
    target.write_text(text.replace(link, base64.b64encode(packed.getvalue()).decode()), encoding="utf-8")
    return target


def recomputed(seen: Visit) -> str:
    """What the card says of itself."""
    seen.page.locator("#recompute-now").click()
    verdict = seen.page.locator(f"{RESULT} strong").first
    expect(verdict).to_be_visible(timeout=PATIENCE)
    return verdict.text_content() or ""


def given(seen: Visit, file: Path) -> str:
    """What the verifier page says of a file."""
    seen.page.locator("#chosen").set_input_files(file)
    expect(seen.page.locator(RESULT)).to_contain_text(f"Checked: {file.name}", timeout=PATIENCE)
    return seen.page.locator(f"{RESULT} strong").first.text_content() or ""


@pytest.mark.parametrize("name", ["certify-private", "certify-open", "hundred-rounds"])
def test_a_card_recomputes_its_run(chromium: Browser, cards: dict[str, Path], name: str) -> None:
    """From a file, under its policy, with no request to anywhere."""
    with visit(chromium, cards[name].as_uri()) as seen:
        assert recomputed(seen) == "VERIFIED"
        lines = seen.page.locator(f"{RESULT} li").all_text_contents()
        parts = [line.removeprefix("checked").split(":")[0] for line in lines]
        assert parts == ["files", "signature", "hash chain", "protocol", "bounds", "certificate"]
        assert "compare it with the key you were given" in lines[1]
        assert "The page's own words are not checked" in (seen.page.locator(RESULT).text_content() or "")
        assert (seen.console, seen.dialogs, seen.foreign()) == ([], [], [])
        assert seen.page.locator("#recompute-progress").is_hidden()
        assert seen.axe()["violations"] == []


@pytest.mark.parametrize(
    ("name", "verdict"), [("unopened", "VERIFIED"), ("rung", "CANNOT CHECK"), ("succeeded", "DOES NOT VERIFY")]
)
def test_a_card_of_yesterday_recomputes_its_run(chromium: Browser, verifier: str, name: str, verdict: str) -> None:
    """By the script that it was written with, and by today's."""
    card = LIVES / name / "card.html"
    with visit(chromium, card.as_uri()) as seen:
        assert recomputed(seen) == verdict
        assert (seen.console, seen.dialogs, seen.foreign()) == ([], [], [])
    with visit(chromium, verifier) as seen:
        assert given(seen, card) == verdict


def test_a_revoked_one_says_so_beside_the_verdict(chromium: Browser, cards: dict[str, Path]) -> None:
    with visit(chromium, cards["revoked"].as_uri()) as seen:
        assert recomputed(seen) == "VERIFIED"
        assert "REVOKED" in seen.page.locator(f"{RESULT} strong").all_text_contents()


def test_what_is_out_of_reach_does_not_pass(chromium: Browser, cards: dict[str, Path]) -> None:
    with visit(chromium, cards["groups"].as_uri()) as seen:
        assert recomputed(seen) == "CANNOT CHECK"
        assert "a panel of groups" in (seen.page.locator(RESULT).text_content() or "")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("certificate.json", b'"CERTIFIED"', b'"ABSTAIN"'),
        ("transcript.jsonl", b'"slots":', b'"slots":1'),
        ("registration.json", b'"batch":', b'"batch":1'),
    ],
)
def test_a_changed_run_does_not_pass(
    chromium: Browser, cards: dict[str, Path], tmp_path: Path, name: str, old: bytes, new: bytes
) -> None:
    place = changed(cards["certify-private"], tmp_path / "card.html", name, old, new)
    with visit(chromium, place.as_uri()) as seen:
        assert recomputed(seen) in ("DOES NOT VERIFY", "CANNOT CHECK")
        assert seen.console == []


def test_a_trusted_key_decides(chromium: Browser, cards: dict[str, Path]) -> None:
    with visit(chromium, cards["certify-open"].as_uri()) as seen:
        seen.page.locator("#trusted").fill("ab" * 32)
        assert recomputed(seen) == "DOES NOT VERIFY"
        (key,) = re.findall("signed by ([0-9a-f]{64})", seen.page.locator(RESULT).text_content() or "")[:1]
        seen.page.locator("#trusted").fill(key)
        seen.page.locator("#recompute-now").click()
        expect(seen.page.locator(RESULT)).to_contain_text("signed by the key that you trust", timeout=PATIENCE)


def test_without_scripts_a_card_reads_as_before(chromium: Browser, cards: dict[str, Path]) -> None:
    with visit(chromium, cards["certify-open"].as_uri(), script=False) as seen:
        assert seen.page.locator("#recompute").is_hidden()
        assert seen.page.locator("#save").is_visible()
        assert seen.console == []


def test_the_verifier_page_takes_cards_and_archives(
    chromium: Browser, cards: dict[str, Path], verifier: str, tmp_path: Path
) -> None:
    (link,) = re.findall(f'href="{LINK}([^"]*)"', cards["certify-private"].read_text(encoding="utf-8"))
    saved, other = tmp_path / "run.zip", tmp_path / "other.html"
    saved.write_bytes(base64.b64decode(link))
    other.write_text("<img src=x onerror=alert(1)>", encoding="utf-8")
    with visit(chromium, verifier) as seen:
        assert given(seen, cards["certify-open"]) == "VERIFIED"
        assert given(seen, saved) == "VERIFIED"
        forged = changed(
            cards["certify-private"], tmp_path / "forged.html", "certificate.json", b'"records": ', b'"records": 1'
        )
        assert given(seen, forged) == "DOES NOT VERIFY"
        assert given(seen, other) == "DOES NOT VERIFY"
        assert (seen.console, seen.dialogs, seen.foreign()) == ([], [], [])


def test_a_dropped_card_is_checked(chromium: Browser, cards: dict[str, Path], verifier: str) -> None:
    text = cards["certify-open"].read_text(encoding="utf-8")
    with visit(chromium, verifier) as seen:
        seen.page.evaluate(
            "(text) => { const all = new DataTransfer(); all.items.add(new File([text], 'dropped.html'));"
            " document.dispatchEvent(new DragEvent('drop', { dataTransfer: all, cancelable: true })); }",
            text,
        )
        expect(seen.page.locator(RESULT)).to_contain_text("Checked: dropped.html", timeout=PATIENCE)
        assert seen.page.locator(f"{RESULT} strong").first.text_content() == "VERIFIED"


def test_names_of_files_stay_text(chromium: Browser, verifier: str, tmp_path: Path) -> None:
    place = tmp_path / "<img src=x onerror=alert(1)>.html"
    place.write_text("x", encoding="utf-8")
    with visit(chromium, verifier) as seen:
        assert given(seen, place) == "DOES NOT VERIFY"
        assert seen.page.locator(f"{RESULT} img").count() == 0
        assert (seen.console, seen.dialogs) == ([], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [*WIDTHS.values(), 320])
def test_both_pages_fit_and_can_be_used(
    chromium: Browser, cards: dict[str, Path], verifier: str, width: int, scheme: Scheme
) -> None:
    with visit(chromium, verifier, width=width, scheme=scheme) as seen:
        assert seen.tab_stops() == ["chosen", "trusted"]
        given(seen, cards["certify-private"])
        assert (seen.overflow(), seen.axe()["violations"]) == (0, [])
    with visit(chromium, cards["certify-private"].as_uri(), width=width, scheme=scheme) as seen:
        recomputed(seen)
        assert (seen.overflow(), seen.axe()["violations"]) == (0, [])
