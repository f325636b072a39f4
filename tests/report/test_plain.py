"""The card's plain words: whose certificate it is, whether it stands, how sure it is, and where each answer stands.

Mutants killed: a status left out or in the wrong order, a claim not struck out, a threshold shown on the wrong scale, a
probability rounded down, a label that overlaps another, a bound drawn where there is none.
"""

from __future__ import annotations

import copy
import math
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.words import risk_words, rounded_up
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import beside
from fedsrc.report import charts, phrases
from fedsrc.report.card import view_text
from fedsrc.report.html import page
from fedsrc.report.markdown import card_markdown
from fedsrc.report.parts import identity, parts, statistics
from fedsrc.report.standing import stands, statuses
from fedsrc.report.view import View, Watched, build_view, view_run
from fedsrc.server.follow import Follower
from tests.support.gate_certificates import copied_run, notice_of, original

ANSWERS = {
    "system", "score", "loss", "population", "issuer", "contact", "calibrated", "valid-until", "number", "signed-by",
    "trust", "status", "claim", "thresholds", "how-sure", "data", "stopped", "unused", "tries", "strongest", "use",
    "if-wrong", "privacy", "assumptions", "limits", "also", "sites", "check", "checked", "registration", "transcript",
    "verify", "statistics",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return copied_run(tmp_path)


def claimed(view: View, **fields: Any) -> View:
    """The view with other fields in its claim."""
    found = copy.deepcopy(view)
    claim = type(found["certificate"].claim).model_validate({**found["certificate"].claim.model_dump(), **fields})
    found["certificate"] = found["certificate"].model_copy(update={"claim": claim})
    return found


def answer(view: View, name: str) -> str:
    """What the card says under an id, as the terminal shows it."""
    facts = (*identity(view), *(fact for part in (*parts(view), statistics(view)) for fact in part.facts))
    fact = next(each for each in facts if each.id == name)
    return f"{fact.words}{fact.said}{fact.then} {fact.command}".strip()


def test_every_answer_has_a_place(run: Path) -> None:
    ids = re.findall(r' id="([^"]+)"', page(view_run(run)))
    assert set(ids) >= ANSWERS
    assert len(set(ids)) == len(ids)


def test_what_is_not_stated_is_said(run: Path) -> None:
    view = view_run(run)
    for name in ("system", "issuer", "contact"):
        assert answer(view, name).startswith("not stated")
        assert answer(claimed(view, **{name: "Example"}), name) == "Example"
    assert "No contact is stated." in answer(view, "if-wrong")
    assert answer(claimed(view, contact="a@example.org"), "if-wrong").endswith("Tell the issuer:a@example.org")


@pytest.mark.parametrize(
    ("worst", "best", "words"),
    [(0.0, 1.0, "at least {:.6g}"), (0.0, 100.0, "at least {:.6g}"), (1.0, 0.0, "at most {:.6g}")],
)
def test_thresholds_are_said_on_the_scores_own_scale(run: Path, worst: float, best: float, words: str) -> None:
    view = claimed(view_run(run), score="grounding", column="g", scale={"worst": worst, "best": best})
    threshold = view["certificate"].threshold
    value = words.format(worst + threshold * (best - worst))
    for name in ("score", "use"):
        assert value in answer(view, name)
    assert answer(view, "score").startswith(f"grounding; {worst:g} (worst) to {best:g} (best); accepted: ")
    assert (f'"score >= {threshold!r}"' in answer(view, "score")) is ((worst, best) != (0, 1))
    assert answer(view, "column") == "g"
    assert f">chosen: {worst + threshold * (best - worst):.4g}<" in charts.threshold_chart(view)


@pytest.mark.parametrize(
    ("bound", "words"), [(0.2, "0.2"), (0.07, "0.07"), (0.20001, "0.201"), (0.1999, "0.2"), (3e-7, "3e-07"), (0, "0")]
)
def test_an_upper_bound_is_never_rounded_down(bound: float, words: str) -> None:
    """Mutant killed: a bound of 0.2004 shown as at most 0.2, beside a target of 0.2."""
    assert rounded_up(bound) == words
    assert risk_words(bound) == phrases.risk_share(bound) == f"risk at most {words}"


def test_after_an_alarm_the_chart_says_nothing_keeps_the_target(run: Path) -> None:
    view = view_run(run)
    assert "keep the target" in charts.threshold_chart(view)
    rung = view_run(run, monitor=Watched("alarm", "ALARM after 200 fresh records"))
    assert "keep the target" not in charts.threshold_chart(rung)
    assert "What was known at the last calibration" in page(rung)


def test_several_at_once_are_all_said_the_worst_first(run: Path) -> None:
    beside(run / CERTIFICATE).write_bytes(notice_of(original(), "labels were wrong"))
    follower = Follower(run)
    follower.update()
    late, alarm = datetime.now(UTC) + timedelta(days=40_000), Watched("alarm", "ALARM after 200 fresh records")
    view = build_view(follower, monitor=alarm, now=late)
    assert [each.word for each in statuses(view)] == ["REVOKED", "ALARM", "EXPIRED"]
    assert (view["status"], stands(view)) == ("REVOKED", False)
    assert view["struck"] == view["certificate"].statement
    for text in (page(view), view_text(view), card_markdown(view)):
        places = [text.index(word) for word in (">REVOKED<", ">ALARM<", ">EXPIRED<")] if "<html" in text else [
            text.index(word) for word in ("REVOKED", "ALARM", "EXPIRED")
        ]  # fmt: skip
        assert places == sorted(places)
        assert "CERTIFIED" not in text
        assert "o longer stands" in text
    assert answer(view, "use").startswith("Not any more")
    assert "accepted" not in answer(view, "score")
    assert answer(view, "strongest") == "None at present."


def test_an_alarm_alone_takes_the_claim_back(run: Path) -> None:
    for state, word in (("alarm", "ALARM"), ("still supported", "CERTIFIED"), ("certified", "CERTIFIED")):
        view = view_run(run, monitor=Watched(state, "so it is"))  # type: ignore[arg-type]
        assert view["status"] == word
        assert bool(view["struck"]) is (word == "ALARM")
        assert ("<s>" in page(view)) is (word == "ALARM")
        assert state in answer(view, "if-wrong")


@pytest.mark.parametrize(
    ("probability", "words"),
    [(0.05, "5 of 100"), (0.1, "10 of 100"), (0.025, "25 of 1,000"), (0.001, "1 of 1,000"), (1e-7, "1 of 1,000,000"),
     (1 / 3, "333,334 of 1,000,000"), (0.00015, "15 of 100,000")],
)  # fmt: skip
def test_a_probability_is_never_rounded_down(probability: float, words: str) -> None:
    assert phrases.odds_words(probability) == words
    number, many = words.replace(",", "").split(" of ")
    assert int(number) / int(many) >= probability * (1 - 1e-9)


def test_why_it_stopped_and_what_is_left(run: Path) -> None:
    view = view_run(run)
    for ended, policy, words in (
        ("certified", "enough", "gained little"), ("certified", "first", "registered rule"), (None, "first", "goes on"),
        ("rounds used", "final", "rounds were over"), ("units used", "first", "too few records left"),
    ):  # fmt: skip
        assert words in phrases.stopped_words(
            {**view, "progress": {**view["progress"], "ended": ended, "policy": policy}}
        )
    asked = sum(site["asked"] for site in view["sites"])
    left = {**view, "progress": {**view["progress"], "left": 7, "not_there": 0}}
    assert phrases.unused_words(left) == f"7 records of {asked + 7:,}; they are not spent."
    none = {**view, "progress": {**view["progress"], "left": 0, "not_there": 0}}
    assert phrases.unused_words(none).startswith("None: all")


def test_a_later_try_says_so(run: Path) -> None:
    found = view_run(run)["certificate"]
    again = found.model_copy(update={"tries": 3, "failure_probability_of_all_tries": 0.15})
    assert "first" in phrases.tries_words(found)
    assert "Registration 3" in phrases.tries_words(again)
    assert "at least one is false in at most 15 of 100" in phrases.sure_words(again)


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Where a chart's labels stand, by a wide guess of their letters."""
    found = []
    for text in ET.fromstring(svg).iter("text"):
        x, y, wide = float(text.attrib["x"]), float(text.attrib["y"]), charts.LETTER * len(text.text or "")
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[text.attrib["text-anchor"]]
        found.append((left, y - 9, left + wide, y + 2))
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.001, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("scale", [(0.0, 1.0), (0.0, 100.0), (1.0, 0.0), (-1000.0, 123456.0), (0.0, 1e-5)])
@pytest.mark.parametrize("target", [0.001, 0.2, 0.9])
def test_labels_of_a_chart_do_not_collide(
    run: Path, threshold: float, scale: tuple[float, float], target: float
) -> None:
    """Nor leave the picture, wherever the thresholds are, whatever the scale and the target."""
    view = claimed(view_run_once(run), scale={"worst": scale[0], "best": scale[1]})
    found = view["certificate"]
    others = {round(0.9 * threshold + 0.05 * k, 6) for k in range(3)} - {threshold}
    rows = [found.thresholds[0].model_copy(update={"threshold": each}) for each in sorted({threshold, *others})]
    fields = {"thresholds": tuple(rows), "threshold": threshold, "target_risk": target}
    view["certificate"] = found.model_copy(update=fields)
    for chart in (charts.threshold_chart(view), charts.round_chart(view)):
        placed = boxes(chart)
        for k, (left, top, right, bottom) in enumerate(placed):
            assert left >= -1
            assert right <= charts.WIDTH + 1
            for a, b, c, d in placed[:k]:
                assert left >= c or a >= right or top >= d or b >= bottom


_views: dict[str, View] = {}


def view_run_once(run: Path) -> View:
    return _views.setdefault("view", view_run(run))


def test_a_chart_draws_only_what_is_shown(run: Path) -> None:
    """One mark for each threshold, a triangle where there is no bound, and nothing between them."""
    view = copy.deepcopy(view_run(run))
    found = view["certificate"]
    rows = [row.model_copy(update={"risk_upper": 1.0}) if k % 2 else row for k, row in enumerate(found.thresholds)]
    view["certificate"] = found.model_copy(update={"thresholds": tuple(rows)})
    root = ET.fromstring(charts.threshold_chart(view))
    marks = [each for each in root if each.get("fill") in ("var(--accent)", "var(--paper)") and each.tag != "text"]
    triangles = [each for each in marks if each.tag == "path"]
    above = sum(row.risk_upper > 2.5 * found.target_risk for row in rows)
    assert len(marks) == 2 * len(rows)
    assert len(triangles) == above >= len(rows) // 2
    assert not list(root.iter("polyline"))
    assert "no bound" in charts.threshold_chart(view)


def test_a_run_of_many_thresholds_keeps_the_chosen_one(run: Path) -> None:
    view = copy.deepcopy(view_run(run))
    row = next(each for each in view["certificate"].thresholds if each.certified)
    rows = tuple(row.model_copy(update={"threshold": k / 5_000}) for k in range(5_001))
    chosen = {"thresholds": rows, "threshold": 1_234 / 5_000}
    view["certificate"] = view["certificate"].model_copy(update=chosen)
    chart = charts.threshold_chart(view)
    assert chart.count('r="7"') == 2
    assert len(chart) < 100_000
    assert math.isclose(float(re.findall(r">chosen: ([\d.]+)<", chart)[0]), 1_234 / 5_000, rel_tol=1e-3)
